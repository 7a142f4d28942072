"""What proxies count, by access loggers that write statistics: per series, not per request (R84 to R97, D22).

Whoever calls counts, because it alone knows the pod that answered; the reporting proxy is the source. A server's proxy
counts what comes in plaintext besides, by the caller's address. The series, and their attributes:

mesh.latency      cluster, pod, backend, code, grpc   histogram of microseconds: from a request's first byte to the last
                                                      of its response, as the client's side has them
mesh.flagged      cluster, pod, backend, code, grpc   requests that ended with one of Envoy's response flags, or with no
                                                      response from 200 on
mesh.connections  cluster, pod, backend               connections that reached a server, on ports that are not HTTP
mesh.failed       cluster, pod, backend               those that reached none
mesh.sent         cluster, pod, backend               bytes from client to server, when a connection ends
mesh.received     cluster, pod, backend               bytes back

mesh.denied       port, source, identity              at a server: connections that its access rules refused

At a server, `port` (of the pod, or `other` where no Service leads to it) and `source` (an address) stand in the place of
cluster, pod and backend. `identity` is the caller's SPIFFE ID, verified, where it came by mutual TLS.

`pod` is `namespace/name:port`, then a blank, and the version of TLS where the request or connection went by mutual TLS
(`parse_pod`); of an endpoint that is no pod, its address or its name in DNS. `backend` is there where it is not the Service
that `cluster` names (`parse_backend`). `cluster` begins with what `names` can read the Service and its port from, or the Gateway and its
port: the name of a cluster, or, where there was none, of the listener or the routes that the client had come to
(`route_name_without_cluster`). It is empty where no Service was meant, `passthrough` for addresses that are nobody's, and `tunnel`
where what is in a tunnel is counted once more. `pod` and `backend` are empty where there was no server; of one that could
not be reached, they are the last tried. An attribute without a value is empty, or not there. `code` is for `parse_code`.

So a request without flags is counted once, in its latency, and each other one in `mesh.flagged`; the latency of one that has
flags and a whole response is in the histogram too (`Code.is_flagged` says which). A second series for each request would cost
a proxy 6 % of its processor time (docs/performance.md).

Copies of requests (D22) are counted for each endpoint of a mirror's cluster: those that succeed and those that are dropped
by Envoy itself, those that fail by a logger of the router (`failed_copies`), which passes over all else by its filter.

mesh.copies         envoy.cluster_name, envoy.endpoint_hostname   copies that were answered below 500
mesh.copies_failed  envoy.cluster_name, envoy.endpoint_hostname   those that were not: 500 and above, or no answer
mesh.copies_dropped envoy.cluster_name                            copies beyond the limits of a mirror's cluster

Their cluster is a mirror's, and the hostname is like `pod`.

All of them are in one scope, which the bootstrap holds (`scope_anchor`): by itself it would end with the last listener that
counts in it, and with it every value. So they go on through all changes of listeners, routes, clusters and endpoints.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from google.protobuf.message import Message

from headgate.envoy import names, pb
from headgate.envoy.clusters import METADATA_KEY
from headgate.envoy.upstream_tls import DENIED_HEADER
from headgate.model.routing import PortRef

PREFIX = "mesh"
LATENCY, FLAGGED = "latency", "flagged"
CONNECTIONS, FAILED, SENT, RECEIVED = "connections", "failed", "sent", "received"
DENIED = "denied"
COPIES, COPIES_FAILED, COPIES_DROPPED = "copies", "copies_failed", "copies_dropped"
COPY_CLUSTER, COPY_POD = "envoy.cluster_name", "envoy.endpoint_hostname"
"""Attributes of copies, in Envoy's own words for its own counters."""
PENDING_OVERFLOW = ".upstream_rq_pending_overflow"  # Envoy's own counter of requests beyond a cluster's limits
OTHER_PORTS = "other"
MAX_COUNTERS = 20_000  # of one proxy; beyond that requests are not counted, which is counted (`server.stats_overflow`)
MAX_HISTOGRAMS = 10_000
LOGGER = "count"  # Envoy finds an extension by the type of its configuration; each listener repeats the name
Attributes: TypeAlias = tuple[tuple[str, str], ...]
"""Attributes that say between whom, with their values: text, and Envoy's commands."""

