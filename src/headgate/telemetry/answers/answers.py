"""Answers queries about the traffic of resources from a Reading and an object graph (R83 to R96).

The callers' proxies count the requests to a pod; the pod's own proxy counts the requests of callers without a proxy.
The row of a workload is the sum of its pods, with percentiles over all their requests (R89). The row of a Service
contains all requests to its pods on its target ports, even if the client called another Service. It also contains the
requests to the Service that reached no pod (D25).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Literal, TypeAlias

from headgate.resources.meta import Value
from headgate.resources.metrics import MetricsMesh, MetricsSecurity
from headgate.resources.pod_owners import POD, Ref
from headgate.telemetry.answers.object_graph import OUTSIDE, SERVICE, SPLIT, Backend, ObjectGraph, ObjectInfo
from headgate.telemetry.answers.peer_groups import Grouping, grouping_key
from headgate.telemetry.counters.counts import UNSENT, Counts
from headgate.telemetry.counters.flows import NO_PEER, Flow, Peer, PodTotals, totals_by_receiver, unreached_by_sender
from headgate.telemetry.counters.histogram import Buckets, merged, percentiles

UNKNOWN = "unknown"
SHARES = (0.5, 0.9, 0.99)
"""The percentiles in answers, as shares of the requests (R84)."""


class Statistics(Value, frozen=True, kw_only=True, gc=False):
    """Statistics of some flows, with the field names of `Counts`.

    `latencies` has the latency percentiles for `SHARES`, in seconds; empty without requests. `histogram` has all latencies.
    """

    success: int = 0
    failure: int = 0
    denied: int = 0
    connections: int = 0
    unreached: int = 0
    denied_connections: int = 0
    latencies: tuple[float, ...] = ()
    histogram: Buckets = 0


NOTHING = Statistics()


class Sum(Value, frozen=True, kw_only=True, gc=False):
    """Statistics of users' requests (`counts`) and of mirrored copies, which do not count as users' requests (D22)."""

    counts: Statistics = NOTHING
    copies: Statistics = NOTHING


class Edge(Value, frozen=True, kw_only=True, order=True, gc=False):
    """The traffic between a resource and a peer in one direction (R87).

    An edge without a peer is all traffic that the resource received. A peer is a resource of the same kind, or a pod that
    belongs to no such resource. If no pod answered, the peer is the called Service. A peer outside the mesh has the kind
    `Outside`, with a name or an address. `copy` is True for mirrored copies (D22).
    """

    direction: Literal["to", "from"] = "from"
    peer: Ref | None = None
    copy: bool = False


class Row(Value, frozen=True, kw_only=True, gc=False):
    """One row of an answer: the traffic of the resource `about` over an edge, or of one backend of a TrafficSplit.

    `mesh` has the number of pods of `about`. Only an edge has `security`: the share of mutual TLS, and the SPIFFE IDs
    of both ends, except those of deleted pods. `unreached` is the number of requests and connections that the pods of a
    workload sent, and that reached no pod. On an edge between Services, `called` is the number of requests and
    connections for which the client called the receiving Service by name. `apex` and `backend` are set in the row of a
    TrafficSplit.
    """

    about: Ref
    sum: Sum
    edge: Edge = Edge()
    labels: Mapping[str, str] = {}
    unreached: int = 0
    apex: str = ""
    backend: Backend | None = None
    mesh: MetricsMesh | None = None
    security: MetricsSecurity | None = None
    called: int | None = None

    @property
    def exchanged(self) -> Statistics:
        """The statistics of what the row is about: of copies on an edge of copies, else of users' requests."""
        return self.sum.copies if self.edge.copy else self.sum.counts


Selects: TypeAlias = Callable[[ObjectInfo], bool]
CountedFlow: TypeAlias = tuple[Flow, Counts]


def everything(_: ObjectInfo) -> bool:
    """Return True: the filter that selects all objects."""
    return True


