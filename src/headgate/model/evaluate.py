"""What a mesh does with a request, with the precedence of the proxies that hold it: the oracle behind `headgate explain`.

Everything is read off the model, by the same rules as the rendering: the most specific host, then the first route that
matches, then the shares of its split. Nothing is drawn; shares are exact fractions.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Literal

from msgspec import structs

from headgate.model.authorities import DEFAULT_NAMESPACE, canonical, pod_authorities, pods, resolve
from headgate.model.hash_slots import slot_of
from headgate.model.requests import Filters, Header, Match, Path, Query, Request, Text
from headgate.model.routing import (
    Endpoint,
    GatewayPort,
    HostRoutes,
    Mesh,
    Mirror,
    PortRef,
    Protocol,
    Route,
    Split,
    Sticky,
    Target,
)
from headgate.model.sanitizing import FORBIDDEN, NOT_FOUND, Downstream, Sanitized, sanitize
from headgate.resources.meta import Value
from headgate.resources.regexes import matches

UNAVAILABLE = 503
NO_ENDPOINTS = "NoReadyEndpoints"
NO_BACKEND = "NoBackend"
REFUSED_UPGRADE = "UpgradeNotAllowed"
MALFORMED = "MalformedRequest"
MISDIRECTED = 421
MISDIRECTED_REQUEST = "MisdirectedRequest"

EntryPort = PortRef | GatewayPort


class Unmet(Value, frozen=True, kw_only=True):
    """The first condition of a route that a request does not fit; `found` is None where the request has no such part."""

    part: Literal["host", "path", "method", "header", "query"]
    wanted: str
    found: str | None = None
    name: str = ""

    def __str__(self) -> str:
        """Tell it in a line, for people."""
        about = f"{self.part} {self.name}" if self.name else self.part
        return f"{about} is {'absent' if self.found is None else repr(self.found)}, wanted {self.wanted}"


class TriedRoute(Value, frozen=True, kw_only=True):
    """A route that was looked at; `unmet` says why it is not for the request, and is None for the one that is."""

    route: Route
    unmet: Unmet | None = None


class Portion(Value, frozen=True, kw_only=True):
    """A part of the requests: to the ready endpoints of `ref` (only to `pod`, if there is one), or, where `status` is not
    0, answered by the proxy.
    """

    share: Fraction
    ref: PortRef | None = None
    endpoints: int = 0
    status: int = 0
    reason: str = ""
    filters: Filters = Filters()
    pod: Endpoint | None = None


class Decision(Value, frozen=True, kw_only=True):
    """What becomes of a request. Without a route the proxy answers 404.

    `mirrors` copy what backends get: a request that the proxy answers itself is not copied.

    `tried` are the routes in the order in which they were tried, up to the one that matched. `host` is the entry of a
    Gateway that the request's host chose. `slot` is that of the request's user, where users stay on their side and the
    request says who it is; the shares are those of all users. `sanitized` is the request as the routes see it; none where
    the proxy does not read requests.
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
        """Whether the proxy refuses the request for its form, before it looks at routes."""
        return bool(self.sanitized and self.sanitized.status)

    @property
    def receivers(self) -> Mapping[PortRef | int, Fraction]:
        """Return the shares by who answers: a backend, or a status of the proxy's own."""
        found: dict[PortRef | int, Fraction] = {}
        for portion in self.shares:
            who = portion.status or portion.ref or UNAVAILABLE
            found[who] = found.get(who, Fraction()) + portion.share
        return found


class RequestParts:
    """A sanitized request, with the parts that conditions are about."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.path, _, self._query = request.target.partition("?")

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Headers by lower-case name; several values count as one, joined by commas."""
        found: dict[str, list[str]] = {":authority": [self.request.authority]}
        for name, value in self.request.headers:
            found.setdefault(name.lower(), []).append(value)
        return {name: ",".join(values) for name, values in found.items()}

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        """Cookies that have a value, without the quotes around it; of several with a name the first counts."""
        found: dict[str, str] = {}
        for name, value in self.request.headers:
            for pair in value.split(";") if name.lower() == "cookie" else ():
                key, _, text = pair.strip().partition("=")
                if text := text.removeprefix('"').removesuffix('"'):
                    found.setdefault(key, text)
        return found

    @cached_property
    def query(self) -> Mapping[str, str]:
        """Query parameters as they stand in the request, not decoded; of several with a name the first counts."""
        found: dict[str, str] = {}
        for pair in self._query.split("&") if self._query else ():
            name, _, value = pair.partition("=")
            found.setdefault(name, value)
        return found


