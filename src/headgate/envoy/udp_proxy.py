"""Render UDP ports of Gateways: Envoy forwards the datagrams of a session to one backend, and the responses to the client.

A session has the datagrams of one address and port of a client. It ends when it is idle, or when its endpoint leaves the
cluster; the next datagram begins another one. Datagrams without a cluster are dropped and counted (`cluster_stats`).
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec import structs

from headgate.envoy import pb, traffic_stats
from headgate.envoy.planned_routes import ClusterWeight
from headgate.envoy.values import duration
from headgate.model.routing import Route, Target

IDLE_MS = 60_000
"""Default time after which an idle session ends: as in Envoy. Later responses of the server are lost."""
LARGEST_DATAGRAM = 65_535
"""Bytes of the largest datagram. With Envoy's default of 1,500, larger ones were dropped, such as those of DNS with EDNS."""
MOST_SESSIONS = 1024
"""Default limit of a cluster's sessions, as in Envoy. Each has a socket, and Envoy ends if it can open no further one."""
_PROXY = "envoy.filters.udp_listener.udp_proxy"


def listener(name: str, host: str, port: int, shares: Sequence[ClusterWeight], idle_ms: int = 0) -> pb.Listener:
    """Return the listener of a UDP port; `shares` has at least one cluster."""
    size = pb.UdpSocketConfig(max_rx_datagram_size=pb.UInt64Value(value=LARGEST_DATAGRAM))
    proxy = pb.UdpProxyConfig(
        stat_prefix=name,
        matcher=_matcher(shares),
        idle_timeout=duration(idle_ms or IDLE_MS),
        upstream_socket_config=size,
        access_log=traffic_stats.sessions(),
    )
    protocol = pb.SocketAddress.Protocol.UDP
    address = pb.SocketAddress(protocol=protocol, address=host, port_value=port, ipv4_compat=host == "::")
    return pb.Listener(
        name=name,
        address=pb.Address(socket_address=address),
        udp_listener_config=pb.UdpListenerConfig(downstream_socket_config=size),
        listener_filters=[pb.ListenerFilter(name=_PROXY, typed_config=pb.pack(proxy))],
        enable_reuse_port=pb.BoolValue(value=True),  # with several threads, Envoy rejects UDP listeners without it
    )


def with_session_limit(route: Route) -> Route:
    """Return the route of a UDP port with a limit for the sessions of each backend, by default `MOST_SESSIONS`.

    Envoy drops the datagrams of further sessions: it counts sessions as connections.
    """
    targets = tuple(_limited(target) for target in route.split.targets)
    return structs.replace(route, split=structs.replace(route.split, targets=targets))


def _limited(target: Target) -> Target:
    limits = target.resilience.limits
    bounded = structs.replace(limits, connections=limits.connections or MOST_SESSIONS)
    return structs.replace(target, resilience=structs.replace(target.resilience, limits=bounded))


def _matcher(shares: Sequence[ClusterWeight]) -> pb.XdsMatcher:
    """Return the matcher that chooses the cluster of a session: by weight, from the hash of the client's port.

    Envoy has no weighted clusters for UDP. The hash is below the sum of the weights.
    """
    only = pb.XdsMatcher(on_no_match=_to(shares[0]))
    if shares[1:]:
        only.matcher_list.matchers.extend(_later_shares(shares))
    return only


def _later_shares(shares: Sequence[ClusterWeight]) -> Iterator[pb.XdsMatcher.MatcherList.FieldMatcher]:
    """Yield the last share first: it has the largest hashes."""
    *starts, total = accumulate((share.weight for share in shares), initial=0)
    for share, start in reversed(list(zip(shares[1:], starts[1:], strict=True))):
        at_least = pb.ConsistentHashing(threshold=start, modulo=total)
        predicate = pb.XdsMatcher.MatcherList.Predicate.SinglePredicate(
            input=_extension(pb.SourcePortInput()), custom_match=_extension(at_least)
        )
        yield pb.XdsMatcher.MatcherList.FieldMatcher(
            predicate=pb.XdsMatcher.MatcherList.Predicate(single_predicate=predicate), on_match=_to(share)
        )


def _to(share: ClusterWeight) -> pb.XdsMatcher.OnMatch:
    return pb.XdsMatcher.OnMatch(action=_extension(pb.UdpRoute(cluster=share.cluster)))


def _extension(message: pb.ConsistentHashing | pb.SourcePortInput | pb.UdpRoute) -> pb.XdsTypedExtension:
    return pb.XdsTypedExtension(name=message.DESCRIPTOR.name, typed_config=pb.pack(message))
