"""Decide where a mesh sends a request, for `headgate explain` and the differential tests.

The precedence is that of the proxies: the most specific host, then the first route that matches, then the shares of its
split. Shares are exact fractions; nothing is random.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Literal

from msgspec import structs

from headgate.model import pod_names
from headgate.model.authorities import DEFAULT_NAMESPACE, canonical, missing_port, pod_authorities, pods, resolve
from headgate.model.cors import PREFLIGHT, preflight_answer
from headgate.model.edge_tls import BackendTls
from headgate.model.hash_slots import slot_of
from headgate.model.host_names import best_name, server_name_entry, without_port
from headgate.model.requests import Filters, Header, Match, Path, Query, Redirect, Request, Text
from headgate.model.routing import (
    Broken,
    Endpoint,
    GatewayPort,
    HostRoutes,
    Mesh,
    Mirror,
    PortRef,
    Protocol,
    Redirected,
    Route,
    ServerName,
    Split,
    Sticky,
    Target,
)
from headgate.model.sanitizing import NOT_FOUND, Downstream, Sanitized, sanitize
from headgate.resources.meta import Value
from headgate.resources.regexes import matches

AUTHORITY = ":authority"
UNAVAILABLE = 503
NO_ENDPOINTS = "NoReadyEndpoints"
NO_BACKEND = "NoBackend"
NO_SUCH_HOST, NO_SUCH_PORT = "NoSuchHost", "NoSuchPort"
NOT_CONNECTED, PASSED_THROUGH = "NotConnected", "PassedThrough"
MALFORMED = "MalformedRequest"
MISDIRECTED = 421
MISDIRECTED_REQUEST = "MisdirectedRequest"
PREFLIGHT_REQUEST = "PreflightRequest"
REDIRECTED = "RequestRedirect"

EntryPort = PortRef | GatewayPort


class Unmet(Value, frozen=True, kw_only=True):
    """The first condition of a route that a request does not meet; `found` is None if that part is missing."""

    part: Literal["host", "path", "method", "header", "query"]
    wanted: str
    found: str | None = None
    name: str = ""

    def __str__(self) -> str:
        """Return the condition as one line of text."""
        about = f"{self.part} {self.name}" if self.name else self.part
        return f"{about} is {'absent' if self.found is None else repr(self.found)}, wanted {self.wanted}"


class TriedRoute(Value, frozen=True, kw_only=True):
    """A route that was tried; `unmet` is the first unmet condition, None for the route that matched."""

    route: Route
    unmet: Unmet | None = None


class Portion(Value, frozen=True, kw_only=True):
    """A share of the requests, for the ready endpoints of the backend `ref`, or only for the endpoint `pod` if set. A Gateway calls them with `tls`. `protocol` is that of the target.

    If `status` is set, the proxy answers the requests with this status, because of `reason`; some have a `message` for users.
    `redirect` is that of the share's backend.
    """

    share: Fraction
    ref: PortRef | None = None
    endpoints: int = 0
    status: int = 0
    reason: str = ""
    message: str = ""
    filters: Filters = Filters()
    redirect: Redirect | None = None
    pod: Endpoint | None = None
    tls: BackendTls | None = None
    protocol: Protocol | None = None


class Decision(Value, frozen=True, kw_only=True):
    """The destination of a request, and how it was found. Without a route the proxy responds with 404.

    `mirrors` get only requests that reach a backend. `tried` has the routes in order, up to the route that
    matched. `host` is the host entry of a Gateway. In a sticky split, `slot` is the hash slot of the request's user,
    if the request identifies the user; the shares are those of all users. `sanitized` is the request as routes see it;
    None where the proxy reads no requests.
    """

    entry: EntryPort | None = None
    sanitized: Sanitized | None = None
    protocol: Protocol = Protocol.HTTP
    host: str = ""
    route: Route | None = None
    shares: tuple[Portion, ...] = ()
    mirrors: tuple[Mirror, ...] = ()
    tried: tuple[TriedRoute, ...] = ()
    slot: int | None = None

    @property
    def is_refused(self) -> bool:
        """Return whether the proxy refuses the malformed request before routing."""
        return bool(self.sanitized and self.sanitized.status)

    @property
    def receivers(self) -> Mapping[PortRef | int, Fraction]:
        """Return the shares by receiver: a backend, or a status of the proxy's own responses."""
        by_receiver: dict[PortRef | int, Fraction] = {}
        for portion in self.shares:
            receiver = portion.status or portion.ref or UNAVAILABLE
            by_receiver[receiver] = by_receiver.get(receiver, Fraction()) + portion.share
        return by_receiver


