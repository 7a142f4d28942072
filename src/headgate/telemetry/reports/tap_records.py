"""Reads the log records of requests that proxies send during a tap: OpenTelemetry's ExportLogsServiceRequest."""

from collections.abc import Mapping

from google.protobuf.message import DecodeError
from msgspec.structs import fields

from headgate.envoy import pb
from headgate.envoy.outcomes import AUDITED_MARK, DENIED_MARK, parse_code
from headgate.envoy.tap import parse_record
from headgate.envoy.traffic_stats import CalledServer, parse_backend, parse_pod
from headgate.errors import TelemetryError
from headgate.resources.meta import Value
from headgate.telemetry.reports.otlp import reporting_node

METHOD = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
_NODE = "node_name"  # the label with the node ID, which Envoy adds to each message
_HEADER = "header."


class TapRecord(Value, frozen=True, kw_only=True):
    """A log record of a finished request, from the proxy `node`.

    `time` is in seconds since the epoch, `latency` in microseconds.

    `port` is the port of the server's pod if the server's proxy sent the record, else 0.
    Without a response, `status` is 0; without a complete response, `latency` is None. `denied` is True if access rules
    denied the request. `would_deny`: rules in audit mode do not allow it; `audit_rule` is the RBAC policy of those that do.
    """

    node: str
    time: float
    method: str = ""
    authority: str = ""
    path: str = ""
    status: int = 0
    flags: tuple[str, ...] = ()
    details: str = ""
    grpc: str = ""
    latency: int | None = None
    source: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    cluster: str = ""
    server: CalledServer = CalledServer("", 0, secured=False)
    backend: str = ""
    route: str = ""
    route_name: str = ""
    port: int = 0
    rule: str = ""
    denied: bool = False
    would_deny: bool = False
    audit_rule: str = ""
    peer: str = ""


_TEXTS = [
    field.name for field in fields(TapRecord) if field.type is str and field.name not in ("node", "cluster", "backend")
]


def read_records(data: bytes) -> tuple[str, tuple[TapRecord, ...]]:
    """Return a proxy's node ID and log records.

    Raises TelemetryError if the message is malformed, or does not name exactly one proxy.
    """
    try:
        message = pb.ExportLogsServiceRequest.FromString(data)
    except DecodeError as error:
        raise TelemetryError(f"the report is not an ExportLogsServiceRequest: {error}") from error
    node = reporting_node(message.resource_logs, _NODE)
    records = (
        _record(node, record.time_unix_nano / 1e9, fields)
        for part in message.resource_logs
        for scope in part.scope_logs
        for record in scope.log_records
        if (fields := parse_record(record.body.string_value))
    )
    return node, tuple(records)


def _record(node: str, time: float, fields: Mapping[str, str]) -> TapRecord:
    code = parse_code(fields.get("code", ""))
    return TapRecord(
        node=node,
        time=time,
        status=code.status,
        flags=tuple(sorted(code.flags)),
        latency=_number(fields, "latency"),
        port=_number(fields, "port") or 0,
        server=parse_pod(fields.get("pod", "")),
        cluster=fields.get("cluster") or fields.get("place", ""),
        denied=fields.get("verdict") == "denied"
        or code._replace(marked=fields.get("denied") == DENIED_MARK, grpc=fields.get("grpc", "")).is_denied,
        would_deny=fields.get("audit") == "denied" or fields.get("denied") == AUDITED_MARK,
        headers=tuple((key.removeprefix(_HEADER), text) for key, text in fields.items() if key.startswith(_HEADER)),
        backend=parse_backend({"backend": fields.get("backend", "")}),
        **{name: fields.get(name, "") for name in _TEXTS},  # the proxy sends these fields under the same names
    )


def _number(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name, "")
    return int(text) if text.isdecimal() else None
