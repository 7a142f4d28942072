"""Listeners: one for each Service port, and the gateway's HTTP proxy."""

from headgate.envoy import names, pb, tap, telemetry
from headgate.envoy.clusters import METADATA, address
from headgate.envoy.filter_state import state_filter
from headgate.envoy.host_case import lower_case_filters
from headgate.envoy.sources import ads
from headgate.model.authorities import DEFAULT_NAMESPACE

BACKEND_HEADER = "x-headgate-backend"
POD_HEADER = "x-headgate-pod"
PRIVATE_MODE = 0o600
FORBIDDEN = 403
_SPELLING = "Write name.namespace:port; a name alone is looked up in the namespace {home}.\n"
_UNKNOWN = f"headgate: no Service answers to %REQ(:AUTHORITY)%. {_SPELLING}"
_REFUSED = (
    "headgate: access denied: {identity} may call no Service that answers to %REQ(:AUTHORITY)%. A TrafficTarget with this "
    f"source, and with the ServiceAccount of the Service's pods as its destination, allows it. {_SPELLING}"
)


def service_listener(name: str, host: str, port: int) -> pb.Listener:
    """Return the listener on a Service's own address."""
    return _routed(name, host, port, name)


def redirected_listener(name: str, host: str, port: int, routes_name: str) -> pb.Listener:
    """Return the listener for redirected connections to an address; the named routes are for its requests."""
    return redirected(_routed(name, host, port, routes_name))


def redirected(listener: pb.Listener) -> pb.Listener:
    """Let a listener take only what another one hands to it: nothing is bound, so it may have any address."""
    listener.bind_to_port.CopyFrom(pb.BoolValue(value=False))
    return listener


def _routed(name: str, host: str, port: int, routes_name: str) -> pb.Listener:
    connection = _http(rds=pb.Rds(route_config_name=routes_name, config_source=ads()))
    return _listener(name, address(host, port), connection)


def edge_listener(name: str, host: str, port: int, routes_name: str) -> pb.Listener:
    """Return the listener of a Gateway's port: what comes from outside is not believed about where it comes from."""
    connection = _http(rds=pb.Rds(route_config_name=routes_name, config_source=ads()))
    connection.use_remote_address.CopyFrom(pb.BoolValue(value=True))
    connection.strip_trailing_host_dot = True
    return _listener(name, address(host, port), connection)


def proxy_listener(host: str, port: int, home: str = DEFAULT_NAMESPACE, identity: str = "") -> pb.Listener:
    """Return the HTTP proxy for clients: every Service by every spelling of its name, by requests and by CONNECT.

    Short names are those of the namespace `home`. With `identity`, Services that it may not call are left out, and it is
    refused what is not there: nobody can tell whether that is a Service.
    """
    connection = _by_host(_unknown(home, identity))
    _take_tunnels(connection)
    return _listener(names.PROXY, address(host, port), connection)


def _unknown(home: str, identity: str) -> pb.LocalReplyConfig:
    """Return the answers of an HTTP proxy for hosts that it does not know; with `identity` they are refusals."""
    if not identity:
        return _replies(_UNKNOWN.format(home=home))
    replies = _replies(_REFUSED.format(identity=identity, home=home))
    replies.mappers[0].status_code.CopyFrom(pb.UInt32Value(value=FORBIDDEN))
    return replies


def _take_tunnels(connection: pb.HttpConnectionManager) -> None:
    connection.upgrade_configs.append(pb.HttpConnectionManager.UpgradeConfig(upgrade_type="CONNECT"))
    del connection.access_log[:]
    connection.access_log.extend([*telemetry.requests_and_tunnels(), tap.client()])
    options = pb.HttpConnectionManager.HcmAccessLogOptions(flush_log_on_tunnel_successfully_established=True)
    connection.access_log_options.CopyFrom(options)


def probe_listener(path: str, home: str = DEFAULT_NAMESPACE, identity: str = "") -> pb.Listener:
    """Return the HTTP proxy for `headgate try`: the same routes, and each response names the backend that gave it.

    `home` and `identity` are as for `proxy_listener`.
    """
    told = {BACKEND_HEADER: "backend", POD_HEADER: "pod"}
    mutations = [
        pb.HeaderMutationRule(
            append=pb.HeaderValueOption(
                header=pb.HeaderValue(key=header, value=f"%UPSTREAM_METADATA({METADATA}:{key})%"),
                append_action=pb.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
            )
        )
        for header, key in told.items()
    ]
    mutation = pb.HeaderMutation(mutations=pb.HeaderMutations(response_mutations=mutations))
    tell = pb.HttpFilter(name="envoy.filters.http.header_mutation", typed_config=pb.pack(mutation))
    connection = _by_host(_unknown(home, identity), tell)
    return _listener(names.PROBE, pb.Address(pipe=pb.Pipe(path=path, mode=PRIVATE_MODE)), connection)