_TLS = "%UPSTREAM_TLS_VERSION%"
_HOSTNAME = "%UPSTREAM_HOST_NAME%"  # Envoy says the address of an endpoint without one
_POD = ("pod", f"{_HOSTNAME}{_TLS}")
_BACKEND = ("backend", f"%UPSTREAM_METADATA({METADATA_KEY}:backend)%")
_CLUSTER = ("cluster", "%UPSTREAM_CLUSTER%")
_ROUTE_AND_CLUSTER = ("cluster", "%ROUTE_NAME%%UPSTREAM_CLUSTER%")
SERVER_ATTRIBUTES: Attributes = (_POD, _BACKEND)
"""The endpoint that a request went to."""
UPSTREAM_ATTRIBUTES: Attributes = (_ROUTE_AND_CLUSTER, *SERVER_ATTRIBUTES)
"""What a request came to."""
_DENIED = f"%RESP({DENIED_HEADER}):1%"  # a server without a sidecar may send any text: one character bounds the series
_CODE = ("code", f"%RESPONSE_CODE%%RESPONSE_FLAGS%{_DENIED}")
_GRPC = ("grpc", "%GRPC_STATUS_NUMBER%")
_WHOLE = "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%"
_TO_SERVER, _TO_CLIENT = "%BYTES_RECEIVED%", "%BYTES_SENT%"  # Envoy names them as its client's side does
_IDENTITY = ("identity", "%DOWNSTREAM_PEER_URI_SAN%")
_NOT_ALLOWED = "SAN matcher"
"""In Envoy's words for a handshake that failed because of the client's identity; its certificate was verified before."""
_UNREACHED_FLAGS = ("UH", "URX", "UO", "NC")
"""Why a connection reached no server. UF alone is not the end: another try may have succeeded, and it stays."""
_FIRST_RESPONSE = 200  # below is none, or an upgrade, whose end says how long it was used
_FIRST_REFUSAL = 300
_FIRST_FAILURE = 500
_FORBIDDEN, _PERMISSION_DENIED = 403, "7"
_DENIED_MARK = "t"  # how the value of the header begins


INCOMPLETE_FLAGS = frozenset({"UC", "UR", "UPE", "UT", "LR", "SI", "UMSDR", "DT"})
"""Flags of a response that has not come to its end, and not because its client went away (`DC`)."""


class Code(NamedTuple):
    """What became of a request. `status` is 0 without a response; `flags` are Envoy's words for what went wrong.

    `marked`: the response says that access rules refused the request.
    """

    status: int
    flags: frozenset[str] = frozenset()
    marked: bool = False

    @property
    def is_flagged(self) -> bool:
        """Whether `mesh.flagged` counts the request, not its latency."""
        return bool(self.flags) or self.status < _FIRST_RESPONSE

    def is_denied(self, grpc: str = "") -> bool:
        """Return whether access rules refused the request: the mark counts only with the status of a refusal."""
        return self.marked and (grpc == _PERMISSION_DENIED if grpc else self.status == _FORBIDDEN)

    @property
    def complete_status(self) -> int:
        """The status of a response that came as a whole; 0 without one, and of one that broke off.

        The status of an answer from 500 on stays: it is a failure already, and proxies answer so in full why they had no
        other. That of an upgrade stays too: it is used until it ends, in whatever way.
        """
        is_answer = _FIRST_RESPONSE <= self.status < _FIRST_FAILURE
        return 0 if is_answer and self.flags & INCOMPLETE_FLAGS else self.status


def parse_code(text: str) -> Code:
    """Read the attribute `code`: the status, and behind it Envoy's response flags or `-`, as in `200-` or `503UF,URX`.

    The mark of a refusal stands at the end, as in `403-t`. A server without a sidecar may write any other character there.
    """
    rest = text.lstrip("0123456789")
    status = int(text.removesuffix(rest) or 0)
    marked = rest.endswith(_DENIED_MARK)
    if not rest or rest.startswith("-"):
        return Code(status, marked=marked)
    return Code(status, frozenset(rest.removesuffix(_DENIED_MARK).split(",")), marked)


class PodPort(NamedTuple):
    """A server: a pod (`namespace/name`) and its port, and whether it was called by mutual TLS."""

    pod: str
    port: int
    secured: bool


NO_POD = PodPort("", 0, secured=False)


def parse_pod(text: str) -> PodPort:
    """Read the attribute `pod`: `namespace/name:port`, and behind a blank the version of TLS. All may be missing.

    In place of a pod, an endpoint that is none has its address, or its name in DNS.
    """
    address, _, version = text.partition(" ")
    pod, _, port = address.partition(":")
    return PodPort(pod, int(port) if port.isdecimal() else 0, bool(version)) if "/" in pod else NO_POD


def parse_cluster(text: str) -> PortRef | None:
    """Read the attribute `cluster`: the Service port that was called, if one was."""
    try:
        return names.parse(text)
    except ValueError:  # no name of ours
        return None


