"""Finds the traffic that fails now, from the flows of a Reading: which callers of which Service ports, and why."""

from collections import defaultdict

from headgate.kinds import NAMES
from headgate.resources.mesh_status import FailingTraffic
from headgate.resources.meta import Key
from headgate.resources.pod_owners import POD, Ref
from headgate.resources.request_spec import CALLER_KINDS
from headgate.telemetry.answers.answers import UNKNOWN
from headgate.telemetry.answers.object_graph import ObjectGraph
from headgate.telemetry.counters.counts import NO_RESPONSE, UNSENT, Counts, is_failure
from headgate.telemetry.counters.flows import GATEWAY, Peer, Reading

FAILING = 0.01
"""The share of failures from which traffic counts as failing, as in the graph of the dashboard (`outcome.js`)."""
_GROUPS = {names.kind: names.group for names in reversed(NAMES)}
_CLIENTS = {GATEWAY.outside: "the gateway", "": UNKNOWN}
_Place = tuple[Ref | str, str, int]


def failing_traffic(reading: Reading, world: ObjectGraph) -> tuple[FailingTraffic, ...]:
    """Return the traffic of which at least `FAILING` fails, or access rules deny a part; the most affected comes first.

    Mirrored copies do not count, because no client waits for their responses.
    """
    sums: defaultdict[_Place, Counts] = defaultdict(Counts)
    for flow, counts in reading.flows.items():
        if counts.counters and not flow.copy:
            place = _caller(flow.source, world), flow.service, flow.port
            sums[place] = sums[place].plus(Counts(0, counts.counters))
    rows = [_row(*place, counts) for place, counts in sums.items()]
    failing = [row for row in rows if row.denied or (row.failed and row.failed >= FAILING * (row.total - row.denied))]
    return tuple(sorted(failing, key=_rank))


def _rank(row: FailingTraffic) -> tuple[float, int, str, str, int]:
    return -(row.failed + row.denied) / row.total, -row.total, row.client, row.service, row.port


def _caller(peer: Peer, world: ObjectGraph) -> Ref | str:
    """Return the workload of a calling pod, or the name of a client outside of the mesh."""
    return (
        world.workload_of(Ref(POD, *peer.pod.split("/", 1))) if peer.pod else _CLIENTS.get(peer.outside, peer.outside)
    )


def _row(caller: Ref | str, service: str, port: int, counts: Counts) -> FailingTraffic:
    failed, denied = counts.failure + counts.unreached, counts.denied + counts.denied_connections
    workload = caller if isinstance(caller, Ref) else None
    is_served = failed > denied and counts.failure >= counts.unreached and not _is_unsent(counts)
    return FailingTraffic(
        caller=Key(_GROUPS.get(workload.kind, ""), workload.kind, workload.namespace, workload.name)
        if workload
        else None,
        client=f"{workload.kind} {workload.namespace}/{workload.name}" if workload else str(caller),
        service=service,
        port=port,
        total=counts.success + counts.failure + counts.denied + counts.connections + counts.unreached,
        failed=failed,
        denied=denied,
        message=_cause(counts, failed, denied),
        command=_command(workload, service, port, is_served=is_served),
    )


def _cause(counts: Counts, failed: int, denied: int) -> str:
    """Return the most frequent cause in words."""
    if denied >= failed:
        return "access rules deny them"
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


def _command(caller: Ref | None, service: str, port: int, *, is_served: bool) -> str:
    """Return the command that explains the traffic: of requests that servers got, only live ones show the cause.

    The client's URL is unknown if no Service has its address.
    """
    namespace, _, name = service.partition("/")
    if is_served and service:
        return f"kubectl traffic tap service/{name} -n {namespace}"
    url = f"http://{name}.{namespace}:{port}/" if service else "URL"
    if caller is None or caller.kind not in CALLER_KINDS:
        return f"headgate explain {url}"
    return f"headgate explain {url} --from {caller.kind.lower()}/{caller.name} -n {caller.namespace}"
