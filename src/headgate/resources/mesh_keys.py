"""The labels and annotations with the prefix `headgate.dev/`, and the search for misspelled and misplaced ones."""

import difflib
from collections.abc import Collection, Iterator, Mapping

from headgate.errors import Cause
from headgate.resources.core.pod_metadata import ANNOTATIONS_OF_PODS, INJECT, REVISION
from headgate.resources.gateway_api.proxies import PARAMETERS, PROXY_OF, PROXY_OF_SERVICE
from headgate.resources.mesh.canary.types import CANARY_WEIGHTS
from headgate.resources.meta import Metadata
from headgate.resources.registry import KINDS
from headgate.resources.trace_sampling import TRACE_SAMPLING

PREFIX = "headgate.dev/"
FILES_MANAGER = "headgate-files"
"""The field manager of the files that headgate applies."""
APPLIED_POSITION = "headgate.dev/applied-position"
"""Annotation of an object that headgate applied from a file: `FILE:LINE` of its manifest then."""
LABELS = frozenset(
    {
        INJECT,
        PARAMETERS,
        REVISION,
        "headgate.dev/active",  # A replica of the control plane writes this label and the next one on its pod.
        "headgate.dev/converts",
    }
)
"""The labels that headgate reads or writes."""
_PLACES = {
    key: tuple(kind.kind for kind in KINDS if key in kind.annotations)
    for key in frozenset().union(*(kind.annotations for kind in KINDS))
}
"""The kinds on which an annotation has an effect. The checks of pods and workloads know the places of the remaining ones."""
ANNOTATIONS = frozenset(
    {
        *ANNOTATIONS_OF_PODS,
        *_PLACES,
        APPLIED_POSITION,
        CANARY_WEIGHTS,
        PROXY_OF,
        PROXY_OF_SERVICE,
        TRACE_SAMPLING,
        "headgate.dev/applied-digest",  # `manifests.apply` writes this annotation and the next one.
        "headgate.dev/applied-from",
        "headgate.dev/written-digest",  # `kubernetes.proxy_objects` writes this annotation.
        "headgate.dev/rotate-ca",  # `headgate ca rotate` writes this annotation.
    }
)
"""The annotations that headgate reads or writes."""
_FIELDS = {kind.kind: kind.fields_of_annotations for kind in KINDS}


def useless_keys(kind: str, metadata: Metadata) -> Iterator[Cause]:
    """Yield a mistake for each label or annotation with the prefix `headgate.dev/` that has no effect on a kind."""
    yield from _unknown(metadata.labels, "label", LABELS)
    yield from _unknown(metadata.annotations, "annotation", ANNOTATIONS)
    for key in metadata.annotations:
        places = _PLACES.get(key, (kind,))
        if kind not in places:
            field = _FIELDS.get(kind, {}).get(key)
            instead = f"set {field}" if field else f"write it on a {' or '.join(places)}"
            message = f"{key} has no effect on a {kind}; {instead}, or remove it"
            yield Cause(f"metadata.annotations.{key}", message)


def _unknown(written: Mapping[str, str], noun: str, valid_keys: Collection[str]) -> Iterator[Cause]:
    for key in written:
        if key.startswith(PREFIX) and key not in valid_keys:
            names = sorted(other.removeprefix(PREFIX) for other in valid_keys)
            nearest = difflib.get_close_matches(key.removeprefix(PREFIX), names, n=1)
            hint = f"did you mean {PREFIX}{nearest[0]}?" if nearest else "correct its name, or remove it"
            if key in ANNOTATIONS:
                hint = "write it as an annotation"
            yield Cause(f"metadata.{noun}s.{key}", f"{key} has no effect, because headgate has no such {noun}; {hint}")
