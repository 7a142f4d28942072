"""Render a sidecar's inbound connections on ports that are not HTTP, and the identities that may open them (R68 to R70).

A closed workload has a filter chain for each allowed source: an identity, all identities of a namespace, or all callers. Envoy ends the connections of a filter chain within seconds after the chain changes (`--drain-time-s`). The chain that
accepts mTLS therefore contains no access rules. It hands each connection to a listener inside the proxy, which
selects a chain by the identity in the client's certificate. A change to the rules adds and removes such chains: Envoy
ends the connections of removed identities, and no other ones. Without this listener, the connection is closed.

The application is connected only in the chain of an identity, so a server that speaks first sends nothing to other clients.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from headgate.envoy import inside, names, pb, rbac, traffic_stats
from headgate.envoy.config import CLUSTER, LISTENER, Part
from headgate.envoy.filter_state import value
from headgate.envoy.names import InboundRef
from headgate.envoy.traffic_stats import IDENTITY, IDENTITY_KEY, SOURCE, SOURCE_KEY
from headgate.model.access import ANY_CALLER, Access
from headgate.model.routing import InboundPort

DESTINATION_KEY = "envoy.network.transport_socket.original_dst_address"
"""The filter state by which clusters of the original destination select their endpoint."""
EARLY_BYTES = 1 << 16  # maximum number of bytes that Envoy buffers before it connects to the application
PREFIX = "inbound"  # the prefix of Envoy's inbound statistics
_REFUSED = "refused"


class AllowedCallers(NamedTuple):
    """The sources (`model.access.source_includes`) that may connect to a port of the pod."""

    port: int
    sources: tuple[str, ...]


def parts(ref: InboundRef, port: InboundPort, access: Access) -> Iterator[Part]:
    """Yield the listener that selects a chain by identity, and the cluster that leads to it."""
    name = names.callers(ref)
    allowed = AllowedCallers(port.port, rbac.allowed_sources(access, port))
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
    """Return the listener; each allowed source has a chain that leads to the cluster `application`."""
    denied = traffic_stats.denied_callers(str(allowed.port))
    refused = pb.FilterChain(name=_REFUSED, filters=[forward(names.MISSING, denied)])
    chains = [pb.FilterChain(name=source, filters=[forward(application)]) for source in allowed.sources]
    return pb.Listener(
        name=name,
        internal_listener=pb.Listener.InternalListenerConfig(),
        filter_chains=[refused, *chains],
        filter_chain_matcher=_by_identity(allowed.sources),
    )


def _by_identity(sources: Collection[str]) -> pb.XdsMatcher:
    """Return the matcher that selects a chain: by the whole identity, else by its beginning, else the chain for all callers."""
    beginnings = {source[:-1]: source for source in sources if source.endswith("*") and source != ANY_CALLER}
    exact = {source: source for source in sources if not source.endswith("*")}
    matcher = pb.XdsMatcher(on_no_match=_choose(ANY_CALLER if ANY_CALLER in sources else _REFUSED))
    if beginnings:
        tree = pb.XdsMatcher.MatcherTree(input=_identity(), prefix_match_map=_choices(beginnings))
        matcher.matcher_tree.CopyFrom(tree)
    if exact and beginnings:
        matcher = pb.XdsMatcher(on_no_match=pb.XdsMatcher.OnMatch(matcher=matcher))
    if exact:
        tree = pb.XdsMatcher.MatcherTree(input=_identity(), exact_match_map=_choices(exact))
        matcher.matcher_tree.CopyFrom(tree)
    return matcher


def _identity() -> pb.XdsTypedExtension:
    return pb.XdsTypedExtension(name="identity", typed_config=pb.pack(pb.FilterStateInput(key=IDENTITY_KEY)))


def _choices(chains: Mapping[str, str]) -> pb.XdsMatcher.MatcherTree.MatchMap:
    return pb.XdsMatcher.MatcherTree.MatchMap(map={text: _choose(chain) for text, chain in chains.items()})


def _choose(chain: str) -> pb.XdsMatcher.OnMatch:
    name = pb.XdsTypedExtension(name="chain", typed_config=pb.pack(pb.StringValue(value=chain)))
    return pb.XdsMatcher.OnMatch(action=name)
