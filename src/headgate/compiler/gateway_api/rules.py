"""The rules of a route, whatever its kind, to the model: done once, wherever the route is attached."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import structs

from headgate.compiler.gateway_api import filters
from headgate.compiler.gateway_api.destinations import Destinations, service_key
from headgate.compiler.gateway_api.expansion import MOST_ROWS, Expansion, expand, narrowed
from headgate.compiler.gateway_api.mirrors import expanded, mirrors
from headgate.compiler.gateway_api.precedence import Ranked
from headgate.compiler.gateway_api.shares import Backend, failing, place, split
from headgate.compiler.gateway_api.shares import findings as backend_findings
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.requests import Filters, Match, Rewrite, Timeouts
from headgate.model.routing import PortRef, Route, Split
from headgate.resources.meta import Key, Value
from headgate.resources.routes import ParentReference, RouteBackend, RouteFilter

INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "sessionPersistence": (
            "requests of one session may go to any endpoint. To keep users on their side, name the root of a TrafficSplit "
            "with the annotation headgate.dev/sticky as the rule's only backend"
        ),
        "retry": "what has certainly not reached a backend is tried again, up to two times, and nothing else is",
    }
)
"""Fields that headgate does not read, and what holds in their place."""


class CompiledRoute(Value, frozen=True, kw_only=True):
    """A route before it is attached: `requests` of an HTTP or gRPC route, or `connections` of a TCP route.

    `faults` are what makes rules impossible; `rules` counts all of them. `findings` are everything else.
    """

    key: Key
    created: str
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

    def attached_by(self, parents: tuple[ParentReference, ...], hostnames: tuple[str, ...]) -> "CompiledRoute":
        """Return the route with the parents and hosts that it names."""
        return structs.replace(self, parents=parents, hostnames=hostnames)


class Rule(Value, frozen=True, kw_only=True):
    """What the rules of HTTP and gRPC routes have in common. `field` is the path of the rule.

    `ignored` are fields that are written and not read, each with what to do instead.
    """

    field: str
    number: int
    matches: tuple[Match, ...]
    filters: tuple[RouteFilter, ...]
    backends: tuple[RouteBackend, ...]
    timeouts: Timeouts = Timeouts()
    ignored: tuple[str, ...] = ()


class CompiledRule(Value, frozen=True, kw_only=True):
    """A rule's matches, each with its routes in their order."""

    matches: tuple[tuple[Match, tuple[Route, ...]], ...]
    fault: Finding | None = None
    findings: tuple[Finding, ...] = ()


def compiled_rules(places: Destinations, key: Key, rules: Sequence[Rule], *, created: str) -> CompiledRoute:
    """Compile the rules of an HTTP or gRPC route; who its parents are and its hosts is for the caller."""
    done = [compile_rule(places, key, rule) for rule in rules]
    return CompiledRoute(
        key=key,
        created=created,
        parents=(),
        requests=tuple(
            Ranked(routes=routes, wanted=match, origin=key, created=created, rule=number, match=index)
            for number, rule in enumerate(done)
            for index, (match, routes) in enumerate(rule.matches)
        ),
        rules=len(rules),
        faults=tuple(rule.fault for rule in done if rule.fault),
        findings=tuple(finding for rule in done for finding in rule.findings),
    )


