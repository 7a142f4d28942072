"""Render listeners: one for each Service port, the HTTP proxy, and those of `headgate try` and transparent sidecars."""

from collections.abc import Sequence

from headgate.envoy import cors, gateway_hosts, names, pb, sessions, tap, traffic_stats, tunnels
from headgate.envoy.clusters import address
from headgate.envoy.config_source import ads
from headgate.envoy.draw import draw_filter
from headgate.envoy.external_auth import auth_filter
from headgate.envoy.filter_state import state_filter
from headgate.envoy.http_connections import connection_manager, write_header
from headgate.envoy.localhost_guard import guard
from headgate.envoy.outcomes import NO_ROUTE_FLAG
from headgate.envoy.reserved_headers import remove_reserved
from headgate.envoy.routes import ORIGINAL_ADDRESS
from headgate.envoy.traces import SpanResource, begin_no_trace, trace_requests
from headgate.envoy.unrouted import LOCALHOST_PREFIX, localhost_attempt, second_attempt
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.model.sanitizing import RESERVED, RESERVED_AT_EDGE, RESERVED_OF_ENVOY

UPSTREAM_HEADER_PREFIX = "x-headgate-"
"""Prefix of the response headers with the attributes `traffic_stats.UPSTREAM_ATTRIBUTES`, for `headgate try`."""
PRIVATE_MODE = 0o600
FORBIDDEN = 403
_LOOPBACK = "127.0.0.1"
_SPELLING = "Write name.namespace:port; a name alone is looked up in the namespace {namespace}.\n"
_UNKNOWN = f"headgate: no Service has the host %REQ(:AUTHORITY)%, or the Service has no such TCP port. {_SPELLING}"
_REFUSED = (
    "headgate: access denied: {identity} may not call the host %REQ(:AUTHORITY)%, or no Service has this host. To allow "
    "the call, create a TrafficTarget with this source and the ServiceAccount of the Service's pods as destination. "
    f"{_SPELLING}"
)
_NO_ROUTES = (
    "headgate: this proxy has no routes for %REQ(:AUTHORITY)%: the Service has no such HTTP port, or `headgate proxies` does "
    "not show the proxy as InSync yet.\n"
)
_NOT_ALLOWED = (
    "headgate: access denied: {identity} may not call %REQ(:AUTHORITY)%. To allow the call, create a TrafficTarget with "
    "this source and the ServiceAccount of the Service's pods as destination.\n"
)


def service_listener(name: str, host: str, port: int, traces: SpanResource | None = None) -> pb.Listener:
    """Return the listener on a Service's own address."""
    connection = _http(pb.Rds(route_config_name=name, config_source=ads()), first=second_attempt())
    tunnels.refuse(connection)
    return _listener(name, address(host, port), connection, traces=traces)


def redirected_listener(name: str, host: str, port: int) -> pb.Listener:
    """Return the listener for redirected connections to an address; it uses the shared filter chain."""
    return _shared_chain_user(name, address(host, port))


def shared_chain_listener() -> pb.Listener:
    """Return a listener that gets no connections and keeps the shared chain in every transparent sidecar.

    Without this listener, Envoy would drop the chain and all its scopes when the last Service is deleted. When the next
    Service appears, Envoy would not subscribe to the scopes again, because its stream still counts them
    as delivered.
    """
    return _shared_chain_user(names.SHARED_CHAIN, pb.Address(pipe=pb.Pipe(path=f"@{names.SHARED_CHAIN}")))


def _shared_chain_user(name: str, where: pb.Address) -> pb.Listener:
    chain = pb.XdsTypedExtension(name="chain", typed_config=pb.pack(pb.StringValue(value=names.SHARED_CHAIN)))
    return unbound(
        pb.Listener(
            name=name,
            address=where,
            fcds_config=pb.Listener.FcdsConfig(config_source=ads()),
            filter_chain_matcher=pb.XdsMatcher(on_no_match=pb.XdsMatcher.OnMatch(action=chain)),
            # the same on all listeners, as Envoy cannot change this field in an update
            enable_reuse_port=pb.BoolValue(value=False),
        )
    )