class RequestParts:
    """A sanitized request, split into the parts that conditions use."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.path, _, self._query = request.target.partition("?")

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Return the headers by lower-case name; several values are joined with commas."""
        values: dict[str, list[str]] = {AUTHORITY: [self.request.authority]}
        for name, value in self.request.headers:
            values.setdefault(name.lower(), []).append(value)
        return {name: ",".join(values) for name, values in values.items()}

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        """Return the cookies with a value, without quotes; the first cookie of each name is used."""
        cookies: dict[str, str] = {}
        for name, value in self.request.headers:
            for pair in value.split(";") if name.lower() == "cookie" else ():
                key, _, text = pair.strip().partition("=")
                if text := text.removeprefix('"').removesuffix('"'):
                    cookies.setdefault(key, text)
        return cookies

    @cached_property
    def query(self) -> Mapping[str, str]:
        """Return the undecoded query parameters; the first parameter of each name is used."""
        parameters: dict[str, str] = {}
        for pair in self._query.split("&") if self._query else ():
            name, _, value = pair.partition("=")
            parameters.setdefault(name, value)
        return parameters


def decide(mesh: Mesh, where: EntryPort | str, request: Request, home: str = DEFAULT_NAMESPACE) -> Decision:
    """Decide where a request to a Service port, a Gateway port or the HTTP proxy goes.

    If `where` is text, it is the authority (`website.default:8080`) that a client of the HTTP proxy requests; short
    names belong to the namespace `home`.
    """
    named = pod_names.find(mesh, where, home) if isinstance(where, str) else None
    entry_port = (None if named else resolve(mesh, where, home)) if isinstance(where, str) else where
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    if isinstance(entry_port, GatewayPort):
        return structs.replace(_at_gateway(entry_port, request, ready), entry=entry_port)
    sanitized = _sanitized_request(request, where)
    if entry_port is None and isinstance(where, str) and (at_pod := _at_pod(mesh, sanitized, named)):
        return at_pod
    table = next((table for table in mesh.tables if table.ref == entry_port), None)
    if table is None:
        message = missing_port(mesh, where, home) if isinstance(where, str) else ""
        answer = _proxy_response(NOT_FOUND, NO_SUCH_PORT if message else NO_SUCH_HOST, message)
        return _refused(sanitized) or Decision(sanitized=sanitized, shares=answer)
    if table.protocol.is_http:
        decision = _first(table.routes, sanitized, ready)
    elif server_name := server_name_entry(table, _server_name(request)):
        decision = _tls_connection(server_name, ready)
    else:
        decision = _connection(table.routes[0], ready)
    return structs.replace(decision, entry=entry_port, protocol=table.protocol)


def _at_pod(mesh: Mesh, sanitized: Sanitized, named: tuple[PortRef, Endpoint] | None) -> Decision | None:
    """Return the decision for a request to a pod's own address, or to the `named` one; routes of Services do not apply."""
    called = ((ref, pod) for ref, several in pods(mesh).items() for pod in several)
    authority = canonical(sanitized.request.authority).lower()
    target = named or next(((ref, pod) for ref, pod in called if authority in pod_authorities(pod)), None)
    if target is None:
        return None
    ref, pod = target
    protocol = next((table.protocol for table in mesh.tables if table.ref == ref), Protocol.HTTP)
    route, ready = Route(split=Split(targets=(Target(ref=ref, weight=1),))), {ref: (pod,)}
    decision = _first((route,), sanitized, ready) if protocol.is_http else _connection(route, ready)
    shares = tuple(structs.replace(portion, pod=pod) if portion.ref else portion for portion in decision.shares)
    return structs.replace(decision, entry=ref, protocol=protocol, shares=shares)


def _sanitized_request(request: Request, where: EntryPort | str) -> Sanitized:
    """Return a request as routes see it. A host in its usual form has a route before a filter writes other forms so."""
    gateway = where if isinstance(where, GatewayPort) else None
    late = not isinstance(where, PortRef) and request.authority != canonical(request.authority).lower()
    return sanitize(request, Downstream(edge=bool(gateway), secure=bool(gateway and gateway.tls), late=late))


