"""What every proxy does to HTTP: at each listener, and towards each server (docs/tasks/protocols.md).

A client and a server that work without a proxy work with it. So a proxy forwards what it does not know, and its limits are
higher than those of ordinary servers.
"""

from collections.abc import Iterable, Sequence
from functools import cache

from headgate.envoy import pb
from headgate.envoy.unrouted import disable_second_attempt
from headgate.envoy.values import duration, number, other_texts
from headgate.model.routing import Protocol
from headgate.model.sanitizing import WEBSOCKET
from headgate.model.wellformed import DEFAULT_HOST, MAX_HEAD_BYTES, MAX_HEADERS

ALPN = ("h2", "http/1.1")  # the protocols of HTTP that a server offers in its TLS handshake
HANDSHAKE_MS = 10_000  # the time for a client's TLS handshake
HEAD_MS = 30_000  # the time for the head of a request: a client whose head never ends must not keep its memory
IDLE_MS = 1_500
"""The time after which a proxy closes an idle connection to an application.

It is shorter than that of ordinary servers (gunicorn 2 s; Node, Uvicorn and Apache 5 s), so that a POST does not meet a
connection that the server closes at this moment. A proxy closes connections gracefully.
"""
DELAYED_CLOSE_MS = 100
"""The time that a proxy waits for the client to close a connection after the last byte of a response, before it closes it.

It lets a client that is still sending read the response. Within a cluster that takes some milliseconds; a Gateway waits for
a second, Envoy's default. The end of a WebSocket or a tunnel arrives this time later, at each proxy.
"""
_KIB = 1024
_MAX_FIELD_KIB = 256
"""The largest header over HTTP/2: a larger one ends the whole connection. This is Envoy's maximum; its default is 64."""


def connection_manager(  # noqa: PLR0913  # the parts in which listeners differ
    *,
    prefix: str,
    routes: pb.Rds | pb.ScopedRoutes,
    filters: Sequence[pb.HttpFilter],
    router: pb.HttpFilter,
    logs: Iterable[pb.AccessLog],
    replies: pb.LocalReplyConfig | None = None,
    early: Sequence[pb.HeaderMutationRule] = (),
    edge: bool = False,
) -> pb.HttpConnectionManager:
    """Return a connection manager that changes little about requests, and costs little (docs/explain/performance.md).

    `early` changes headers before Envoy selects a route. An `edge` does not trust forwarding headers of its clients.
    """
    manager = pb.HttpConnectionManager
    message = manager(
        stat_prefix=prefix,
        codec_type=manager.CodecType.AUTO,
        rds=routes if isinstance(routes, pb.Rds) else None,
        scoped_routes=routes if isinstance(routes, pb.ScopedRoutes) else None,
        http_filters=[*filters, router],
        common_http_protocol_options=pb.CommonHttpProtocolOptions(max_headers_count=number(MAX_HEADERS)),
        http_protocol_options=pb.Http1ProtocolOptions(
            accept_http_10=True,
            default_host_for_http_10=DEFAULT_HOST,
            allow_custom_methods=True,
            enable_trailers=True,
            ignore_http_11_upgrade=[_other_upgrades()],
        ),
        http2_protocol_options=_http2(),
        max_request_headers_kb=number(MAX_HEAD_BYTES // _KIB),
        upgrade_configs=[manager.UpgradeConfig(upgrade_type=WEBSOCKET)],
        server_header_transformation=manager.ServerHeaderTransformation.PASS_THROUGH,
        generate_request_id=pb.BoolValue(value=False),
        stream_idle_timeout=pb.Duration(seconds=0),
        request_headers_timeout=duration(HEAD_MS),
        proxy_100_continue=True,
        local_reply_config=replies,
        access_log=logs,
    )
    if early:
        mutation = pb.pack(pb.EarlyHeaderMutation(mutations=early))
        message.early_header_mutation_extensions.append(pb.TypedExtensionConfig(name="early", typed_config=mutation))
    if edge:
        message.use_remote_address.CopyFrom(pb.BoolValue(value=True))
    else:
        message.delayed_close_timeout.CopyFrom(duration(DELAYED_CLOSE_MS))
    return message


def write_header(name: str, value: str) -> pb.HeaderMutationRule:
    """Return the rule that sets a header; it overwrites the value that a client sent."""
    overwrite = pb.HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
    header = pb.HeaderValue(key=name, value=value)
    return pb.HeaderMutationRule(append=pb.HeaderValueOption(header=header, append_action=overwrite))


@cache
def _other_upgrades() -> pb.StringMatcher:
    """Return the matcher of all protocols except WebSocket. An upgrade is an offer, which a server may ignore (RFC 9110, 7.8)."""
    return pb.StringMatcher(safe_regex=pb.RegexMatcher(regex=f"(?is){other_texts([WEBSOCKET])}"))


def http_options(protocol: Protocol, *, to_proxy: bool = False, idle_ms: int = 0) -> pb.HttpProtocolOptions:
    """Return the options of a cluster for HTTP (R65).

    An idle connection to an application is closed after `idle_ms`, by default `IDLE_MS`; one `to_proxy` after Envoy's
    default, an hour.
    """
    http1, http2 = pb.Http1ProtocolOptions(enable_trailers=True), _http2()
    options = pb.HttpProtocolOptions(
        common_http_protocol_options=pb.CommonHttpProtocolOptions(
            max_headers_count=number(MAX_HEADERS),
            max_response_headers_kb=number(MAX_HEAD_BYTES // _KIB),
            idle_timeout=None if to_proxy else duration(idle_ms or IDLE_MS),
        )
    )
    if protocol is Protocol.HTTP_ANY:
        same = pb.HttpProtocolOptions.UseDownstreamHttpConfig(http_protocol_options=http1, http2_protocol_options=http2)
        options.use_downstream_protocol_config.CopyFrom(same)
    elif protocol is Protocol.HTTP2:
        options.explicit_http_config.http2_protocol_options.CopyFrom(http2)
    else:
        options.explicit_http_config.http_protocol_options.CopyFrom(http1)
    return options


def _http2() -> pb.Http2ProtocolOptions:
    """Return options by which a malformed message ends its stream, and no other stream of the connection (RFC 9113, 8.1.1)."""
    return pb.Http2ProtocolOptions(
        max_header_field_size_kb=number(_MAX_FIELD_KIB),
        override_stream_error_on_invalid_http_message=pb.BoolValue(value=True),
    )


def route_configuration(name: str, hosts: Sequence[pb.VirtualHost]) -> pb.RouteConfiguration:
    """Return the routes of a connection manager."""
    configuration = pb.RouteConfiguration(name=name, virtual_hosts=hosts)
    disable_second_attempt(configuration)
    return configuration
