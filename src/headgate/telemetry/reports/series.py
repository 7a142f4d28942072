"""Maps the series that proxies report (`envoy.traffic_stats`) to flows and their counters.

Only this module depends on both the names of Envoy's series and the flows.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from msgspec import structs

from headgate.envoy import names
from headgate.envoy.cluster_stats import COPIES_CLUSTER, COPIES_DROPPED, RESPONSE_SIZES, SIZES_CLUSTER
from headgate.envoy.node_ids import pod_of
from headgate.envoy.outcomes import DROPPED_FLAG, parse_code
from headgate.envoy.traffic_stats import (
    ATTEMPTS,
    CONNECTIONS,
    DENIED,
    FAILED,
    FLAGGED,
    LATENCY,
    PREFIX,
    RECEIVED,
    SENT,
    parse_backend,
    parse_cluster,
    parse_pod,
    parse_root,
    split_backend,
)
from headgate.telemetry.counters import counts
from headgate.telemetry.counters.counts import Counts, class_index
from headgate.telemetry.counters.flows import GATEWAY, NO_PEER, Flow, Peer
from headgate.telemetry.reports.cumulative_to_delta import Delta
from headgate.telemetry.reports.otlp import Series

ELSEWHERE = Peer(outside="elsewhere")
"""The destination of traffic to an address outside all Services, which a transparent sidecar forwards unchanged."""
FindCaller = Callable[[str, str, str], Peer | None]
"""A function that returns a request's caller.

Its arguments are the server's node ID, the caller's address and identity.

