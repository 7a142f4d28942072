"""The objects that answers are about, and which of them a pod belongs to: owners, node, namespace, Services (R82, R89)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from headgate.kinds import METRICS_KINDS
from headgate.resources.meta import Value
from headgate.resources.metrics import MetricsMesh
from headgate.resources.pod_owners import POD, Ref, owners
from headgate.telemetry.counters.flows import GATEWAY, Flow, Peer

SERVICE, NAMESPACE, NODE = "Service", "Namespace", "Node"
SPLIT = "TrafficSplit"
OUTSIDE = "Outside"
CLUSTER_SCOPED = frozenset(names.kind for names in METRICS_KINDS if not names.namespaced)
_IDENTITY = "spiffe://"
_NO_PODS = MetricsMesh(pods=0, meshed=0)


class Backend(Value, frozen=True, kw_only=True, gc=False):
    """A backend of a TrafficSplit: the name as the user wrote it, its Service (`namespace/name`), and its weight."""

    name: str
    service: str
    weight: int


class ObjectInfo(Value, frozen=True, kw_only=True, gc=False):
    """What answers need of an object.

    - `owner` is its controller, `template_hash` as in `resources.pod_owners`.
    - Of a pod: `node` where it runs, the named `ports` of its containers, its SPIFFE `identity` if it has a sidecar, and
      whether it has `ended`.
    - Of a Service: `selector`, and the `targets`, the ports of pods that it leads to, as numbers or names.
    - Of a TrafficSplit: `apex` (`namespace/name`, and as written) and `backends`.
    """

    ref: Ref
    labels: Mapping[str, str] = {}
    owner: Ref | None = None
    template_hash: str = ""
    node: str = ""
    ports: Mapping[str, int] = {}
    identity: str = ""
    ended: bool = False
    selector: Mapping[str, str] = {}
    targets: frozenset[int | str] = frozenset()
    apex: tuple[str, str] = ("", "")
    backends: tuple[Backend, ...] = ()


class ObjectGraph:
    """The objects of one moment. Of kinds that were not given, it knows the objects that pods name as owners."""

    def __init__(self, things: Iterable[ObjectInfo], *, gateway: str = "") -> None:
        """`gateway` is the identity of the node's gateway."""
        self._things = {thing.ref: thing for thing in things}
        self._gateway = gateway
        self._homes: dict[tuple[Ref, str], tuple[Ref, ...]] = {}
        self._sorted: dict[str, Sequence[ObjectInfo]] = {}
        self._mesh: dict[str, Mapping[Ref, MetricsMesh]] = {}
        self._leading: dict[tuple[Ref, int], tuple[Ref, ...]] = {}

    def find(self, ref: Ref) -> ObjectInfo | None:
        """Return an object; one that only pods name has no labels. None if it does not exist."""
        return self._things.get(ref) or self._named_by_pods.get(ref)

    def of(self, kind: str, namespace: str = "") -> Sequence[ObjectInfo]:
        """Return the objects of a kind, in all namespaces or in one, sorted by namespace and name."""
        if kind not in self._sorted:
            known = {**self._named_by_pods, **self._things} if kind != POD else self._things
            self._sorted[kind] = sorted((one for ref, one in known.items() if ref.kind == kind), key=_place)
        found = self._sorted[kind]
        return [one for one in found if one.ref.namespace == namespace] if namespace else found

    def resources_of(self, pod: Ref, kind: str) -> tuple[Ref, ...]:
        """Return the resources of a kind that a pod belongs to: Services may be several."""
        key = pod, kind
        if key not in self._homes:
            self._homes[key] = tuple(dict.fromkeys(self._find_resources(pod, kind)))
        return self._homes[key]

    def services_behind(self, flow: Flow) -> tuple[Ref, ...]:
        """Return the Services that a flow's destination counts for (R89, D25): they select the pod and lead to its port.

        A Service without a selector counts by its endpoints. A pod that is gone counts for the Services that the flow
        names, and so does what reached no pod.
        """
        called, answered = _service(flow.service), _service(flow.backend)
        pod = self._pods.get(flow.destination.pod)
        if pod is None:
            is_selected = bool(flow.destination.pod) and flow.service in self._with_selector
            named = (answered, called if is_selected or not answered else None)
            return tuple(dict.fromkeys(ref for ref in named if ref))
        found = self._leading_to(pod, flow.target)
        if not flow.target:
            found = tuple(ref for ref in found if ref in (called, answered))
        if answered and answered not in found and flow.backend not in self._with_selector:
            found = (*found, answered)
        return found

    def counts_with_pod(self, flow: Flow) -> bool:
        """Return whether a flow counts for the Services that its pod belongs to, by the pod's port, and for no other."""
        is_selected = not flow.backend or flow.backend in self._with_selector
        return is_selected and flow.target != 0 and flow.destination.pod in self._pods

    def leads_to(self, service: Ref, pod: str, ports: Iterable[int]) -> bool:
        """Return whether a Service selects a pod (`namespace/name`) and leads to all of these ports of it."""
        thing = self._pods.get(pod)
        return thing is not None and all(service in self._leading_to(thing, port) for port in ports)

    def _leading_to(self, pod: ObjectInfo, port: int) -> tuple[Ref, ...]:
        """Return the Services that select a pod and lead to its port; all of the pod's when the port is not known."""
        key = pod.ref, port
        if key not in self._leading:
            resources_of = self.resources_of(pod.ref, SERVICE)
            self._leading[key] = tuple(
                ref for ref in resources_of if not port or _leads_to(self._things[ref].targets, pod, port)
            )
        return self._leading[key]

    def mesh(self, ref: Ref) -> MetricsMesh:
        """Return how many pods a resource has now, and how many of them have a sidecar."""
        if ref.kind not in self._mesh:
            pods: Counter[Ref] = Counter()
            meshed: Counter[Ref] = Counter()
            for thing in (one for one in self.of(POD) if not one.ended):
                for home in self.resources_of(thing.ref, ref.kind):
                    pods[home] += 1
                    meshed[home] += bool(thing.identity)
            self._mesh[ref.kind] = {home: MetricsMesh(pods=count, meshed=meshed[home]) for home, count in pods.items()}
        return self._mesh[ref.kind].get(ref, _NO_PODS)

    def identity(self, peer: Peer) -> str:
        """Return the identity of one end of a flow; empty without a sidecar, and of a pod that is gone."""
        if peer.pod:
            thing = self._pods.get(peer.pod)
            return thing.identity if thing else ""
        return self._gateway if peer == GATEWAY else peer.outside if peer.outside.startswith(_IDENTITY) else ""

    @cached_property
    def _with_selector(self) -> frozenset[str]:
        """The Services that have a selector, as flows name them."""
        return frozenset(str(ref) for ref, thing in self._things.items() if thing.selector)

    @cached_property
    def _pods(self) -> Mapping[str, ObjectInfo]:
        """Pods as flows name them, `namespace/name`."""
        return {str(ref): thing for ref, thing in self._things.items() if ref.kind == POD}

    def _find_resources(self, pod: Ref, kind: str) -> Iterator[Ref]:
        thing = self._things.get(pod) or ObjectInfo(ref=pod)
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
            yield from (owner for owner in owners(pod, self._things.get) if owner.kind == kind)

    def _services_of(self, pod: ObjectInfo) -> Iterator[Ref]:
        for label in pod.labels.items():
            for service in self._selecting.get((pod.ref.namespace, *label), ()):
                if service.selector.items() <= pod.labels.items():
                    yield service.ref

    @cached_property
    def _selecting(self) -> Mapping[tuple[str, str, str], list[ObjectInfo]]:
        """Services by namespace and the first label of their selectors."""
        found: dict[tuple[str, str, str], list[ObjectInfo]] = defaultdict(list)
        for thing in self._things.values():
            if thing.selector:
                found[thing.ref.namespace, *min(thing.selector.items())].append(thing)
        return found

    @cached_property
    def _named_by_pods(self) -> Mapping[Ref, ObjectInfo]:
        """Ownership and nodes that pods name, whether or not they were given as objects."""
        found: dict[Ref, ObjectInfo] = {}
        for thing in self._things.values():
            if thing.ref.kind == POD:
                for ref in (
                    *owners(thing.ref, self._things.get),
                    *((Ref(NODE, "", thing.node),) if thing.node else ()),
                ):
                    found.setdefault(ref, ObjectInfo(ref=ref))
        return found


def _service(name: str) -> Ref | None:
    return Ref(SERVICE, *name.split("/", 1)) if name else None


def _leads_to(targets: frozenset[int | str], pod: ObjectInfo, port: int) -> bool:
    return any((pod.ports.get(target) if isinstance(target, str) else target) == port for target in targets)


def _place(thing: ObjectInfo) -> tuple[str, str]:
    return thing.ref.namespace, thing.ref.name