def compile_rule(places: Destinations, key: Key, rule: Rule) -> CompiledRule:
    """Compile a rule. One that can't be done fails its requests: they must not reach another rule."""
    route = Route(name=str(rule.number), origin=key, split=Split(targets=()))
    if fault := _fault(key, rule):
        failed = structs.replace(route, split=failing(key, fault.reason))
        return CompiledRule(matches=_by_match(rule, [failed]), fault=fault)
    wanted, findings = mirrors(places, key, filters.copies(rule.filters, f"{rule.field}.filters"))
    findings += tuple(_ignored(key, rule))
    route = structs.replace(route, filters=_changes(rule), timeouts=rule.timeouts)
    if redirect := filters.redirect(rule.filters):
        return CompiledRule(matches=_by_match(rule, [structs.replace(route, redirect=redirect)]), findings=findings)
    field = f"{rule.field}.backendRefs"
    placed = place(places, key, _backends(rule.backends, field), http=True)
    used = [where for backend, where in placed if backend.weight and isinstance(where, PortRef)]
    expansion = expand(places, [*used, *(mirror.ref for mirror in wanted)])
    findings += (*backend_findings(places, key, field, placed=placed), *_left_out(key, field, expansion))
    routes = [
        structs.replace(
            route,
            match=row.match,
            split=split(places, key, placed, row.chosen),
            steps=row.steps,
            mirrors=tuple(found for found in (expanded(mirror, row.chosen) for mirror in wanted) if found),
        )
        for row in expansion.rows
    ]
    return CompiledRule(matches=_by_match(rule, routes), findings=findings)


def _by_match(rule: Rule, routes: Sequence[Route]) -> tuple[tuple[Match, tuple[Route, ...]], ...]:
    """Return the routes of a rule for each of its matches."""
    return tuple((match, tuple(narrowed(routes, match))) for match in rule.matches)


def _left_out(key: Key, field: str, expansion: Expansion) -> Iterator[Finding]:
    for ref in expansion.left_out:
        message = (
            f"the splits of the Services of this rule have matches in more than {MOST_ROWS} combinations, so those of "
            f"{ref} are not asked: its share goes where requests go that fit none of them. Name it in a rule of its own"
        )
        related = (service_key(ref.service),)
        yield Finding(about=key, reason=Reason.TOO_MANY_MATCHES, field=field, message=message, related=related)


def _ignored(key: Key, rule: Rule) -> Iterator[Finding]:
    for name in rule.ignored:
        message = f"{name} does nothing: {INSTEAD[name]}"
        yield Finding(about=key, reason=Reason.FIELD_IGNORED, field=f"{rule.field}.{name}", message=message)


def _fault(key: Key, rule: Rule) -> Finding | None:
    """Return what headgate can't do of a rule, if anything: a filter of its own, or of one of its backends."""
    own = filters.fault(key, rule.filters, f"{rule.field}.filters", allowed=filters.FOR_A_RULE)
    places = (f"{rule.field}.backendRefs[{index}].filters" for index in range(len(rule.backends)))
    others = (
        filters.fault(key, ref.filters, place, allowed=filters.FOR_A_BACKEND)
        for ref, place in zip(rule.backends, places, strict=True)
    )
    return own or next((fault for fault in (*others, *_several_paths(key, rule)) if fault), None)


def _several_paths(key: Key, rule: Rule) -> Iterator[Finding]:
    """Yield the wish of one of several backends for a path of its own: a proxy has one path for all of them."""
    for index, ref in enumerate(rule.backends if len(rule.backends) > 1 else ()):
        rewrite = filters.changes(ref.filters).rewrite
        if rewrite and rewrite.path:
            message = "one of several backends can't have a path of its own; move the URLRewrite to the rule's filters"
            place = f"{rule.field}.backendRefs[{index}].filters"
            yield Finding(about=key, reason=Reason.UNSUPPORTED_VALUE, field=place, message=message)


def _backends(refs: Sequence[RouteBackend], field: str) -> tuple[Backend, ...]:
    return tuple(
        Backend(
            field=f"{field}[{index}]",
            ref=ref,
            weight=ref.weight,
            filters=filters.without_path(filters.changes(ref.filters)),
        )
        for index, ref in enumerate(refs)
    )


def _changes(rule: Rule) -> Filters:
    """Return what a rule changes. A path is changed for a rule, so the only backend's wish is the rule's."""
    own = filters.changes(rule.filters)
    rewrites = [filters.changes(ref.filters).rewrite for ref in rule.backends]
    wish = next((rewrite for rewrite in rewrites if rewrite and rewrite.path), None)
    if wish is None:
        return own
    hostname = own.rewrite.hostname if own.rewrite else ""
    return structs.replace(own, rewrite=Rewrite(hostname=hostname, path=wish.path))