class Traffic:
    """The flows of a Reading, with indexes by pod and Service that are built on first use.

    `arrived` has the sums by receiving pod. If the Reading has none, they are computed from the flows.
    """

    def __init__(self, flows: Mapping[Flow, Counts], arrived: PodTotals | None = None) -> None:
        self.flows = flows
        self._given = arrived

    def received(self, pods: Iterable[str], more: Iterable[CountedFlow] = ()) -> Sum:
        """Return the sum of the traffic that pods (`namespace/name`) received, and of the flows `more`."""
        requests, copies = self.arrived.requests, self.arrived.copies
        of_users, of_mirrors = _split_copies(more)
        of_users += [requests[pod] for pod in pods if pod in requests]
        of_mirrors += [copies[pod] for pod in pods if pod in copies] if copies else []
        return Sum(counts=_statistics(of_users), copies=_statistics(of_mirrors) if of_mirrors else NOTHING)

    def answered(self, apex: str, backend: str) -> Sum:
        """Return the sum of the requests that clients sent to a split's apex Service and that `backend` answered."""
        return summed(pair for pair in self.called_as.get(apex, ()) if pair[0].backend == backend)

    @cached_property
    def arrived(self) -> PodTotals:
        """The sums of the traffic that each pod received."""
        return self._given or totals_by_receiver(self.flows)

    @cached_property
    def unreached(self) -> Mapping[str, int]:
        """The requests and connections that reached no pod, by the pod that sent them."""
        return unreached_by_sender(self.flows)

    @cached_property
    def into(self) -> Mapping[str, Sequence[CountedFlow]]:
        """Flows by the pod that received them."""
        return _indexed(self.flows, attrgetter("destination.pod"))

    @cached_property
    def out_of(self) -> Mapping[str, Sequence[CountedFlow]]:
        """Flows by the pod that sent them."""
        return _indexed(self.flows, attrgetter("source.pod"))

    @cached_property
    def called_as(self) -> Mapping[str, Sequence[CountedFlow]]:
        """Flows by the Service that clients called."""
        return _indexed(self.flows, lambda flow: "" if flow.copy else flow.service)


def _indexed(flows: Mapping[Flow, Counts], name: Callable[[Flow], str]) -> Mapping[str, Sequence[CountedFlow]]:
    """Group flows by the result of `name`. Leave out empty names and flows without traffic (R91)."""
    by_name: defaultdict[str, list[CountedFlow]] = defaultdict(list)
    for pair in flows.items():
        if (key := name(pair[0])) and pair[1].counters:
            by_name[key].append(pair)
    return by_name


def summed(flows: Iterable[CountedFlow]) -> Sum:
    """Return the sum of users' requests, and the sum of mirrored copies."""
    of_users, of_mirrors = _split_copies(flows)
    return Sum(counts=_statistics(of_users), copies=_statistics(of_mirrors))


def _split_copies(flows: Iterable[CountedFlow]) -> tuple[list[Counts], list[Counts]]:
    """Return the counts of users' requests by flow, and those of mirrored copies."""
    of_users: list[Counts] = []
    of_mirrors: list[Counts] = []
    for flow, counts in flows:
        (of_mirrors if flow.copy else of_users).append(counts)
    return of_users, of_mirrors


def _statistics(several: Sequence[Counts]) -> Statistics:
    total = several[0] if len(several) == 1 else _total(several)
    if not total.counters:
        return NOTHING
    return Statistics(
        success=total.success,
        failure=total.failure,
        denied=total.denied if total.is_denied else 0,
        connections=total.connections,
        unreached=total.unreached,
        denied_connections=total.denied_connections if total.is_denied else 0,
        latencies=percentiles(total.latency, SHARES),
        histogram=total.latency,
    )


def _exchanged(flows: Iterable[CountedFlow]) -> int:
    """Return the number of requests and connections in some flows."""
    return sum(counts.success + counts.failure + counts.denied + counts.connections for _, counts in flows)


def _total(several: Sequence[Counts]) -> Counts:
    total = Counts(0, sum([counts.counters for counts in several]))
    return Counts(merged([counts.latency for counts in several], total.success + total.failure), total.counters)