def decide(mesh: Mesh, where: EntryPort | str, request: Request, home: str = DEFAULT_NAMESPACE) -> Decision:
    """Say what the mesh does with a request that arrives at a Service port, a Gateway port, or the HTTP proxy.

    A text is the authority (`website.default:8080`) that a client of the HTTP proxy asks for; short names are those of the
    namespace `home`.
    """
    place = resolve(mesh, where, home) if isinstance(where, str) else where
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    if isinstance(place, GatewayPort):
        if place.connections is not None:
            return structs.replace(_connection(place.connections, ready), entry=place, protocol=place.protocol)
        found = _at_gateway(place, _received(request, place), ready)
        return structs.replace(found, entry=place, protocol=place.protocol)
    seen = _received(request, where)
    if place is None and isinstance(where, str) and (at_pod := _at_pod(mesh, seen)):
        return at_pod
    table = next((item for item in mesh.tables if item.ref == place), None)
    if table is None:
        return _refused(seen) or Decision(sanitized=seen, shares=_answered(NOT_FOUND))
    if not table.protocol.is_http:
        return structs.replace(_connection(table.routes[0], ready), entry=place, protocol=table.protocol)
    return structs.replace(_first(table.routes, seen, ready), entry=place, protocol=table.protocol)


def _at_pod(mesh: Mesh, seen: Sanitized) -> Decision | None:
    """Return what becomes of a request for a pod's own address: no route of a Service is for it."""
    named = ((ref, pod) for ref, several in pods(mesh).items() for pod in several)
    found = next(((ref, pod) for ref, pod in named if seen.request.authority in pod_authorities(pod)), None)
    if found is None:
        return None
    ref, pod = found
    protocol = next((table.protocol for table in mesh.tables if table.ref == ref), Protocol.HTTP)
    route, ready = Route(split=Split(targets=(Target(ref=ref, weight=1),))), {ref: (pod,)}
    decision = _first((route,), seen, ready) if protocol.is_http else _connection(route, ready)
    shares = tuple(structs.replace(item, pod=pod) if item.ref else item for item in decision.shares)
    return structs.replace(decision, entry=ref, protocol=protocol, shares=shares)


def _received(request: Request, where: EntryPort | str) -> Sanitized:
    """Return a request as routes see it: the HTTP proxy and Gateways normalise its host."""
    gateway = where if isinstance(where, GatewayPort) else None
    seen = sanitize(request, Downstream(edge=bool(gateway), secure=bool(gateway and gateway.tls)))
    if isinstance(where, PortRef) or seen.status:
        return seen
    authority = canonical(seen.request.authority)
    if gateway is None and authority != authority.lower():  # no route is known yet when Envoy looks at upgrades
        seen, authority = structs.replace(seen, refused_upgrade=""), authority.lower()
    return structs.replace(seen, request=structs.replace(seen.request, authority=authority))


