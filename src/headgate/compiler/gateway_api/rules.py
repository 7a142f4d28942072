"""The rules of a route to the model: done once, wherever the route is attached; and which of several routes comes first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec import structs

from headgate.compiler.containment import intersect
from headgate.compiler.gateway_api import filters
from headgate.compiler.gateway_api.backend_shares import Backend, expanded, failing, mirrors, split
from headgate.compiler.gateway_api.backend_shares import findings as backend_findings
from headgate.compiler.gateway_api.destinations import Destinations, PortDestination
from headgate.compiler.reasons import Reason
from headgate.compiler.references import service_key
from headgate.compiler.report import Finding
from headgate.model.requests import ANY, Filters, Match, Rewrite, Timeouts
from headgate.model.routing import PortRef, Route, Split
from headgate.resources.meta import Key, Value
from headgate.resources.routes import GRPCRoute, HTTPRoute, ParentReference, RouteBackend, RouteFilter

MOST_ROWS = 128
"""Rows that the tables of several roots may have together; a proxy looks at them one after the other."""
_PATHS = ("exact", "prefix", "regex")  # the first one is tried first
INSTEAD = {
    "sessionPersistence": (
        "requests of one session may go to any endpoint. To keep users on their side, name the root of a TrafficSplit "
        "with the annotation headgate.dev/sticky as the rule's only backend"
    ),
    "retry": "what has certainly not reached a backend is tried again, up to two times, and nothing else is",
}
"""Fields that headgate does not read, and what holds in their place."""


class Row(NamedTuple):
    """Requests that fit `match`, and none of the rows before it: what becomes of them at each Service port."""

    match: Match
    choices: Mapping[PortRef, PortDestination]


Matched = TypeVar("Matched", Row, Route)


def expand(places: Destinations, refs: Iterable[PortRef]) -> tuple[list[Row], list[PortRef]]:
    """Return what becomes of requests that go to several Service ports, one level deep.

    Each port is decided by itself: a row is one choice for each. The rows are in the order of the choices, so the first
    row that a request fits has the first choice that it fits at each port; the last row is for every request. One root may
    have any number of matches. Those of several may make too many rows together: then the matches of some roots are not
    asked, which are returned too.
    """
    rows = [Row(ANY, {})]
    left_out: list[PortRef] = []
    for ref in dict.fromkeys(refs):
        choices = places.choices(ref)
        if min(len(rows), len(choices)) > 1 and len(rows) * len(choices) > MOST_ROWS:
            left_out.append(ref)
            choices = choices[-1:]
        combined = ((intersect(row.match, choice.match), row, choice) for row in rows for choice in choices)
        fitting = (Row(match, {**row.choices, ref: choice}) for match, row, choice in combined if match)
        rows = list(_reachable(fitting, ANY))
    return rows, left_out


def narrowed(routes: Iterable[Route], match: Match) -> Iterator[Route]:
    """Yield the routes for the requests that fit a rule's match too; the last is for all that fit it."""
    pairs = ((route, intersect(match, route.match)) for route in routes)
    return _reachable((structs.replace(route, match=found) for route, found in pairs if found), match)


def _reachable(found: Iterable[Matched], widest: Match) -> Iterator[Matched]:
    """Yield what requests may reach: nothing after an equal match, nothing after the widest."""
    seen: set[Match] = set()
    for item in found:
        if item.match not in seen:
            seen.add(item.match)
            yield item
        if item.match == widest:
            return


class Ranked(NamedTuple):
    """The routes of one match of a rule, in their order. Of two matches for one request, the lower `rank` takes it."""

    rank: tuple[object, ...]
    routes: tuple[Route, ...]


def rank(match: Match, origin: Key, created: str, *positions: int) -> tuple[object, ...]:
    """Return what decides between matches for the same request, by the order of the Gateway API.

    Exact path, longest prefix, regular expression, method, most headers, most query parameters, oldest object,
    namespace and name, first rule, first match. A rule for every path comes after the regular expressions: else a route
    without a path would hide them all.
    """
    kind = _PATHS.index(match.path.kind) if match.path else len(_PATHS)
    longest = -len(match.path.value) if match.path and match.path.kind == "prefix" else 0
    conditions = (not match.methods, -len(match.headers), -len(match.query))
    return (kind, longest, *conditions, created, origin.namespace, origin.name, *positions)


def in_order(routes: Iterable[Ranked]) -> tuple[Route, ...]:
    """Return the routes in the order in which they are tried."""
    return tuple(route for ranked in sorted(routes, key=lambda item: item.rank) for route in ranked.routes)


