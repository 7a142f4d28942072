"""Find routes that no request reaches, each with an example request.

An example is a request that fits the match (or, for a match that no request can fit, is close to it) and that
`model.evaluate` sends to another route. Without an example there is no finding.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headgate.compiler.containment import contains
from headgate.compiler.reasons import Reason
from headgate.compiler.references import group_key
from headgate.compiler.regex_samples import looks_like, matches_no_path, matches_nothing, sample
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.model.evaluate import RequestParts, first_unmet
from headgate.model.requests import ANY, Header, Match, Path, Query, Request, Text
from headgate.model.routing import PortRef, Route
from headgate.resources.meta import Key
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.resources.smi.http_route_group import HTTPRouteGroup
from headgate.resources.smi.traffic_split import TrafficSplit

AUTHORITY = ":authority"
_PATH_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-_.~!$&'()*+,;=:@%")


class UnreachableRoute(NamedTuple):
    """A route that no request reaches, at position `number` of its table.

    Either no request fits the route (`never`), or the route `winner` matches all its requests first. `example` is a
    request that demonstrates this.
    """

    number: int
    route: Route
    example: Request
    winner: Route | None
    never: bool


class RouteList(NamedTuple):
    """The routes of a Service port or of a Gateway's host; `title` names it in messages. `unreachable` are some of them."""

    title: str
    ref: PortRef | None
    routes: tuple[Route, ...]
    unreachable: tuple[UnreachableRoute, ...]


def findings(snapshot: Snapshot, lists: Iterable[RouteList]) -> tuple[Finding, ...]:
    """Return a finding for each unreachable match, about the first list in which the match occurs.

    `lists` may leave out lists in which each route is reached, and no route is that of a TrafficSplit.
    """
    found: dict[tuple[Key, str, Reason, Match], Finding] = {}
    reached: set[Key] = set()
    first_finding: dict[Key, Finding] = {}
    for table in lists:
        missed = {item.number: item for item in table.unreachable}
        for index, route in enumerate(table.routes):
            item = missed.get(index)
            if item is None and route.origin:
                reached.add(route.origin)
            elif item and route.origin:
                finding = _finding(snapshot, table, item)
                found.setdefault((finding.about, finding.field, finding.reason, route.match), finding)
                first_finding.setdefault(route.origin, finding)
    idle = (
        _no_effect(key, item)
        for key, item in first_finding.items()
        if key.kind == TRAFFIC_SPLIT.kind and key not in reached
    )
    return (*found.values(), *idle)


def unreachable(routes: tuple[Route, ...]) -> tuple[UnreachableRoute, ...]:
    """Return the routes of a table that certainly no request reaches, where an example is found."""
    return tuple(_unreachable_in(routes)) if len(routes) > 1 else ()


def _unreachable_in(routes: Sequence[Route]) -> Iterator[UnreachableRoute]:
    for index, route in enumerate(routes):
        never = never_matches(route.match)
        outer = next((other for other in routes[:index] if contains(other.match, route.match)), None)
        if route.split_matches or (not never and (outer is None or _same(outer, route))):
            continue
        example = intended_request(route.match) if never else matching_request(route.match)
        winner = first_matching_route(routes, example) if example else None
        if example and winner is not route and (never or winner):
            yield UnreachableRoute(index, route, example, winner, never)


def _same(one: Route, other: Route) -> bool:
    """Say whether two routes belong to the same object and have the same effect on requests.

    A route for a match of a split counts as having the same effect: the split is meant to take requests of the rule.
    """
    return one.origin == other.origin and (one.split == other.split or bool(one.split_matches))


def first_matching_route(routes: Sequence[Route], request: Request) -> Route | None:
    """Return the first route that matches a request."""
    asked = RequestParts(request)
    return next((route for route in routes if first_unmet(route.match, asked) is None), None)


def never_matches(match: Match) -> bool:
    """Say whether it is certain that no request fits a match."""
    path = match.path
    if path and path.kind == "regex" and matches_no_path(path.value):
        return True
    return any(_unsatisfiable(match))