def _connection(route: Route, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Decision:
    """Return where connections go: no proxy reads requests there."""
    return Decision(route=route, shares=shares(route, ready), tried=(TriedRoute(route=route),))


def _refused(seen: Sanitized) -> Decision | None:
    """Return the proxy's answer to a request that it refuses for its form, before it looks at routes."""
    if not seen.status:
        return None
    return Decision(sanitized=seen, shares=_answered(seen.status, MALFORMED))


def _answered(status: int, reason: str = "") -> tuple[Portion, ...]:
    """Return that the proxy answers all requests itself."""
    return (Portion(share=Fraction(1), status=status, reason=reason),)


def _at_gateway(port: GatewayPort, seen: Sanitized, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Decision:
    entry = best_host(port.hosts, seen.request.authority)
    if entry and port.tls and entry.listener != _listener(port, seen.request):
        answer = _answered(MISDIRECTED, MISDIRECTED_REQUEST)
        return _refused(seen) or Decision(sanitized=seen, host=entry.host, shares=answer)
    found = _first(entry.routes if entry else (), seen, ready)
    return structs.replace(found, host=entry.host if entry else "")


def _listener(port: GatewayPort, request: Request) -> str:
    """Return the hostname of the TLS listener that a request's connection is for; empty when no listener takes it."""
    name = without_port(request.authority) if request.server_name is None else request.server_name
    return best_name((host for host, _ in port.tls), name) or ""


def _first(routes: Iterable[Route], seen: Sanitized, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> Decision:
    if refused := _refused(seen):
        return refused
    asked = RequestParts(seen.request)
    tried: list[TriedRoute] = []
    for route in routes:
        unmet = first_unmet(route.match, asked)
        tried.append(TriedRoute(route=route, unmet=unmet))
        if unmet is None and seen.refused_upgrade:
            answer = _answered(FORBIDDEN, REFUSED_UPGRADE)
            return Decision(sanitized=seen, route=route, shares=answer, tried=tuple(tried))
        if unmet is None:
            found = shares(route, ready)
            key = user_key(route.split.sticky, asked)
            return Decision(
                sanitized=seen,
                route=route,
                shares=found,
                mirrors=route.mirrors if any(not portion.status for portion in found) else (),
                tried=tuple(tried),
                slot=None if key is None else slot_of(key),
            )
    return Decision(sanitized=seen, shares=_answered(NOT_FOUND), tried=tuple(tried))


def user_key(sticky: Sticky | None, asked: RequestParts) -> str | None:
    """Return what tells a user from others; none when the request does not say, or only its connection does."""
    if sticky is None or sticky.kind == "source":
        return None
    if sticky.kind == "cookie":
        return asked.cookies.get(sticky.name)
    values = [value for name, value in asked.request.headers if name.lower() == sticky.name]
    return values[0] if len(values) == 1 else None


def best_host(hosts: Iterable[HostRoutes], authority: str) -> HostRoutes | None:
    """Return the entry for a host: its full name, else the longest wildcard, else `*`; ports and case don't matter."""
    by_host = {entry.host: entry for entry in hosts}
    found = best_name(by_host, without_port(authority))
    return by_host[found] if found else None


def best_name(patterns: Iterable[str], host: str) -> str | None:
    """Return the most specific of the patterns that a host fits."""
    return next(iter(fitting_names(patterns, host)), None)


def fitting_names(patterns: Iterable[str], host: str) -> list[str]:
    """Return the patterns that a host fits, the most specific first: its full name, the longest wildcard, and `*`."""
    found = [pattern for pattern in patterns if host_fits(pattern.lower(), host.lower())]
    return sorted(found, key=lambda pattern: (pattern.startswith("*"), -len(pattern)))


def host_fits(pattern: str, host: str) -> bool:
    """Say whether a host, or all names of a wildcard, are among those that `pattern` stands for.

    `*.example.com` stands for names with one label or more before it, `*` for all names; all in lower case.
    """
    if not pattern.startswith("*"):
        return pattern == host
    return len(host) >= len(pattern) and host.endswith(pattern[1:]) if pattern != "*" else True


def without_port(authority: str) -> str:
    """Return the host of an authority."""
    host, colon, port = authority.rpartition(":")
    return host if colon and port.isdigit() else authority


def shares(route: Route, ready: Mapping[PortRef, tuple[Endpoint, ...]]) -> tuple[Portion, ...]:
    """Return who answers the requests of a route, with exact shares; they add up to 1."""
    if route.redirect is not None:
        return _answered(route.redirect.status)
    split = route.split
    total = total_weight(split)
    if not total:
        return _answered(UNAVAILABLE, NO_BACKEND)
    return tuple(_portion(target, total, len(ready.get(target.ref, ()))) for target in split.targets) + tuple(
        Portion(share=Fraction(item.weight, total), status=item.status, reason=item.reason) for item in split.broken
    )


def _portion(target: Target, total: int, endpoints: int) -> Portion:
    found = Portion(share=Fraction(target.weight, total), ref=target.ref, endpoints=endpoints, filters=target.filters)
    return found if endpoints else structs.replace(found, status=UNAVAILABLE, reason=NO_ENDPOINTS)


def total_weight(split: Split) -> int:
    """Return the sum of all weights, those that fail included."""
    return sum(target.weight for target in split.targets) + sum(share.weight for share in split.broken)


def first_unmet(match: Match, asked: RequestParts) -> Unmet | None:
    """Return the first condition that a request does not fit: path, method, headers, query; none when it fits all."""
    found = next(filter(None, (_path_unmet(path, asked.path) for path in (match.path, *match.other_paths))), None)
    if found is None and match.methods and asked.request.method not in match.methods:
        found = Unmet(part="method", wanted=" or ".join(match.methods), found=asked.request.method)
    if found is None:
        found = _unmet_among(match.headers, asked.headers, "header")
    if found is None:
        found = _unmet_among(match.query, asked.query, "query")
    return found


def _path_unmet(wanted: Path | None, path: str) -> Unmet | None:
    if wanted is None:
        return None if path.startswith("/") else Unmet(part="path", wanted="a path that begins with /", found=path)
    return None if path_fits(wanted, path) else Unmet(part="path", wanted=f"{wanted.kind} {wanted.value}", found=path)


def path_fits(wanted: Path, path: str) -> bool:
    """Say whether a path, without its query, fits."""
    if wanted.kind == "exact":
        return path == wanted.value
    if wanted.kind == "regex":
        return matches(wanted.value, path)
    prefix = wanted.value.rstrip("/")
    return path == prefix or path.startswith(f"{prefix}/")


def _unmet_among(
    wanted: Iterable[Header | Query], found: Mapping[str, str], part: Literal["header", "query"]
) -> Unmet | None:
    for item in wanted:
        value = found.get(item.name)
        if value is None or not text_fits(item.text, value):
            kind = "regex" if item.text.regex else "exact"
            return Unmet(part=part, name=item.name, wanted=f"{kind} {item.text.value}", found=value)
    return None


def text_fits(wanted: Text, value: str) -> bool:
    """Say whether a value is the text, or all of it matches the expression."""
    return matches(wanted.value, value) if wanted.regex else value == wanted.value
