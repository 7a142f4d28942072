"""Compile the rules of HTTP and gRPC routes, independent of their parents, and order routes by precedence."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec import structs

from headgate.compiler.gateway_api import filters
from headgate.compiler.gateway_api.backend_shares import (
    RuleBackend,
    expanded_mirror,
    external_auth,
    failing_split,
    mirrors,
    split,
    split_mirrors,
)
from headgate.compiler.gateway_api.backend_shares import findings as backend_findings
from headgate.compiler.gateway_api.destinations import Destinations, PortDestination
from headgate.compiler.gateway_api.sessions import FIELD as SESSION_FIELD
from headgate.compiler.gateway_api.sessions import policy_findings, session_findings, session_of
from headgate.compiler.reasons import Reason
from headgate.compiler.references import service_key
from headgate.compiler.report import Finding
from headgate.compiler.service_sessions import is_divided
from headgate.matching.intersection import intersect
from headgate.model.cors import announcing
from headgate.model.requests import ANY, Match, Timeouts
from headgate.model.resilience import Retry
from headgate.model.routing import Broken, PortRef, Route, Split
from headgate.resources.gateway_api.grpc_route import GRPCRoute
from headgate.resources.gateway_api.http_route import HTTPRoute
from headgate.resources.gateway_api.routes import ALL_DEFAULTS, ParentReference, RouteBackend, RouteFilter
from headgate.resources.meta import Key, Value

MOST_ROWS = 128
"""The maximum number of routes for the combined matches of several roots; a proxy checks routes one by one."""
_PATHS = ("exact", "prefix", "regex")  # the types of path conditions in order of precedence


class MatchRow(NamedTuple):
    """Requests that fit `match` and no earlier row, with their destination at each Service port."""

    match: Match
    choices: Mapping[PortRef, PortDestination]


Matched = TypeVar("Matched", MatchRow, Route)


def expand(destinations: Destinations, refs: Iterable[PortRef]) -> tuple[list[MatchRow], list[PortRef]]:
    """Combine the destinations of several Service ports into rows.

    A row has one destination for each port. Rows keep the order of the matches, so the first row that a request
    fits has the right destination for every port; the last row is for all requests. If the matches of several roots
    need too many rows, the matches of some roots are ignored; those roots are returned too.

    If a backend of a split is itself the root of another split, that other split is not applied.
    """
    rows = [MatchRow(ANY, {})]
    left_out: list[PortRef] = []
    for ref in dict.fromkeys(refs):
        choices = destinations.port_destinations(ref)
        if min(len(rows), len(choices)) > 1 and len(rows) * len(choices) > MOST_ROWS:
            left_out.append(ref)
            choices = choices[-1:]
        combined = ((intersect(row.match, choice.match), row, choice) for row in rows for choice in choices)
        fitting = (MatchRow(match, {**row.choices, ref: choice}) for match, row, choice in combined if match)
        rows = list(_reachable(fitting, ANY))
    return rows, left_out


def narrowed(routes: Iterable[Route], match: Match) -> Iterator[Route]:
    """Yield the routes for requests that also fit a rule's match; the last one is for all requests of that match."""
    pairs = ((route, intersect(match, route.match)) for route in routes)
    return _reachable((structs.replace(route, match=common) for route, common in pairs if common), match)


def _reachable(candidates: Iterable[Matched], widest: Match) -> Iterator[Matched]:
    """Yield the items that requests can reach: the first item for each match, up to the first for `widest`."""
    seen: set[Match] = set()
    for candidate in candidates:
        if candidate.match not in seen:
            seen.add(candidate.match)
            yield candidate
        if candidate.match == widest:
            return


class Ranked(NamedTuple):
    """The routes for one match of a rule, in order. If a request fits two matches, the lower `rank` wins."""

    rank: tuple[object, ...]
    routes: tuple[Route, ...]


def rank(match: Match, origin: Key, created: str, *positions: int) -> tuple[object, ...]:
    """Return the precedence of a match by the rules of the Gateway API.

    The order is: exact path, longest prefix, regular expression, method, most headers, most query parameters, oldest
    object, namespace and name, first rule, first match. A rule without a path comes after regular expressions, because
    it would hide all of them.
    """
    kind = _PATHS.index(match.path.kind) if match.path else len(_PATHS)
    longest = -len(match.path.value) if match.path and match.path.kind == "prefix" else 0
    conditions = (not match.methods, -len(match.headers), -len(match.query))
    return (kind, longest, *conditions, created, origin.namespace, origin.name, *positions)


def in_order(routes: Iterable[Ranked]) -> tuple[Route, ...]:
    """Return the routes in order of precedence."""
    return tuple(route for ranked in sorted(routes, key=lambda ranked: ranked.rank) for route in ranked.routes)


