"""What the proxies' series mean: a name and attributes become a flow, and what there is to count about it.

The series are those of `envoy.telemetry`; nothing else knows both them and flows.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from msgspec import structs

from headgate.envoy import names
from headgate.envoy.telemetry import (
    CONNECTIONS,
    COPIES,
    COPIES_DROPPED,
    COPIES_FAILED,
    DENIED,
    FAILED,
    LATENCY,
    PREFIX,
    RECEIVED,
    REQUESTS,
    SENT,
    parse_code,
    parse_pod,
)
from headgate.envoy.view import pod_of
from headgate.model.refs import PortRef
from headgate.telemetry import counts
from headgate.telemetry.counts import Counts, class_lane
from headgate.telemetry.flows import GATEWAY, NOBODY, Flow, Peer
from headgate.telemetry.growth import Grown
from headgate.telemetry.otlp import Series

ELSEWHERE = Peer(outside="elsewhere")
"""Addresses that are no Service's, which a transparent sidecar lets through."""
Callers = Callable[[str, str, str], Peer | None]
"""Returns the caller of a proxy (node id) by its address and its identity, empty in plaintext; None when the caller's own
proxy has counted."""
_LANES = {
    f"{PREFIX}.{CONNECTIONS}": (counts.CONNECTIONS,),
    f"{PREFIX}.{FAILED}": (counts.UNREACHED,),
    f"{PREFIX}.{SENT}": (counts.SENT,),
    f"{PREFIX}.{RECEIVED}": (counts.RECEIVED,),
    f"{PREFIX}.{COPIES}": (counts.SUCCEEDED,),
    f"{PREFIX}.{COPIES_FAILED}": (counts.FAILED,),
}
_DENIED = f"{PREFIX}.{DENIED}"
_DROPPED = f"{PREFIX}.{COPIES_DROPPED}"
_REQUESTS, _LATENCY = f"{PREFIX}.{REQUESTS}", f"{PREFIX}.{LATENCY}"
_COPY_CLUSTER, _COPY_POD = "envoy.cluster_name", "envoy.endpoint_hostname"  # Envoy's own words, for its own counters
_REMEMBERED = 200_000  # meanings; without them each growth costs four times as much


class _Meaning(NamedTuple):
    """A flow, and the lanes that a counter counts in; none for a histogram.

    `caller`: the address and identity of a source that is yet to be named.
    """

    flow: Flow
    lanes: tuple[int, ...] = ()
    caller: tuple[str, str] | None = None


def counted(node: str, grown: Grown, callers: Callers) -> tuple[Flow, Counts] | None:
    """Return what grew, of which flow; None when it is nothing of headgate's, or counted by somebody else."""
    meaning = _meaning(node, grown.series)
    if meaning is None:
        return None
    flow, lanes, caller = meaning
    if caller:
        source = callers(node, *caller)
        if source is None:
            return None
        flow = structs.replace(flow, source=source)
    return flow, Counts.of(dict.fromkeys(lanes, grown.value)) if lanes else Counts(grown.buckets)


def dropped_at(grown: Grown) -> str:
    """Return the mirror's cluster whose copies were dropped; empty for all other series."""
    return grown.series.pairs().get(_COPY_CLUSTER, "") if grown.series.name == _DROPPED else ""


def peer(node: str) -> Peer:
    """Return who a proxy is as the end of a flow: its pod, or a gateway."""
    pod = pod_of(node)
    return Peer(pod=pod) if pod else GATEWAY


@lru_cache(_REMEMBERED)
def _meaning(node: str, series: Series) -> _Meaning | None:
    name, found = series.name, series.pairs()
    lanes = _lanes(name, found)
    if lanes is None:
        return None
    if source := found.get("source", ""):
        port, identity = found.get("port", ""), found.get("identity", "")
        target = int(port) if port.isdecimal() else 0
        flow = Flow(source=NOBODY, destination=peer(node), target=target, secured=bool(identity))
        return _Meaning(flow, lanes, (source, identity))
    sent = _copy(node, found) if _COPY_CLUSTER in found else _sent(node, found)
    return _Meaning(sent, lanes) if sent else None


def _lanes(name: str, found: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return the lanes of a series; None of one that does not count."""
    if name == _LATENCY:
        return None if found.get(DENIED) else ()
    if name == _REQUESTS:
        code, grpc = parse_code(found.get("code", "")), found.get("grpc", "")
        return (counts.DENIED_REQUESTS if code.is_denied(grpc) else class_lane(code.whole, grpc),)
    if name == _DENIED:
        # a client's proxy has counted the connection when it opened it; a client without one has none
        only = (counts.DENIED_CONNECTIONS,)
        return only if found.get("identity") else (*only, counts.CONNECTIONS)
    return _LANES.get(name)


def _sent(node: str, found: Mapping[str, str]) -> Flow | None:
    """Return what a client's side says; None for what is no Service's, and what is counted in the tunnel that it is in."""
    cluster = found.get("cluster", "")
    if cluster in ("", names.TUNNEL):
        return None
    ref = _ref(cluster)
    pod, target, secured = parse_pod(found.get("pod", ""))
    return Flow(
        source=peer(node),
        destination=Peer(pod=pod) if pod else ELSEWHERE if cluster == names.PASSTHROUGH else NOBODY,
        service=ref.service if ref else "",
        port=ref.port if ref else 0,
        backend=found.get("backend", ""),
        target=target,
        secured=secured,
    )


def _copy(node: str, found: Mapping[str, str]) -> Flow | None:
    ref = _ref(found[_COPY_CLUSTER])
    pod, target, secured = parse_pod(found.get(_COPY_POD, ""))
    if ref is None:
        return None
    return Flow(
        source=peer(node),
        destination=Peer(pod=pod) if pod else NOBODY,
        service=ref.service,
        port=ref.port,
        backend=ref.service,
        target=target,
        copy=True,
        secured=secured,
    )


def _ref(cluster: str) -> PortRef | None:
    try:
        return names.parse(cluster)
    except ValueError:  # no name of ours
        return None
