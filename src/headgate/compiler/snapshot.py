"""The objects of one moment, with the indexes that the compiler asks for; built on first use, never changed."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from headgate.errors import Cause
from headgate.resources.core import EndpointSlice, Service
from headgate.resources.gateway import ReferenceGrant
from headgate.resources.meta import Key, Resource
from headgate.resources.smi import TrafficSplit

SERVICE_NAME_LABEL = "kubernetes.io/service-name"


def full_name(resource: Resource) -> str:
    """Return `namespace/name`."""
    return f"{resource.metadata.namespace}/{resource.metadata.name}"


class Snapshot:
    """`objects` are the typed ones, `undecodable` those whose content can't be used, with the reasons."""

    def __init__(
        self,
        revision: int = 0,
        objects: Mapping[Key, Resource] | None = None,
        undecodable: Mapping[Key, tuple[Cause, ...]] | None = None,
    ) -> None:
        self.revision = revision
        self.objects = objects or {}
        self.undecodable = undecodable or {}

    @cached_property
    def services(self) -> Mapping[str, tuple[Key, Service]]:
        """Services by `namespace/name`, sorted."""
        found = ((key, item) for key, item in self.objects.items() if isinstance(item, Service))
        return {f"{key.namespace}/{key.name}": (key, item) for key, item in sorted(found, key=lambda pair: pair[0])}

    @cached_property
    def slices(self) -> Mapping[str, tuple[EndpointSlice, ...]]:
        """EndpointSlices by the `namespace/name` of their Service."""
        found: dict[str, list[EndpointSlice]] = defaultdict(list)
        for key in sorted(key for key, item in self.objects.items() if isinstance(item, EndpointSlice)):
            item = self.objects[key]
            if isinstance(item, EndpointSlice) and (name := item.metadata.labels.get(SERVICE_NAME_LABEL)):
                found[f"{key.namespace}/{name}"].append(item)
        return {name: tuple(items) for name, items in found.items()}

    @cached_property
    def splits(self) -> tuple[tuple[Key, TrafficSplit], ...]:
        """TrafficSplits in the order in which they win a root service (D8)."""
        found = [(key, item) for key, item in self.objects.items() if isinstance(item, TrafficSplit)]
        return tuple(sorted(found, key=_precedence))

    @cached_property
    def grants(self) -> Mapping[str, tuple[ReferenceGrant, ...]]:
        """ReferenceGrants by namespace."""
        found: dict[str, list[ReferenceGrant]] = defaultdict(list)
        for key in sorted(key for key, item in self.objects.items() if isinstance(item, ReferenceGrant)):
            item = self.objects[key]
            if isinstance(item, ReferenceGrant):
                found[key.namespace].append(item)
        return {namespace: tuple(items) for namespace, items in found.items()}


def _precedence(pair: tuple[Key, TrafficSplit]) -> tuple[bool, str, str, str]:
    key, split = pair
    return (not split.spec.matches, split.metadata.creation_timestamp, key.namespace, key.name)
