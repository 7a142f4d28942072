"""Find routes that no request reaches: `matching` proves that each request of a route fits an earlier one.

A finding has an example: a request that fits the match, and that `model.evaluate` sends to another route. If no request can
fit the match, the example is a request that its author may have meant, if there is one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from headgate.compiler.reasons import Reason
from headgate.compiler.references import group_key
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.matching.conditions import AUTHORITY, METHOD, PATH, Conjunction, Dimension, Setting, conjunction
from headgate.matching.match_index import MatchIndex
from headgate.matching.patterns import intended
from headgate.matching.requests import parts_of, request_of
from headgate.matching.solver import Solver
from headgate.matching.undecided import Exhausted, Undecided, Work
from headgate.model.evaluate import first_unmet
from headgate.model.requests import ANY, Match, Request
from headgate.model.routing import Mesh, PortRef, Route
from headgate.resources import regexes
from headgate.resources.explanations import ExplainedRoute
from headgate.resources.meta import Key
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.resources.smi.http_route_group import HTTPRouteGroup
from headgate.resources.smi.traffic_split import TrafficSplit

STEPS = 100_000
"""What the proofs for all routes of a table may take, in steps of Work: 0.3 s."""
ROUTE_STEPS = 10_000
"""What the proof for one route may take."""
LEAST_STEPS = 100
"""What the proof for one route may take when the other routes have used up `STEPS`: enough where no expressions are compared."""
_HOST = Dimension("header", AUTHORITY)
_SETTING = Setting()


class UnreachableRoute(NamedTuple):
    """A route that no request reaches, at position `number` of its table.

    Either no request fits the route (`never`), or earlier routes match all its requests. `example` is a request that
    demonstrates this, and `winner` the route that matches it.
    """

    number: int
    route: Route
    example: Request | None
    winner: Route | None
    never: bool


class RouteList(NamedTuple):
    """The routes of a Service port or of a Gateway's host; `title` names it in messages. `unreachable` has some of them."""

    title: str
    ref: PortRef | None
    routes: tuple[Route, ...]
    unreachable: tuple[UnreachableRoute, ...]


def of_ports(mesh: Mesh) -> Mapping[tuple[PortRef, str], tuple[tuple[Route, ...]]]:
    """Return the routes of HTTP ports of Services by port and title: those for all clients, and for clients of a namespace."""
    of_all = ((str(table.ref), table) for table in mesh.tables)
    of_some = (
        (f"{consumer.table.ref}, clients of namespace {consumer.namespace}", consumer.table)
        for consumer in mesh.consumers
    )
    return {
        (table.ref, title): (table.routes,)
        for title, table in (*of_all, *of_some)
        if table.protocol.is_http and (len(table.routes) > 1 or table.routes[0].origin)
    }


def findings(snapshot: Snapshot, lists: Iterable[RouteList]) -> tuple[Finding, ...]:
    """Return a finding for each unreachable match, about the first list in which the match occurs.

    `lists` may leave out lists in which each route is reached, and no route is that of a TrafficSplit.
    """
    by_match: dict[tuple[Key, str, Reason, Match], Finding] = {}
    reached: set[Key] = set()
    first_finding: dict[Key, Finding] = {}
    for table in lists:
        missed = {unreached.number: unreached for unreached in table.unreachable}
        for index, route in enumerate(table.routes):
            unreached = missed.get(index)
            if unreached is None and route.origin:
                reached.add(route.origin)
            elif unreached and route.origin:
                finding = _finding(snapshot, table, unreached)
                by_match.setdefault((finding.about, finding.field, finding.reason, route.match), finding)
                first_finding.setdefault(route.origin, finding)
    idle = (
        _no_effect(key, finding)
        for key, finding in first_finding.items()
        if key.kind == TRAFFIC_SPLIT.kind and key not in reached
    )
    return (*by_match.values(), *idle)


def unreachable(routes: tuple[Route, ...]) -> tuple[UnreachableRoute, ...]:
    """Return the routes of a table that no request reaches, as far as `STEPS` suffice to prove it."""
    if len(routes) == 1 and not _may_be_impossible(routes[0].match):
        return ()  # most hosts of Gateways have one route, which others can't shadow
    return tuple(_unreachable_in(routes))


def _may_be_impossible(match: Match) -> bool:
    return bool(match.headers or match.query or (match.path and match.path.kind == "regex"))


def _unreachable_in(routes: Sequence[Route]) -> Iterator[UnreachableRoute]:
    solver, work = Solver(_SETTING), Work(STEPS)
    matches = [conjunction(route.match) for route in routes]
    nearby = MatchIndex(matches)
    for number, (route, match) in enumerate(zip(routes, matches, strict=True)):
        if route.split_matches or not all(literal.test.value.isascii() for literal in match):
            continue
        solver.work = Work(min(ROUTE_STEPS, max(work.left, LEAST_STEPS)))
        before = solver.work.left
        earlier = [other for other in nearby.near(match) if other < number]
        try:
            if solver.solve(match, [matches[other] for other in earlier]) is not None:
                continue
            same = [matches[other] for other in earlier if _same(routes[other], route)]
            yield from _proven(solver, routes, number, same)
        except (Undecided, Exhausted):
            continue
        finally:
            work.left -= before - solver.work.left


