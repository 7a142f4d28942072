"""The labels and annotations with the prefix `headgate.dev/`, and the search for misspelled ones."""

import difflib
from collections.abc import Collection, Iterator, Mapping

from headgate.errors import Cause
from headgate.resources.canaries import CANARY_WEIGHTS, ROLLOUT_COMMAND
from headgate.resources.gateway import PARAMETERS, PROXY_OF
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
from headgate.resources.smi import ALLOW_SELF_REFERENCE, MIRROR, MODE, NO_ENDPOINTS, STICKY

PREFIX = "headgate.dev/"
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
        ROLLOUT_COMMAND,
        SIDECAR,
        STICKY,
        *PROXY_RESOURCES.values(),
        "headgate.dev/applied-digest",  # `manifests.apply` writes this annotation and the next.
        "headgate.dev/applied-from",
        "headgate.dev/rotate-ca",  # `headgate ca rotate` writes this annotation.
    }
)
"""The annotations that headgate reads or writes."""


def unknown_keys(metadata: Metadata) -> Iterator[Cause]:
    """Yield a mistake for each unknown label or annotation with the prefix `headgate.dev/`."""
    yield from _unknown(metadata.labels, "label", LABELS)
    yield from _unknown(metadata.annotations, "annotation", ANNOTATIONS)


def _unknown(written: Mapping[str, str], noun: str, known: Collection[str]) -> Iterator[Cause]:
    for key in written:
        if key.startswith(PREFIX) and key not in known:
            names = sorted(other.removeprefix(PREFIX) for other in known)
            nearest = difflib.get_close_matches(key.removeprefix(PREFIX), names, n=1)
            hint = f"did you mean {PREFIX}{nearest[0]}?" if nearest else "correct its name, or remove it"
            if key in ANNOTATIONS:
                hint = "write it as an annotation"
            yield Cause(f"metadata.{noun}s.{key}", f"{key} has no effect, because headgate has no such {noun}; {hint}")
