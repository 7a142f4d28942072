"""Backends that are the root of their own split (R18, D1)."""

from headgate.resources.mesh.canary.types import Canary
from headgate.resources.meta import service_name
from headgate.resources.smi.split_fields import ALLOW_SELF_REFERENCE
from headgate.resources.smi.traffic_split import TrafficSplit


def self_reference(split: TrafficSplit | Canary, namespace: str, domain: str) -> int | None:
    """Return the index of the backend that is the split's own root (R18); None if there is none or it is allowed (D1)."""
    if _is_allowed(split):
        return None
    root = service_name(split.spec.service, namespace, domain)
    names = [service_name(backend.service, namespace, domain) for backend in split.spec.backends]
    return names.index(root) if root and root in names else None


def self_reference_message(split: TrafficSplit | Canary) -> str:
    """Return the message about a split whose root is one of its backends."""
    how = "set spec.allowSelfReference" if isinstance(split, Canary) else f"set the annotation {ALLOW_SELF_REFERENCE}"
    return (
        f"{split.spec.service} is both the root and a backend, so its share has no defined target. "
        f"Name a Service that selects one version only, or {how} to true"
    )


def _is_allowed(split: TrafficSplit | Canary) -> bool:
    if isinstance(split, Canary):
        return split.spec.allow_self_reference
    return split.metadata.annotations.get(ALLOW_SELF_REFERENCE) == "true"