class CompiledRoute(Value, frozen=True, kw_only=True):
    """A route before it is attached: `requests` of an HTTP or gRPC route, or `connections` of a TCP route.

    `faults` are what makes rules impossible; `rules` counts all of them. `findings` are everything else.
    """

    key: Key
    parents: tuple[ParentReference, ...]
    hostnames: tuple[str, ...] = ()
    requests: tuple[Ranked, ...] = ()
    connections: Route | None = None
    rules: int = 1
    faults: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether a rule is left that can be served."""
        return len(self.faults) < self.rules


class Rule(Value, frozen=True, kw_only=True):
    """What the rules of HTTP and gRPC routes have in common. `ignored` are fields that are written and not read."""

    matches: tuple[Match, ...]
    filters: tuple[RouteFilter, ...]
    backends: tuple[RouteBackend, ...]
    timeouts: Timeouts = Timeouts()
    ignored: tuple[str, ...] = ()


def compile_rules(places: Destinations, key: Key, item: HTTPRoute | GRPCRoute, rules: Sequence[Rule]) -> CompiledRoute:
    """Compile an HTTP or gRPC route. A rule that can't be done fails its requests: they must not reach another rule."""
    requests: list[Ranked] = []
    faults: list[Finding] = []
    findings: list[Finding] = []
    for number, rule in enumerate(rules):
        field = f"spec.rules[{number}]"
        route = Route(name=str(number), origin=key, split=Split(targets=()))
        if fault := next(_faults(key, rule, field), None):
            faults.append(fault)
            routes = [structs.replace(route, split=failing(key, fault.reason))]
        else:
            routes, notes = _compiled(places, key, rule, field, route)
            findings += notes
        for index, match in enumerate(rule.matches):
            ranked = rank(match, key, item.metadata.creation_timestamp, number, index)
            requests.append(Ranked(ranked, tuple(narrowed(routes, match))))
    return CompiledRoute(
        key=key,
        parents=item.spec.parent_refs,
        hostnames=item.spec.hostnames,
        requests=tuple(requests),
        rules=len(rules),
        faults=tuple(faults),
        findings=tuple(findings),
    )


def _compiled(
    places: Destinations, key: Key, rule: Rule, field: str, route: Route
) -> tuple[list[Route], list[Finding]]:
    """Return the routes of a rule for any of its matches, each made of `route`, and what is to be said about them."""
    wanted, findings = mirrors(places, key, filters.copies(rule.filters, f"{field}.filters"))
    for name in rule.ignored:
        message = f"{name} does nothing: {INSTEAD[name]}"
        findings.append(Finding(key, Reason.FIELD_IGNORED, f"{field}.{name}", message))
    route = structs.replace(route, filters=_changes(rule), timeouts=rule.timeouts)
    if redirect := filters.redirect(rule.filters):
        return [structs.replace(route, redirect=redirect)], findings
    field = f"{field}.backendRefs"
    backends = [_backend(places, key, ref, f"{field}[{index}]") for index, ref in enumerate(rule.backends)]
    used = [item.where for item in backends if item.weight and isinstance(item.where, PortRef)]
    rows, left_out = expand(places, [*used, *(mirror.ref for mirror in wanted)])
    findings += backend_findings(places, key, field, backends)
    for ref in left_out:
        message = (
            f"the splits of the Services of this rule have matches in more than {MOST_ROWS} combinations, so those of "
            f"{ref} are not asked: its share goes where requests go that fit none of them. Name it in a rule of its own"
        )
        findings.append(Finding(key, Reason.TOO_MANY_MATCHES, field, message, (service_key(ref.service),)))
    routes = [
        structs.replace(
            route,
            match=row.match,
            split=split(places, key, backends, row.choices),
            split_matches=tuple(choice.step for choice in row.choices.values() if choice.step),
            mirrors=tuple(found for mirror in wanted if (found := expanded(mirror, row.choices))),
        )
        for row in rows
    ]
    return routes, findings


def _backend(places: Destinations, key: Key, ref: RouteBackend, field: str) -> Backend:
    return Backend(
        field, ref.weight, places.find_http(key, ref, field), filters.without_path(filters.changes(ref.filters))
    )


def _faults(key: Key, rule: Rule, field: str) -> Iterator[Finding]:
    """Yield what headgate can't do of a rule: filters of its own and of its backends."""
    yield from filters.faults(key, rule.filters, f"{field}.filters", allowed=filters.FOR_A_RULE)
    for index, ref in enumerate(rule.backends):
        place = f"{field}.backendRefs[{index}].filters"
        yield from filters.faults(key, ref.filters, place, allowed=filters.FOR_A_BACKEND)
    for index, ref in enumerate(rule.backends if len(rule.backends) > 1 else ()):
        rewrite = filters.changes(ref.filters).rewrite
        if rewrite and rewrite.path:
            message = "one of several backends can't have a path of its own; move the URLRewrite to the rule's filters"
            yield Finding(key, Reason.UNSUPPORTED_VALUE, f"{field}.backendRefs[{index}].filters", message)


def _changes(rule: Rule) -> Filters:
    """Return what a rule changes. A path is changed for a rule, so the only backend's wish is the rule's."""
    own = filters.changes(rule.filters)
    rewrites = [filters.changes(ref.filters).rewrite for ref in rule.backends]
    wish = next((rewrite for rewrite in rewrites if rewrite and rewrite.path), None)
    if wish is None:
        return own
    hostname = own.rewrite.hostname if own.rewrite else ""
    return structs.replace(own, rewrite=Rewrite(hostname=hostname, path=wish.path))