The identity is empty for plaintext. None means that the caller's own proxy has counted the request.
"""
_INDEXES = {
    f"{PREFIX}.{CONNECTIONS}": (counts.CONNECTIONS,),
    f"{PREFIX}.{FAILED}": (counts.UNREACHED,),
    f"{PREFIX}.{SENT}": (counts.SENT,),
    f"{PREFIX}.{RECEIVED}": (counts.RECEIVED,),
}
_DENIED = f"{PREFIX}.{DENIED}"
_DROPPED = f"{PREFIX}.{COPIES_DROPPED}"
_SIZES = f"{PREFIX}.{RESPONSE_SIZES}"
_FLAGGED, _LATENCY, _ATTEMPTS = f"{PREFIX}.{FLAGGED}", f"{PREFIX}.{LATENCY}", f"{PREFIX}.{ATTEMPTS}"
_REMEMBERED = 200_000  # entries in the cache of `_meaning`; without it, each delta takes four times as long


class Counted(NamedTuple):
    """A flow, and the growth of its counters.

    `through` is the root (`namespace/name`) whose split led to the backend of a route's requests, or the split that requested
    copies; empty if there is none.
    """

    flow: Flow
    counts: Counts
    through: str = ""


class _Meaning(NamedTuple):
    """A flow, and the indexes of the counters in `Counts` that grow with a series.

    `timed` is True if the latencies of the series are recorded. `caller` is the address and identity with which `FindCaller`
    finds the source of the flow. `through` is that of `Counted`.
    """

    flow: Flow
    indexes: tuple[int, ...]
    timed: bool
    caller: tuple[str, str] | None = None
    through: str = ""


def counted(node: str, delta: Delta, find_caller: FindCaller) -> Counted | None:
    """Return the flow of a series, and the growth of the flow's counters.

    Return None if another proxy counts the same traffic, or if headgate does not use the series.
    """
    meaning = _meaning(node, delta.series)
    if meaning is None:
        return None
    flow, indexes, timed, caller, through = meaning
    if caller:
        source = find_caller(node, *caller)
        if source is None:
            return None
        flow = structs.replace(flow, source=source)
    return Counted(flow, Counts.of(dict.fromkeys(indexes, delta.value), delta.buckets if timed else 0), through)


def dropped_at(delta: Delta) -> str:
    """Return the cluster of the mirror that dropped copies; empty if the series does not count dropped copies."""
    return delta.series.pairs().get(COPIES_CLUSTER, "") if delta.series.name == _DROPPED else ""


def sized_at(delta: Delta) -> str:
    """Return the cluster of a response size histogram; empty for other series."""
    return delta.series.pairs().get(SIZES_CLUSTER, "") if delta.series.name == _SIZES else ""


def is_attempts(delta: Delta) -> bool:
    """Return whether a series counts attempts in which no program answered. They are evidence, and no requests."""
    return delta.series.name == _ATTEMPTS


def cluster_of(series: Series) -> str:
    """Return the attribute `cluster` of a series of requests; empty if there is none (`envoy.traffic_stats`)."""
    return split_backend(series.pairs())["cluster"]


def peer(node: str) -> Peer:
    """Return the peer that a proxy stands for: its pod, or the gateway."""
    pod = pod_of(node)
    return Peer(pod=pod) if pod else GATEWAY


@lru_cache(_REMEMBERED)
def _meaning(node: str, series: Series) -> _Meaning | None:
    attributes = split_backend(series.pairs())
    indexes, timed = _counters_of(series.name, attributes)
    if not indexes and not timed:
        return None
    if source := attributes.get("source", ""):
        port, identity = attributes.get("port", ""), attributes.get("identity", "")
        target = int(port) if port.isdecimal() else 0
        flow = Flow(source=NO_PEER, destination=peer(node), target=target, secured=bool(identity))
        return _Meaning(flow, indexes, timed, (source, identity))
    sent = _sent(node, attributes)
    through = names.mirroring_split(attributes["cluster"]) if sent and sent.copy else parse_root(attributes)
    return _Meaning(sent, indexes, timed, through=through) if sent else None


def _counters_of(name: str, attributes: Mapping[str, str]) -> tuple[tuple[int, ...], bool]:
    """Return the indexes of the counters that grow with a series, and whether its latencies are recorded.

    For a series that headgate does not use, return `()` and False.
    """
    if name == _DENIED:
        # A client with an identity has a proxy, which has counted the connection.
        only = (counts.DENIED_CONNECTIONS,)
        return only if attributes.get("identity") else (*only, counts.CONNECTIONS), False
    if name == _ATTEMPTS:
        is_unconnected = parse_code(attributes.get("code", "")).is_unconnected
        return (counts.UNCONNECTED if is_unconnected else counts.BROKEN_OFF,), False
    if name not in (_LATENCY, _FLAGGED):
        return _INDEXES.get(name, ()), False
    code = parse_code(attributes.get("code", ""))
    denied = code.is_denied
    index = counts.DENIED_REQUESTS if denied else class_index(code.complete_status, code.grpc)
    is_dropped = DROPPED_FLAG in code.flags and names.is_mirror(attributes.get("cluster", ""))  # counted by `_DROPPED`
    is_counted = code.is_flagged == (name == _FLAGGED) and not is_dropped
    audited = (counts.AUDITED,) if code.audited else ()
    unanswered = (counts.UNANSWERED,) if code.is_unanswered else ()
    of_client = not attributes.get("source", "")
    unsent = (counts.UNSENT,) if of_client and (not attributes.get("pod") or code.is_unsent) else ()
    return (index, *audited, *unanswered, *unsent) if is_counted else (), name == _LATENCY and not denied


def _sent(node: str, attributes: Mapping[str, str]) -> Flow | None:
    """Return the flow of a series that a client's proxy reports.

    Return None if the client called no Service. Also return None for tunnel connections between proxies, because the
    requests in a tunnel are counted already.
    """
    cluster = attributes.get("cluster", "")
    if not cluster or names.is_tunnel(cluster):
        return None
    is_copy = names.is_mirror(cluster)
    ref = parse_cluster(cluster)
    pod, target, secured = parse_pod(attributes.get("pod", ""))
    return Flow(
        source=peer(node),
        destination=Peer(pod=pod) if pod else ELSEWHERE if cluster == names.PASSTHROUGH else NO_PEER,
        service=ref.service if ref else "",
        port=ref.port if ref else 0,
        backend=parse_backend(attributes),
        target=target,
        copy=is_copy,
        secured=secured,
    )