class CompiledRoute(Value, frozen=True, kw_only=True):
    """A route before it is attached: `requests` of an HTTP or gRPC route, or `connections` of a TCP or TLS route.

    `created` is the time of creation. With `uses_defaults`, default Gateways are parents too. `faults` has findings that make a rule unusable; `rules` is the number of all rules. `findings` has all other
    findings. `passed` has the TrafficSplits of the roots among its backends and mirrors, and the XBackends among them; `backends` all Service ports to which it leads.
    """

    key: Key
    created: str
    parents: tuple[ParentReference, ...]
    uses_defaults: bool = False
    hostnames: tuple[str, ...] = ()
    requests: tuple[Ranked, ...] = ()
    connections: Route | None = None
    rules: int = 1
    faults: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()
    passed: tuple[Key, ...] = ()
    backends: tuple[PortRef, ...] = ()

    @property
    def age(self) -> tuple[str, ...]:
        """Return the sort key of routes by age, the oldest first: the oldest route wins a conflict."""
        return (self.created, self.key.namespace, self.key.name, self.key.kind)

    @property
    def usable(self) -> bool:
        """Return whether at least one rule can be served."""
        return len(self.faults) < self.rules


class RouteRule(Value, frozen=True, kw_only=True):
    """The common part of rules in HTTP and gRPC routes; `session` is its sessionPersistence as written."""

    matches: tuple[Match, ...]
    filters: tuple[RouteFilter, ...]
    backends: tuple[RouteBackend, ...]
    timeouts: Timeouts = Timeouts()
    retry: Retry | None = None
    name: str = ""
    session: object = None


def compile_rules(
    destinations: Destinations, key: Key, resource: HTTPRoute | GRPCRoute, rules: Sequence[RouteRule]
) -> CompiledRoute:
    """Compile an HTTP or gRPC route.

    Requests of an unusable rule get an error, because they must not reach another rule.
    """
    requests: list[Ranked] = []
    faults: list[Finding] = []
    findings: list[Finding] = []
    choices: set[PortDestination] = set()
    for number, rule in enumerate(rules):
        field = f"spec.rules[{number}]"
        guarded = filters.external_auth(rule.filters, field) is not None
        route = Route(name=str(number), origin=key, split=Split(targets=()), needs_permission=guarded)
        if fault := next(_faults(key, rule, field), None):
            faults.append(fault)
            routes = [structs.replace(route, split=failing_split(key, fault.reason))]
        else:
            routes, notes, passed = _compiled(destinations, key, rule, field, route)
            findings += notes
            choices |= passed
        for index, match in enumerate(_with_preflights(rule)):
            ranked = rank(match, key, resource.metadata.creation_timestamp, number, index)
            requests.append(Ranked(ranked, tuple(narrowed(routes, match))))
    return CompiledRoute(
        key=key,
        created=resource.metadata.creation_timestamp,
        parents=resource.spec.parent_refs,
        uses_defaults=resource.spec.use_default_gateways == ALL_DEFAULTS,
        hostnames=resource.spec.hostnames,
        requests=tuple(requests),
        rules=len(rules),
        faults=tuple(faults),
        findings=tuple(findings),
        passed=passed_by(choices),
        backends=backends_of(choices),
    )


def _with_preflights(rule: RouteRule) -> Iterator[Match]:
    """Yield the matches of a rule, and with a CORS filter those of preflights for matches by method.

    The method of a preflight is OPTIONS; a header names that of the request that it announces.
    """
    yield from rule.matches
    for match in rule.matches if filters.cors(rule.filters) else ():
        if match.methods and "OPTIONS" not in match.methods:
            yield structs.replace(match, methods=("OPTIONS",), headers=(*match.headers, *announcing(match.methods)))


