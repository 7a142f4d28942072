"""Copies of requests (002): which fraction, and clusters for them that can't hold up what they are copies of."""

from typing import NamedTuple

from headgate.envoy import clusters, pb
from headgate.envoy.peers import Peer
from headgate.envoy.plan import Copied
from headgate.model.routing import Protocol

CONNECTIONS = 100
WAITING = 100
REQUESTS = 200
"""At once, in one cluster of copies: beyond that, copies are dropped. A mirror that hangs costs no more than this."""
COPY_SECONDS = 10  # a copy has no caller that would give up on it
CONNECT_SECONDS = 1
FINEST = 1_000_000


class Fraction(NamedTuple):
    """`numerator` of `denominator`, which is one of the three that Envoy has."""

    numerator: int
    denominator: int


def fraction(mirror: Copied) -> Fraction:
    """Return what Envoy is told (R45, R46): exact hundredths, ten thousandths or millionths, else the nearest of these."""
    for denominator in (100, 10_000):
        if mirror.numerator * denominator % mirror.denominator == 0:
            return Fraction(mirror.numerator * denominator // mirror.denominator, denominator)
    return Fraction((2 * mirror.numerator * FINEST + mirror.denominator) // (2 * mirror.denominator), FINEST)


def policy(mirror: Copied) -> pb.RouteAction.RequestMirrorPolicy:
    """Return what copies requests to a mirror; their Host is the one of the request, unless the mirror has its own."""
    kinds = pb.FractionalPercent.DenominatorType
    numerator, denominator = fraction(mirror)
    kind = {100: kinds.HUNDRED, 10_000: kinds.TEN_THOUSAND, FINEST: kinds.MILLION}[denominator]
    return pb.RouteAction.RequestMirrorPolicy(
        cluster=mirror.cluster,
        runtime_fraction=pb.RuntimeFractionalPercent(
            default_value=pb.FractionalPercent(numerator=numerator, denominator=kind)
        ),
        disable_shadow_host_suffix_append=True,
        host_rewrite_literal=mirror.host or None,
    )


def mirror_cluster(name: str, protocol: Protocol, peers: tuple[Peer, ...] = (), seconds: int = 0) -> pb.Cluster:
    """Return the cluster of a mirror: it has its own limits, so that a dead or hanging mirror changes nothing else."""
    found = clusters.cluster(name, protocol, peers, seconds)
    threshold = pb.CircuitBreakers.Thresholds(
        max_connections=pb.UInt32Value(value=CONNECTIONS),
        max_pending_requests=pb.UInt32Value(value=WAITING),
        max_requests=pb.UInt32Value(value=REQUESTS),
    )
    found.circuit_breakers.CopyFrom(pb.CircuitBreakers(thresholds=[threshold]))
    found.connect_timeout.CopyFrom(pb.Duration(seconds=CONNECT_SECONDS))
    found.track_cluster_stats.CopyFrom(pb.TrackClusterStats(per_endpoint_stats=True))  # counts copies (telemetry.py)
    options = clusters.http_options(protocol) or clusters.explicit_http1()
    options.common_http_protocol_options.max_stream_duration.CopyFrom(pb.Duration(seconds=COPY_SECONDS))
    if peers:
        clusters.renewed(options, seconds)
    found.typed_extension_protocol_options[clusters.HTTP_OPTIONS].CopyFrom(pb.pack(options))
    return found