def shared_chain(traces: SpanResource | None = None) -> pb.FilterChain:
    """Return the filter chain for requests to all Services; the original destination selects the routes.

    Envoy creates the chain once, however many listeners name it. The request header `ORIGINAL_ADDRESS` contains the
    destination, by which Envoy selects a scope (`routes.address_scope`). The chain overwrites this header if the client
    sent it, and the routes remove the header.
    """
    destination = write_header(ORIGINAL_ADDRESS, "%DOWNSTREAM_LOCAL_ADDRESS%")
    connection = _http(_scoped("addresses", ORIGINAL_ADDRESS), early=[destination], first=second_attempt())
    return pb.FilterChain(name=names.SHARED_CHAIN, filters=[_manager(connection, traces=traces)])


def unbound(listener: pb.Listener) -> pb.Listener:
    """Make a listener accept only connections from another listener: it binds no socket."""
    listener.bind_to_port.CopyFrom(pb.BoolValue(value=False))
    return listener


def gateway_listener(
    name: str, host: str, port: int, tls_listener: str = "", traces: SpanResource | None = None
) -> pb.Listener:
    """Return the listener of a Gateway's port. It does not trust client-supplied forwarding headers.

    `tls_listener` is the hostname of the TLS listener whose connections it serves.
    """
    connection = _http(
        _scoped("services", gateway_hosts.KEY, ":"),
        first=gateway_hosts.other_hosts_filters(),
        early=gateway_hosts.write_headers(name, tls_listener),
        edge=True,
    )
    return _listener(name, address(host, port), connection, RESERVED_AT_EDGE, traces=traces)


def scopes_listener() -> pb.Listener:
    """Return a listener that gets no connections and keeps the scopes in every gateway.

    Without this listener, Envoy would drop the scopes when the last Gateway is deleted. With the next Gateway, it would
    not subscribe to them again, because its stream still counts them as delivered.
    """
    connection = _http(_scoped("services", ":authority"))
    return unbound(_listener(names.SCOPES, address(_LOOPBACK, 0), connection))


def proxy_listener(
    host: str,
    port: int,
    namespace: str = DEFAULT_NAMESPACE,
    identity: str = "",
    traces: SpanResource | None = None,
) -> pb.Listener:
    """Return the listener of the HTTP proxy, which accepts every spelling of a Service's name, in requests and in
    CONNECT.

    A short name means a Service of `namespace`. With `identity`, the proxy has only the Services that this identity may
    call. An unknown host then gets 403, so that clients cannot find out which Services exist.
    """
    connection = _routed_by_host(_unknown(namespace, identity), tunnels.state_filter())
    _take_tunnels(connection)
    return _listener(names.PROXY, address(host, port), connection, traces=traces)


def localhost_listener(port: int, traces: SpanResource | None = None) -> pb.Listener:
    """Return the listener that selects a Service by a name below `.localhost` (`envoy.localhost`).

    Applications get the host as the browser wrote it: redirects and cookies of their own then name this host and port.
    """
    connection = _http(
        _scoped("services", tunnels.HEADER, ":"),
        first=(guard(), *localhost_attempt(tunnels.HEADER)),
        early=[write_header(tunnels.HEADER, f"{LOCALHOST_PREFIX}%REQ(:AUTHORITY)%")],
    )
    tunnels.refuse(connection)
    return _listener(names.LOCALHOST, address(_LOOPBACK, port), connection, traces=traces)


def _unknown(namespace: str, identity: str) -> pb.LocalReplyConfig:
    """Return the local replies of an HTTP proxy for unknown hosts; 403 with `identity`, else 404."""
    if not identity:
        return _replies(_UNKNOWN.format(namespace=namespace))
    replies = _replies(_REFUSED.format(identity=identity, namespace=namespace))
    replies.mappers[0].status_code.CopyFrom(pb.UInt32Value(value=FORBIDDEN))
    return replies


