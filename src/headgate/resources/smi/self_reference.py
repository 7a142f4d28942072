"""Backends that are the root of their own split (R18, D1)."""

from headgate.resources.mesh.canary.types import Canary
from headgate.resources.meta import service_name
from headgate.resources.smi.split_fields import ALLOW_SELF_REFERENCE
from headgate.resources.smi.traffic_split import TrafficSplit


def self_reference(split: TrafficSplit | Canary, namespace: str, domain: str) -> int | None:
    """Return the index of the backend that is the split's own root (R18); None if there is none or it is allowed (D1)."""
    if split.metadata.annotations.get(ALLOW_SELF_REFERENCE) == "true":
        return None
    root = service_name(split.spec.service, namespace, domain)
    names = [service_name(backend.service, namespace, domain) for backend in split.spec.backends]
    return names.index(root) if root and root in names else None