def parse_backend(attributes: Mapping[str, str]) -> str:
    """Return the backend that the attributes of a series name: the Service of the cluster, unless they say another one."""
    said = attributes.get("backend", "")
    if said or not attributes.get("pod"):
        return said
    ref = parse_cluster(attributes.get("cluster", ""))
    return ref.service if ref else ""


def route_name_without_cluster(parent: str) -> str:
    """Return the name of a route that may find no cluster, so that its requests are counted by the `parent` of its routes.

    It comes before the cluster's name where there is one.
    """
    return f"{parent}/"


# --- a client's side


def requests() -> list[pb.AccessLog]:
    """Return the loggers of a connection manager."""
    return _requests(UPSTREAM_ATTRIBUTES)


def requests_and_tunnels() -> list[pb.AccessLog]:
    """Return the loggers of one that takes CONNECT too; it must log when a tunnel is there, not only when it ends.

    What is in a tunnel is a connection.
    """
    tunnel, kinds = _method_is_connect(), pb.AccessLogType
    established = _of_kind(kinds.DownstreamTunnelSuccessfullyEstablished)
    ended = _of_kind(kinds.DownstreamEnd)
    return [
        *_requests(UPSTREAM_ATTRIBUTES, _method_is_connect(inverted=True)),
        _logger([_counter(CONNECTIONS, UPSTREAM_ATTRIBUTES)], tunnel, established),
        _logger(_bytes(UPSTREAM_ATTRIBUTES), tunnel, ended, _status(pb.ComparisonFilter.Op.LE, _FIRST_REFUSAL - 1)),
        _logger(
            [_counter(FAILED, UPSTREAM_ATTRIBUTES)], tunnel, ended, _status(pb.ComparisonFilter.Op.GE, _FIRST_REFUSAL)
        ),
    ]


def failed_copies() -> pb.AccessLog:
    """Return the logger of a router for copies of requests that fail, named as Envoy names those that succeed."""
    answered = (
        _status(pb.ComparisonFilter.Op.LE, _FIRST_RESPONSE - 1),
        _status(pb.ComparisonFilter.Op.GE, _FIRST_FAILURE),
    )
    failed = pb.AccessLogFilter(or_filter=pb.OrFilter(filters=answered))
    attributes = ((COPY_CLUSTER, _CLUSTER[1]), (COPY_POD, _HOSTNAME))
    return _logger([_counter(COPIES_FAILED, attributes)], failed, cel_filter('xds.cluster_name.startsWith("mirror/")'))


def connections(name: str) -> list[pb.AccessLog]:
    """Return the loggers of a listener that passes connections on (`log_connections`)."""
    return _connections((_CLUSTER, *SERVER_ATTRIBUTES), failed=(("cluster", name), *SERVER_ATTRIBUTES))


def passthrough_connections(name: str) -> list[pb.AccessLog]:
    """Return those of the listener that passes connections on to whatever address they were meant for: that is no attribute."""
    return _connections((("cluster", name),))


def pod_connections(name: str, pod: str, backend: str) -> list[pb.AccessLog]:
    """Return those of a listener for one server, whose cluster knows an address and nothing else about it.

    `pod` is as in `clusters.pod_and_port`.
    """
    known = (("cluster", name), ("pod", f"{pod}{_TLS}"), ("backend", backend))
    attributes = tuple((tag, text) for tag, text in known if text)  # Envoy refuses an empty text
    return _connections(attributes)


def log_connections(proxy: pb.TcpProxy, loggers: Iterable[pb.AccessLog]) -> None:
    """Let connections be counted: when they have reached a server, and when they end."""
    proxy.access_log.extend(loggers)
    if proxy.access_log:
        options = pb.TcpProxy.TcpAccessLogOptions(flush_access_log_on_connected=True)
        proxy.access_log_options.CopyFrom(options)


# --- a server's side


def plaintext_requests(port: str) -> list[pb.AccessLog]:
    """Return the loggers for requests that no proxy has counted: whoever has one comes by mutual TLS."""
    return _requests(_plaintext_source(port))


def plaintext_connections(port: str) -> list[pb.AccessLog]:
    """Return the same for connections."""
    return _connections(_plaintext_source(port))


def denied_connections(port: str) -> list[pb.AccessLog]:
    """Return the loggers of a chain whose connections are all refused: access rules allow no client that comes to it."""
    ended = _of_kind(pb.AccessLogType.TcpConnectionEnd)
    return [_logger([_counter(DENIED, (*_plaintext_source(port), _IDENTITY))], ended)]


