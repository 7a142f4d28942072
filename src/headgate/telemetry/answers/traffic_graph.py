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
from headgate.telemetry.counters.counts import RECEIVED, SENT, UNSENT, Counts
from headgate.telemetry.counters.flows import NO_PEER, Flow, Peer, Reading
from headgate.telemetry.counters.histogram import merged, percentiles

_GROUPS = {names.kind: names.group for names in reversed(NAMES)}
_NO_SEVERITIES: Counter[Severity] = Counter()


def traffic_graph(name: str, reading: Reading, world: ObjectGraph, facts: MeshFacts) -> TrafficGraph:
    """Return the graph `name` (`GRAPHS`) of the whole mesh. That of workloads has no splits and no mirrors."""
    return _Graph(name, reading, world, facts).made()


def in_namespace(graph: TrafficGraph, namespace: str, world: ObjectGraph, facts: MeshFacts) -> TrafficGraph:
    """Return the part of a graph with the nodes of a namespace and their peers. It has only the names of peers elsewhere."""
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
                structs.replace(mirror, service=moved[mirror.service], target=moved[mirror.target])
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


class _Sums:
    """The sums of the flows on one edge; `secured` has the counters of those over mutual TLS."""

    __slots__ = ("counters", "latencies", "secured")

    def __init__(self) -> None:
        self.counters = 0
        self.latencies: list[int] = []
        self.secured = 0


class _Graph:
    """The graph of one Reading while it is made."""

    def __init__(self, name: str, reading: Reading, world: ObjectGraph, facts: MeshFacts) -> None:
        self._name = name
        self._by_service = name == SERVICES
        self._reading = reading
        self._world = world
        self._facts = facts
        self._divided = DividedTraffic(facts)
        self._ends: dict[Peer, Ref] = {}
        self._services: dict[str, Ref] = {}
        self._edges: defaultdict[tuple[Ref, Ref, bool], _Sums] = defaultdict(_Sums)
        self._called: defaultdict[Called, int] = defaultdict(int)

    def made(self) -> TrafficGraph:
        """Return the graph."""
        self._add_flows()
        refs = sorted(self._refs(), key=attrgetter("namespace", "kind", "name"))
        indexes = {ref: index for index, ref in enumerate(refs)}
        rows = sorted(
            (indexes[source], indexes[target], copy, sums) for (source, target, copy), sums in self._edges.items()
        )
        reading = self._reading
        milliseconds = round(reading.window * 1000)
        reason, message = ("", "") if rows else empty_reason(milliseconds, self._world, self._facts)
        divided = self._divided if self._by_service else DividedTraffic(MeshFacts(None))

        def index(service: str) -> int:
            return indexes[self._service(service)]

        status = TrafficGraphStatus(
            start_time=timestamp(reading.end - reading.window),
            end_time=timestamp(reading.end),
            window_milliseconds=milliseconds,
            reason=reason,
            message=message,
            nodes=tuple(self._nodes(refs)),
            edges=tuple([_edge(*row) for row in rows]),
            splits=tuple(divided.splits(self._called, index)),
            mirrors=tuple(divided.mirrored(self._called, index)),
        )
        return TrafficGraph(metadata=ObjectName(name=self._name), status=status)

    def _add_flows(self) -> None:
        """Add each flow to its edge. Add those that splits and mirrors need to what was called."""
        ends, edges, roots = self._ends, self._edges, self._divided.roots
        for flow, counts in self._reading.flows.items():
            if not counts.counters:
                continue
            source = ends.get(flow.source) or self._end(flow.source)
            sums = edges[source, self._target(flow), flow.copy]
            sums.counters += counts.counters
            if counts.latency:
                sums.latencies.append(counts.latency)
            if flow.secured:
                sums.secured += counts.counters
            if flow.copy or flow.service in roots:
                called = Called(PortRef(flow.service, flow.port), flow.backend, flow.copy)
                self._called[called] += counts.counters

    def _end(self, peer: Peer) -> Ref:
        """Return the node of a pod or of a peer outside the mesh."""
        if peer not in self._ends:
            self._ends[peer] = self._node_of(peer)
        return self._ends[peer]

    def _node_of(self, peer: Peer) -> Ref:
        if not peer.pod:
            return Ref(OUTSIDE, "", peer.outside or UNKNOWN)
        pod = Ref(POD, *peer.pod.split("/", 1))
        service = self._world.closest_service(pod) if self._by_service else None
        return service or self._world.workload_of(pod)

    def _target(self, flow: Flow) -> Ref:
        """Return the called Service or the workload that answered; between workloads, the Service if none answered."""
        if flow.service and (self._by_service or flow.destination == NO_PEER):
            return self._services.get(flow.service) or self._service(flow.service)
        if self._by_service and (behind := self._world.services_behind(flow)):
            return behind[0]
        return self._end(flow.destination)

    def _service(self, name: str) -> Ref:
        if name not in self._services:
            self._services[name] = Ref(SERVICE, *name.split("/", 1))
        return self._services[name]

    def _refs(self) -> set[Ref]:
        """Return the nodes: those of edges, splits and mirrors, and all that have a sidecar."""
        refs = {end for source, target, _ in self._edges for end in (source, target)}
        if not self._by_service:
            return refs.union(ref for ref, mesh in self._world.workloads.items() if mesh.meshed)
        refs.update(info.ref for info in self._world.of(SERVICE) if self._world.mesh(info.ref).meshed)
        return refs.union(map(self._service, self._divided.services))

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


def _edge(source: int, target: int, copy: bool, sums: _Sums) -> GraphEdge:  # noqa: FBT001  a field of the result
    counts = Counts(0, sums.counters)
    success, failures, connections = counts.success, counts.failure, counts.connections
    is_denied = counts.is_denied
    denied = counts.denied if is_denied else 0
    requests = success + failures + denied
    total = requests + connections
    p50, p90, p99 = _latencies(sums.latencies, success + failures)
    all_are_secured = sums.secured == sums.counters
    unsent = (
        0 if all_are_secured else counts.count(UNSENT) - (Counts(0, sums.secured).count(UNSENT) if sums.secured else 0)
    )
    return GraphEdge(
        source=source,
        target=target,
        copy=copy,
        requests=requests,
        failures=failures,
        denied=denied,
        connections=connections,
        failed_connections=counts.unreached,
        denied_connections=counts.denied_connections if is_denied else 0,
        p50_microseconds=p50,
        p90_microseconds=p90,
        p99_microseconds=p99,
        bytes=counts.count(SENT) + counts.count(RECEIVED) if connections or counts.unreached else None,
        exchanged=total - unsent,
        secured=total if all_are_secured else exchanged(sums.secured) if sums.secured else 0,
    )


def _latencies(histograms: Sequence[int], requests: int) -> Sequence[int | None]:
    """Return the percentiles in microseconds, each None without a response."""
    seconds = percentiles(histograms[0] if len(histograms) == 1 else merged(histograms, requests), SHARES)
    return [round(second * 1e6) for second in seconds] or (None, None, None)
