"""Render a sidecar's inbound connections on ports that are not HTTP, and the identities that may open them (R68 to R70).

A closed workload has a filter chain for each allowed identity. Envoy ends the connections of a filter chain within seconds after the chain changes (`--drain-time-s`). The chain that
accepts mTLS therefore contains no access rules. It hands each connection to a listener inside the proxy, which
selects a chain by the identity in the client's certificate. A change to the rules adds and removes such chains: Envoy
ends the connections of removed identities, and no other ones. Without this listener, the connection is closed.

The application is connected only in the chain of an identity, so a server that speaks first sends nothing to other clients.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headgate.envoy import inside, names, pb, rbac, traffic_stats
from headgate.envoy.config import CLUSTER, LISTENER, Part
from headgate.envoy.filter_state import value
from headgate.envoy.names import InboundRef
from headgate.envoy.traffic_stats import IDENTITY, IDENTITY_KEY, SOURCE, SOURCE_KEY
from headgate.model.access import Access
from headgate.model.routing import InboundPort

DESTINATION_KEY = "envoy.network.transport_socket.original_dst_address"
"""The filter state by which clusters of the original destination select their endpoint."""
EARLY_BYTES = 1 << 16  # maximum number of bytes that Envoy buffers before it connects to the application
PREFIX = "inbound"  # the prefix of Envoy's inbound statistics
_REFUSED = "refused"


class AllowedCallers(NamedTuple):
    """The identities that may connect to a port of the pod."""

    port: int
    identities: tuple[str, ...]


def parts(ref: InboundRef, port: InboundPort, access: Access) -> Iterator[Part]:
    """Yield the listener that selects a chain by identity, and the cluster that leads to it."""
    name = names.callers(ref)
    allowed = AllowedCallers(port.port, rbac.allowed_identities(access, port))
    yield Part(CLUSTER, name, inside.cluster, (name,))
    yield Part(LISTENER, name, listener, (name, names.inbound(ref), allowed), (names.inbound(ref),))


def forward(cluster: str, logs: Iterable[pb.AccessLog] = (), *, authenticated: bool = False) -> pb.Filter:
    """Return the filter that forwards connections; with `authenticated`, it connects after the TLS handshake."""
    proxy = pb.TcpProxy(stat_prefix=PREFIX, cluster=cluster, idle_timeout=pb.Duration(seconds=0))
    traffic_stats.log_connections(proxy, logs)
    if authenticated:
        proxy.upstream_connect_mode = pb.UpstreamConnectMode.ON_DOWNSTREAM_TLS_HANDSHAKE
        proxy.max_early_data_bytes.CopyFrom(pb.UInt32Value(value=EARLY_BYTES))
    return pb.Filter(name="envoy.filters.network.tcp_proxy", typed_config=pb.pack(proxy))


def hand_over(*, redirected: bool) -> pb.Filter:
    """Return the filter that passes the client's identity to the listener, and its address, which is counted.

    With `redirected`, it also passes the original destination.
    """
    state = [value(IDENTITY_KEY, IDENTITY, shared=True), value(SOURCE_KEY, SOURCE, shared=True)]
    if redirected:
        state.append(value(DESTINATION_KEY, "%DOWNSTREAM_LOCAL_ADDRESS%", DESTINATION_KEY, shared=True))
    written = pb.SetFilterState(on_downstream_tls_handshake=state)
    return pb.Filter(name="envoy.filters.network.set_filter_state", typed_config=pb.pack(written))


def listener(name: str, application: str, allowed: AllowedCallers) -> pb.Listener:
    """Return the listener; each allowed identity has a chain that leads to the cluster `application`."""
    denied = traffic_stats.denied_callers(str(allowed.port))
    refused = pb.FilterChain(name=_REFUSED, filters=[forward(names.MISSING, denied)])
    chains = [pb.FilterChain(name=identity, filters=[forward(application)]) for identity in allowed.identities]
    return pb.Listener(
        name=name,
        internal_listener=pb.Listener.InternalListenerConfig(),
        filter_chains=[refused, *chains],
        filter_chain_matcher=_by_identity(allowed.identities),
    )


def _by_identity(identities: Iterable[str]) -> pb.XdsMatcher:
    def choose(chain: str) -> pb.XdsMatcher.OnMatch:
        name = pb.XdsTypedExtension(name="chain", typed_config=pb.pack(pb.StringValue(value=chain)))
        return pb.XdsMatcher.OnMatch(action=name)

    matcher = pb.XdsMatcher(on_no_match=choose(_REFUSED))
    state = pb.XdsTypedExtension(name="identity", typed_config=pb.pack(pb.FilterStateInput(key=IDENTITY_KEY)))
    for identity in identities:
        matcher.matcher_tree.input.CopyFrom(state)
        matcher.matcher_tree.exact_match_map.map[identity].CopyFrom(choose(identity))
    return matcher