class Answers:
    """Answers queries about the traffic in a Reading, for the resources in an object graph."""

    def __init__(self, traffic: Traffic, graph: ObjectGraph) -> None:
        self._traffic = traffic
        self._graph = graph
        self._receivers: dict[str, Mapping[Ref, Sequence[str]]] = {}
        self._parties: dict[str, Mapping[Ref, Sequence[str]]] = {}
        self._senders: dict[str, Mapping[Ref, Sequence[str]]] = {}
        self._rows: dict[Ref, Row] = {}

    def one(self, ref: Ref) -> Row | None:
        """Return the row of a resource; None if it does not exist."""
        info = self._graph.find(ref)
        return self._row(info) if info else None

    def all(self, kind: str, namespace: str = "", selects: Selects = everything) -> Iterator[Row]:
        """Yield a row for each resource of a kind, sorted by namespace and name."""
        return (self._row(info) for info in self._graph.of(kind, namespace) if selects(info))

    def splits(self, namespace: str = "", selects: Selects = everything) -> Iterator[Row]:
        """Yield a row for each backend of each TrafficSplit: the requests to the apex that the backend answered."""
        for split in filter(selects, self._graph.of(SPLIT, namespace)):
            service, apex = split.apex
            for backend in split.backends:
                what = self._traffic.answered(service, backend.service)
                yield Row(about=split.ref, sum=what, labels=split.labels, apex=apex, backend=backend)

    def split_totals(self, namespace: str, selects: Selects, is_counted: Callable[[Backend], bool]) -> Iterator[Row]:
        """Yield a row for each TrafficSplit: the requests to the apex that its counted backends answered.

        A TrafficSplit without a counted backend has no row.
        """
        for split in filter(selects, self._graph.of(SPLIT, namespace)):
            service, apex = split.apex
            counted = {backend.service for backend in split.backends if is_counted(backend)}
            flows = (pair for pair in self._traffic.called_as.get(service, ()) if pair[0].backend in counted)
            if counted:
                yield Row(about=split.ref, sum=summed(flows), labels=split.labels, apex=apex)

    def edges(self, ref: Ref, grouping: Grouping = "", selects: Selects = everything) -> Iterator[Row]:
        """Yield the edges of a resource, sorted by direction and peer; `selects` filters peers."""

        def grouped(peers: Iterable[Ref]) -> Iterable[Ref]:
            """Return the selected peers, or their groups, without duplicates."""
            chosen = (
                end for end in peers if selects is everything or selects(self._graph.find(end) or ObjectInfo(ref=end))
            )
            return dict.fromkeys(grouping_key(peer, grouping) for peer in chosen)

        by_edge: dict[Edge, list[CountedFlow]] = defaultdict(list)
        for flow, counts in self._sent_flows(ref):
            for peer in grouped(self._destinations(flow, ref.kind)):
                by_edge[Edge(direction="to", peer=peer, copy=flow.copy)].append((flow, counts))
        for flow, counts in self.received_flows(ref):
            for peer in grouped(self._resources_of_peer(flow.source, ref.kind)):
                by_edge[Edge(direction="from", peer=peer, copy=flow.copy)].append((flow, counts))
        for edge in sorted(by_edge):
            yield self._edge(ref, edge, by_edge[edge])

    def _edge(self, ref: Ref, edge: Edge, flows: Sequence[CountedFlow]) -> Row:
        receiver = str(edge.peer if edge.direction == "to" else ref)
        receivers = ((flow.service or flow.backend, flow.copy and flow.backend) for flow, _ in flows)
        named = (pair for pair, names in zip(flows, receivers, strict=True) if receiver in names)
        return Row(
            about=ref,
            edge=edge,
            sum=summed(flows),
            security=self._security(flows),
            called=_exchanged(named) if ref.kind == SERVICE else None,
        )

    def _security(self, flows: Sequence[CountedFlow]) -> MetricsSecurity:
        secured = [pair for pair in flows if pair[0].secured]
        clients = {self._graph.identity(flow.source) for flow, _ in secured}
        servers = {self._graph.identity(flow.destination) for flow, _ in secured}
        return MetricsSecurity(
            exchanged=_exchanged(flows) - sum(counts.count(UNSENT) for flow, counts in flows if not flow.secured),
            secured=_exchanged(secured),
            clients=tuple(sorted(filter(None, clients))),
            servers=tuple(sorted(filter(None, servers))),
        )

    def _row(self, info: ObjectInfo) -> Row:
        row = self._rows.get(info.ref)
        if row is None:
            ref = info.ref
            total, mesh, sent = self._received(ref), self._graph.mesh(ref), self._unreached(ref)
            row = self._rows[ref] = Row(about=ref, sum=total, labels=info.labels, mesh=mesh, unreached=sent)
        return row

    def _unreached(self, ref: Ref) -> int:
        """Return how much of what a workload sent reached no pod. A Service has no clients of its own."""
        if ref.kind == SERVICE:
            return 0
        if ref.kind not in self._senders:
            self._senders[ref.kind] = self._members(ref.kind, self._traffic.unreached)
        pods = (str(ref),) if ref.kind == POD else self._senders[ref.kind].get(ref, ())
        return sum(self._traffic.unreached.get(pod, 0) for pod in pods)

    def _received(self, ref: Ref) -> Sum:
        if ref.kind == POD:
            return self._traffic.received((str(ref),))
        if ref.kind not in self._receivers:
            arrived = self._traffic.arrived
            self._receivers[ref.kind] = self._members(ref.kind, {**arrived.requests, **arrived.copies})
        pods = self._receivers[ref.kind].get(ref, ())
        if ref.kind != SERVICE:
            return self._traffic.received(pods)
        whole = {pod for pod in pods if self._is_whole(ref, pod)}
        return self._traffic.received(whole, self._into_service(ref, (pod for pod in pods if pod not in whole)))

    def _pods(self, ref: Ref) -> Sequence[str]:
        """Return the pods with traffic that belong to a resource; a pod belongs to itself."""
        if ref.kind == POD:
            return (str(ref),)
        if ref.kind not in self._parties:
            self._parties[ref.kind] = self._members(ref.kind, {**self._traffic.into, **self._traffic.out_of})
        return self._parties[ref.kind].get(ref, ())

    def _members(self, kind: str, pods: Iterable[str]) -> Mapping[Ref, Sequence[str]]:
        """Group pods by the resource of a kind to which they belong."""
        by_owner: dict[Ref, list[str]] = defaultdict(list)
        for pod in pods:
            for owner in self._graph.resources_of(_pod(pod), kind):
                by_owner[owner].append(pod)
        return by_owner

    def _sent_flows(self, ref: Ref) -> Iterator[CountedFlow]:
        return (pair for pod in self._pods(ref) for pair in self._traffic.out_of.get(pod, ()))

    def received_flows(self, ref: Ref) -> Iterable[CountedFlow]:
        """Return the flows that a resource received, copies of mirrors included."""
        if ref.kind == SERVICE:
            return self._into_service(ref, self._pods(ref))
        return (pair for pod in self._pods(ref) for pair in self._traffic.into.get(pod, ()))

    def _is_whole(self, service: Ref, pod: str) -> bool:
        """Return whether all traffic of a pod belongs to a Service, so that the pod's sum can be used."""
        ports = self._service_index[1].get(pod)
        return ports is not None and self._graph.targets_ports(service, pod, ports)

    def _into_service(self, service: Ref, pods: Iterable[str]) -> Iterator[CountedFlow]:
        """Yield the flows of a Service: flows to `pods` on its target ports, and flows that reached no selected pod."""
        for pod in pods:
            for flow, counts in self._traffic.into.get(pod, ()):
                if self._graph.counts_with_pod(flow) and self._graph.targets_ports(service, pod, (flow.target,)):
                    yield flow, counts
        yield from self._service_index[0].get(service, ())

    @cached_property
    def _service_index(self) -> tuple[Mapping[Ref, Sequence[CountedFlow]], Mapping[str, set[int] | None]]:
        """Two indexes of the flows: by Service, and by destination pod.

        The first contains only flows whose Services do not follow from selectors and target ports. The second maps each
        pod to the target ports of its incoming flows, or to None if the first contains one of these flows.
        """
        by_service: defaultdict[Ref, list[CountedFlow]] = defaultdict(list)
        ports: dict[str, set[int] | None] = {}
        for pair in self._traffic.flows.items():
            flow, counts = pair
            pod = flow.destination.pod
            if self._graph.counts_with_pod(flow):
                targets = ports.setdefault(pod, set())
                if targets is not None:
                    targets.add(flow.target)
                continue
            ports[pod] = None
            if counts.counters:
                for service in self._graph.services_behind(flow):
                    by_service[service].append(pair)
        return by_service, ports

    def _destinations(self, flow: Flow, kind: str) -> tuple[Ref, ...]:
        if kind == SERVICE and (services := self._graph.services_behind(flow)):
            return services
        called = (flow.copy and flow.backend) or flow.service
        if called and flow.destination == NO_PEER:
            return (_ref(SERVICE, called),)
        return self._resources_of_peer(flow.destination, POD if kind == SERVICE else kind)

    def _resources_of_peer(self, peer: Peer, kind: str) -> tuple[Ref, ...]:
        if not peer.pod:
            return (Ref(OUTSIDE, "", peer.outside or UNKNOWN),)
        pod = _pod(peer.pod)
        return self._graph.resources_of(pod, kind) or (pod,)


def _ref(kind: str, name: str) -> Ref:
    return Ref(kind, *name.split("/", 1))


def _pod(name: str) -> Ref:
    return _ref(POD, name)
