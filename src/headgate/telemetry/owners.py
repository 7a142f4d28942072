"""What a pod belongs to: its Deployment, its Job, its node, its namespace, its Services (004, R82, R89)."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from headgate.resources.meta import Value

POD, SERVICE, NAMESPACE, NODE = "Pod", "Service", "Namespace", "Node"
SPLIT = "TrafficSplit"
OUTSIDE = "Outside"
CLUSTER_SCOPED = frozenset({NAMESPACE, NODE})
_MAKERS = ("ReplicaSet", "DaemonSet", "Job", "ReplicationController")
_MADE_NAME = re.compile(r"(?P<maker>.+)-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|(?P<ordinal>[0-9]+))")
_LONGEST_CHAIN = 8  # owners of owners; more is a circle


class Ref(Value, frozen=True, order=True, gc=False, cache_hash=True):
    """Points at a resource that traffic is told of. `namespace` is empty for nodes, namespaces and what is outside."""

    kind: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace and self.name else self.namespace or self.name


class Backend(Value, frozen=True, kw_only=True, gc=False):
    """A leg of a TrafficSplit: the Service's name as the user wrote it, what that means (`namespace/name`), its weight."""

    name: str
    service: str
    weight: int


class Thing(Value, frozen=True, kw_only=True, gc=False):
    """An object, as far as traffic is told of it.

    `owner` is its controller, `node` where a pod runs, `selector` a Service's; `apex` (`namespace/name`, and as written)
    and `backends` are a split's.
    """

    ref: Ref
    labels: Mapping[str, str] = {}
    owner: Ref | None = None
    node: str = ""
    selector: Mapping[str, str] = {}
    apex: tuple[str, str] = ("", "")
    backends: tuple[Backend, ...] = ()


class World:
    """The objects of one moment. Asked only about kinds that it was given, it knows who owns the pods of the others."""

    def __init__(self, things: Iterable[Thing]) -> None:
        self._things = {thing.ref: thing for thing in things}
        self._homes: dict[tuple[Ref, str], tuple[Ref, ...]] = {}
        self._sorted: dict[str, Sequence[Thing]] = {}

    def find(self, ref: Ref) -> Thing | None:
        """Return a thing; one that only pods name has no labels. None when nothing tells of it."""
        return self._things.get(ref) or self._named_by_pods.get(ref)

    def of(self, kind: str, namespace: str = "") -> Sequence[Thing]:
        """Return the things of a kind, of one namespace when it is given, by namespace and name."""
        if kind not in self._sorted:
            known = {**self._named_by_pods, **self._things} if kind != POD else self._things
            self._sorted[kind] = sorted((one for ref, one in known.items() if ref.kind == kind), key=_place)
        found = self._sorted[kind]
        return [one for one in found if one.ref.namespace == namespace] if namespace else found

    def homes(self, pod: Ref, kind: str) -> tuple[Ref, ...]:
        """Return what a pod belongs to of one kind: one, several Services, or nothing."""
        key = pod, kind
        if key not in self._homes:
            self._homes[key] = tuple(dict.fromkeys(self._find_homes(pod, kind)))
        return self._homes[key]

    def _find_homes(self, pod: Ref, kind: str) -> Iterator[Ref]:
        thing = self._things.get(pod) or Thing(ref=pod, owner=self._former_owner(pod))
        if kind == POD:
            yield pod
        elif kind == NAMESPACE:
            yield Ref(NAMESPACE, "", pod.namespace)
        elif kind == NODE:
            if thing.node:
                yield Ref(NODE, "", thing.node)
        elif kind == SERVICE:
            yield from self._services_of(thing)
        else:
            yield from (owner for owner in self._owners(thing) if owner.kind == kind)

    def _owners(self, thing: Thing) -> Iterator[Ref]:
        for _ in range(_LONGEST_CHAIN):
            if thing.owner is None:
                return
            yield thing.owner
            thing = self._things.get(thing.owner) or Thing(ref=thing.owner)

    def _services_of(self, pod: Thing) -> Iterator[Ref]:
        for label in pod.labels.items():
            for service in self._selecting.get((pod.ref.namespace, *label), ()):
                if service.selector.items() <= pod.labels.items():
                    yield service.ref

    @cached_property
    def _selecting(self) -> Mapping[tuple[str, str, str], list[Thing]]:
        """Services by namespace and the first label of their selectors."""
        found: dict[tuple[str, str, str], list[Thing]] = defaultdict(list)
        for thing in self._things.values():
            if thing.selector:
                found[thing.ref.namespace, *min(thing.selector.items())].append(thing)
        return found

    def _former_owner(self, pod: Ref) -> Ref | None:
        """Tell by its name who made a pod that is gone: what it did in the window is still its owner's."""
        found = _MADE_NAME.fullmatch(pod.name)
        if found is None:
            return None
        makers = ("StatefulSet",) if found["ordinal"] else _MAKERS
        refs = (Ref(kind, pod.namespace, found["maker"]) for kind in makers)
        return next((ref for ref in refs if ref in self._things), None)

    @cached_property
    def _named_by_pods(self) -> Mapping[Ref, Thing]:
        """Owners and nodes that pods name, whether or not they were given as objects."""
        found: dict[Ref, Thing] = {}
        for thing in self._things.values():
            if thing.ref.kind == POD:
                for ref in (*self._owners(thing), *((Ref(NODE, "", thing.node),) if thing.node else ())):
                    found.setdefault(ref, Thing(ref=ref))
        return found


def _place(thing: Thing) -> tuple[str, str]:
    return thing.ref.namespace, thing.ref.name
