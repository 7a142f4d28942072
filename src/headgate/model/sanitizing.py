"""Sanitize requests like Envoy: headers that a proxy removes, changes or adds before routing.

Routes and access rules match the sanitized request, not the request of the client. The rules are those of Envoy 1.40
with headgate's listener settings; tests/differential compares them with Envoy.

RESERVED and RESERVED_AT_EDGE decide which headers no client may send to an application (docs/reference/security.md). Every listener
and every rendered proxy takes them from here.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import structs

from headgate.model import wellformed
from headgate.model.requests import Headers, Request
from headgate.resources.meta import Value

FORBIDDEN, NOT_FOUND = 403, 404
CERTIFICATE = "x-forwarded-client-cert"
WEBSOCKET, H2C = "websocket", "h2c"
TRAILERS = "trailers"
_SETTINGS = "http2-settings"
_NOT_NOMINATED = {"close", "keep-alive", "upgrade", _SETTINGS, ""}
_PROXIES_OWN = {"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"}
_NOMINATIONS = 10
_LONGEST_TE = 256
_JOINED = frozenset(
    [
        "accept",
        "accept-encoding",
        "access-control-request-headers",
        "access-control-request-method",
        "authorization",
        "cache-control",
        "connection",
        "content-encoding",
        "content-type",
        "expect",
        "grpc-accept-encoding",
        "grpc-timeout",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "keep-alive",
        "origin",
        "pragma",
        "proxy-connection",
        "proxy-status",
        "referer",
        "te",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "x-client-trace-id",
        "x-envoy-attempt-count",
        "x-envoy-decorator-operation",
        "x-envoy-downstream-service-cluster",
        "x-envoy-downstream-service-node",
        "x-envoy-external-address",
        "x-envoy-is-timeout-retry",
        "x-envoy-original-host",
        "x-envoy-original-path",
        "x-forwarded-client-cert",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-request-id",
    ]
)
"""Headers that Envoy stores in one field: it joins their values and drops empty ones."""
_HOP_BY_HOP = "it is for one connection only"
_OF_ENVOY = r"[-_]envoy[-_].*|[-_]forwarded[-_]client[-_]cert"
_OF_PROXIES = rf"[-_]headgate[-_].*|{_OF_ENVOY}"
RESERVED_OF_ENVOY = rf"x(?:{_OF_ENVOY})"
RESERVED = rf"x(?:{_OF_PROXIES})"
"""The headers that only a proxy may set, in lower case. Many applications read `_` as `-`, those with CGI or WSGI for example.

RE2 compares the letter before the group first, and most names fail there (docs/explain/performance.md).
"""
RESERVED_AT_EDGE = rf"x(?:{_OF_PROXIES}|[-_]forwarded[-_]proto|_forwarded[-_]for|-forwarded_for)"
"""The same at a Gateway, which sets x-forwarded-proto, and appends its client's address to x-forwarded-for."""
RESERVED_NAMES = (
    CERTIFICATE,
    *("x-envoy-attempt-count", "x-envoy-decorator-operation", "x-envoy-downstream-service-cluster"),
    *("x-envoy-downstream-service-node", "x-envoy-expected-rq-timeout-ms", "x-envoy-external-address"),
    *("x-envoy-force-trace", "x-envoy-hedge-on-per-try-timeout", "x-envoy-internal", "x-envoy-ip-tags"),
    *("x-envoy-is-timeout-retry", "x-envoy-max-retries", "x-envoy-original-dst-host", "x-envoy-original-host"),
    *("x-envoy-original-method", "x-envoy-original-path", "x-envoy-original-url"),
    *("x-envoy-retriable-header-names", "x-envoy-retriable-status-codes"),
    *("x-envoy-retry-grpc-on", "x-envoy-retry-on", "x-envoy-upstream-alt-stat-name"),
    *("x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-upstream-rq-timeout-alt-response"),
    *("x-envoy-upstream-rq-timeout-ms", "x-envoy-upstream-stream-duration-ms"),
)
"""The known names among RESERVED, for proxies that can't remove headers by a pattern."""
SEVERAL_UPGRADES = "the header Upgrade names WebSocket several times"
HOP_BY_HOP = ("keep-alive", "proxy-connection", "transfer-encoding")
"""Headers that concern one connection only."""
_RESERVED, _RESERVED_AT_EDGE = re.compile(RESERVED), re.compile(RESERVED_AT_EDGE)


