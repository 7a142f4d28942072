"""Matches that no request reaches, each with a request that shows it.

A finding needs a witness: a request that the match names (or seems to name, where nothing can match), of which
`model.evaluate` says that another route has it. Where no witness is found, nothing is said.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headgate.compiler.containment import contains
from headgate.compiler.reasons import Reason
from headgate.compiler.references import group_key
from headgate.compiler.regex_samples import looks_like, matches_no_path, matches_nothing, sample
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.model.evaluate import RequestParts, first_unmet
from headgate.model.requests import ANY, Header, Match, Path, Query, Request, Text
from headgate.model.routing import Mesh, PortRef, Route
from headgate.resources.meta import Key
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.resources.smi import HTTPRouteGroup, TrafficSplit

AUTHORITY = ":authority"
_PATH_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-_.~!$&'()*+,;=:@%")


class UnreachableRoute(NamedTuple):
    """Route `number` of a table gets no request: none fits it (`never`), or those that fit have `winner`. `witness` shows it."""

    number: int
    route: Route
    witness: Request
    winner: Route | None
    never: bool


class RouteList(NamedTuple):
    """Where routes are, in words and, for a Service port, as a reference."""

    words: str
    ref: PortRef | None
    routes: tuple[Route, ...]


def findings(snapshot: Snapshot, mesh: Mesh) -> tuple[Finding, ...]:
    """Return what can never take effect in a mesh, once for each match, on the first place where it shows."""
    found: dict[tuple[Key, str, Reason, Match], Finding] = {}
    reached: set[Key] = set()
    unreached: dict[Key, Finding] = {}
    for place in _places(mesh):
        if len(place.routes) == 1:  # no other route can have its requests
            reached |= {route.origin for route in place.routes if route.origin}
            continue
        lost = {item.number: item for item in unreachable(place.routes)}
        for index, route in enumerate(place.routes):
            item = lost.get(index)
            if item is None and route.origin:
                reached.add(route.origin)
            elif item and route.origin:
                finding = _finding(snapshot, place, item)
                found.setdefault((finding.about, finding.field, finding.reason, route.match), finding)
                unreached.setdefault(route.origin, finding)
    idle = (
        _no_effect(key, item)
        for key, item in unreached.items()
        if key.kind == TRAFFIC_SPLIT.kind and key not in reached
    )
    return (*found.values(), *idle)


def _places(mesh: Mesh) -> Iterator[RouteList]:
    for table in mesh.tables:
        if table.protocol.is_http and (len(table.routes) > 1 or table.routes[0].origin):
            yield RouteList(str(table.ref), table.ref, table.routes)
    for port in mesh.gateways:
        for entry in port.hosts:
            yield RouteList(f"Gateway {port.gateway}, port {port.port}, host {entry.host}", None, entry.routes)


@functools.lru_cache(maxsize=4096)
def unreachable(routes: tuple[Route, ...]) -> tuple[UnreachableRoute, ...]:
    """Return the routes of a table that no request reaches, where that is certain and can be shown."""
    return tuple(_unreached(routes)) if len(routes) > 1 else ()


def _unreached(routes: Sequence[Route]) -> Iterator[UnreachableRoute]:
    for index, route in enumerate(routes):
        never = never_matches(route.match)
        wide = next((other for other in routes[:index] if contains(other.match, route.match)), None)
        if route.split_matches or (not never and (wide is None or _same(wide, route))):
            continue
        witness = intended_request(route.match) if never else matching_request(route.match)
        winner = first_matching_route(routes, witness) if witness else None
        if witness and winner is not route and (never or winner):
            yield UnreachableRoute(index, route, witness, winner, never)


def _same(one: Route, other: Route) -> bool:
    """Say whether it makes no difference to a route's object which of two routes has a request.

    Where a split's matches take all requests of a rule, that is the split's doing.
    """
    return one.origin == other.origin and (one.split == other.split or bool(one.split_matches))


def first_matching_route(routes: Sequence[Route], request: Request) -> Route | None:
    """Return the route that has a request."""
    asked = RequestParts(request)
    return next((route for route in routes if first_unmet(route.match, asked) is None), None)


def never_matches(match: Match) -> bool:
    """Say whether it is certain that no request fits."""
    path = match.path
    if path and path.kind == "regex" and matches_no_path(path.value):
        return True
    return any(_hopeless(match))


def _hopeless(match: Match) -> Iterator[str]:
    """Yield the headers and query parameters whose expressions match nothing."""
    conditions: tuple[Header | Query, ...] = (*match.headers, *match.query)
    yield from (item.name for item in conditions if item.text.regex and matches_nothing(item.text.value))


def matching_request(match: Match) -> Request | None:
    """Return a request that fits a match, as a client could send it; None where none is found."""
    request = _request(match, exact=True)
    return request if request and first_unmet(match, RequestParts(request)) is None else None


def intended_request(match: Match) -> Request | None:
    """Return a request that the author of a match may have meant, though it fits none."""
    return _request(match, exact=False)


def _request(match: Match, *, exact: bool) -> Request | None:
    path = _path(match.path, exact=exact) if not match.other_paths else None
    texts = [_text(item.text, exact=exact) for item in match.headers]
    query = [_text(item.text, exact=exact) for item in match.query]
    if path is None or not all(_is_value(text) for text in texts) or not all(_is_path(text) for text in query):
        return None
    headers = {item.name: text for item, text in zip(match.headers, texts, strict=True) if text is not None}
    pairs = "&".join(f"{item.name}={text}" for item, text in zip(match.query, query, strict=True))
    return Request(
        method=match.methods[0] if match.methods else "GET",
        target=f"{path}?{pairs}" if pairs else path,
        authority=headers.pop(AUTHORITY, ""),
        headers=tuple(headers.items()),
    )


def _path(path: Path | None, *, exact: bool) -> str | None:
    if path is None:
        return "/"
    text = path.value if path.kind != "regex" else sample(path.value) if exact else looks_like(path.value)
    if not exact and text is not None and not text.startswith("/"):
        text = f"/{text}"
    return text if _is_path(text) and text and text.startswith("/") else None


def _text(text: Text, *, exact: bool) -> str | None:
    if not text.regex:
        return text.value
    found = sample(text.value)
    return found if found is not None or exact else looks_like(text.value)


def _is_path(text: str | None) -> bool:
    return text is not None and set(text) <= _PATH_CHARACTERS


def _is_value(text: str | None) -> bool:
    """Say whether a client can send a text as a header's value, and everybody on the way leaves it as it is."""
    return text is not None and text == text.strip() and text.isascii() and (text.isprintable() or not text)


