"""The statistics that the access loggers of proxies count (R84 to R97, D22), and parsers of their attributes.

The caller's proxy counts all traffic, because only it knows which pod answered. So the source of traffic is the
workload of the reporting proxy. The server's proxy also counts plaintext traffic, by the caller's address. Series and
attributes:

mesh.latency      cluster, pod, code       histogram in microseconds, on the client's side, from the first byte of a
                                           request to the last of its response
mesh.flagged      cluster, pod, code       requests with one of Envoy's response flags, or without a response status of
                                           200 or above
mesh.attempts     cluster, pod, code       attempts at a server in which no program answered: no connection, or no
                                           response on it. The request may have been repeated at another server, and
                                           then counts there
mesh.connections  cluster, pod             connections that reached a server, on ports that are not HTTP; sessions of UDP that
                                           ended
mesh.failed       cluster, pod             connections that reached no server; dropped datagrams (`cluster_stats`)
mesh.sent         cluster, pod             bytes from client to server, counted when a connection ends
mesh.received     cluster, pod             bytes from server to client, counted when a connection ends

mesh.denied       port, source, identity   on the server's side: connections that access rules denied

Series of the server's side have `port` and `source` instead of cluster and pod. `port` is that of the pod, or `other`
if it belongs to no Service. `source` is an address. `identity` is the verified SPIFFE ID of an mTLS client.

Each attribute costs 500 instructions or more for each request. So `cluster` has the backend too, after a blank
(`split_backend`), and `code` the gRPC status.

`pod` is `namespace/name:port`, a space and, with mTLS, the TLS version (`parse_pod`). For endpoints that are not
pods it is the address or the DNS name. `backend` is set only if it is not the Service in `cluster` (`parse_backend`).
If a route reached the backend through the split of a root, `backend` also has a space and the root (`parse_root`).
`cluster` begins with a name that `names` can parse to a Service port or Gateway port: that of the cluster or, if
there was none, of the listener or routes (`route_name_without_cluster`). It is empty if the client named no Service,
`passthrough` for unknown addresses, and `tunnel` for tunnels whose requests are counted a second time. `pod` and
`backend` are empty if no server was tried; if none could be reached, they are those of the last attempt. An attribute
without a value is empty or missing. `code` is for `outcomes.parse_code`.

Requests without flags are counted by `mesh.latency` only. All other requests are counted by `mesh.flagged`, and by
`mesh.latency` too if their response is complete (see `outcomes.Code`). A second series for each request would cost
a proxy 6 % of its CPU time (docs/explain/performance.md).

Mirrored requests (D22) are counted by `mesh.latency` and `mesh.flagged` too; `cluster` is the mirror cluster. The
loggers are the router's (`upstream_requests`), because a connection manager logs no copies. The latency of a copy ends
with the last byte from the server, because no client gets the response.

Other series are Envoy's own statistics of clusters under names of headgate (`cluster_stats`).

All series are in one scope, which the bootstrap keeps alive (`scope_anchor`). Otherwise the scope and all its values
would end with the last listener that uses it. So values survive changes to listeners, routes, clusters and endpoints.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from google.protobuf.message import Message

from headgate.envoy import names, pb
from headgate.envoy.clusters import METADATA_KEY
from headgate.envoy.outcomes import FIRST_FAILURE, FIRST_RESPONSE, UNANSWERED_FLAGS, UNREACHED_FLAGS
from headgate.envoy.upstream_tls import DENIED_HEADER, UNREACHED_HEADER
from headgate.model.routing import PortRef

PREFIX = "mesh"
LATENCY, FLAGGED, ATTEMPTS = "latency", "flagged", "attempts"
CONNECTIONS, FAILED, SENT, RECEIVED = "connections", "failed", "sent", "received"
DENIED = "denied"
OTHER_PORTS = "other"
MAX_COUNTERS = 20_000  # maximum number of series per proxy; `server.stats_overflow` counts values of further series
MAX_HISTOGRAMS = 10_000
LOGGER = "count"  # short, as each listener repeats it; Envoy identifies the logger by its type
Attributes: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of an attribute's name and its value, a text with Envoy's command operators."""

