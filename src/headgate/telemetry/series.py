"""What the proxies' series mean: a name and attributes become a flow, and what there is to count about it.

The series are those of `envoy.telemetry`; nothing else knows both them and flows.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from headgate.envoy import names
from headgate.envoy.telemetry import (
    CONNECTIONS,
    COPIES,
    COPIES_FAILED,
    FAILED,
    LATENCY,
    PREFIX,
    RECEIVED,
    REQUESTS,
    SENT,
    parse_code,
)
from headgate.envoy.view import SIDECAR
from headgate.model.refs import PortRef
from headgate.telemetry import counts
from headgate.telemetry.counts import Counts, class_lane
from headgate.telemetry.flows import NOBODY, Flow, Peer
from headgate.telemetry.growth import Grown
from headgate.telemetry.otlp import Series

GATEWAY = Peer(outside="gateway")
ELSEWHERE = Peer(outside="elsewhere")
"""Addresses that are no Service's, which a transparent sidecar lets through."""
Callers = Callable[[str, str], Peer | None]
"""Tells who came to the proxy of a node id from an address; None when that is somebody whose own proxy has counted."""
_LANES = {
    f"{PREFIX}.{CONNECTIONS}": counts.CONNECTIONS,
    f"{PREFIX}.{FAILED}": counts.UNREACHED,
    f"{PREFIX}.{SENT}": counts.SENT,
    f"{PREFIX}.{RECEIVED}": counts.RECEIVED,
    f"{PREFIX}.{COPIES}": counts.SUCCEEDED,
    f"{PREFIX}.{COPIES_FAILED}": counts.FAILED,
}
_REQUESTS, _LATENCY = f"{PREFIX}.{REQUESTS}", f"{PREFIX}.{LATENCY}"
_COPY_CLUSTER, _COPY_POD = "envoy.cluster_name", "envoy.endpoint_hostname"  # Envoy's own words, for its own counters
_REMEMBERED = 200_000  # meanings; without them each growth costs four times as much


class _Meaning(NamedTuple):
    """A flow, and the lane that a counter counts in; None for a histogram. `caller` is an address that is yet to be named."""

    flow: Flow
    lane: int | None
    caller: str = ""


def counted(node: str, grown: Grown, callers: Callers) -> tuple[Flow, Counts] | None:
    """Return what grew, of which flow; None when it is nothing of headgate's, or counted by somebody else."""
    meaning = _meaning(node, grown.series)
    if meaning is None:
        return None
    flow, lane, caller = meaning
    if caller:
        source = callers(node, caller)
        if source is None:
            return None
        flow = Flow(source=source, destination=flow.destination)
    return flow, Counts(grown.buckets) if lane is None else Counts.of({lane: grown.value})


def peer(node: str) -> Peer:
    """Return who a proxy is as the end of a flow: its pod, or a gateway."""
    kind, _, pod = node.partition("/")
    return Peer(pod=pod) if kind == SIDECAR and pod else GATEWAY


@lru_cache(_REMEMBERED)
def _meaning(node: str, series: Series) -> _Meaning | None:
    name, found = series.name, series.pairs()
    if name == _LATENCY:
        lane = None
    elif name == _REQUESTS:
        lane = class_lane(parse_code(found.get("code", "")).whole, found.get("grpc", ""))
    elif name in _LANES:
        lane = _LANES[name]
    else:
        return None
    if caller := found.get("source", ""):
        return _Meaning(Flow(source=NOBODY, destination=peer(node)), lane, caller)
    flow = _copy(node, found) if _COPY_CLUSTER in found else _sent(node, found)
    return _Meaning(flow, lane) if flow else None


def _sent(node: str, found: Mapping[str, str]) -> Flow | None:
    """Return what a client's side says; None for what is no Service's, and what is counted in the tunnel that it is in."""
    cluster = found.get("cluster", "")
    if cluster in ("", names.TUNNEL):
        return None
    ref = _ref(cluster)
    pod = found.get("pod", "")
    return Flow(
        source=peer(node),
        destination=Peer(pod=pod) if pod else ELSEWHERE if cluster == names.PASSTHROUGH else NOBODY,
        service=ref.service if ref else "",
        port=ref.port if ref else 0,
        backend=found.get("backend", ""),
    )


def _copy(node: str, found: Mapping[str, str]) -> Flow | None:
    ref = _ref(found[_COPY_CLUSTER])
    pod = found.get(_COPY_POD, "")
    if ref is None:
        return None
    destination = Peer(pod=pod) if pod else NOBODY
    return Flow(
        source=peer(node), destination=destination, service=ref.service, port=ref.port, backend=ref.service, copy=True
    )


def _ref(cluster: str) -> PortRef | None:
    try:
        return names.parse(cluster)
    except ValueError:  # no name of ours
        return None