def request_arguments(request: Request) -> str:
    """Write a request as `headgate explain` takes it."""
    fields = [*request.headers, *([("host", request.authority)] if request.authority else [])]
    return " ".join([request.method, request.target, *(f"-H '{name}: {value}'" for name, value in fields)])


def _finding(snapshot: Snapshot, place: RouteList, item: UnreachableRoute) -> Finding:
    origin = item.route.origin
    assert origin is not None  # noqa: S101  # a service's plain behaviour is nobody's object, so it is not request_arguments about
    where = _winner(item.winner, place)
    if item.never:
        about, field = _group_of(snapshot, item.route) or (origin, _field(snapshot, item.route))
        text = f"no request can fit it, because {_why(item.route.match)}: on {place.words}, {request_arguments(item.witness)} {where}"
        return Finding(about, Reason.NEVER_MATCHES, field, text)
    name = f"{item.route.name}: " if item.route.match != ANY and item.route.name else ""
    text = (
        f"{name}it gets no request on {place.words}, because what is tried before it takes all: {request_arguments(item.witness)} "
        f"fits it and {where}. Make the earlier one narrower, or delete one of the two"
    )
    related = (item.winner.origin,) if item.winner and item.winner.origin and item.winner.origin != origin else ()
    field = _field(snapshot, item.route)
    return Finding(origin, Reason.SHADOWED, field, text, related=related)


def _winner(winner: Route | None, place: RouteList) -> str:
    if winner is None:
        return "is answered with 404"
    if winner.origin is None:
        return f"goes to {place.ref.service} itself" if place.ref else "goes elsewhere"
    return f"goes to {winner.origin}" + (f" ({winner.name})" if winner.name else "")


def _why(match: Match) -> str:
    if match.path and match.path.kind == "regex" and matches_no_path(match.path.value):
        return "every path begins with / and this expression matches none of them"
    return f"the expression for {next(_hopeless(match))} matches no text"


def _field(snapshot: Snapshot, route: Route) -> str:
    """Return the field of a route's object that asks for it."""
    if route.origin is None or route.origin.kind != TRAFFIC_SPLIT.kind:
        return f"spec.rules[{route.name}]"
    split = snapshot.objects.get(route.origin)
    names = [item.name for item in split.spec.matches] if isinstance(split, TrafficSplit) else []
    group = route.name.partition("/")[0]
    return f"spec.matches[{names.index(group)}].name" if group in names else "spec.service"


def _group_of(snapshot: Snapshot, route: Route) -> tuple[Key, str] | None:
    """Return the HTTPRouteGroup that a split's route is from, and the field of its match."""
    group_name, _, name = route.name.partition("/")
    if route.origin is None or route.origin.kind != TRAFFIC_SPLIT.kind or not name:
        return None
    key = group_key(route.origin.namespace, group_name)
    group = snapshot.objects.get(key)
    names = [item.name for item in group.spec.matches] if isinstance(group, HTTPRouteGroup) else []
    return (key, f"spec.matches[{names.index(name)}]") if name in names else None


def _no_effect(key: Key, shown: Finding) -> Finding:
    message = f"its weights never take effect, because no request reaches the split; for one, {shown.message}"
    return Finding(key, Reason.NO_EFFECT, "spec.backends", message, related=shown.related)
