"""The rules of a route, whatever its kind, to the model: done once, wherever the route is attached."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import structs

from headgate.compiler import filters
from headgate.compiler.destinations import Destinations
from headgate.compiler.mirrors import mirrors
from headgate.compiler.precedence import Ranked
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.shares import Backend, failing, split
from headgate.model.filters import Filters, Rewrite, Timeouts
from headgate.model.matching import Match
from headgate.model.routing import Route, Split
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
    """A rule's route for each of its matches."""

    routes: tuple[Route, ...]
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
            Ranked(route=route, origin=key, created=created, rule=number, match=index)
            for number, rule in enumerate(done)
            for index, route in enumerate(rule.routes)
        ),
        rules=len(rules),
        faults=tuple(rule.fault for rule in done if rule.fault),
        findings=tuple(finding for rule in done for finding in rule.findings),
    )


def compile_rule(places: Destinations, key: Key, rule: Rule) -> CompiledRule:
    """Compile a rule. One that can't be done fails its requests: they must not reach another rule."""
    name = str(rule.number)
    if fault := _fault(key, rule):
        answer = failing(key, fault.reason)
        return CompiledRule(
            routes=tuple(Route(match=match, name=name, split=answer, origin=key) for match in rule.matches), fault=fault
        )
    copies, findings = mirrors(places, key, filters.copies(rule.filters, f"{rule.field}.filters"))
    redirect = filters.redirect(rule.filters)
    answer = Split(targets=())
    if redirect is None:
        backends = _backends(rule.backends, f"{rule.field}.backendRefs")
        answer, problems = split(places, key, f"{rule.field}.backendRefs", backends=backends, http=True)
        findings += problems
    routes = tuple(
        Route(
            split=answer,
            match=match,
            name=name,
            origin=key,
            redirect=redirect,
            filters=_changes(rule),
            mirrors=copies,
            timeouts=rule.timeouts,
        )
        for match in rule.matches
    )
    return CompiledRule(routes=routes, findings=(*findings, *_ignored(key, rule)))


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