def denied_handshakes() -> pb.AccessLog:
    """Return the logger of a listener for clients whose verified identity its access rules do not allow.

    The handshake fails then, so no filter of a chain sees the connection.
    """
    attributes = (*_plaintext_source("%DOWNSTREAM_LOCAL_PORT%"), _IDENTITY)
    refused = cel_filter(f'connection.transport_failure_reason.contains("{_NOT_ALLOWED}")')
    return _logger([_counter(DENIED, attributes)], refused)


def _plaintext_source(port: str) -> Attributes:
    # The address of the connection: headers may say anything.
    return ("port", port), ("source", "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%")


# --- the proxy


def scope_anchor() -> pb.AccessLog:
    """Return a logger that never logs and always is there, so that the scope is."""
    return _logger([], _of_kind(pb.AccessLogType.UdpSessionEnd))


# --- loggers


def _requests(attributes: Attributes, *filters: pb.AccessLogFilter) -> list[pb.AccessLog]:
    attributes = (*attributes, _CODE, _GRPC)
    latency = pb.StatsAccessLog.Histogram(
        stat=_stat(LATENCY, attributes),
        unit=pb.StatsAccessLog.Histogram.Unit.Microseconds,
        value_format=_WHOLE,
    )
    answered = _status(pb.ComparisonFilter.Op.GE, _FIRST_RESPONSE)
    others = (
        _status(pb.ComparisonFilter.Op.LE, _FIRST_RESPONSE - 1),
        pb.AccessLogFilter(response_flag_filter=pb.ResponseFlagFilter()),
    )
    flagged = pb.AccessLogFilter(or_filter=pb.OrFilter(filters=others))
    return [_logger([latency], *filters, answered), _logger([_counter(FLAGGED, attributes)], *filters, flagged)]


def _connections(attributes: Attributes, failed: Attributes = ()) -> list[pb.AccessLog]:
    connected = _of_kind(pb.AccessLogType.TcpUpstreamConnected)
    ended = _of_kind(pb.AccessLogType.TcpConnectionEnd)
    nowhere = pb.AccessLogFilter(response_flag_filter=pb.ResponseFlagFilter(flags=_UNREACHED_FLAGS))
    return [
        _logger([_counter(CONNECTIONS, attributes)], connected),
        _logger(_bytes(attributes), ended),
        _logger([_counter(FAILED, failed or attributes)], ended, nowhere),
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
    """Return a logger for what passes all filters."""
    found = list(stats)
    config = pb.StatsAccessLog(
        stats_scope=pb.StatsScope(
            prefix=PREFIX,
            sharing_name=PREFIX,
            enable_eviction=True,
            max_counters=pb.UInt32Value(value=MAX_COUNTERS),
            max_histograms=pb.UInt32Value(value=MAX_HISTOGRAMS),
        ),
        counters=[stat for stat in found if isinstance(stat, pb.StatsAccessLog.Counter)],
        histograms=[stat for stat in found if isinstance(stat, pb.StatsAccessLog.Histogram)],
    )
    logger = pb.AccessLog(name=LOGGER, typed_config=pb.pack(config))
    if len(filters) > 1:
        logger.filter.CopyFrom(pb.AccessLogFilter(and_filter=pb.AndFilter(filters=filters)))
    elif filters:
        logger.filter.CopyFrom(filters[0])
    return logger


def cel_filter(expression: str) -> pb.AccessLogFilter:
    """Return a filter by an expression of the Common Expression Language over Envoy's attributes."""
    name = "cel"
    config = pb.pack(pb.ExpressionFilter(expression=expression))
    return pb.AccessLogFilter(extension_filter=pb.ExtensionFilter(name=name, typed_config=config))


def _of_kind(kind: pb.AccessLogType) -> pb.AccessLogFilter:
    return pb.AccessLogFilter(log_type_filter=pb.LogTypeFilter(types=[kind]))


def _status(op: pb.ComparisonFilter.Op, status: int) -> pb.AccessLogFilter:
    value = pb.RuntimeUInt32(default_value=status, runtime_key="headgate.status")
    return pb.AccessLogFilter(
        status_code_filter=pb.StatusCodeFilter(comparison=pb.ComparisonFilter(op=op, value=value))
    )


def _method_is_connect(*, inverted: bool = False) -> pb.AccessLogFilter:
    method = pb.HeaderMatcher(name=":method", string_match=pb.StringMatcher(exact="CONNECT"), invert_match=inverted)
    return pb.AccessLogFilter(header_filter=pb.HeaderFilter(header=method))
