"""Makes the traffic graph of the inspect API from a Reading: Services or workloads, in one pass over the flows.

Each flow is on exactly one edge, so sums over edges count no request twice. Between Services, the source is the Service that selects
the calling pod by the most labels, and the target is the called Service. A pod without a Service is shown as its workload.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from msgspec import structs

from headgate import durations
from headgate.kinds import NAMES
from headgate.model.routing import PortRef
from headgate.resources.inspect import ObjectName, Severity
from headgate.resources.meta import Key, timestamp
from headgate.resources.pod_owners import POD, Ref
from headgate.resources.traffic_graphs import SERVICES, GraphEdge, GraphNode, TrafficGraph, TrafficGraphStatus
from headgate.telemetry.answers.answers import SHARES, UNKNOWN
from headgate.telemetry.answers.divided_traffic import Called, DividedTraffic, MeshFacts, exchanged
from headgate.telemetry.answers.object_graph import OUTSIDE, SERVICE, ObjectGraph
from headgate.telemetry.counters.counts import BEYOND_REQUESTS, RECEIVED, SENT, UNSENT, Counts
from headgate.telemetry.counters.flows import NO_PEER, Flow, Peer, Reading
from headgate.telemetry.counters.histogram import Buckets, merged, percentiles

_GROUPS = {names.kind: names.group for names in reversed(NAMES)}
_TARGET = 32  # the bits of a target and of whether there are copies, in the key of an edge
_TARGETS = (1 << _TARGET) - 1
_NO_SEVERITIES: Counter[Severity] = Counter()


class _Edges:
    """The sums of the edges in parallel lists, one place for each edge.

    A list for each edge instead would be 20,000 objects that the garbage collector walks, a third of a graph's processor time.
    """

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        self.keys: list[int] = []
        self.counters: list[int] = []
        self.secured: list[int] = []
        self.latencies: list[int] = []
        self.further: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, key: int, counts: Counts, *, secured: bool) -> None:
        """Add a flow to the edge with a key (`_edge_key`)."""
        counters = counts.counters
        place = self.places.get(key)
        if place is None:
            self.places[key] = len(self.keys)
            self.keys.append(key)
            self.counters.append(counters)
            self.secured.append(counters if secured else 0)
            self.latencies.append(counts.latency)
            return
        self.counters[place] += counters
        if secured:
            self.secured[place] += counters
        self.further[place].append(counts.latency)

    def sorted(self, positions: Sequence[int]) -> list[GraphEdge]:
        """Return the edges by source and target; `positions` has the place of each node among the sorted ones."""
        keys = [_edge_key(positions[key >> _TARGET], positions[(key & _TARGETS) >> 1], key & 1) for key in self.keys]
        return [
            _edge(keys[at], self.counters[at], self.secured[at], (self.latencies[at], *self.further.get(at, ())))
            for at in sorted(range(len(keys)), key=keys.__getitem__)
        ]


def traffic_graph(name: str, reading: Reading, world: ObjectGraph, facts: MeshFacts) -> TrafficGraph:
    """Return the graph `name` (`GRAPHS`) of the whole mesh. That of workloads has no splits and no mirrors."""
    return _Graph(name, reading, world, facts).made()


def in_namespace(graph: TrafficGraph, namespace: str, world: ObjectGraph, facts: MeshFacts) -> TrafficGraph:
    """Return the part of a graph with the nodes of a namespace and their peers. It has only the names of peers elsewhere.

    Mirrors of objects elsewhere have no verdict: it compares responses of Services elsewhere.
    """
    status = graph.status
    inside = [node.namespace == namespace for node in status.nodes]
    edges = [edge for edge in status.edges if inside[edge.source] or inside[edge.target]]
    splits = [split for split in status.splits if inside[split.service]]
    mirrors = [mirror for mirror in status.mirrors if inside[mirror.service] or inside[mirror.target]]
    shown = {index for index, is_inside in enumerate(inside) if is_inside}
    shown.update(end for edge in edges for end in (edge.source, edge.target))
    shown.update(backend.service for split in splits for backend in split.backends)
    shown.update(end for mirror in mirrors for end in (mirror.service, mirror.target))
    order = sorted(shown)
    moved = {before: index for index, before in enumerate(order)}
    reason, message = ("", "") if edges else empty_reason(status.window_milliseconds, world, facts, namespace)
    return structs.replace(
        graph,
        metadata=structs.replace(graph.metadata, namespace=namespace),
        status=structs.replace(
            status,
            reason=reason,
            message=message,
            nodes=tuple(node if inside[at] else _only_named(node) for at in order for node in (status.nodes[at],)),
            edges=tuple(structs.replace(edge, source=moved[edge.source], target=moved[edge.target]) for edge in edges),
            splits=tuple(
                structs.replace(
                    split,
                    service=moved[split.service],
                    backends=tuple(structs.replace(part, service=moved[part.service]) for part in split.backends),
                )
                for split in splits
            ),
            mirrors=tuple(
                structs.replace(
                    mirror if mirror.object.namespace == namespace else structs.replace(mirror, verdict="", message=""),
                    service=moved[mirror.service],
                    target=moved[mirror.target],
                )
                for mirror in mirrors
            ),
        ),
    )


def _only_named(node: GraphNode) -> GraphNode:
    return GraphNode(kind=node.kind, namespace=node.namespace, name=node.name)


def empty_reason(milliseconds: int, world: ObjectGraph, facts: MeshFacts, namespace: str = "") -> tuple[str, str]:
    """Return why a graph has no edges, and what to do, for a window in milliseconds."""
    where = f" in the namespace {namespace}" if namespace else ""
    tables = facts.compiled.mesh.tables if facts.compiled else ()
    if not any(namespace in ("", table.ref.service.partition("/")[0]) for table in tables):
        return "NothingRouted", f"no Service{where} has a port that proxies route; create a Service for the pods"
    if not any(info.identity and namespace in ("", info.ref.namespace) for info in world.of(POD)):
        label = f"`kubectl label namespace {namespace or 'NAME'} headgate.dev/inject=true`"
        return "NoSidecars", f"no pod{where} has a sidecar that counts its requests; run {label}, and restart the pods"
    window = durations.formatted(milliseconds / 1000)
    return "NoTraffic", f"no proxy{where} reported a request in the last {window}; send one, or choose a longer window"


class _Graph:
    """The graph of one Reading while it is made."""

    def __init__(self, name: str, reading: Reading, world: ObjectGraph, facts: MeshFacts) -> None:
        self._name = name
        self._by_service = name == SERVICES
        self._reading = reading
        self._world = world
        self._facts = facts
        self._divided = DividedTraffic(facts)
        self._numbers: dict[Ref, int] = {}
        self._ends: dict[Peer, int] = {}
        self._services: dict[str, int] = {}
        self._edges = _Edges()
        self._called: defaultdict[Called, int] = defaultdict(int)

    def made(self) -> TrafficGraph:
        """Return the graph."""
        self._add_flows()
        self._add_idle_nodes()
        refs = sorted(self._numbers, key=attrgetter("namespace", "kind", "name"))
        indexes = {ref: index for index, ref in enumerate(refs)}
        positions = [indexes[ref] for ref in self._numbers]
        edges = tuple(self._edges.sorted(positions))
        reading = self._reading
        milliseconds = round(reading.window * 1000)
        reason, message = ("", "") if edges else empty_reason(milliseconds, self._world, self._facts)
        divided = self._divided if self._by_service else DividedTraffic(MeshFacts(None))

        def index(service: str) -> int:
            return positions[self._service(service)]

        status = TrafficGraphStatus(
            start_time=timestamp(reading.end - reading.window),
            end_time=timestamp(reading.end),
            window_milliseconds=milliseconds,
            reason=reason,
            message=message,
            nodes=tuple(self._nodes(refs)),
            edges=edges,
            splits=tuple(divided.splits(self._called, index)),
            mirrors=tuple(divided.mirrored(self._called, index)),
        )
        return TrafficGraph(metadata=ObjectName(name=self._name), status=status)

    def _add_flows(self) -> None:
        """Add each flow to its edge. Add those that splits and mirrors need to what was called."""
        ends, roots, add = self._ends, self._divided.roots, self._edges.add
        for flow, counts in self._reading.flows.items():
            if not counts.counters:
                continue
            source = ends.get(flow.source)
            key = _edge_key(self._end(flow.source) if source is None else source, self._target(flow), flow.copy)
            add(key, counts, secured=flow.secured)
            if flow.copy or flow.service in roots:
                self._called[Called(PortRef(flow.service, flow.port), flow.backend, flow.copy)] += counts.counters

    def _number(self, ref: Ref) -> int:
        """Return the number of a node, in the order in which the nodes occur."""
        return self._numbers.setdefault(ref, len(self._numbers))

    def _end(self, peer: Peer) -> int:
        """Return the node of a pod or of a peer outside the mesh."""
        if peer not in self._ends:
            self._ends[peer] = self._number(self._node_of(peer))
        return self._ends[peer]

    def _node_of(self, peer: Peer) -> Ref:
        if not peer.pod:
            return Ref(OUTSIDE, "", peer.outside or UNKNOWN)
        pod = Ref(POD, *peer.pod.split("/", 1))
        service = self._world.closest_service(pod) if self._by_service else None
        return service or self._world.workload_of(pod)

    def _target(self, flow: Flow) -> int:
        """Return the called Service or the workload that answered; between workloads, the Service if none answered."""
        if flow.service and (self._by_service or flow.destination == NO_PEER):
            number = self._services.get(flow.service)
            return self._service(flow.service) if number is None else number
        if self._by_service and (behind := self._world.services_behind(flow)):
            return self._number(behind[0])
        return self._end(flow.destination)

    def _service(self, name: str) -> int:
        if name not in self._services:
            self._services[name] = self._number(Ref(SERVICE, *name.split("/", 1)))
        return self._services[name]

    def _add_idle_nodes(self) -> None:
        """Add the nodes of splits and mirrors, and all that have a sidecar."""
        world = self._world
        if self._by_service:
            refs = (info.ref for info in world.of(SERVICE) if world.mesh(info.ref).meshed)
            for service in self._divided.services:
                self._service(service)
        else:
            refs = (ref for ref, mesh in world.workloads.items() if mesh.meshed)
        for ref in refs:
            self._number(ref)

    def _nodes(self, refs: Iterable[Ref]) -> Iterator[GraphNode]:
        world, has_findings = self._world, bool(self._facts.findings)
        for ref in refs:
            info = world.find(ref)
            mesh = world.mesh(ref) if ref.kind == SERVICE else world.workloads.get(ref)
            severities = self._severities(ref) if has_findings else _NO_SEVERITIES
            yield GraphNode(
                kind=ref.kind,
                namespace=ref.namespace,
                name=ref.name,
                labels=info.labels if info else {},
                pods=mesh.pods if mesh else 0,
                meshed=mesh.meshed if mesh else 0,
                errors=severities[Severity.ERROR],
                warnings=severities[Severity.WARNING],
            )

    def _severities(self, ref: Ref) -> Counter[Severity]:
        """Count the findings about a node by severity; for a Service with those about the origins of its routes."""
        key = Key(_GROUPS.get(ref.kind, ""), ref.kind, ref.namespace, ref.name)
        about = {key, *self._divided.origins.get(str(ref), ())} if ref.kind == SERVICE else {key}
        return Counter(finding.reason.severity for obj in about for finding in self._facts.findings.get(obj, ()))


def _edge_key(source: int, target: int, copy: int) -> int:
    """Return one number for both nodes of an edge and whether it has copies: a dict finds numbers faster than tuples."""
    return source << _TARGET | target << 1 | copy


def _edge(key: int, counters: int, of_secured: int, latencies: Sequence[Buckets]) -> GraphEdge:
    """Return an edge: the sum of the counters, that of flows over mutual TLS, and the latencies of each flow."""
    counts = Counts(0, counters)
    failures, denied = counts.failure, counts.denied
    answered = counts.success + failures
    requests = answered + denied
    latency = latencies[0] if len(latencies) == 1 else merged(latencies, answered)
    p50, p90, p99 = [round(second * 1e6) for second in percentiles(latency, SHARES)] or (None, None, None)
    edge = GraphEdge(
        source=key >> _TARGET,
        target=(key & _TARGETS) >> 1,
        copy=bool(key & 1),
        requests=requests,
        failures=failures,
        denied=denied,
        p50_microseconds=p50,
        p90_microseconds=p90,
        p99_microseconds=p99,
        exchanged=requests,
        secured=requests if of_secured == counters else exchanged(of_secured) if of_secured else 0,
    )
    return edge if counters < BEYOND_REQUESTS else _with_connections(edge, counts, Counts(0, of_secured))


def _with_connections(edge: GraphEdge, counts: Counts, secured: Counts) -> GraphEdge:
    """Return an edge with its connections and bytes, and without requests that reached no server in `exchanged`."""
    connections, unreached = counts.connections, counts.unreached
    return structs.replace(
        edge,
        connections=connections,
        failed_connections=unreached,
        denied_connections=counts.denied_connections,
        audited=counts.audited,
        bytes=counts.count(SENT) + counts.count(RECEIVED) if connections or unreached else None,
        exchanged=edge.requests + connections - counts.count(UNSENT) + secured.count(UNSENT),
        secured=exchanged(secured.counters),
    )