_TLS = "%UPSTREAM_TLS_VERSION%"
_HOSTNAME = "%UPSTREAM_HOST_NAME%"  # the address, if the endpoint has no hostname
_POD = ("pod", f"{_HOSTNAME}{_TLS}")
_BACKEND = ("backend", f"%UPSTREAM_METADATA({METADATA_KEY}:backend)%")
_CLUSTER = "%UPSTREAM_CLUSTER%"
_SESSION_CLUSTER = "%DYNAMIC_METADATA(udp.proxy.session:cluster_name)%"  # `_CLUSTER` is empty for UDP
_ROUTE_AND_CLUSTER = f"%ROUTE_NAME%{_CLUSTER}"
SERVER_ATTRIBUTES: Attributes = (_POD, _BACKEND)
"""The attributes that describe the endpoint of a request."""
UPSTREAM_ATTRIBUTES: Attributes = (("cluster", _ROUTE_AND_CLUSTER), *SERVER_ATTRIBUTES)
"""The attributes that describe the cluster and the endpoint of a request."""
_DENIED = f"%RESP({DENIED_HEADER}):1%"  # only the first character, as servers without a sidecar may send any text
_CODE = ("code", f"%RESPONSE_CODE%%RESPONSE_FLAGS%{_DENIED} %GRPC_STATUS_NUMBER%")
_OUTCOME = ("code", "%RESPONSE_CODE%%RESPONSE_FLAGS%")
_WHOLE = "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%"
_UNTIL_ANSWERED = "%COMMON_DURATION(DS_RX_BEG:US_RX_END:us)%"
_INTERNAL = "x-envoy-internal"
"""A header that Envoy adds to copies. As the first filter it spares all other requests the cost of `_IS_MIRROR`, which is 2 % of
their CPU time."""
_IS_MIRROR = f'xds.cluster_name.startsWith("{names.MIRROR}")'
_IS_UNREACHED = f'"{UNREACHED_HEADER}" in response.headers'
_TO_SERVER, _TO_CLIENT = "%BYTES_RECEIVED%", "%BYTES_SENT%"  # bytes received from the client, bytes sent to the client
SOURCE, IDENTITY = "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%", "%DOWNSTREAM_PEER_URI_SAN%"
SOURCE_KEY, IDENTITY_KEY = "headgate.source", "headgate.identity"
"""The filter state with the source and the identity of a connection, for listeners inside the proxy."""
_IDENTITY = ("identity", IDENTITY)
_NOT_ALLOWED = "SAN matcher"
"""Part of Envoy's failure reason if the identity of a client with a valid certificate is not allowed."""
_FIRST_REFUSAL = 300


class CalledServer(NamedTuple):
    """A server: its pod (`namespace/name`) and port, and whether it was called by mTLS."""

    pod: str
    port: int
    secured: bool


NO_POD = CalledServer("", 0, secured=False)


