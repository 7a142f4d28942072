"""The labels and annotations with the prefix `headgate.dev/`, and the search for misspelled and misplaced ones."""

import difflib
from collections.abc import Collection, Iterator, Mapping

from headgate.errors import Cause
from headgate.resources.canaries import CANARY_WEIGHTS, ROLLOUT_COMMAND
from headgate.resources.gateway import PARAMETERS, PROXY_OF, PROXY_OF_SERVICE, SERVICE_GATEWAY
from headgate.resources.meta import Metadata
from headgate.resources.pods import (
    ADDED,
    APPLICATION_PORTS,
    CONFLICTS,
    EXCLUDED_PORTS,
    INJECT,
    PROBES,
    PROCESS,
    PROCESS_ID,
    PROXY_RESOURCES,
    SIDECAR,
)
from headgate.resources.resilience import ANNOTATIONS as RESILIENCE
from headgate.resources.smi import ALLOW_SELF_REFERENCE, MIRROR, MODE, NO_ENDPOINTS, STICKY
from headgate.resources.trace_sampling import TRACE_SAMPLING

PREFIX = "headgate.dev/"
FILES_MANAGER = "headgate-files"
"""The field manager of the files that headgate applies."""
APPLIED_POSITION = "headgate.dev/applied-position"
"""Annotation of an object that headgate applied from a file: `FILE:LINE` of its manifest then."""
LABELS = frozenset(
    {INJECT, PARAMETERS, "headgate.dev/active"}
)  # headgate.dev/active marks the active replica of the control plane
"""The labels that headgate reads or writes."""
ANNOTATIONS = frozenset(
    {
        ADDED,
        ALLOW_SELF_REFERENCE,
        APPLICATION_PORTS,
        CANARY_WEIGHTS,
        CONFLICTS,
        EXCLUDED_PORTS,
        INJECT,
        MIRROR,
        MODE,
        NO_ENDPOINTS,
        PROBES,
        PROCESS,
        PROCESS_ID,
        PROXY_OF,
        PROXY_OF_SERVICE,
        ROLLOUT_COMMAND,
        SIDECAR,
        STICKY,
        TRACE_SAMPLING,
        *PROXY_RESOURCES.values(),
        *RESILIENCE,
        "headgate.dev/applied-digest",  # `manifests.apply` writes this annotation and the next two.
        "headgate.dev/applied-from",
        APPLIED_POSITION,
        "headgate.dev/rotate-ca",  # `headgate ca rotate` writes this annotation.
    }
)
"""The annotations that headgate reads or writes."""
_SPLITS = ("TrafficSplit", "Canary")
_PLACES: Mapping[str, tuple[str, ...]] = {
    ALLOW_SELF_REFERENCE: _SPLITS,
    MIRROR: ("TrafficSplit",),
    MODE: ("TrafficTarget",),
    NO_ENDPOINTS: _SPLITS,
    SERVICE_GATEWAY: ("Service", "Canary"),
    STICKY: _SPLITS,
    **dict.fromkeys(RESILIENCE, ("Service",)),
}
"""The kinds on which an annotation has an effect. The checks of pods and workloads know the places of the remaining ones."""
_WRITTEN: Mapping[str, tuple[str, ...]] = {PROXY_OF: ("Pod",)}
"""Further kinds on which headgate itself writes an annotation."""


def useless_keys(kind: str, metadata: Metadata) -> Iterator[Cause]:
    """Yield a mistake for each label or annotation with the prefix `headgate.dev/` that has no effect on a kind."""
    yield from _unknown(metadata.labels, "label", LABELS)
    yield from _unknown(metadata.annotations, "annotation", ANNOTATIONS)
    for key in metadata.annotations:
        places = _PLACES.get(key, (kind,))
        if kind not in (*places, *_WRITTEN.get(key, ())):
            instead = f"write it on a {' or '.join(places)}"
            if (kind, key) == ("Canary", MIRROR):
                instead = "set spec.analysis.mirror"
            message = f"{key} has no effect on a {kind}; {instead}, or remove it"
            yield Cause(f"metadata.annotations.{key}", message)


def _unknown(written: Mapping[str, str], noun: str, known: Collection[str]) -> Iterator[Cause]:
    for key in written:
        if key.startswith(PREFIX) and key not in known:
            names = sorted(other.removeprefix(PREFIX) for other in known)
            nearest = difflib.get_close_matches(key.removeprefix(PREFIX), names, n=1)
            hint = f"did you mean {PREFIX}{nearest[0]}?" if nearest else "correct its name, or remove it"
            if key in ANNOTATIONS:
                hint = "write it as an annotation"
            yield Cause(f"metadata.{noun}s.{key}", f"{key} has no effect, because headgate has no such {noun}; {hint}")
