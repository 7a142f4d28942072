"""Finds the traffic that fails now, from the flows of a Reading: which callers of which Service ports, and why."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from msgspec import structs

from headgate.kinds import NAMES
from headgate.model.authorization import Refusals
from headgate.model.identities import gateway_id, parse_id
from headgate.model.routing import Mesh, Workload
from headgate.resources.mesh_status import FailingTraffic
from headgate.resources.meta import Key
from headgate.resources.pod_owners import POD, Ref
from headgate.resources.request_spec import CALLER_KINDS
from headgate.telemetry.answers.answers import UNKNOWN
from headgate.telemetry.answers.object_graph import IDENTITY, ObjectGraph
from headgate.telemetry.counters.counts import NO_RESPONSE, UNSENT, Counts, is_failure
from headgate.telemetry.counters.flows import GATEWAY, Flow, Peer, Reading

FAILING = 0.01
"""The share of failures from which traffic counts as failing, as in the graph of the dashboard (`outcome.js`)."""
UNLIKELY = 3
"""Traffic recovered if its successes without a failure are this multiple of the number in which one fails: 5 % by chance."""
_GROUPS = {names.kind: names.group for names in reversed(NAMES)}
_DENIED = "access rules deny them"
_CLIENTS = {GATEWAY.outside: "the gateway", "": UNKNOWN}
_OUTSIDE = "clients outside of the mesh"
_Place = tuple[Ref | str, str, int]
_Path = tuple[Peer, Peer, int]


def failing_traffic(
    reading: Reading, world: ObjectGraph, mesh: Mesh | None = None, recent: Reading | None = None
) -> tuple[FailingTraffic, ...]:
    """Return the traffic of which at least `FAILING` fails, or access rules deny a part; the most failures come first.

    With `recent`, a reading of a shorter window, traffic that succeeds there again is marked, and comes last (`UNLIKELY`).
    Mirrored copies do not count, because no client waits for their responses. The `mesh` has the access rules that say why
    a caller is denied.
    """
    opened, rules = _opened(reading.flows), _Rules(mesh)
    sums = _sums(reading, opened, world)
    failing = {place for place, counts in sums.items() if _fails(counts)}
    refusals: defaultdict[_Place, Counter[str]] = defaultdict(Counter)
    for flow, counts in reading.flows.items():
        if counts.is_denied and not flow.copy:
            refusals[_place(flow, opened, world)][rules.refusal(flow)] += _denied(counts)
    rows = {place: _row(*place, sums[place], refusals[place]) for place in failing}
    if rows and recent and recent.window < reading.window:
        later = _sums(recent, opened, world)
        rows = {place: _compared(row, later.get(place, Counts()), recent.window) for place, row in rows.items()}
    return tuple(sorted(rows.values(), key=_rank))


def _sums(reading: Reading, opened: Mapping[_Path, tuple[str, int]], world: ObjectGraph) -> Mapping[_Place, Counts]:
    """Return the counts of each caller and Service port, whether the traffic fails or not."""
    sums: defaultdict[_Place, Counts] = defaultdict(Counts)
    for flow, counts in reading.flows.items():
        if counts.counters and not flow.copy:
            place = _place(flow, opened, world)
            sums[place] = sums[place].plus(Counts(0, counts.counters))
    return sums


def _place(flow: Flow, opened: Mapping[_Path, tuple[str, int]], world: ObjectGraph) -> _Place:
    return _caller(flow.source, world), *_service_port(flow, opened, world)


def _fails(counts: Counts) -> bool:
    failed, denied = _failed(counts), _denied(counts)
    return denied > 0 or (failed > 0 and failed >= FAILING * (_total(counts) - denied))


def _compared(row: FailingTraffic, later: Counts, seconds: float) -> FailingTraffic:
    """Mark a row as recovered if it has no failures in the last `seconds`, which `later` counts, and that is unlikely to be chance.

    Of `failed` failures among `total`, all are before the last `later` ones with a chance below `exp(-later * failed / total)`.
    """
    total, failed = _total(later), row.failed + row.denied
    if _failed(later) or _denied(later) or total * failed < UNLIKELY * row.total:
        return row
    return structs.replace(row, recovered_seconds=round(seconds), recovered_total=total)


def _failed(counts: Counts) -> int:
    return counts.failure + counts.unreached


def _denied(counts: Counts) -> int:
    return counts.denied + counts.denied_connections


def _total(counts: Counts) -> int:
    # The server's and the client's proxy count a denied connection of mutual TLS, and report at different times.
    connections = max(counts.connections, counts.denied_connections)
    return counts.success + counts.failure + counts.denied + connections + counts.unreached


class _Rules:
    """The access rules of a mesh, for both readings. The pods of a workload share the refusals of their grants."""

    def __init__(self, mesh: Mesh | None) -> None:
        self._workloads = {workload.name: workload for workload in mesh.workloads} if mesh else {}
        self._trust_domain = mesh.trust_domain if mesh else ""
        self._of_pod: dict[str, Refusals] = {}
        self._of_grants: dict[tuple[int, ...], Refusals] = {}  # by the IDs of the grants, which the mesh holds

    def refusal(self, flow: Flow) -> str:
        """Return why the current rules deny a flow; a general text if they or the caller are unknown, or they no longer deny it."""
        called, identity = self._workloads.get(flow.destination.pod), self._identity(flow)
        if called is None or not called.access.closed or identity is None:
            return _DENIED
        return self._refusals(called).reason(flow.target, identity)

    def _refusals(self, called: Workload) -> Refusals:
        if called.name not in self._of_pod:
            grants = called.access.grants
            key = tuple(map(id, grants))
            if key not in self._of_grants:
                self._of_grants[key] = Refusals(grants)
            self._of_pod[called.name] = self._of_grants[key]
        return self._of_pod[called.name]

    def _identity(self, flow: Flow) -> str | None:
        """Return the SPIFFE ID that the caller proved; empty for plaintext, None if it is unknown, as after the end of the caller's pod."""
        if not flow.secured:
            return ""
        if flow.source == GATEWAY:
            return gateway_id(self._trust_domain)
        if flow.source.pod:
            workload = self._workloads.get(flow.source.pod)
            return workload.identity or None if workload else None
        return flow.source.outside if parse_id(flow.source.outside) else None