def split_backend(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a series, with `backend` as an attribute of its own."""
    cluster, _, backend = attributes.get("cluster", "").partition(" ")
    return {**attributes, "cluster": cluster, "backend": backend}


def parse_pod(text: str) -> CalledServer:
    """Parse the attribute `pod`: `namespace/name:port`, a space and the TLS version; each part may be missing.

    Endpoints that are not pods (an address or a DNS name) give `NO_POD`.
    """
    address, _, version = text.partition(" ")
    pod, _, port = address.partition(":")
    return CalledServer(pod, int(port) if port.isdecimal() else 0, bool(version)) if "/" in pod else NO_POD


def parse_cluster(text: str) -> PortRef | None:
    """Parse the attribute `cluster`: return the Service port that was called; None if there was none."""
    try:
        return names.parse(text)
    except ValueError:  # the text is not the name of a headgate resource
        return None


def parse_backend(attributes: Mapping[str, str]) -> str:
    """Return the backend in the attributes of a series; by default, the Service of the cluster."""
    said = attributes.get("backend", "").partition(" ")[0]
    if said or not attributes.get("pod"):
        return said
    ref = parse_cluster(attributes.get("cluster", ""))
    return ref.service if ref else ""


def parse_root(attributes: Mapping[str, str]) -> str:
    """Return the root (`namespace/name`) whose split led to the backend of a route's requests; empty if there is none."""
    return attributes.get("backend", "").partition(" ")[2]


def route_name_without_cluster(parent: str) -> str:
    """Return the name of a route whose requests may reach no cluster; by this name they are counted for `parent`.

    Loggers write the route's name before the cluster's name.
    """
    return f"{parent}/"


# --- the client's side


def requests() -> list[pb.AccessLog]:
    """Return the loggers that count the requests of a connection manager."""
    return _requests(_upstream(_ROUTE_AND_CLUSTER))


def requests_and_tunnels() -> list[pb.AccessLog]:
    """Return the loggers of a connection manager that accepts CONNECT; tunnels count as connections.

    The connection manager must flush its access log when a tunnel is established, not only when the tunnel ends. Envoy then
    flushes it for upgrades such as WebSockets too, so requests count only when they end.
    """
    upstream = _upstream(_ROUTE_AND_CLUSTER)
    tunnel, kinds = _method_is_connect(), pb.AccessLogType
    established = _of_kind(kinds.DownstreamTunnelSuccessfullyEstablished)
    ended = _of_kind(kinds.DownstreamEnd)
    return [
        *_requests(upstream, _method_is_connect(inverted=True), ended),
        _logger([_counter(CONNECTIONS, upstream)], tunnel, established),
        _logger(_bytes(upstream), tunnel, ended, _status(pb.ComparisonFilter.Op.LE, _FIRST_REFUSAL - 1)),
        _logger([_counter(FAILED, upstream)], tunnel, ended, _status(pb.ComparisonFilter.Op.GE, _FIRST_REFUSAL)),
    ]


def upstream_requests() -> list[pb.AccessLog]:
    """Return the router's access loggers: they count mirrored requests, and attempts in which no program answered."""
    attributes = _upstream(_CLUSTER)
    copies = _requests(attributes, _has_header(_INTERNAL), cel_filter(_IS_MIRROR), latency=_UNTIL_ANSWERED)
    unanswered = pb.AccessLogFilter(response_flag_filter=pb.ResponseFlagFilter(flags=UNANSWERED_FLAGS))
    said_so = (_status(pb.ComparisonFilter.Op.GE, FIRST_FAILURE), cel_filter(_IS_UNREACHED))
    by_proxy = pb.AccessLogFilter(and_filter=pb.AndFilter(filters=said_so))
    either = pb.AccessLogFilter(or_filter=pb.OrFilter(filters=[unanswered, by_proxy]))
    return [*copies, _logger([_counter(ATTEMPTS, (*attributes, _OUTCOME))], either)]


def connections(name: str) -> list[pb.AccessLog]:
    """Return the loggers that count the connections of a TCP listener, for `log_connections`."""
    return _connections(_upstream(_CLUSTER), failed=_upstream(name))


def sessions() -> list[pb.AccessLog]:
    """Return the logger that counts the sessions of a UDP listener, when they end; Envoy knows no earlier moment."""
    attributes = (("cluster", f"{_SESSION_CLUSTER} {_BACKEND[1]}"), _POD)
    return [_logger([_counter(CONNECTIONS, attributes), *_bytes(attributes)], _of_kind(pb.AccessLogType.UdpSessionEnd))]


def passthrough_connections(name: str) -> list[pb.AccessLog]:
    """Return the loggers of the listener for unknown addresses; the address is not an attribute."""
    return _connections((("cluster", name),))


def pod_connections(name: str, pod: str, backend: str) -> list[pb.AccessLog]:
    """Return the loggers of a listener for one endpoint.

    `pod` has the format of `clusters.pod_and_port`; the name of the cluster does not contain the pod.
    """
    return _connections((("cluster", f"{name} {backend}"), ("pod", f"{pod}{_TLS}")))


def _upstream(cluster: str) -> Attributes:
    return ("cluster", f"{cluster} {_BACKEND[1]}"), _POD


def log_connections(proxy: pb.TcpProxy, loggers: Iterable[pb.AccessLog]) -> None:
    """Add the loggers to a TCP proxy; they run when a connection reaches a server, and when it ends."""
    proxy.access_log.extend(loggers)
    if proxy.access_log:
        options = pb.TcpProxy.TcpAccessLogOptions(flush_access_log_on_connected=True)
        proxy.access_log_options.CopyFrom(options)


# --- the server's side


def plaintext_requests(port: str) -> list[pb.AccessLog]:
    """Return the loggers of plaintext requests. mTLS requests are counted by the caller's proxy."""
    return _requests(_plaintext_source(port))


def plaintext_connections(port: str) -> list[pb.AccessLog]:
    """Return the loggers of plaintext connections."""
    return _connections(_plaintext_source(port))


def denied_connections(port: str) -> list[pb.AccessLog]:
    """Return the loggers of a filter chain that denies all connections."""
    ended = _of_kind(pb.AccessLogType.TcpConnectionEnd)
    return [_logger([_counter(DENIED, (*_plaintext_source(port), _IDENTITY))], ended)]


def denied_callers(port: str) -> list[pb.AccessLog]:
    """Return the loggers of a filter chain that denies connections with mTLS, inside the proxy.

    Their identity and source are filter state of the connection that the client opened.
    """
    state = (
        ("port", port),
        ("source", f"%FILTER_STATE({SOURCE_KEY}:PLAIN)%"),
        ("identity", f"%FILTER_STATE({IDENTITY_KEY}:PLAIN)%"),
    )
    return [_logger([_counter(DENIED, state)], _of_kind(pb.AccessLogType.TcpConnectionEnd))]


def denied_handshakes() -> pb.AccessLog:
    """Return the logger of handshakes that failed because access rules do not allow the client's identity.

    It belongs to the listener, because Envoy runs no filter chain after a failed handshake.
    """
    attributes = (*_plaintext_source("%DOWNSTREAM_LOCAL_PORT%"), _IDENTITY)
    refused = cel_filter(f'connection.transport_failure_reason.contains("{_NOT_ALLOWED}")')
    return _logger([_counter(DENIED, attributes)], refused)


def _plaintext_source(port: str) -> Attributes:
    # The address of the connection, as clients can forge headers.
    return ("port", port), ("source", SOURCE)


# --- the proxy


def scope_anchor() -> pb.AccessLog:
    """Return a logger that never logs; its only purpose is to keep the scope of all series alive."""
    return _logger([], _of_kind(pb.AccessLogType.UdpSessionEnd))


# --- loggers


def _requests(attributes: Attributes, *filters: pb.AccessLogFilter, latency: str = "") -> list[pb.AccessLog]:
    attributes = (*attributes, _CODE)
    histogram = pb.StatsAccessLog.Histogram(
        stat=_stat(LATENCY, attributes),
        unit=pb.StatsAccessLog.Histogram.Unit.Microseconds,
        value_format=latency or _WHOLE,
    )
    answered = _status(pb.ComparisonFilter.Op.GE, FIRST_RESPONSE)
    flagged_filters = (
        _status(pb.ComparisonFilter.Op.LE, FIRST_RESPONSE - 1),
        pb.AccessLogFilter(response_flag_filter=pb.ResponseFlagFilter()),
    )
    flagged = pb.AccessLogFilter(or_filter=pb.OrFilter(filters=flagged_filters))
    return [_logger([histogram], *filters, answered), _logger([_counter(FLAGGED, attributes)], *filters, flagged)]


def _connections(attributes: Attributes, failed: Attributes = ()) -> list[pb.AccessLog]:
    connected = _of_kind(pb.AccessLogType.TcpUpstreamConnected)
    ended = _of_kind(pb.AccessLogType.TcpConnectionEnd)
    unreached = pb.AccessLogFilter(response_flag_filter=pb.ResponseFlagFilter(flags=UNREACHED_FLAGS))
    return [
        _logger([_counter(CONNECTIONS, attributes)], connected),
        _logger(_bytes(attributes), ended),
        _logger([_counter(FAILED, failed or attributes)], ended, unreached),
    ]


def _bytes(attributes: Attributes) -> list[Message]:
    counter = pb.StatsAccessLog.Counter
    return [
        counter(stat=_stat(SENT, attributes), value_format=_TO_SERVER),
        counter(stat=_stat(RECEIVED, attributes), value_format=_TO_CLIENT),
    ]


def _counter(name: str, tags: Attributes) -> pb.StatsAccessLog.Counter:
    return pb.StatsAccessLog.Counter(stat=_stat(name, tags), value_fixed=pb.UInt64Value(value=1))


def _stat(name: str, tags: Attributes) -> pb.StatsAccessLog.Stat:
    return pb.StatsAccessLog.Stat(
        name=name, tags=[pb.StatsAccessLog.Tag(name=tag, value_format=value) for tag, value in tags]
    )


def _logger(stats: Iterable[Message], *filters: pb.AccessLogFilter) -> pb.AccessLog:
    """Return a logger that counts `stats` for each log entry that passes all filters."""
    listed = list(stats)
    config = pb.StatsAccessLog(
        stats_scope=pb.StatsScope(
            prefix=PREFIX,
            sharing_name=PREFIX,
            enable_eviction=True,
            max_counters=pb.UInt32Value(value=MAX_COUNTERS),
            max_histograms=pb.UInt32Value(value=MAX_HISTOGRAMS),
        ),
        counters=[stat for stat in listed if isinstance(stat, pb.StatsAccessLog.Counter)],
        histograms=[stat for stat in listed if isinstance(stat, pb.StatsAccessLog.Histogram)],
    )
    logger = pb.AccessLog(name=LOGGER, typed_config=pb.pack(config))
    if len(filters) > 1:
        logger.filter.CopyFrom(pb.AccessLogFilter(and_filter=pb.AndFilter(filters=filters)))
    elif filters:
        logger.filter.CopyFrom(filters[0])
    return logger


def cel_filter(expression: str) -> pb.AccessLogFilter:
    """Return an access log filter with a CEL expression over Envoy's attributes."""
    name = "cel"
    config = pb.pack(pb.ExpressionFilter(expression=expression))
    return pb.AccessLogFilter(extension_filter=pb.ExtensionFilter(name=name, typed_config=config))


def _has_header(name: str) -> pb.AccessLogFilter:
    return pb.AccessLogFilter(header_filter=pb.HeaderFilter(header=pb.HeaderMatcher(name=name, present_match=True)))


def _of_kind(kind: pb.AccessLogType) -> pb.AccessLogFilter:
    return pb.AccessLogFilter(log_type_filter=pb.LogTypeFilter(types=[kind]))


def _status(op: pb.ComparisonFilter.Op, status: int) -> pb.AccessLogFilter:
    value = pb.RuntimeUInt32(default_value=status)  # without a runtime key, which Envoy would look up for each request
    return pb.AccessLogFilter(
        status_code_filter=pb.StatusCodeFilter(comparison=pb.ComparisonFilter(op=op, value=value))
    )


def _method_is_connect(*, inverted: bool = False) -> pb.AccessLogFilter:
    method = pb.HeaderMatcher(name=":method", string_match=pb.StringMatcher(exact="CONNECT"), invert_match=inverted)
    return pb.AccessLogFilter(header_filter=pb.HeaderFilter(header=method))
