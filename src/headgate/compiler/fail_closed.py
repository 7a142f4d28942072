"""Keep the restrictive part of an invalid TrafficTarget, TLSConfig or Pod, so that a mistake permits no traffic.

A TrafficTarget with a readable destination keeps its pods closed and allows nothing. A TLSConfig with a readable
selector keeps its pods strict and adds no subject names. Without a readable destination or selector, the object is
ignored. A pod keeps its sidecar but loses its excluded ports, because callers would send plaintext to a pod without a
sidecar.
"""

import msgspec

from headgate.errors import DecodeError
from headgate.resources.core.pod import MeshPod
from headgate.resources.core.pod_metadata import APPLICATION_PORTS, SIDECAR
from headgate.resources.decode import read
from headgate.resources.mesh.tls_config import PodSelector, TLSConfig, TLSConfigSpec
from headgate.resources.meta import Metadata, Object, Resource, part
from headgate.resources.registry import find_written
from headgate.resources.smi.traffic_target import Destination, TrafficTarget, TrafficTargetSpec

ACCOUNT = "ServiceAccount"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
KEPT = (SIDECAR, APPLICATION_PORTS)  # annotations that headgate writes


def restrictive_part(obj: Object) -> Resource | None:
    """Return the restrictive part of an object that can't be decoded; None for all other kinds."""
    kind = find_written(str(obj.get("apiVersion")), str(obj.get("kind")))
    namespace = part(obj, "metadata").get("namespace") or "default"
    metadata = Metadata(namespace=str(namespace), name=str(part(obj, "metadata").get("name")))
    if kind is None or kind.shape not in {TrafficTarget, TLSConfig, MeshPod}:
        return None
    if kind.shape is MeshPod:
        return _pod(obj)
    return _target(obj, metadata) if kind.shape is TrafficTarget else _config(obj, metadata)


def _target(obj: Object, metadata: Metadata) -> TrafficTarget | None:
    destination = part(obj.get("spec"), "destination") or part(obj, "destination")  # v1alpha1 has no spec
    name, namespace = destination.get("name"), destination.get("namespace") or metadata.namespace
    if not isinstance(name, str) or not name or namespace != metadata.namespace:
        return None
    spec = TrafficTargetSpec(destination=Destination(kind=ACCOUNT, name=name))
    return TrafficTarget(metadata=metadata, spec=spec)


def _config(obj: Object, metadata: Metadata) -> TLSConfig | None:
    selector = part(obj.get("spec"), "selector")
    if not selector or not selector.keys() <= {"matchLabels", "matchExpressions"}:
        return None
    try:
        readable = msgspec.convert(selector, PodSelector)
    except msgspec.ValidationError:
        return None
    if any(requirement.operator not in _OPERATORS for requirement in readable.match_expressions):
        return None
    return TLSConfig(metadata=metadata, spec=TLSConfigSpec(selector=readable))


def _pod(obj: Object) -> MeshPod | None:
    metadata = part(obj, "metadata")
    written = part(metadata, "annotations")
    kept = {name: text for name in KEPT if isinstance(text := written.get(name), str)}
    try:
        return read({**obj, "metadata": {**metadata, "annotations": kept}}, MeshPod)
    except DecodeError:
        return None