def _unsatisfiable(match: Match) -> Iterator[str]:
    """Yield the headers and query parameters whose expressions match no text."""
    conditions: tuple[Header | Query, ...] = (*match.headers, *match.query)
    yield from (item.name for item in conditions if item.text.regex and matches_nothing(item.text.value))


def matching_request(match: Match) -> Request | None:
    """Return a request that fits a match and that a client can send; None if none is found."""
    request = _request(match, exact=True)
    return request if request and first_unmet(match, RequestParts(request)) is None else None


def intended_request(match: Match) -> Request | None:
    """Return a request that the author of an unsatisfiable match may have meant."""
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
    """Say whether a text arrives unchanged as a header's value."""
    return text is not None and text == text.strip() and text.isascii() and (text.isprintable() or not text)


def request_arguments(request: Request) -> str:
    """Return a request in the form of `headgate explain` arguments."""
    fields = [*request.headers, *([("host", request.authority)] if request.authority else [])]
    return " ".join([request.method, request.target, *(f"-H '{name}: {value}'" for name, value in fields)])


def _finding(snapshot: Snapshot, table: RouteList, item: UnreachableRoute) -> Finding:
    origin = item.route.origin
    assert origin is not None  # noqa: S101  # findings() skips routes without an object
    where = _winner(item.winner, table)
    if item.never:
        about, field = _group_of(snapshot, item.route) or (origin, route_field(snapshot, item.route))
        text = (
            f"no request can match, because {_why(item.route.match)}; for example, on {table.title}, "
            f"{request_arguments(item.example)} {where}"
        )
        return Finding(about, Reason.NEVER_MATCHES, field, text)
    name = f"{item.route.name}: " if item.route.match != ANY and item.route.name else ""
    text = (
        f"{name}it gets no request on {table.title}, because earlier routes take all of them: "
        f"{request_arguments(item.example)} matches, but {where}. Make the earlier match narrower, or delete one of the two"
    )
    related = (item.winner.origin,) if item.winner and item.winner.origin and item.winner.origin != origin else ()
    field = route_field(snapshot, item.route)
    return Finding(origin, Reason.SHADOWED, field, text, related=related)


def _winner(winner: Route | None, table: RouteList) -> str:
    if winner is None:
        return "is answered with 404"
    if winner.origin is None:
        return f"goes to Service {table.ref.service} itself" if table.ref else "goes to another backend"
    return f"goes to {winner.origin}" + (f" ({winner.name})" if winner.name else "")


def _why(match: Match) -> str:
    if match.path and match.path.kind == "regex" and matches_no_path(match.path.value):
        return "paths begin with / and the expression for the path does not match that"
    return f"the expression for {next(_unsatisfiable(match))} matches no text"


def route_field(snapshot: Snapshot, route: Route) -> str:
    """Return the field of the object that a route comes from."""
    if route.origin is None or route.origin.kind != TRAFFIC_SPLIT.kind:
        return f"spec.rules[{route.name}]"
    split = snapshot.objects.get(route.origin)
    names = [item.name for item in split.spec.matches] if isinstance(split, TrafficSplit) else []
    group = route.name.partition("/")[0]
    return f"spec.matches[{names.index(group)}].name" if group in names else "spec.service"


def _group_of(snapshot: Snapshot, route: Route) -> tuple[Key, str] | None:
    """Return the HTTPRouteGroup that defines the match of a split's route, and the path of the match in the group."""
    group_name, _, name = route.name.partition("/")
    if route.origin is None or route.origin.kind != TRAFFIC_SPLIT.kind or not name:
        return None
    key = group_key(route.origin.namespace, group_name)
    group = snapshot.objects.get(key)
    names = [item.name for item in group.spec.matches] if isinstance(group, HTTPRouteGroup) else []
    return (key, f"spec.matches[{names.index(name)}]") if name in names else None


def _no_effect(key: Key, cause: Finding) -> Finding:
    message = f"no request reaches the split, so its weights have no effect; the first cause: {cause.message}"
    return Finding(key, Reason.NO_EFFECT, "spec.backends", message, related=cause.related)