def _proven(
    solver: Solver, routes: Sequence[Route], number: int, same: Sequence[Conjunction]
) -> Iterator[UnreachableRoute]:
    """Yield a route that gets no request, unless routes with the same effect get all its requests.

    `same` has the matches of earlier routes with the same effect.
    """
    route = routes[number]
    match = conjunction(route.match)
    values = solver.solve(match, same) or solver.solve(match, ())
    if values is None:
        example = _intended_request(match)
        yield UnreachableRoute(number, route, example, _winner_of(routes, example) if example else None, never=True)
        return
    example = request_of(values, _SETTING)
    winner = _winner_of(routes, example)
    if winner and winner is not route and not _same(winner, route):
        shown = example if _HOST in values else structs.replace(example, authority="")
        yield UnreachableRoute(number, route, shown, winner, never=False)


def _same(route: Route, other: Route) -> bool:
    """Return whether two routes belong to the same object and have the same effect on requests.

    A route for a match of a split counts as having the same effect: the split is meant to take requests of the rule.
    """
    return route.origin == other.origin and (route.split == other.split or bool(route.split_matches))


def _winner_of(routes: Sequence[Route], request: Request) -> Route | None:
    """Return the first route that matches a request as proxies see it; None if none does."""
    parts = parts_of(request, _SETTING)
    return next((route for route in routes if parts and first_unmet(route.match, parts) is None), None)


def _intended_request(match: Conjunction) -> Request | None:
    """Return a request that the author of a match may have meant, and that a client can send; None if none is found."""
    values: dict[Dimension, str | None] = {}
    for dimension, test, _ in match:
        text = intended(test.value) if test.kind == "regex" else test.value.split(" ")[0]
        if dimension == PATH and not text.startswith("/"):
            text = f"/{text}"
        if not regexes.matches(_SETTING.domain(dimension).pattern, text):
            return None
        values.setdefault(dimension, text)
    request = request_of(values, _SETTING)
    if parts_of(request, _SETTING) is None:
        return None
    return request if _HOST in values else structs.replace(request, authority="")


def request_arguments(request: Request) -> str:
    """Return a request in the form of `headgate explain` arguments."""
    fields = [*request.headers, *([("host", request.authority)] if request.authority else [])]
    return " ".join([request.method, request.target, *(f"-H '{name}: {value}'" for name, value in fields)])


def _finding(snapshot: Snapshot, table: RouteList, unreached: UnreachableRoute) -> Finding:
    origin = unreached.route.origin
    assert origin is not None  # noqa: S101  # findings() skips routes without an object
    where = _winner(unreached.winner, table)
    if unreached.never:
        about, field = _group_of(snapshot, unreached.route) or (origin, route_field(snapshot, unreached.route))
        text = f"no request can match, because {_why(conjunction(unreached.route.match))}"
        if unreached.example:
            text += f"; for example, on {table.title}, {request_arguments(unreached.example)} {where}"
        return Finding(about, Reason.NEVER_MATCHES, field, text)
    # The field of a Gateway API route has its rule; that of a split's match does not.
    is_named = origin.kind == TRAFFIC_SPLIT.kind and unreached.route.match != ANY and unreached.route.name
    subject = f"match {unreached.route.name}" if is_named else "it"
    text = (
        f"{subject} gets no request on {table.title}, because earlier routes take all of them: "
        f"{request_arguments(unreached.example or Request())} matches, but {where}. Make the earlier match narrower, or delete one of the two"
    )
    related = (
        (unreached.winner.origin,)
        if unreached.winner and unreached.winner.origin and unreached.winner.origin != origin
        else ()
    )
    field = route_field(snapshot, unreached.route)
    return Finding(origin, Reason.SHADOWED, field, text, related=related)


def _winner(winner: Route | None, table: RouteList) -> str:
    if winner is None:
        return "is answered with 404"
    if winner.origin is None:
        return f"goes to Service {table.ref.service} itself" if table.ref else "goes to another backend"
    return f"goes to {ExplainedRoute(object=winner.origin, name=winner.name).words}"


def _why(match: Conjunction) -> str:
    solver = Solver(_SETTING)
    impossible = next(
        part
        for part, _, _ in match
        if solver.solve([literal for literal in match if literal.dimension == part], ()) is None
    )
    if impossible == PATH:
        return "paths begin with / and the expression for the path does not match that"
    if impossible == METHOD:
        return "proxies answer requests with this method themselves"
    if impossible.part == "query":
        return (
            f"query parameters are compared as the URL has them, and no URL has such a value of {impossible.name}; escape "
            "characters such as a space, as %20"
        )
    return f"the expression for {impossible.name} matches no text"


def route_field(snapshot: Snapshot, route: Route) -> str:
    """Return the field of the object that a route comes from."""
    if route.origin is None or route.origin.kind != TRAFFIC_SPLIT.kind:
        return f"spec.rules[{route.name}]"
    split = snapshot.objects.get(route.origin)
    names = [match.name for match in split.spec.matches] if isinstance(split, TrafficSplit) else []
    group = route.name.partition("/")[0]
    return f"spec.matches[{names.index(group)}].name" if group in names else "spec.service"


def _group_of(snapshot: Snapshot, route: Route) -> tuple[Key, str] | None:
    """Return the HTTPRouteGroup that defines the match of a split's route, and the path of the match in the group."""
    group_name, _, name = route.name.partition("/")
    if route.origin is None or route.origin.kind != TRAFFIC_SPLIT.kind or not name:
        return None
    key = group_key(route.origin.namespace, group_name)
    group = snapshot.objects.get(key)
    names = [match.name for match in group.spec.matches] if isinstance(group, HTTPRouteGroup) else []
    return (key, f"spec.matches[{names.index(name)}]") if name in names else None


def _no_effect(key: Key, cause: Finding) -> Finding:
    message = f"no request reaches the split, so its weights have no effect; the first cause: {cause.message}"
    return Finding(key, Reason.NO_EFFECT, "spec.backends", message, related=cause.related)
