"""The objects of one revision, with indexes that the compiler needs; indexes are built on first use."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from headgate.errors import Cause
from headgate.memo import Indexes
from headgate.resources.core.pod import MeshPod
from headgate.resources.core.service import Service
from headgate.resources.discovery.endpoint_slice import EndpointSlice
from headgate.resources.gateway_api.reference_grant import ReferenceGrant
from headgate.resources.meta import Key, Resource
from headgate.resources.registry import KINDS
from headgate.resources.selectors import LabelSelector, selects
from headgate.resources.smi.traffic_split import TrafficSplit
from headgate.shared_map import SharedMap, replaced

R = TypeVar("R", bound=Resource)
T = TypeVar("T")
K = TypeVar("K")
Listed = SharedMap[Key, Resource]
_NONE: Listed = SharedMap()
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
SELECTING_MANAGERS = ("headgate", "endpointslice-controller.k8s.io")
"""The managers of EndpointSlices with the pods that a Service selects: headgate's and that of Kubernetes."""
SLICE_MANAGER_LABEL, GATEWAY_SLICES = "endpointslice.kubernetes.io/managed-by", "headgate-gateway"
"""The label with the manager of an EndpointSlice, and its value in slices that lead to the gateway of a Service."""


def full_name(resource: Resource) -> str:
    """Return `namespace/name`."""
    return f"{resource.metadata.namespace}/{resource.metadata.name}"


_KIND_NAMES = {kind.shape: (kind.group, kind.kind) for kind in KINDS if kind.shape}


def _index(*shapes: type[Resource]) -> Callable[[Callable[["Snapshot"], T]], "cached_property[T]"]:
    """Return a decorator for a method that builds an index from objects of these kinds; the index is cached."""
    parts = frozenset(shapes)

    def decorate(method: Callable[["Snapshot"], T]) -> "cached_property[T]":
        def index(snapshot: "Snapshot") -> T:
            return snapshot.indexes.get(method, parts, lambda: method(snapshot))

        index.__doc__ = method.__doc__
        return cached_property(index)

    return decorate


class KindSource(NamedTuple):
    """The objects of one kind, the mistakes in them, and the parts of invalid ones that stay active."""

    objects: SharedMap[Key, Any]
    mistakes: Mapping[Key, tuple[Cause, ...]]
    fail_closed: Mapping[Key, Resource]


