"""Compile in whose name sidecars send spans, and how many traces they begin: the annotation of a pod, or of its Namespace."""

from headgate.compiler.snapshot import Snapshot
from headgate.model.traces import TraceSource, Tracing
from headgate.option import parse_sampling
from headgate.resources.core.namespace import Namespace
from headgate.resources.core.pod import MeshPod
from headgate.resources.meta import Key, Metadata
from headgate.resources.trace_sampling import TRACE_SAMPLING
from headgate.settings import Settings

SERVICE_NAME = "resource.opentelemetry.io/service.name"
"""Annotation of a pod: its `service.name`, as OpenTelemetry's operator reads it."""
NAME_LABEL = "app.kubernetes.io/name"
_HASH_LABEL = "pod-template-hash"


def tracing(settings: Settings) -> Tracing | None:
    """Return the mesh's trace settings; None without a collector."""
    return Tracing(collector=settings.otlp_traces, sampling=settings.trace_sampling) if settings.otlp_traces else None


def trace_source(snapshot: Snapshot, name: str, pod: MeshPod, settings: Settings) -> TraceSource | None:
    """Return the trace source of the pod `name` (`namespace/pod`); None without a collector."""
    if not settings.otlp_traces:
        return None
    own = _sampling(pod.metadata)
    if own is None:
        own = namespace_sampling(snapshot, name.partition("/")[0])
    return TraceSource(service=_service_name(pod), sampling=settings.trace_sampling if own is None else own)


def namespace_sampling(snapshot: Snapshot, namespace: str) -> int | None:
    """Return the sampling share in the annotation of a Namespace; None if it has no valid one."""
    stored = snapshot.objects.get(Key("", "Namespace", "", namespace))
    return _sampling(stored.metadata) if isinstance(stored, Namespace) else None


def _sampling(metadata: Metadata) -> int | None:
    """Return the share in an annotation; an invalid one is a mistake of the object, and has no effect."""
    text = metadata.annotations.get(TRACE_SAMPLING)
    try:
        return None if text is None else parse_sampling(text)
    except ValueError:
        return None


def _service_name(pod: MeshPod) -> str:
    """Return the `service.name` of a pod by the rules of OpenTelemetry: annotation, label, workload, pod."""
    metadata = pod.metadata
    written = metadata.annotations.get(SERVICE_NAME) or metadata.labels.get(NAME_LABEL)
    owner = metadata.owner_references[0].name if metadata.owner_references else metadata.name
    return written or owner.removesuffix(f"-{metadata.labels.get(_HASH_LABEL, '')}") or metadata.name
