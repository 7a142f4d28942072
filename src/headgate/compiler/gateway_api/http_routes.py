"""HTTPRoutes to routes of the model."""

from collections.abc import Iterable

from headgate.compiler.gateway_api.destinations import Destinations
from headgate.compiler.gateway_api.rules import CompiledRoute, Rule, compiled_rules
from headgate.durations import milliseconds
from headgate.model.requests import Header, Match, Path, Query, Text, Timeouts
from headgate.resources.meta import Key
from headgate.resources.routes import (
    HTTPRoute,
    HTTPRouteMatch,
    HTTPRouteRule,
    HTTPRouteTimeouts,
    NameMatch,
    PathMatch,
)


def compile_http_route(places: Destinations, key: Key, item: HTTPRoute) -> CompiledRoute:
    """Compile an HTTPRoute."""
    rules = [_rule(number, rule) for number, rule in enumerate(item.spec.rules)]
    done = compiled_rules(places, key, rules, created=item.metadata.creation_timestamp)
    return done.attached_by(item.spec.parent_refs, item.spec.hostnames)


def _rule(number: int, rule: HTTPRouteRule) -> Rule:
    written = {"sessionPersistence": rule.session_persistence, "retry": rule.retry}
    return Rule(
        field=f"spec.rules[{number}]",
        number=number,
        matches=tuple(to_match(match) for match in rule.matches or (HTTPRouteMatch(),)),
        filters=rule.filters,
        backends=rule.backend_refs,
        timeouts=_timeouts(rule.timeouts),
        ignored=tuple(name for name, item in written.items() if item is not None),
    )


def to_match(item: HTTPRouteMatch) -> Match:
    """Translate one match. The prefix `/` is every path; a slash at the end of a prefix has no meaning."""
    query = _first((match.name, match) for match in item.query_params)
    return Match(
        path=_path(item.path),
        methods=(item.method,) if item.method else (),
        headers=headers(item.headers),
        query=tuple(Query(name=name, text=_text(match)) for name, match in sorted(query.items())),
    )


def headers(written: Iterable[NameMatch]) -> tuple[Header, ...]:
    """Translate header matches: names in lower case; of several with one name the first counts."""
    found = _first((match.name.lower(), match) for match in written)
    return tuple(
        Header(name=":authority" if name == "host" else name, text=_text(match))
        for name, match in sorted(found.items())
    )


def _first(named: Iterable[tuple[str, NameMatch]]) -> dict[str, NameMatch]:
    found: dict[str, NameMatch] = {}
    for name, match in named:
        found.setdefault(name, match)
    return found


def _text(match: NameMatch) -> Text:
    return Text(value=match.value, regex=match.type == "RegularExpression")


def _path(match: PathMatch) -> Path | None:
    if match.type == "Exact":
        return Path(kind="exact", value=match.value)
    if match.type == "RegularExpression":
        return Path(kind="regex", value=match.value)
    prefix = match.value.rstrip("/")
    return Path(kind="prefix", value=prefix) if prefix else None


def _timeouts(written: HTTPRouteTimeouts) -> Timeouts:
    return Timeouts(
        request=milliseconds(written.request) if written.request else 0,
        backend=milliseconds(written.backend_request) if written.backend_request else 0,
    )