class Snapshot:
    """All objects at one revision.

    `objects` has the decoded objects. `mistakes` has the causes for invalid objects, and for fields that headgate
    does not read. `fail_closed` has the part of an invalid object that stays active (`compiler.fail_closed`).
    """

    def __init__(
        self,
        revision: int = 0,
        objects: Mapping[Key, Resource] | None = None,
        mistakes: Mapping[Key, tuple[Cause, ...]] | None = None,
        *,
        fail_closed: Mapping[Key, Resource] | None = None,
    ) -> None:
        self.revision = revision
        self.objects = SharedMap(objects)
        self.mistakes = mistakes or {}
        self.fail_closed = fail_closed or {}
        self.indexes = Indexes()

    def following(self, last: "Snapshot") -> "Snapshot":
        """Return this snapshot with the indexes of the snapshot `last` for kinds in which nothing changed.

        It is a new Snapshot, because another thread may read this one.
        """
        snapshot = Snapshot(self.revision, self.objects, self.mistakes, fail_closed=self.fail_closed)
        snapshot.by_shape = last.by_shape | _edits(last.by_shape, *replaced(last.objects, self.objects))
        if self.fail_closed == last.fail_closed:
            listed = snapshot.by_shape.items()
            snapshot.indexes = last.indexes.unchanged(
                {shape for shape, now in listed if now is last.by_shape.get(shape)}
            )
        return snapshot

    def source(self, shape: type[Resource]) -> KindSource:
        """Return everything about the objects of one kind."""
        name = _KIND_NAMES[shape]
        left = {key: resource for key, resource in self.fail_closed.items() if isinstance(resource, shape)}
        return KindSource(self.by_shape.get(shape, _NONE), self._mistakes_by_kind.get(name, {}), left)

    @cached_property
    def by_shape(self) -> dict[type[Resource], Listed]:
        """The objects by their kind."""
        return _edits({}, *replaced({}, self.objects))

    @cached_property
    def _mistakes_by_kind(self) -> Mapping[tuple[str, str], Mapping[Key, tuple[Cause, ...]]]:
        by_kind: dict[tuple[str, str], dict[Key, tuple[Cause, ...]]] = defaultdict(dict)
        for key, causes in self.mistakes.items():
            by_kind[key.group, key.kind][key] = causes
        return by_kind

    def of(self, shape: type[R]) -> tuple[tuple[Key, R], ...]:
        """Return the objects of one kind, sorted by key."""

        def listed() -> tuple[tuple[Key, Any], ...]:
            return tuple(sorted(self.by_shape.get(shape, {}).items(), key=itemgetter(0)))

        return self.indexes.get(shape, frozenset((shape,)), listed)

    @_index(Service)
    def services(self) -> Mapping[str, tuple[Key, Service]]:
        """The Services by `namespace/name`, sorted."""
        return {f"{key.namespace}/{key.name}": (key, service) for key, service in self.of(Service)}

    @_index(Service)
    def _selecting(self) -> Mapping[tuple[str, str, str], tuple[str, ...]]:
        """The names of Services by namespace and first label of their selector."""
        selectors = ((key.namespace, service.spec.selected, name) for name, (key, service) in self.services.items())
        return _grouped(((space, *min(labels.items())), name) for space, labels, name in selectors if labels)

    def services_of(self, pod: str) -> Iterator[str]:
        """Yield the Services that select a pod, even if no EndpointSlice contains the pod yet."""
        namespace, labels = pod.partition("/")[0], self.pods[pod].metadata.labels.items()
        for label in labels:
            for name in self._selecting.get((namespace, *label), ()):
                if self.services[name][1].spec.selected.items() <= labels:
                    yield name

    @_index(EndpointSlice)
    def slices(self) -> Mapping[str, tuple[EndpointSlice, ...]]:
        """The EndpointSlices by the `namespace/name` of their Service, without those of its gateway.

        Proxies call the endpoints of a Service. The gateway is a proxy, so its own endpoints would be a loop.
        """
        return _grouped((name, slice_) for name, _, slice_ in self._named_slices() if not _is_of_gateway(slice_))

    @_index(EndpointSlice)
    def gateway_slices(self) -> Mapping[str, tuple[Key, EndpointSlice]]:
        """The EndpointSlices that lead to gateways of Services, by the `namespace/name` of the Service."""
        return {name: (key, slice_) for name, key, slice_ in self._named_slices() if _is_of_gateway(slice_)}

    def _named_slices(self) -> Iterator[tuple[str, Key, EndpointSlice]]:
        for key, slice_ in self.of(EndpointSlice):
            if name := slice_.metadata.labels.get(SERVICE_NAME_LABEL):
                yield f"{key.namespace}/{name}", key, slice_

    @_index(TrafficSplit)
    def splits(self) -> tuple[tuple[Key, TrafficSplit], ...]:
        """The TrafficSplits in order of precedence (D8)."""
        return tuple(sorted(self.of(TrafficSplit), key=_precedence))

    @_index(ReferenceGrant)
    def grants(self) -> Mapping[str, tuple[ReferenceGrant, ...]]:
        """The ReferenceGrants by namespace."""
        return _grouped((key.namespace, grant) for key, grant in self.of(ReferenceGrant))

    @_index(MeshPod)
    def pods(self) -> Mapping[str, MeshPod]:
        """The pods that have not ended, by `namespace/name`, sorted."""
        left = ((key, pod) for key, pod in self.fail_closed.items() if isinstance(pod, MeshPod))
        pods = sorted((*self.of(MeshPod), *left), key=lambda pair: pair[0])
        return {f"{key.namespace}/{key.name}": pod for key, pod in pods if not pod.ended}

    def selected(self, namespace: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return the pods of a namespace that have all labels; without labels, all pods of the namespace."""
        if not labels:
            return self.pods_of_namespace.get(namespace, ())
        candidates = [self.pods_with_label.get((namespace, *label), ()) for label in labels.items()]
        return tuple(
            name for name in min(candidates, key=len) if labels.items() <= self.pods[name].metadata.labels.items()
        )

    @_index(MeshPod)
    def pods_of_account(self) -> Mapping[str, tuple[str, ...]]:
        """The names of pods by their ServiceAccount (`namespace/name`)."""
        return _grouped((account_of(name, pod), name) for name, pod in self.pods.items())

    @_index(MeshPod)
    def pods_of_namespace(self) -> Mapping[str, tuple[str, ...]]:
        """The names of pods by namespace."""
        return _grouped((name.partition("/")[0], name) for name in self.pods)

    @_index(MeshPod)
    def pods_with_label(self) -> Mapping[tuple[str, str, str], tuple[str, ...]]:
        """The names of pods by namespace, label name and label value."""
        return _grouped(
            ((name.partition("/")[0], *label), name)
            for name, pod in self.pods.items()
            for label in pod.metadata.labels.items()
        )


def of_sources(sources: Iterable[KindSource]) -> Snapshot:
    """Return a snapshot that has only the objects of some kinds, with their mistakes."""
    sources = tuple(sources)
    return Snapshot(
        0,
        {key: resource for source in sources for key, resource in source.objects.items()},
        {key: causes for source in sources for key, causes in source.mistakes.items()},
        fail_closed={key: resource for source in sources for key, resource in source.fail_closed.items()},
    )


def selected_pods(snapshot: Snapshot, namespace: str, selector: LabelSelector) -> tuple[str, ...]:
    """Return the pods of a namespace that a selector selects. The index finds those with its labels."""
    labeled = snapshot.selected(namespace, selector.match_labels)
    if not selector.match_expressions:
        return labeled
    return tuple(name for name in labeled if selects(selector, snapshot.pods[name].metadata.labels))


def has_same_objects(snapshot: Snapshot, other: Snapshot) -> bool:
    """Return whether two snapshots have equal objects, mistakes and parts that stay active."""
    return snapshot is other or (
        snapshot.objects == other.objects
        and snapshot.mistakes == other.mistakes
        and snapshot.fail_closed == other.fail_closed
    )


def _edits(
    last: Mapping[type[Resource], Listed], new: Mapping[Key, Resource], gone: Iterable[Key]
) -> dict[type[Resource], Listed]:
    """Return the objects of each kind that has new, other or missing objects compared with `last`."""
    changed: dict[type[Resource], dict[Key, Resource]] = defaultdict(dict)
    for key, resource in new.items():
        if last.get(type(resource), _NONE).get(key) != resource:
            changed[type(resource)][key] = resource
    missing = {key: shape for shape in last for key in gone if key in last[shape]}
    return {
        shape: last.get(shape, _NONE).edited(changed.get(shape, {}), (key for key in missing if missing[key] is shape))
        for shape in {*changed, *missing.values()}
    }


def _grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, tuple[T, ...]]:
    """Group values by key; the values of a key stay in order."""
    groups: dict[K, list[T]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return {key: tuple(values) for key, values in groups.items()}


def _is_of_gateway(slice_: EndpointSlice) -> bool:
    return slice_.metadata.labels.get(SLICE_MANAGER_LABEL) == GATEWAY_SLICES


def account_of(name: str, pod: MeshPod) -> str:
    """Return the ServiceAccount (`namespace/name`) of a pod."""
    return f"{name.partition('/')[0]}/{account_name(pod)}"


def account_name(pod: MeshPod) -> str:
    """Return the name of a pod's ServiceAccount."""
    return pod.spec.service_account_name or "default"


def _precedence(pair: tuple[Key, TrafficSplit]) -> tuple[bool, str, str, str]:
    key, split = pair
    return (not split.spec.matches, split.metadata.creation_timestamp, key.namespace, key.name)
