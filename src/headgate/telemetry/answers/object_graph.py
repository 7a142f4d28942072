"""The objects with traffic metrics, and for each pod its owners, node, namespace and Services (R82, R89)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from headgate.kinds import METRICS_KINDS
from headgate.resources.meta import Value
from headgate.resources.metrics import MetricsMesh
from headgate.resources.pod_owners import POD, Ref, owners, topmost_owner
from headgate.telemetry.counters.flows import GATEWAY, Flow, Peer

SERVICE, NAMESPACE, NODE = "Service", "Namespace", "Node"
SPLIT = "TrafficSplit"
OUTSIDE = "Outside"
CLUSTER_SCOPED = frozenset(names.kind for names in METRICS_KINDS if not names.namespaced)
IDENTITY = "spiffe://"
_NO_PODS = MetricsMesh(pods=0, meshed=0)


class Backend(Value, frozen=True, kw_only=True, gc=False):
    """A backend of a TrafficSplit: the name as the user wrote it, its Service (`namespace/name`), and its weight."""

    name: str
    service: str
    weight: int


class ObjectInfo(Value, frozen=True, kw_only=True, gc=False):
    """The fields of an object that traffic metrics need.

    - `owner` is the object's controller. `template_hash` is a pod's label `pod-template-hash`.
    - Of a pod: its `address`, the `node` where it runs, the named `ports` of its containers, its SPIFFE `identity` if it has a sidecar.
      `ended` is True if all its containers have exited.
    - Of a Service: `selector`, and `targets`, its target ports as numbers or names.
    - Of a hand-written EndpointSlice: its Service, which it `lists_for`, and the pods (`namespace/name`) or addresses with
      each port that it lists as `endpoints`.
    - Of a TrafficSplit: its `backends`, and `apex`, its root Service as `namespace/name` and as the user wrote it.
    """

    ref: Ref
    labels: Mapping[str, str] = {}
    owner: Ref | None = None
    template_hash: str = ""
    address: str = ""
    node: str = ""
    ports: Mapping[str, int] = {}
    identity: str = ""
    ended: bool = False
    selector: Mapping[str, str] = {}
    targets: frozenset[int | str] = frozenset()
    lists_for: Ref | None = None
    endpoints: frozenset[tuple[str, int]] = frozenset()
    apex: tuple[str, str] = ("", "")
    backends: tuple[Backend, ...] = ()


class ObjectGraph:
    """The objects at one moment. Nodes and owners that a pod names exist even without an `ObjectInfo` of their own."""

    def __init__(self, infos: Iterable[ObjectInfo], *, gateway: str = "") -> None:
        """Create the graph of these objects. `gateway` is the identity of the node's gateway."""
        self._infos = {info.ref: info for info in infos}
        self._gateway = gateway
        self._resources: dict[tuple[Ref, str], tuple[Ref, ...]] = {}
        self._sorted: dict[str, Sequence[ObjectInfo]] = {}
        self._mesh: dict[str, Mapping[Ref, MetricsMesh]] = {}
        self._leading: dict[tuple[Ref, int], tuple[Ref, ...]] = {}
        self._workloads: dict[Ref, Ref] = {}

    def find(self, ref: Ref) -> ObjectInfo | None:
        """Return an object; None if it does not exist. An object that only a pod names has no labels."""
        return self._infos.get(ref) or self._named_by_pods.get(ref)

    def of(self, kind: str, namespace: str = "") -> Sequence[ObjectInfo]:
        """Return the objects of a kind, in all namespaces or in one, sorted by namespace and name."""
        if kind not in self._sorted:
            objects = {**self._named_by_pods, **self._infos} if kind != POD else self._infos
            self._sorted[kind] = sorted((info for ref, info in objects.items() if ref.kind == kind), key=_sort_key)
        infos = self._sorted[kind]
        return [info for info in infos if info.ref.namespace == namespace] if namespace else infos

    def resources_of(self, pod: Ref, kind: str) -> tuple[Ref, ...]:
        """Return the resources of a kind to which a pod belongs; a pod may belong to several Services."""
        key = pod, kind
        if key not in self._resources:
            self._resources[key] = tuple(dict.fromkeys(self._find_resources(pod, kind)))
        return self._resources[key]

    def workload_of(self, pod: Ref) -> Ref:
        """Return the topmost owner of a pod, for example its Deployment; the pod itself without an owner."""
        if pod not in self._workloads:
            self._workloads[pod] = topmost_owner(pod, self._infos.get)
        return self._workloads[pod]

    def closest_service(self, pod: Ref) -> Ref | None:
        """Return the Service that selects a pod by the most labels, so rather `web-v1` than `web`; None without one."""
        services = self.resources_of(pod, SERVICE)
        return max(services, key=lambda ref: (len(self._infos[ref].selector), ref), default=None)

    def services_behind(self, flow: Flow) -> tuple[Ref, ...]:
        """Return the Services to which the requests of a flow are attributed (R89, D25).

        These are the Services that select the destination pod and target its port, and the Services without a
        selector whose EndpointSlices list the pod with this port. If the pod is deleted, or the requests reached no pod,
        the result is the called Service and the Service that answered.
        """
        called, answered = _service(flow.service), _service(flow.backend)
        pod = self._pods.get(flow.destination.pod)
        if pod is None:
            is_selected = bool(flow.destination.pod) and flow.service in self._with_selector
            named = (answered, called if is_selected or not answered else None)
            return tuple(dict.fromkeys(ref for ref in named if ref))
        services = self._leading_to(pod, flow.target)
        if not flow.target:
            services = tuple(ref for ref in services if ref in (called, answered))
        if answered and answered not in services and flow.backend not in self._with_selector:
            services = (*services, answered)
        return services

    def counts_with_pod(self, flow: Flow) -> bool:
        """Return whether a flow is attributed to exactly the Services that lead to its pod and port."""
        pod = self._pods.get(flow.destination.pod)
        if pod is None or not flow.target:
            return False
        return (
            not flow.backend
            or flow.backend in self._with_selector
            or _service(flow.backend) in self._leading_to(pod, flow.target)
        )

    def targets_ports(self, service: Ref, pod: str, ports: Iterable[int]) -> bool:
        """Return whether a Service leads to all of these ports of a pod (`namespace/name`)."""
        info = self._pods.get(pod)
        return info is not None and all(service in self._leading_to(info, port) for port in ports)

    def _leading_to(self, pod: ObjectInfo, port: int) -> tuple[Ref, ...]:
        """Return the Services that lead to `port` of a pod; if it is 0 (unknown), those that lead to any port of the pod."""
        key = pod.ref, port
        if key not in self._leading:
            services = self.resources_of(pod.ref, SERVICE)
            self._leading[key] = tuple(
                ref for ref in services if not port or self._leads_to(self._infos[ref], pod, port)
            )
        return self._leading[key]

    def _leads_to(self, service: ObjectInfo, pod: ObjectInfo, port: int) -> bool:
        if service.selector:
            return _targets_port(service.targets, pod, port)
        return any((service.ref, port) in self._listed.get(place, ()) for place in _places(pod))

    def mesh(self, ref: Ref) -> MetricsMesh:
        """Return the number of pods that belong to a resource now, and the number of these pods with a sidecar."""
        if ref.kind not in self._mesh:
            pods: Counter[Ref] = Counter()
            meshed: Counter[Ref] = Counter()
            for info in (info for info in self.of(POD) if not info.ended):
                for owner in self.resources_of(info.ref, ref.kind):
                    pods[owner] += 1
                    meshed[owner] += bool(info.identity)
            self._mesh[ref.kind] = {
                owner: MetricsMesh(pods=count, meshed=meshed[owner]) for owner, count in pods.items()
            }
        return self._mesh[ref.kind].get(ref, _NO_PODS)

    @cached_property
    def workloads(self) -> Mapping[Ref, MetricsMesh]:
        """The topmost owners of the pods that have not ended, with the number of pods and of those with a sidecar."""
        pods: Counter[Ref] = Counter()
        meshed: Counter[Ref] = Counter()
        for info in (info for info in self.of(POD) if not info.ended):
            owner = self.workload_of(info.ref)
            pods[owner] += 1
            meshed[owner] += bool(info.identity)
        return {owner: MetricsMesh(pods=count, meshed=meshed[owner]) for owner, count in pods.items()}

    def identity(self, peer: Peer) -> str:
        """Return the identity at one end of a flow; empty for a pod without a sidecar, and for a deleted pod."""
        if peer.pod:
            info = self._pods.get(peer.pod)
            return info.identity if info else ""
        return self._gateway if peer == GATEWAY else peer.outside if peer.outside.startswith(IDENTITY) else ""

    @cached_property
    def _with_selector(self) -> frozenset[str]:
        """The Services with a selector, as `namespace/name`."""
        return frozenset(str(ref) for ref, info in self._infos.items() if info.selector)

    @cached_property
    def _pods(self) -> Mapping[str, ObjectInfo]:
        """The pods by `namespace/name`."""
        return {str(ref): info for ref, info in self._infos.items() if ref.kind == POD}

    def _find_resources(self, pod: Ref, kind: str) -> Iterator[Ref]:
        info = self._infos.get(pod) or ObjectInfo(ref=pod)
        if kind == POD:
            yield pod
        elif kind == NAMESPACE:
            yield Ref(NAMESPACE, "", pod.namespace)
        elif kind == NODE:
            if info.node:
                yield Ref(NODE, "", info.node)
        elif kind == SERVICE:
            yield from self._services_of(info)
        else:
            yield from (owner for owner in owners(pod, self._infos.get) if owner.kind == kind)

    def _services_of(self, pod: ObjectInfo) -> Iterator[Ref]:
        for label in pod.labels.items():
            for service in self._selecting.get((pod.ref.namespace, *label), ()):
                if service.selector.items() <= pod.labels.items():
                    yield service.ref
        for place in _places(pod):
            yield from (service for service, _ in self._listed.get(place, ()))

    @cached_property
    def _selecting(self) -> Mapping[tuple[str, str, str], list[ObjectInfo]]:
        """Services by namespace and the first label of their selectors."""
        by_label: dict[tuple[str, str, str], list[ObjectInfo]] = defaultdict(list)
        for info in self._infos.values():
            if info.selector:
                by_label[info.ref.namespace, *min(info.selector.items())].append(info)
        return by_label

    @cached_property
    def _listed(self) -> Mapping[str, set[tuple[Ref, int]]]:
        """The Services without a selector that list each pod (`namespace/name`) or address, with the port."""
        by_place: dict[str, set[tuple[Ref, int]]] = defaultdict(set)
        for info in self._infos.values():
            service = self._infos.get(info.lists_for) if info.lists_for else None
            if service and not service.selector:
                for place, port in info.endpoints:
                    by_place[place].add((service.ref, port))
        return by_place

    @cached_property
    def _named_by_pods(self) -> Mapping[Ref, ObjectInfo]:
        """The owners and nodes that pods name, without labels."""
        named: dict[Ref, ObjectInfo] = {}
        for info in self._infos.values():
            if info.ref.kind == POD:
                for ref in (
                    *owners(info.ref, self._infos.get),
                    *((Ref(NODE, "", info.node),) if info.node else ()),
                ):
                    named.setdefault(ref, ObjectInfo(ref=ref))
        return named


def _service(name: str) -> Ref | None:
    return Ref(SERVICE, *name.split("/", 1)) if name else None


def _places(pod: ObjectInfo) -> tuple[str, ...]:
    """Return the name (`namespace/name`) and the address by which an EndpointSlice may list a pod."""
    return (str(pod.ref), pod.address) if pod.address else (str(pod.ref),)


def _targets_port(targets: frozenset[int | str], pod: ObjectInfo, port: int) -> bool:
    return any((pod.ports.get(target) if isinstance(target, str) else target) == port for target in targets)


def _sort_key(info: ObjectInfo) -> tuple[str, str]:
    return info.ref.namespace, info.ref.name