def tunnel_listener(traces: SpanResource | None = None) -> pb.Listener:
    """Return the listener inside the proxy for the requests in tunnels to HTTP ports.

    Its routes are those of the tunnel's host, whatever the host of the requests.
    """
    connection = _http(
        _scoped("services", tunnels.HEADER),
        first=second_attempt(host=tunnels.HEADER),
        early=[write_header(tunnels.HEADER, f"%FILTER_STATE({tunnels.KEY}:PLAIN)%")],
    )
    tunnels.refuse(connection)
    return pb.Listener(
        name=names.TUNNEL,
        internal_listener=pb.Listener.InternalListenerConfig(),
        filter_chains=[pb.FilterChain(filters=[_manager(connection, traces=traces)])],
    )


def _take_tunnels(connection: pb.HttpConnectionManager) -> None:
    connection.upgrade_configs.append(pb.HttpConnectionManager.UpgradeConfig(upgrade_type=tunnels.CONNECT))
    del connection.access_log[:]
    connection.access_log.extend([*traffic_stats.requests_and_tunnels(), tap.client_logger()])
    options = pb.HttpConnectionManager.HcmAccessLogOptions(flush_log_on_tunnel_successfully_established=True)
    connection.access_log_options.CopyFrom(options)


def try_listener(
    path: str,
    namespace: str = DEFAULT_NAMESPACE,
    identity: str = "",
    with_traces: bool = False,  # noqa: FBT001, FBT002  # the arguments of a Part are positional
) -> pb.Listener:
    """Return the listener of `headgate try`, an HTTP proxy whose responses name the backend (`UPSTREAM_HEADER_PREFIX`).

    `namespace` and `identity` have the same meaning as in `proxy_listener`.
    """
    connection = _routed_by_host(_unknown(namespace, identity), _name_upstream())
    tunnels.refuse(connection)
    if with_traces:
        begin_no_trace(connection)
    return _listener(names.TRY, pb.Address(pipe=pb.Pipe(path=path, mode=PRIVATE_MODE)), connection)


def redirected_try_listener(
    path: str,
    identity: str = "",
    with_traces: bool = False,  # noqa: FBT001, FBT002  # the arguments of a Part are positional
) -> pb.Listener:
    """Return the listener of `headgate try` in a transparent sidecar. Its responses name the backend.

    The client writes the destination into the header `ORIGINAL_ADDRESS`, as the shared chain does for redirected
    connections, and gets the same routes. With `identity`, the proxy has only the Services that this identity may call.
    """
    replies = _replies(_NOT_ALLOWED.format(identity=identity) if identity else _NO_ROUTES)
    connection = _http(_scoped("addresses", ORIGINAL_ADDRESS), local_reply_config=replies, first=(_name_upstream(),))
    if with_traces:
        begin_no_trace(connection)
    where = pb.Address(pipe=pb.Pipe(path=path, mode=PRIVATE_MODE))
    return _listener(names.TRY, where, connection, RESERVED_OF_ENVOY)


def _name_upstream() -> pb.HttpFilter:
    """Return the filter that writes the attributes of the upstream into the response."""
    mutations = [
        pb.HeaderMutationRule(
            append=pb.HeaderValueOption(
                header=pb.HeaderValue(key=f"{UPSTREAM_HEADER_PREFIX}{attribute}", value=text),
                append_action=pb.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
            )
        )
        for attribute, text in traffic_stats.UPSTREAM_ATTRIBUTES
    ]
    mutation = pb.HeaderMutation(mutations=pb.HeaderMutations(response_mutations=mutations))
    return pb.HttpFilter(name="envoy.filters.http.header_mutation", typed_config=pb.pack(mutation))


