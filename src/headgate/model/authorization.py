"""Whether a workload lets somebody in, and why: the oracle for access and mutual TLS (R67 to R76, D15, D21).

Written from the specifications, not from the proxies' rules: `tests/differential` and `headgate explain` ask here. Who
calls is known by certificate alone, so plaintext comes from nobody, and nobody fits a grant.
"""

from collections.abc import Iterator, Sequence

from headgate.model.evaluate import RequestParts, first_unmet
from headgate.model.requests import Request
from headgate.model.routing import (
    Access,
    ConnectionRule,
    Grant,
    InboundPort,
    PortRef,
    Protocol,
    RequestRule,
    TlsMode,
    Workload,
)
from headgate.model.sanitizing import FORBIDDEN, NOT_FOUND, Downstream, Sanitized, sanitize
from headgate.resources.meta import Key, Value

ANY_REQUEST = Request()
_NO_DIGEST = "0" * 64
_ESCAPED = ("%2f", "%5c", "%2e")


class Authorization(Value, frozen=True, kw_only=True):
    """Whether a call is allowed. `origin` and `rule` are what allows it, empty where the workload is open; `why` explains.

    `status` is that of the sidecar's answer to a request that it refuses for its form, before it looks at rules.
    """

    allowed: bool
    status: int = 0
    origin: Key | None = None
    rule: str = ""
    why: str


def authorize(
    workload: Workload, port: int, *, protocol: Protocol, identity: str = "", request: Request | None = None
) -> Authorization:
    """Say whether a workload lets somebody in on one of its own ports, where `protocol` is spoken (`protocol_at`).

    `identity` is what the caller proves (SPIFFE ID), empty for plaintext. Without a request, `GET /` stands for one; where
    connections are seen and not requests, it is not looked at.
    """
    place = port_of(workload, port)
    if refusal := _transport(workload, place, port, identity):
        return Authorization(allowed=False, why=refusal)
    seen = _sanitized(workload, request or ANY_REQUEST, identity)
    if protocol.is_http and (refused := _malformed(seen)):
        return refused
    if not workload.access.closed:
        return Authorization(allowed=True, why="it is open: every caller is allowed")
    if not identity:
        return Authorization(allowed=False, why="it wants to know who calls, and plaintext does not say")
    unmet: list[str] = []
    for grant, rule, why in _looked_at(workload.access, place, protocol, seen.request):
        if identity in grant.sources:
            if not why:
                return Authorization(allowed=True, origin=grant.origin, rule=rule, why=f"{grant.origin} allows it")
            unmet.append(f"{grant.origin}, {rule}: {why}")
    return Authorization(allowed=False, why=_refused(workload.access, identity, unmet))


def grants_allowing(
    workload: Workload, port: int, *, protocol: Protocol, request: Request | None = None
) -> tuple[Grant, ...]:
    """Return the grants that allow a request on a port to somebody, whoever that is."""
    seen = _sanitized(workload, request or ANY_REQUEST, "")
    found = _looked_at(workload.access, port_of(workload, port), protocol, seen.request)
    return tuple(dict.fromkeys(grant for grant, _, why in found if not why))


def port_of(workload: Workload, number: int) -> InboundPort | None:
    """Return one of the ports that a workload's proxy takes calls on, by the pod's own number."""
    return next((item for item in workload.ports if item.port == number), None)


def protocol_at(port: InboundPort, meant: PortRef, *, known: bool) -> Protocol:
    """Return what is spoken with a client (D15): what his Service says if he is `known`, else what the oldest says."""
    spoken = (item.protocol for item in port.protocols if known and meant in item.services)
    return next(spoken, port.protocols[0].protocol)


def is_ambiguous(path: str) -> bool:
    """Say whether an application may read a path as another one than it looks like (`access.AMBIGUOUS_PATH`)."""
    lower = path.lower()
    escaped = any(code in lower for code in _ESCAPED)
    # Some servers take `..;x` for `..`: what follows a semicolon are a segment's parameters.
    dots = any(segment.replace("%3b", ";").partition(";")[0] in {".", ".."} for segment in lower.split("/")[1:])
    return escaped or dots or "//" in path or "\\" in path


def _sanitized(workload: Workload, request: Request, identity: str) -> Sanitized:
    """Return a request as the sidecar's rules see it, with what the sidecar writes about the caller.

    The digest of the caller's certificate is not known here: zeros stand for it.
    """
    certificate = f"By={workload.identity};Hash={_NO_DIGEST};URI={identity}" if identity else ""
    return sanitize(request, Downstream(secure=bool(identity), certificate=certificate))


def _malformed(seen: Sanitized) -> Authorization | None:
    """Return the sidecar's answer to a request that it refuses for its form."""
    if seen.status:
        # What finds no route finds no rule either, and by itself a sidecar allows nothing (inbound_chains.py).
        status = FORBIDDEN if seen.status == NOT_FOUND else seen.status
        return Authorization(allowed=False, status=status, why=f"its sidecar answers {status}: {seen.reason}")
    if not seen.request.target.startswith("/"):
        return Authorization(
            allowed=False, status=NOT_FOUND, why="its sidecar answers 404: the path begins with no slash"
        )
    if seen.refused_upgrade:
        return Authorization(
            allowed=False, status=FORBIDDEN, why=f"its sidecar refuses an upgrade to {seen.refused_upgrade}"
        )
    return None


def _transport(workload: Workload, place: InboundPort | None, port: int, identity: str) -> str:
    """Return why a call does not even get to the question who may do what; empty when it does."""
    if not identity and workload.tls_mode is TlsMode.STRICT:
        return "it takes mutual TLS only, and this is plaintext"
    if identity and not workload.tls_mode.accepts_tls:
        return "it takes plaintext only, and this is mutual TLS"
    if place is None and workload.capture == "explicit":
        return f"its sidecar takes nothing on port {port}"
    if place is None and identity:
        return f"no Service leads to its port {port}, so there is no mutual TLS on it"
    return ""


def _looked_at(
    access: Access, place: InboundPort | None, protocol: Protocol, request: Request
) -> Iterator[tuple[Grant, str, str]]:
    """Yield each rule about a port, and why it does not allow the request; it does if that is empty (R68, R69)."""
    asked = RequestParts(request)
    for grant in access.grants if place else ():
        if place is None or grant.port not in {0, place.port}:
            continue
        if protocol.is_http:
            yield from ((grant, rule.name, _request_unmet(rule, asked)) for rule in grant.requests)
        else:
            yield from ((grant, rule.name, _ports_unmet(rule, place)) for rule in grant.connections)


def _request_unmet(rule: RequestRule, asked: RequestParts) -> str:
    unmet = first_unmet(rule.match, asked)
    if unmet is None and rule.match.path and is_ambiguous(asked.path):
        return f"path is {asked.path!r}, which may mean another one to the application"
    return str(unmet or "")


def _ports_unmet(rule: ConnectionRule, place: InboundPort) -> str:
    """A rule means a port by the pod's own number, or by that of a Service that leads there and does not say HTTP (R69)."""
    opaque = (spoken for spoken in place.protocols if not spoken.protocol.is_http)
    numbers = {place.port, *(ref.port for spoken in opaque for ref in spoken.services)}
    if not rule.ports or numbers & set(rule.ports):
        return ""
    return f"port is {place.port}, wanted {' or '.join(map(str, rule.ports))}"


def _refused(access: Access, identity: str, unmet: Sequence[str]) -> str:
    if unmet:
        return "; ".join(unmet)
    if any(identity in grant.sources for grant in access.grants):
        return "what is allowed to this caller is about other ports, or about another protocol"
    return "nothing is allowed to this caller"