def why_removed(name: str, *, edge: bool) -> str:
    """Return why a proxy, or with `edge` a Gateway, removes a header of this lower-case name; empty if it does not."""
    if name in HOP_BY_HOP:
        return _HOP_BY_HOP
    if _RESERVED.fullmatch(name):
        return "only a proxy may set it"
    return "a Gateway does not accept it from its clients" if edge and _RESERVED_AT_EDGE.fullmatch(name) else ""


class Downstream(Value, frozen=True, kw_only=True):
    """The connection that a request arrives on; `secure` means TLS.

    A Gateway (`edge`) accepts requests from outside the mesh, and a server's sidecar (`inbound`) those of callers. The
    header with the client's address (`x-forwarded-for`) is not modeled. `certificate` is the header value about the
    caller's identity. With `late`, the proxy finds no route before its filters have run.
    """

    edge: bool = False
    inbound: bool = False
    secure: bool = False
    late: bool = False
    certificate: str = ""


class Sanitized(Value, frozen=True, kw_only=True):
    """The request that routes and access rules match; with a `status`, the proxy refuses it because of `reason`.

    With `routed_status`, it refuses only a request that has a route. `changes` describe each removed or replaced header.
    """

    request: Request
    status: int = 0
    routed_status: int = 0
    reason: str = ""
    changes: tuple[str, ...] = ()


class _Fields:
    """The headers of a request by lower-case name, and a text for each header that was changed or removed."""

    def __init__(self, headers: Headers) -> None:
        self.items = list(headers)
        self.changes: list[str] = []

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.items if key == name]

    def get(self, name: str) -> str | None:
        return next(iter(self.values(name)), None)

    def drop(self, name: str, why: str) -> None:
        """Remove a header, and record the reason if it was present."""
        if self.get(name) is not None:
            self.items = [field for field in self.items if field[0] != name]
            self.changes.append(f"{name} is removed: {why}")

    def replace(self, name: str, value: str, why: str) -> None:
        if self.get(name) != value:
            self.items = [field for field in self.items if field[0] != name] + [(name, value)]
            self.changes.append(f"{name} is {value!r}: {why}")

    def add(self, name: str, value: str) -> None:
        self.items.append((name, value))


def sanitize(request: Request, downstream: Downstream) -> Sanitized:
    """Return a request as the proxy routes it, or the status with which the proxy refuses it."""
    if refusal := wellformed.refusal(request):
        return Sanitized(request=request, status=refusal.status, reason=refusal.reason)
    if request.method == wellformed.CONNECT:
        status = FORBIDDEN if downstream.inbound else NOT_FOUND
        return Sanitized(request=request, status=status, reason="only the HTTP proxy opens tunnels (CONNECT)")
    written, request = request, wellformed.in_origin_form(request)
    fields = _Fields(tuple(_joined_fields(request)))
    if written.target == request.target:
        fields.add("host", request.authority)
    upgrade = _upgrade(fields)
    is_unknown = upgrade and (fields.get("upgrade") or "").lower() != WEBSOCKET
    if is_unknown and downstream.inbound:
        return Sanitized(request=request, status=FORBIDDEN, reason=SEVERAL_UPGRADES)
    if not upgrade and (reason := _remove_connection_headers(fields, request.version)):
        return Sanitized(request=request, status=wellformed.BAD_REQUEST, reason=reason)
    if request.version == "1.0" and written.target == request.target and fields.get("host") is None:
        request = structs.replace(request, authority=wellformed.DEFAULT_HOST)
    if not upgrade:  # an upgrade keeps its TE
        _sanitize_te(fields)
    _drop_removed(fields, edge=downstream.edge)
    if (referer := fields.get("referer")) is not None and not wellformed.is_referer(referer):
        fields.drop("referer", "it is not a URL, or it has a fragment or a user")
    _set_forwarded(fields, downstream)
    sanitized = structs.replace(request, headers=tuple(field for field in fields.items if field[0] != "host"))
    changes = tuple(fields.changes)
    if is_unknown and not downstream.late:
        return Sanitized(request=sanitized, routed_status=FORBIDDEN, reason=SEVERAL_UPGRADES, changes=changes)
    return Sanitized(request=sanitized, changes=changes)


