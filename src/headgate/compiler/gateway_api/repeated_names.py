"""Headers and query parameters that a route names twice in one list: the first counts, and the user is told (2.4)."""

from collections.abc import Iterable, Iterator, Sequence

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.resources.meta import Key
from headgate.resources.routes import (
    GRPCRoute,
    GRPCRouteMatch,
    GRPCRouteRule,
    HTTPHeader,
    HTTPRoute,
    HTTPRouteMatch,
    HTTPRouteRule,
    NameMatch,
    RouteFilter,
)

_Names = tuple[str, list[str]]  # a list's field path and the names in it, as they are compared


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a warning for each entry that an earlier one with its name takes the effect from."""
    for key, route in snapshot.of(HTTPRoute):
        yield from _of_rules(key, route.spec.rules)
    for key, call in snapshot.of(GRPCRoute):
        yield from _of_rules(key, call.spec.rules)


def _of_rules(about: Key, rules: Sequence[HTTPRouteRule | GRPCRouteRule]) -> Iterator[Finding]:
    for index, rule in enumerate(rules):
        for where, names in _lists(rule, f"spec.rules[{index}]"):
            first: dict[str, int] = {}
            for number, name in enumerate(names):
                if first.setdefault(name, number) != number:
                    message = (
                        f"{name!r} is named in {where}[{first[name]}] already, which counts; remove one of the two"
                    )
                    yield Finding(
                        about=about, reason=Reason.NAME_REPEATED, field=f"{where}[{number}].name", message=message
                    )


def _lists(rule: HTTPRouteRule | GRPCRouteRule, where: str) -> Iterator[_Names]:
    matches: Sequence[HTTPRouteMatch | GRPCRouteMatch] = rule.matches
    for index, match in enumerate(matches):
        yield f"{where}.matches[{index}].headers", _ignoring_case(match.headers)
        if isinstance(match, HTTPRouteMatch):
            yield f"{where}.matches[{index}].queryParams", [item.name for item in match.query_params]
    yield from _of_filters(rule.filters, f"{where}.filters")
    for index, backend in enumerate(rule.backend_refs):
        yield from _of_filters(backend.filters, f"{where}.backendRefs[{index}].filters")


def _of_filters(filters: Sequence[RouteFilter], where: str) -> Iterator[_Names]:
    for index, item in enumerate(filters):
        edits = {
            "requestHeaderModifier": item.request_header_modifier,
            "responseHeaderModifier": item.response_header_modifier,
        }
        for field, edit in edits.items():
            if edit:
                yield f"{where}[{index}].{field}.set", _ignoring_case(edit.set)
                yield f"{where}[{index}].{field}.add", _ignoring_case(edit.add)


def _ignoring_case(items: Iterable[NameMatch | HTTPHeader]) -> list[str]:
    return [item.name.lower() for item in items]