def _rank(row: FailingTraffic) -> tuple[bool, int, int, str, str, int]:
    return row.recovered_seconds > 0, -(row.failed + row.denied), row.total, row.client, row.service, row.port


def _caller(peer: Peer, world: ObjectGraph) -> Ref | str:
    """Return the workload of a calling pod, or the name of a client outside of the mesh.

    All addresses have one name, because a client can call from any number of them.
    """
    if peer.pod:
        return world.workload_of(Ref(POD, *peer.pod.split("/", 1)))
    return peer.outside if peer.outside.startswith(IDENTITY) else _CLIENTS.get(peer.outside, _OUTSIDE)


def _opened(flows: Mapping[Flow, Counts]) -> Mapping[_Path, tuple[str, int]]:
    """Return the Service port to which a client opened most connections, by client, server and target port."""
    most: dict[_Path, tuple[int, str, int]] = {}
    for flow, counts in flows.items():
        if flow.service and flow.destination.pod and counts.connections:
            path = flow.source, flow.destination, flow.target
            most[path] = max(most.get(path, (0, "", 0)), (counts.connections, flow.service, flow.port))
    return {path: (service, port) for path, (_, service, port) in most.items()}


def _service_port(flow: Flow, opened: Mapping[_Path, tuple[str, int]], world: ObjectGraph) -> tuple[str, int]:
    """Return the Service (`namespace/name`) and the port that the client called; empty and 0 if unknown.

    1. The client's proxy knows both.
    2. The server's proxy counts a denied connection without them; the client's proxy has counted it as opened.
    3. A route of a gateway has a backend.
    4. Otherwise it is a Service with the server's port.
    """
    if flow.service:
        return flow.service, flow.port
    if called := opened.get((flow.source, flow.destination, flow.target)):
        return called
    if flow.backend:
        return flow.backend, 0
    services = world.services_behind(flow)
    if not services:
        return "", 0
    closest = world.closest_service(Ref(POD, *flow.destination.pod.split("/", 1)))
    return str(closest if closest in services else min(services)), 0


def _row(caller: Ref | str, service: str, port: int, counts: Counts, refusals: Counter[str]) -> FailingTraffic:
    failed, denied = _failed(counts), _denied(counts)
    workload = caller if isinstance(caller, Ref) else None
    return FailingTraffic(
        caller=Key(_GROUPS.get(workload.kind, ""), workload.kind, workload.namespace, workload.name)
        if workload
        else None,
        client=f"{workload.kind} {workload.namespace}/{workload.name}" if workload else str(caller),
        service=service,
        port=port,
        total=_total(counts),
        failed=failed,
        denied=denied,
        message=_frequent(refusals) if refusals and denied >= failed else _cause(counts),
        command=_command(workload, service, port, is_tapped=_is_tapped(counts, failed, denied)),
    )


def _frequent(refusals: Counter[str]) -> str:
    """Return the most frequent reason; of equally frequent ones the same in each status, because watchers get each change."""
    return max(refusals, key=lambda reason: (refusals[reason], reason))


def _cause(counts: Counts) -> str:
    """Return the most frequent cause of failures in words."""
    if counts.unreached > counts.failure:
        return "nothing accepts the connections"
    if _is_unsent(counts):
        return "no server got them, the caller's proxy responded"
    classes = [(number, name) for name, number in counts.classes if is_failure(name)]
    name = max(classes)[1] if classes else NO_RESPONSE
    return "no response" if name == NO_RESPONSE else f"responses {name}"


def _is_unsent(counts: Counts) -> bool:
    """Return whether most failed requests reached no server, because none was connected."""
    return 2 * counts.count(UNSENT) > counts.failure


def _is_tapped(counts: Counts, failed: int, denied: int) -> bool:
    """Return whether live requests show the cause: servers got them, or rules deny them by method and path, say."""
    if denied >= failed:
        return counts.denied >= counts.denied_connections
    return counts.failure >= counts.unreached and not _is_unsent(counts)


def _command(caller: Ref | None, service: str, port: int, *, is_tapped: bool) -> str:
    """Return the command that explains the traffic. The client's URL is unknown without a Service port."""
    namespace, _, name = service.partition("/")
    if is_tapped and service:
        return f"kubectl traffic tap service/{name} -n {namespace}"
    url = f"http://{name}.{namespace}:{port}/" if port else "URL"
    if caller is None or caller.kind not in CALLER_KINDS:
        return f"headgate explain {url}"
    return f"headgate explain {url} --from {caller.kind.lower()}/{caller.name} -n {caller.namespace}"
