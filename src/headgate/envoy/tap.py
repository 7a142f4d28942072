"""Record live requests of a proxy for `kubectl traffic tap`: a logger in each connection manager, off by default.

The logger sends a record of each finished request to headgate, over the xDS connection. A runtime value is the share of
requests that are recorded. It is a resource of its own (RTDS), so a tap changes no listener and ends no connection. A
record is a text with one value per line (`parse_record`). `node_name` in the OTLP resource is the node ID of the proxy.
The fields of a record:

Both sides    method, authority, path, code (`outcomes.parse_code`), details, grpc, latency (microseconds), and the
              headers of `HEADERS` as `header.<name>`
Client side   cluster, place (the Service port or Gateway port, if there is no cluster), pod, backend,
              route (its object), route_name, source (address of the caller), denied (the mark of a server's denial or audit)
Server side   port (of the pod), rule (the RBAC policy that allowed the request), verdict, audit (the verdict of rules in
              audit mode), audit_rule (the RBAC policy that allows the request then), peer (URI of the certificate), source (address of the caller's proxy)
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from headgate.envoy import pb, traffic_stats
from headgate.envoy.config_source import XDS_CLUSTER, ads
from headgate.envoy.upstream_tls import DENIED_HEADER

LAYER = "tap"
"""The name of the tap's runtime layer, and of the resource with the layer's content."""
KEY = "headgate.tap"
ALL_REQUESTS = 1_000_000
"""The share, in millionths, that records all requests."""
HEADERS = (
    "accept",
    "content-type",
    "cookie",
    "referer",
    "traceparent",
    "user-agent",
    "x-forwarded-for",
    "x-request-id",
)
"""The request headers in a record; Envoy's loggers can only write listed headers. The list has no credentials, such as
`authorization`."""
FLUSH_MS = 200
BUFFER_BYTES = 1 << 16
SEND_SECONDS = 5
_METADATA, _ORIGIN, _NAME = "headgate", "origin", "name"
_LOGGER = "tap"
RBAC = "envoy.filters.http.rbac"
_BOTH = {
    "method": "%REQ(:METHOD)%",
    "authority": "%REQ(:AUTHORITY)%",
    "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
    "code": "%RESPONSE_CODE%%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "grpc": "%GRPC_STATUS_NUMBER%",
    "latency": "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%",
    "source": "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%",
    **{f"header.{name}": f"%REQ({name.upper()})%" for name in HEADERS},
}
_CLIENT = {
    "side": "client",
    **_BOTH,
    **dict(traffic_stats.SERVER_ATTRIBUTES),
    "cluster": "%UPSTREAM_CLUSTER%",
    "place": "%ROUTE_NAME%",
    "denied": f"%RESP({DENIED_HEADER}):1%",
    "route": f"%METADATA(ROUTE:{_METADATA}:{_ORIGIN})%",
    "route_name": f"%METADATA(ROUTE:{_METADATA}:{_NAME})%",
}
_SERVER = {
    "side": "server",
    **_BOTH,
    "rule": f"%DYNAMIC_METADATA({RBAC}:enforced_effective_policy_id)%",
    "verdict": f"%DYNAMIC_METADATA({RBAC}:enforced_engine_result)%",
    "peer": "%DOWNSTREAM_PEER_URI_SAN%",
    "port": "",
    "audit": f"%DYNAMIC_METADATA({RBAC}:shadow_engine_result)%",
    "audit_rule": f"%DYNAMIC_METADATA({RBAC}:shadow_effective_policy_id)%",
}
_NEWEST = 2  # the last fields of a server's record, which an older revision's proxies omit
_FIELDS = {"client": tuple(_CLIENT), "server": tuple(_SERVER)}
_ABSENT = ("", "-")


def parse_record(text: str) -> Mapping[str, str]:
    """Return the fields of a record that have a value; empty if the text is not a record.

    Values contain no line breaks.
    """
    values = text.split("\n")
    fields = _FIELDS.get(values[0], ())
    oldest = len(fields) - (_NEWEST if values[0] == "server" else 0)
    if not fields or not oldest <= len(values) <= len(fields):
        return {}
    return {field: value for field, value in zip(fields, values, strict=False) if value not in _ABSENT}


@cache
def client_logger() -> pb.AccessLog:
    """Return the logger of a connection manager for outbound requests."""
    return _logger(_CLIENT)


@cache
def server_logger(port: int) -> pb.AccessLog:
    """Return the logger of a connection manager for requests to a port of the proxy's own pod."""
    return _logger({**_SERVER, "port": str(port)})


def route_metadata(origin: str, name: str) -> pb.Metadata:
    """Return the metadata of a route: its object (`TrafficSplit default/website`), and the route's name in it."""
    fields = {_ORIGIN: pb.Value(string_value=origin)}
    if name:
        fields[_NAME] = pb.Value(string_value=name)
    return pb.Metadata(filter_metadata={_METADATA: pb.Struct(fields=fields)})


def runtime_layer() -> pb.RuntimeLayer:
    """Return the bootstrap's runtime layer for the tap."""
    return pb.RuntimeLayer(name=LAYER, rtds_layer=pb.RuntimeLayer.RtdsLayer(name=LAYER, rtds_config=ads()))


def runtime_resource(share: int, more: Mapping[str, pb.Value] = MappingProxyType({})) -> pb.Runtime:
    """Return the content of the layer: the share of requests to record, in millionths, and further values."""
    # Envoy's filter reads an integer in the unit of its default (millionths), and ignores a FractionalPercent.
    fields = {**more, **({KEY: pb.Value(number_value=share)} if share else {})}
    return pb.Runtime(name=LAYER, layer=pb.Struct(fields=fields))


def _logger(fields: Mapping[str, str]) -> pb.AccessLog:
    config = pb.OpenTelemetryAccessLog(
        log_name=LAYER,
        grpc_service=pb.GrpcService(
            envoy_grpc=pb.GrpcService.EnvoyGrpc(cluster_name=XDS_CLUSTER), timeout=pb.Duration(seconds=SEND_SECONDS)
        ),
        buffer_flush_interval=pb.Duration(nanos=FLUSH_MS * 1_000_000),
        buffer_size_bytes=pb.UInt32Value(value=BUFFER_BYTES),
        body=pb.AnyValue(string_value="\n".join(fields.values())),
    )
    sampled = pb.RuntimeFilter(
        runtime_key=KEY,
        percent_sampled=pb.FractionalPercent(numerator=0, denominator=pb.FractionalPercent.DenominatorType.MILLION),
        use_independent_randomness=True,
    )
    ended = pb.LogTypeFilter(types=[pb.AccessLogType.DownstreamEnd])
    filters = [pb.AccessLogFilter(runtime_filter=sampled), pb.AccessLogFilter(log_type_filter=ended)]
    return pb.AccessLog(
        name=_LOGGER, filter=pb.AccessLogFilter(and_filter=pb.AndFilter(filters=filters)), typed_config=pb.pack(config)
    )