def _listener(name: str, where: pb.Address, connection: pb.HttpConnectionManager) -> pb.Listener:
    http = pb.Filter(name="envoy.filters.network.http_connection_manager", typed_config=pb.pack(connection))
    return pb.Listener(
        name=name,
        address=where,
        filter_chains=[pb.FilterChain(filters=[http])],
        # Two processes on one address must be an error that somebody sees, not a silent share for each.
        enable_reuse_port=pb.BoolValue(value=False),
    )


def _http(
    *,
    rds: pb.Rds | None = None,
    scoped_routes: pb.ScopedRoutes | None = None,
    local_reply_config: pb.LocalReplyConfig | None = None,
    first: tuple[pb.HttpFilter, ...] = (),
) -> pb.HttpConnectionManager:
    """Return an HTTP filter chain that leaves requests as they are and costs little (docs/performance.md)."""
    return pb.HttpConnectionManager(
        stat_prefix="mesh",
        codec_type=pb.HttpConnectionManager.CodecType.AUTO,
        rds=rds,
        scoped_routes=scoped_routes,
        http_filters=[*first, state_filter(), router_filter(telemetry.failed_copies())],
        http_protocol_options=pb.Http1ProtocolOptions(accept_http_10=True),
        upgrade_configs=[pb.HttpConnectionManager.UpgradeConfig(upgrade_type="websocket")],
        server_header_transformation=pb.HttpConnectionManager.ServerHeaderTransformation.PASS_THROUGH,
        generate_request_id=pb.BoolValue(value=False),
        stream_idle_timeout=pb.Duration(seconds=0),
        local_reply_config=local_reply_config,
        access_log=[*telemetry.requests(), tap.client()],
    )


def router_filter(*sent: pb.AccessLog) -> pb.HttpFilter:
    """Return the last filter of each HTTP chain: it sends a request on by its route. `sent` log what it sends.

    Envoy's own counters by response code are off. They are ten lookups for each request, and the bootstrap keeps none of
    them (`bootstrap.KEPT_STATS`). Without them an endpoint's `rq_error` lacks answers of 5xx; `telemetry` counts those.
    """
    config = pb.Router(suppress_envoy_headers=True, dynamic_stats=pb.BoolValue(value=False), upstream_log=sent)
    return pb.HttpFilter(name="envoy.filters.http.router", typed_config=pb.pack(config))


def _by_host(replies: pb.LocalReplyConfig, *filters: pb.HttpFilter) -> pb.HttpConnectionManager:
    """Return what finds a Service by the request's host, as DNS does: in any case, with or without a dot at the end."""
    found = _http(scoped_routes=_scoped(), local_reply_config=replies, first=(*lower_case_filters(), *filters))
    found.strip_trailing_host_dot = True
    return found


def _scoped() -> pb.ScopedRoutes:
    whole_authority = pb.ScopedRoutes.ScopeKeyBuilder.FragmentBuilder(
        header_value_extractor=pb.ScopedRoutes.ScopeKeyBuilder.FragmentBuilder.HeaderValueExtractor(
            name=":authority", index=0
        )
    )
    return pb.ScopedRoutes(
        name="services",
        scope_key_builder=pb.ScopedRoutes.ScopeKeyBuilder(fragments=[whole_authority]),
        rds_config_source=ads(),
        scoped_rds=pb.ScopedRds(scoped_rds_config_source=ads()),
    )


def _replies(text: str) -> pb.LocalReplyConfig:
    unknown = pb.AccessLogFilter(response_flag_filter=pb.ResponseFlagFilter(flags=["NR"]))
    return pb.LocalReplyConfig(
        mappers=[
            pb.ResponseMapper(
                filter=unknown,
                body_format_override=pb.SubstitutionFormatString(text_format_source=pb.DataSource(inline_string=text)),
            )
        ]
    )