def _listener(
    name: str,
    where: pb.Address,
    connection: pb.HttpConnectionManager,
    reserved: str = RESERVED,
    traces: SpanResource | None = None,
) -> pb.Listener:
    return pb.Listener(
        name=name,
        address=where,
        filter_chains=[pb.FilterChain(filters=[_manager(connection, reserved, traces)])],
        # A second process on the address must fail with an error, not silently take half of the connections.
        enable_reuse_port=pb.BoolValue(value=False),
    )


def _manager(
    connection: pb.HttpConnectionManager, reserved: str = RESERVED, traces: SpanResource | None = None
) -> pb.Filter:
    """Return the filter. Clients can't send the headers whose names match `reserved`. With `traces`, it sends spans."""
    if traces:
        trace_requests(connection, traces)
    remove_reserved(connection, reserved)
    return pb.Filter(name="envoy.filters.network.http_connection_manager", typed_config=pb.pack(connection))


def _http(
    routes: pb.Rds | pb.ScopedRoutes,
    *,
    local_reply_config: pb.LocalReplyConfig | None = None,
    first: tuple[pb.HttpFilter, ...] = (),
    early: Sequence[pb.HeaderMutationRule] = (),
    edge: bool = False,
) -> pb.HttpConnectionManager:
    """Return the connection manager of outbound requests.

    The filters `first` run before all remaining ones; those of an `edge`, a Gateway, often select another route.
    """
    return connection_manager(
        prefix="mesh",
        routes=routes,
        filters=[
            *first,
            state_filter(),
            cors.filter_of_connections(),
            auth_filter(),
            draw_filter(reselects=edge),
            sessions.filter_of_connections(),
        ],
        router=router_filter(*traffic_stats.upstream_requests()),
        logs=[*traffic_stats.requests(), tap.client_logger()],
        replies=local_reply_config,
        early=early,
        edge=edge,
    )


def router_filter(*sent: pb.AccessLog) -> pb.HttpFilter:
    """Return the router filter; `sent` has loggers of upstream requests.

    Envoy's own counters by response code are off. They would cost ten lookups per request, and the bootstrap keeps none
    of them (`bootstrap.KEPT_STATS`). So Envoy's counter `rq_error` of an endpoint does not include 5xx responses;
    `traffic_stats` counts them.
    """
    config = pb.Router(suppress_envoy_headers=True, dynamic_stats=pb.BoolValue(value=False), upstream_log=sent)
    return pb.HttpFilter(name="envoy.filters.http.router", typed_config=pb.pack(config))


def _routed_by_host(replies: pb.LocalReplyConfig, *filters: pb.HttpFilter) -> pb.HttpConnectionManager:
    """Return a connection manager that selects the Service by host, ignoring case and a trailing dot, as DNS does."""
    routes = _scoped("services", ":authority")
    return _http(
        routes,
        local_reply_config=replies,
        first=(*second_attempt(host=":authority", state=tunnels.state()), *filters),
    )


def _scoped(name: str, header: str, separator: str = "") -> pb.ScopedRoutes:
    """Return scoped routes whose key is the value of a header up to a separator.

    Connection managers with the same `name` share the scopes; with another name, Envoy would have each scope twice.
    """
    builder = pb.ScopedRoutes.ScopeKeyBuilder
    value = builder.FragmentBuilder.HeaderValueExtractor(name=header, element_separator=separator, index=0)
    return pb.ScopedRoutes(
        name=name,
        scope_key_builder=builder(fragments=[builder.FragmentBuilder(header_value_extractor=value)]),
        rds_config_source=ads(),
        scoped_rds=pb.ScopedRds(scoped_rds_config_source=ads()),
    )


def _replies(text: str) -> pb.LocalReplyConfig:
    unknown = pb.AccessLogFilter(response_flag_filter=pb.ResponseFlagFilter(flags=[NO_ROUTE_FLAG]))
    return pb.LocalReplyConfig(
        mappers=[
            pb.ResponseMapper(
                filter=unknown,
                body_format_override=pb.SubstitutionFormatString(text_format_source=pb.DataSource(inline_string=text)),
            )
        ]
    )