def _joined_fields(request: Request) -> Iterator[tuple[str, str]]:
    """Yield headers by lower-case name, with values joined as Envoy stores them."""
    values: dict[str, list[str]] = {}
    for written, text in request.headers:
        name, value = written.lower(), text if request.version == "2" else text.strip(" \t")
        values.setdefault(name, []).append(value)
    for name, field_values in values.items():
        if name in _JOINED:
            yield name, ",".join(value for value in field_values if value)
        elif name == "cookie" and request.version == "2":
            yield name, _joined_cookie(field_values)
        else:
            yield from ((name, value) for value in field_values)


def _joined_cookie(values: Iterable[str]) -> str:
    """Join the cookie headers of HTTP/2, which may be split (RFC 9113, 8.2.3)."""
    first, *rest = values
    for value in rest:
        first = f"{first}; {value}" if first else value
    return first


def _upgrade(fields: _Fields) -> bool:
    """Return whether the request has an upgrade to WebSocket. All other protocols are ignored: they are an offer (RFC 9110, 7.8)."""
    written = fields.get("upgrade")
    if written is None or "upgrade" not in _tokens(fields.get("connection")):
        return False
    if written.lower() == H2C:
        fields.drop(_SETTINGS, _HOP_BY_HOP)
        return False
    protocols = [token for part in written.split(",") if (token := part.strip(" \t")).lower() == WEBSOCKET]
    if protocols:
        fields.replace("upgrade", ",".join(protocols), "all other protocols are ignored")
    return bool(protocols)


def _remove_connection_headers(fields: _Fields, version: str) -> str:
    """Remove hop-by-hop headers. Return the reason if the request must be refused, else an empty text."""
    refused = _drop_nominated(fields, _tokens(fields.get("connection")), needs_host=version != "1.0")
    fields.drop("connection", _HOP_BY_HOP)
    fields.drop("upgrade", _HOP_BY_HOP)
    return refused


def _tokens(text: str | None) -> list[str]:
    return [stripped for token in (text or "").lower().split(",") if (stripped := token.strip(" \t"))]


def _drop_nominated(fields: _Fields, tokens: list[str], *, needs_host: bool) -> str:
    if len(tokens) >= _NOMINATIONS:
        return f"the header Connection names {_NOMINATIONS} headers or more"
    for name in tokens:
        if (
            name in _PROXIES_OWN
            or name.startswith(":")
            or (name == "host" and needs_host and fields.get("host") is not None)
        ):
            return f"the header Connection names {name}, which a client must not remove"
        if name == "te":
            if len(fields.get("te") or "") >= _LONGEST_TE:
                return f"the header TE has {_LONGEST_TE} characters or more"
            if TRAILERS in _tokens(fields.get("te")):
                fields.replace("te", TRAILERS, "proxies forward only this value")
                continue
        if name not in _NOT_NOMINATED and name != "connection":
            fields.drop(name, "the header Connection names it")
    return ""


def _drop_removed(fields: _Fields, *, edge: bool) -> None:
    for name in dict(fields.items):
        if name != CERTIFICATE and (why := why_removed(name, edge=edge)):
            fields.drop(name, why)


def _sanitize_te(fields: _Fields) -> None:
    """Reduce TE to the value that proxies forward."""
    if te := fields.get("te"):
        if TRAILERS in [token.strip(" \t") for token in te.split(",")]:
            fields.replace("te", TRAILERS, "proxies forward only this value")
        else:
            fields.drop("te", f"proxies forward only the value {TRAILERS!r}")


def _set_forwarded(fields: _Fields, downstream: Downstream) -> None:
    """Set the headers about the original scheme and the caller's certificate."""
    scheme = "https" if downstream.secure else "http"
    if (proto := fields.get("x-forwarded-proto")) is None:
        fields.add("x-forwarded-proto", scheme)
    elif not proto:
        fields.replace("x-forwarded-proto", scheme, "it is empty")
    if downstream.certificate:
        fields.replace(CERTIFICATE, downstream.certificate, "the caller's verified certificate")
    else:
        fields.drop(CERTIFICATE, "the caller proved no identity to this proxy")
