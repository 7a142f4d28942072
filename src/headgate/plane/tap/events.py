"""Converts a proxy's log record of a request to a tap event, and redacts values unless the user requests them."""

from msgspec import structs

from headgate.envoy.node_ids import pod_of
from headgate.envoy.rbac import OPEN_POLICY, rule_named
from headgate.envoy.tap import HEADERS
from headgate.kinds import names_of
from headgate.model.authorization import authorize, enforced, port_of
from headgate.model.evaluate import AUTHORITY, Unmet
from headgate.model.requests import Request
from headgate.model.routing import Workload
from headgate.model.traces import trace_context
from headgate.plane.node_names import namespaced_name
from headgate.plane.tap.targets import port_called, service_called
from headgate.resources.inspect import ObjectName, TapAccess, TapEvent, TapPeer, TapRequest, TapResponse, TapRoute
from headgate.resources.meta import Key, precise_timestamp
from headgate.telemetry.reports.tap_records import TapRecord

REDACTED = "[redacted]"
NOT_ALLOWED = "no access rule allows it"


def event(record: TapRecord, *, values: bool, workload: Workload | None = None) -> TapEvent:
    """Return the tap event of a log record; `workload` is the proxy's own. Without `values`, values of headers and query parameters are redacted."""
    own = pod_of(record.node)
    is_server = bool(record.port)
    namespace, name = namespaced_name(record.node)
    path = record.path if values else redacted_path(record.path)
    headers = tuple((header, text if values else REDACTED) for header, text in record.headers)
    request = Request(method=record.method, authority=record.authority, target=record.path, headers=record.headers)
    return TapEvent(
        start_time=precise_timestamp(record.time),
        proxy=ObjectName(namespace=namespace, name=name),
        side="Server" if is_server else "Client",
        request=TapRequest(
            method=record.method,
            authority=record.authority,
            path=path,
            headers=dict(headers),
        ),
        response=TapResponse(status=record.status, flags=record.flags, details=record.details, grpc_status=record.grpc),
        source=TapPeer(identity=record.peer, address=record.source) if is_server else _client(own, record),
        destination=TapPeer(pod=own, port=record.port) if is_server else _server(record),
        latency_microseconds=record.latency,
        secured=bool(record.peer) if is_server else record.server.secured,
        route=TapRoute(object=_key(record.route), name=record.route_name) if record.route else None,
        access=_access(record, request, workload, values=values)
        if is_server or record.denied or record.would_deny
        else None,
        trace_id=context.trace if (context := trace_context(record.headers)) else "",
    )


def _client(own: str, record: TapRecord) -> TapPeer:
    return TapPeer(pod=own) if own else TapPeer(address=record.source)


def _server(record: TapRecord) -> TapPeer:
    service = record.backend or service_called(record)
    port = port_called(record)
    return TapPeer(pod=record.server.pod, service=service, port=record.server.port or (port.port if port else 0))


def _access(record: TapRecord, request: Request, workload: Workload | None, *, values: bool) -> TapAccess:
    audited = record.would_deny or bool(record.audit_rule)
    policy = record.audit_rule if audited else record.rule
    if policy in ("", OPEN_POLICY):
        why = _reason(record, request, workload, values=values) if record.denied or record.would_deny else ""
        return TapAccess(allowed=not record.denied, audited=audited, would_deny=record.would_deny, message=why)
    allowing, rule = rule_named(policy)
    return TapAccess(allowed=not record.denied, object=allowing, rule=rule, audited=audited)


def _reason(record: TapRecord, request: Request, workload: Workload | None, *, values: bool) -> str:
    """Return why the rules of a workload do not allow a request, as `headgate explain` says it.

    The message is general for the record of a client's proxy, and if the rules allow the request by now.
    """
    port = port_of(workload, record.port) if workload else None
    if workload is None or port is None:
        return NOT_ALLOWED
    closed = structs.replace(workload, access=enforced(workload.access))
    protocol = port.protocols[0].protocol
    decision = authorize(closed, record.port, protocol=protocol, identity=record.peer, request=request)
    # The rules denied the request, so it was well-formed; a record lacks the HTTP version, which has a part in that.
    if decision.allowed or decision.status:
        return NOT_ALLOWED
    if not decision.unmet:
        return decision.why
    return "; ".join(f"{unmet.rule}: {_condition(unmet.condition, values=values)}" for unmet in decision.unmet)


def _condition(unmet: Unmet | str, *, values: bool) -> str:
    """Return the text of an unmet condition. Without `values`, it has neither the value of a header or parameter, nor that of the rule.

    Proxies write only some headers to a record, so nothing is known about all others.
    """
    if isinstance(unmet, str) or unmet.part not in ("header", "query") or unmet.name == AUTHORITY:
        return str(unmet)
    if unmet.part == "header" and unmet.name not in HEADERS:
        return f"header {unmet.name} is not recorded" + (f", wanted {unmet.wanted}" if values else "")
    if values:
        return str(unmet)
    return f"{unmet.part} {unmet.name} {'is absent' if unmet.found is None else 'does not match'}"


def _key(text: str) -> Key:
    """Return the key of a route's object, which the proxy logs as text: `HTTPRoute default/website`."""
    kind, _, path = text.partition(" ")
    namespace, _, name = path.rpartition("/")
    return Key(names_of(kind).group, kind, namespace, name)


def redacted_path(path: str) -> str:
    """Return a path with the values of query parameters redacted: `/cart?id=[redacted]`."""
    before, mark, query = path.partition("?")
    if not mark:
        return path
    return before + "?" + "&".join(_redacted(pair) for pair in query.split("&"))


def _redacted(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={REDACTED}" if equals else pair