def _connection(route: Route, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Decision:
    """Return the decision for connections on a port where proxies read no requests."""
    return Decision(route=route, shares=shares(route, ready), tried=(TriedRoute(route=route),))


def _tls_connection(server_name: ServerName, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Decision:
    """Return the decision for TLS connections with a server name; the proxy closes them without a route."""
    if server_name.route is None:
        return Decision(host=server_name.host, shares=_proxy_response(UNAVAILABLE, NO_SUCH_HOST))
    return structs.replace(_connection(server_name.route, ready), host=server_name.host)


def _server_name(request: Request) -> str:
    """Return the SNI of a request's connection."""
    return without_port(canonical(request.authority)) if request.server_name is None else request.server_name


def _refused(sanitized: Sanitized, *, routed: bool = False) -> Decision | None:
    """Return the decision for a malformed request, also for one that only a proxy with a route refuses; None for another one."""
    if not (status := sanitized.routed_status if routed else sanitized.status):
        return None
    return Decision(sanitized=structs.replace(sanitized, status=status), shares=_proxy_response(status, MALFORMED))


def _proxy_response(status: int, reason: str = "", message: str = "") -> tuple[Portion, ...]:
    """Return one portion with all requests, which get the proxy's own response."""
    return (Portion(share=Fraction(1), status=status, reason=reason, message=message),)


def _at_gateway(port: GatewayPort, request: Request, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Decision:
    """Return the decision for a request, or for its connection where the proxy reads no requests."""
    if port.connections is not None:
        return structs.replace(_connection(port.connections, ready), protocol=port.protocol)
    if server_name := server_name_entry(port, _server_name(request)):
        return structs.replace(_tls_connection(server_name, ready), protocol=Protocol.TLS)
    return structs.replace(_at_host(port, _sanitized_request(request, port), ready), protocol=port.protocol)


def _at_host(port: GatewayPort, sanitized: Sanitized, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Decision:
    entry = best_host(port.hosts, sanitized.request.authority)
    if entry and port.tls and entry.listener != _listener(port, sanitized.request):
        answer = _proxy_response(MISDIRECTED, MISDIRECTED_REQUEST)
        return _refused(sanitized) or Decision(sanitized=sanitized, host=entry.host, shares=answer)
    decision = _first(entry.routes if entry else (), sanitized, ready)
    return structs.replace(decision, host=entry.host if entry else "")


def _listener(port: GatewayPort, request: Request) -> str:
    """Return the hostname of the TLS listener for a request's connection; empty if no listener matches."""
    return best_name({host for host, _ in port.tls}, _server_name(request)) or ""


def _first(routes: Iterable[Route], sanitized: Sanitized, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Decision:
    if refused := _refused(sanitized):
        return refused
    parts = RequestParts(sanitized.request)
    tried: list[TriedRoute] = []
    for route in routes:
        unmet = first_unmet(route.match, parts)
        tried.append(TriedRoute(route=route, unmet=unmet))
        if unmet is None and (refused := _refused(sanitized, routed=True)):
            return structs.replace(refused, route=route, tried=tuple(tried))
        if unmet is None:
            answer = preflight_answer(route.cors, sanitized.request)
            portions = _proxy_response(PREFLIGHT, PREFLIGHT_REQUEST, answer) if answer else shares(route, ready)
            key = None if answer else user_key(route.split.sticky, parts)
            return Decision(
                sanitized=sanitized,
                route=route,
                shares=portions,
                mirrors=route.mirrors if any(not portion.status for portion in portions) else (),
                tried=tuple(tried),
                slot=None if key is None else slot_of(key),
            )
    return Decision(sanitized=sanitized, shares=_proxy_response(NOT_FOUND), tried=tuple(tried))


def user_key(sticky: Sticky | None, parts: RequestParts) -> str | None:
    """Return the key of a request's user; None if the request identifies no user, or only by its source address."""
    if sticky is None or sticky.kind == "source":
        return None
    if sticky.kind == "cookie":
        return parts.cookies.get(sticky.name)
    values = [value for name, value in parts.request.headers if name.lower() == sticky.name]
    return values[0] if len(values) == 1 else None


def best_host(hosts: Mapping[str, HostRoutes], authority: str) -> HostRoutes | None:
    """Return the routes of the best matching host: exact name, longest wildcard, or `*`; ignore port, case and a final dot."""
    name = best_name(hosts.keys(), without_port(canonical(authority)))
    return hosts[name] if name else None


def shares(route: Route, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> tuple[Portion, ...]:
    """Return the portions of a route's requests; the shares add up to 1."""
    if route.redirect is not None:
        return _proxy_response(route.redirect.status)
    portions = tuple(_portion(share, fraction, ready) for share, fraction in fractions(route.split))
    return portions or _proxy_response(UNAVAILABLE, NO_BACKEND)


def fractions(split: Split) -> Iterator[tuple[Target | Broken | Redirected, Fraction]]:
    """Yield each target of a split, then the broken and the redirected shares, with their fractions of the requests.

    The fractions add up to 1.
    """
    shares: tuple[Target | Broken | Redirected, ...] = (*split.targets, *split.broken, *split.redirected)
    total = sum(share.weight for share in shares)
    for share in shares:
        yield share, Fraction(share.weight, total)


def copies(mirror: Mirror) -> Iterator[tuple[Target, Fraction]]:
    """Yield each target of a mirror with its copies, as a fraction of the requests of the route."""
    total = sum(target.weight for target in mirror.targets)
    for target in mirror.targets:
        yield target, Fraction(mirror.numerator * target.weight, mirror.denominator * total)


def _portion(
    share: Target | Broken | Redirected, fraction: Fraction, ready: Mapping[PortRef, tuple[Endpoint, ...]]
) -> Portion:
    if isinstance(share, Redirected):
        status, filters = share.redirect.status, share.filters
        return Portion(share=fraction, status=status, reason=REDIRECTED, filters=filters, redirect=share.redirect)
    if isinstance(share, Broken):
        return Portion(share=fraction, status=share.status, reason=share.reason)
    portion = Portion(share=fraction, ref=share.ref, filters=share.filters, tls=share.tls, protocol=share.protocol)
    if endpoints := len(ready.get(share.ref, ())):
        return structs.replace(portion, endpoints=endpoints)
    return structs.replace(portion, status=UNAVAILABLE, reason=NO_ENDPOINTS)


def first_unmet(match: Match, parts: RequestParts) -> Unmet | None:
    """Return the first condition of a match that the request does not meet; None if it meets all conditions.

    The order is path, method, headers, query.
    """
    unmet = next(filter(None, (_path_unmet(path, parts.path) for path in (match.path, *match.other_paths))), None)
    if unmet is None and match.methods and parts.request.method not in match.methods:
        unmet = Unmet(part="method", wanted=" or ".join(match.methods), found=parts.request.method)
    if unmet is None:
        unmet = _unmet_among(match.headers, parts.headers, "header")
    if unmet is None:
        unmet = _unmet_among(match.query, parts.query, "query")
    return unmet


def _path_unmet(condition: Path | None, path: str) -> Unmet | None:
    if not path.startswith("/"):  # Envoy answers 404 to `OPTIONS *`
        return Unmet(part="path", wanted="a path that begins with /", found=path)
    return (
        None
        if condition is None or path_fits(condition, path)
        else Unmet(part="path", wanted=f"{condition.kind} {condition.written}", found=path)
    )


def path_fits(condition: Path, path: str) -> bool:
    """Return whether a path without its query meets the condition."""
    if condition.kind == "exact":
        return path == condition.value
    if condition.kind == "regex":
        return matches(condition.value, path)
    prefix = condition.value.rstrip("/")
    return path == prefix or path.startswith(f"{prefix}/")


def _unmet_among(
    conditions: Iterable[Header | Query], values: Mapping[str, str], part: Literal["header", "query"]
) -> Unmet | None:
    for condition in conditions:
        value = values.get(condition.name)
        if value is None or not text_fits(condition.text, value):
            kind = "regex" if condition.text.regex else "exact"
            return Unmet(part=part, name=condition.name, wanted=f"{kind} {condition.text.value}", found=value)
    return None


def text_fits(text: Text, value: str) -> bool:
    """Return whether a value equals the text, or the expression matches all of it."""
    return matches(text.value, value) if text.regex else value == text.value