def _compiled(
    destinations: Destinations, key: Key, rule: RouteRule, field: str, route: Route
) -> tuple[list[Route], list[Finding], set[PortDestination]]:
    """Return the routes of a rule for all of its matches, based on `route`, findings, and the destinations of the rule."""
    requested_mirrors, findings = mirrors(destinations, key, filters.request_mirrors(rule.filters, f"{field}.filters"))
    findings += session_findings(rule.session, key, f"{field}.{SESSION_FIELD}")
    own, of_backends = filters.divided(
        filters.changes(rule.filters), [filters.changes(ref.filters) for ref in rule.backends]
    )
    route = structs.replace(
        route, filters=own, cors=filters.cors(rule.filters), timeouts=rule.timeouts, retry=rule.retry
    )
    servers: set[PortDestination] = set()
    if written := filters.external_auth(rule.filters, f"{field}.filters"):
        auth, notes = external_auth(destinations, key, *written)
        findings += notes
        servers = {destinations.without_split(auth.ref)} if auth else set()
        if auth is None:
            return [structs.replace(route, split=failing_split(key, notes[0].reason))], findings, servers
        if auth.tls and auth.tls.fault:
            closed = Split(targets=(), broken=(Broken(weight=1, reason=auth.tls.fault),))
            return [structs.replace(route, split=closed)], findings, servers
        route = structs.replace(route, external_auth=auth)
    if redirect := filters.redirect(rule.filters):
        return [structs.replace(route, redirect=redirect)], findings, servers
    route = structs.replace(route, session=session_of(rule.session, key, rule.name or route.name))
    where, field = field, f"{field}.backendRefs"
    paths = [f"{field}[{index}]" for index in range(len(rule.backends))]
    backends = [
        RuleBackend(path, ref.weight, destinations.find_http(key, ref, path), changes, filters.redirect(ref.filters))
        for path, ref, changes in zip(paths, rule.backends, of_backends, strict=True)
    ]
    refs = [backend.port_ref for backend in backends if backend.is_called or _keeps(destinations, key, backend, route)]
    used = [ref for ref in refs if isinstance(ref, PortRef)]
    rows, left_out = expand(destinations, [*used, *(mirror.ref for mirror in requested_mirrors)])
    findings += backend_findings(destinations, key, field, backends)
    findings += [_too_many_matches(key, field, ref) for ref in left_out]
    splits = [split(destinations, key, backends, row.choices, sessions=route.session is not None) for row in rows]
    if route.session and route.session.kind == "header" and any(map(is_divided, splits)):
        findings.append(_unkept_header(key, f"{where}.{SESSION_FIELD}.type"))
        route = structs.replace(route, session=None)
        splits = [split(destinations, key, backends, row.choices) for row in rows]
    if route.session is None:
        findings += policy_findings(splits, destinations.sessions, key, field)
    routes = [
        structs.replace(
            route,
            match=row.match,
            split=decided,
            split_matches=tuple(choice.split_match for choice in row.choices.values() if choice.split_match),
            mirrors=(
                *(expanded for mirror in requested_mirrors if (expanded := expanded_mirror(key, mirror, row.choices))),
                *split_mirrors(backends, row.choices),
            ),
        )
        for row, decided in zip(rows, splits, strict=True)
    ]
    return routes, findings, {*servers, *(choice for row in rows for choice in row.choices.values())}


def _keeps(destinations: Destinations, key: Key, backend: RuleBackend, route: Route) -> bool:
    """Return whether a backend keeps sessions although its weight is 0."""
    if backend.redirect is not None or not isinstance(backend.port_ref, PortRef):
        return False
    return route.session is not None or destinations.keeps_sessions(key, backend.port_ref.service)


def _unkept_header(key: Key, field: str) -> Finding:
    message = (
        "backends with filters of their own keep no sessions by a header, and each request goes to a backend by weight; "
        "use the type Cookie, or move the filters to the rule"
    )
    return Finding(key, Reason.FIELD_IGNORED, field, message)


def _too_many_matches(key: Key, field: str, ref: PortRef) -> Finding:
    message = (
        f"the splits behind this rule have more than {MOST_ROWS} combinations of matches, so the matches of {ref} are "
        f"ignored: its share goes where requests without a match go. Give {ref} a rule of its own"
    )
    return Finding(key, Reason.TOO_MANY_MATCHES, field, message, (service_key(ref.service),))


def passed_by(choices: Iterable[PortDestination]) -> tuple[Key, ...]:
    """Return the TrafficSplits and the XBackends at some destinations."""
    external = (choice.external.key for choice in choices if choice.external)
    return tuple(sorted({*external, *(choice.by for choice in choices if choice.by)}))


def backends_of(choices: Iterable[PortDestination]) -> tuple[PortRef, ...]:
    """Return the Service ports at some destinations: those that a route calls, and the backends of their splits."""
    behind = (target.ref for choice in choices if choice.split for target in choice.split.targets)
    return tuple(sorted({*(choice.ref for choice in choices), *behind}))


def _faults(key: Key, rule: RouteRule, field: str) -> Iterator[Finding]:
    """Yield a finding for each unsupported filter of a rule or of its backends."""
    yield from filters.faults(key, rule.filters, f"{field}.filters", allowed=filters.FOR_A_RULE)
    for index, ref in enumerate(rule.backends):
        path = f"{field}.backendRefs[{index}].filters"
        yield from filters.faults(key, ref.filters, path, allowed=filters.FOR_A_BACKEND)
