"""Compile HTTPRoutes, GRPCRoutes, TCPRoutes, TLSRoutes and UDPRoutes to routes of the model, and find repeated names in them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import structs

from headgate.compiler.gateway_api.backend_shares import RuleBackend, findings, split
from headgate.compiler.gateway_api.destinations import Destinations
from headgate.compiler.gateway_api.gateways import ignored_fields
from headgate.compiler.gateway_api.rules import CompiledRoute, RouteRule, backends_of, compile_rules, passed_by
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.resilience import of_rule
from headgate.durations import milliseconds
from headgate.errors import Cause
from headgate.model.requests import Header, Match, Path, Query, Text, Timeouts
from headgate.model.routing import PortRef, Route
from headgate.resources.gateway_api.grpc_route import GRPCMethodMatch, GRPCRoute, GRPCRouteMatch, GRPCRouteRule
from headgate.resources.gateway_api.http_route import (
    HTTPRoute,
    HTTPRouteMatch,
    HTTPRouteRule,
    HTTPRouteTimeouts,
    PathMatch,
)
from headgate.resources.gateway_api.routes import ALL_DEFAULTS, HTTPHeader, NameMatch, RouteFilter
from headgate.resources.gateway_api.tcp_route import GatewayTCPRoute
from headgate.resources.gateway_api.tls_route import TLSRoute
from headgate.resources.gateway_api.udp_route import GatewayUDPRoute
from headgate.resources.meta import Key
from headgate.resources.portable_regexes import portability_fault

GRPC_NAME = "[^/]+"
_REGEX = "RegularExpression"
ConnectionRoute: TypeAlias = GatewayTCPRoute | TLSRoute | GatewayUDPRoute
AnyRoute: TypeAlias = HTTPRoute | GRPCRoute | ConnectionRoute


def compile_route(destinations: Destinations, key: Key, route: AnyRoute) -> CompiledRoute:
    """Compile a route of any kind."""
    compiled = _compiled(destinations, key, route)
    more = (*repeated_names(key, route), *_not_portable(key, route))
    return structs.replace(compiled, findings=compiled.findings + more) if more else compiled


def with_mistakes(_shared: None, key: Key, source: tuple[CompiledRoute, tuple[Cause, ...]]) -> CompiledRoute:
    """Return a route with findings about mistakes in fields that headgate does not read."""
    route, mistakes = source
    return structs.replace(route, findings=route.findings + ignored_fields(key, mistakes))


def _compiled(destinations: Destinations, key: Key, route: AnyRoute) -> CompiledRoute:
    if isinstance(route, ConnectionRoute):
        return _connections(destinations, key, route)
    if isinstance(route, HTTPRoute):
        return compile_rules(destinations, key, route, [_http_rule(rule) for rule in route.spec.rules])
    return compile_rules(
        destinations, key, route, [_grpc_rule(rule) for rule in route.spec.rules or (GRPCRouteRule(),)]
    )


def _http_rule(rule: HTTPRouteRule) -> RouteRule:
    return RouteRule(
        matches=tuple(to_match(match) for match in rule.matches or (HTTPRouteMatch(),)),
        filters=rule.filters,
        backends=rule.backend_refs,
        timeouts=_timeouts(rule.timeouts),
        retry=of_rule(rule.retry),
        name=rule.name,
        session=rule.session_persistence,
    )


def _grpc_rule(rule: GRPCRouteRule) -> RouteRule:
    return RouteRule(
        matches=tuple(
            Match(path=method_path(match.method) if match.method else None, headers=_headers(match.headers))
            for match in rule.matches or (GRPCRouteMatch(),)
        ),
        filters=rule.filters,
        backends=rule.backend_refs,
        name=rule.name,
        session=rule.session_persistence,
    )


def _connections(destinations: Destinations, key: Key, route: ConnectionRoute) -> CompiledRoute:
    """Compile a route of connections or datagrams. Only its first rule is used, as proxies can't distinguish its connections."""
    field = "spec.rules[0].backendRefs"
    written = route.spec.rules[0].backend_refs if route.spec.rules else ()
    refs = [(f"{field}[{index}]", ref) for index, ref in enumerate(written)]
    backends = [RuleBackend(path, ref.weight, destinations.find(key, ref, path)) for path, ref in refs]
    used = [(backend.port_ref, backend.field) for backend in backends if isinstance(backend.port_ref, PortRef)]
    chosen = {port_ref: destinations.port_destinations(port_ref)[-1] for port_ref, _ in used}
    assumed_http = (destinations.assumed_http(key, port_ref, path) for port_ref, path in used)
    return CompiledRoute(
        key=key,
        created=route.metadata.creation_timestamp,
        parents=route.spec.parent_refs,
        uses_defaults=route.spec.use_default_gateways == ALL_DEFAULTS,
        hostnames=route.spec.hostnames if isinstance(route, TLSRoute) else (),
        connections=Route(split=split(destinations, key, backends, chosen), name="0", origin=key),
        findings=(
            *findings(destinations, key, field, backends),
            *(finding for finding in assumed_http if finding),
            *_further_rules(key, route),
        ),
        passed=passed_by(chosen.values()),
        backends=backends_of(chosen.values()),
    )


def _further_rules(key: Key, route: ConnectionRoute) -> Iterator[Finding]:
    """Yield a finding for each rule after the first one."""
    words = "sessions" if isinstance(route, GatewayUDPRoute) else "connections"
    for index in range(1, len(route.spec.rules)):
        message = (
            f"spec.rules[0] already has all {words}; move the backendRefs of this rule into spec.rules[0], which "
            f"divides the {words} by weight"
        )
        yield Finding(key, Reason.FIELD_IGNORED, f"spec.rules[{index}]", message)


def to_match(written: HTTPRouteMatch) -> Match:
    """Translate one match of an HTTPRoute. The prefix `/` is every path; a trailing slash of a prefix is ignored."""
    query = _first((match.name, match) for match in written.query_params)
    return Match(
        path=_path(written.path),
        methods=(written.method,) if written.method else (),
        headers=_headers(written.headers),
        query=tuple(Query(name=name, text=_text(match)) for name, match in sorted(query.items())),
    )


def method_path(method: GRPCMethodMatch) -> Path | None:
    """Return the path condition (`/package.Service/Method`) of a gRPC method match; None for every call."""
    if not method.service and not method.method:
        return None
    if method.type == "RegularExpression":
        return Path(kind="regex", value=f"/(?:{method.service or GRPC_NAME})/(?:{method.method or GRPC_NAME})")
    if method.service and method.method:
        return Path(kind="exact", value=f"/{method.service}/{method.method}")
    if method.service:
        return Path(kind="prefix", value=f"/{method.service}")
    return Path(kind="regex", value=f"/{GRPC_NAME}/{method.method}")


def _headers(written: Iterable[NameMatch]) -> tuple[Header, ...]:
    """Translate header matches; names are in lower case, and the first match of each name is used."""
    by_name = _first((match.name.lower(), match) for match in written)
    return tuple(
        Header(name=":authority" if name == "host" else name, text=_text(match))
        for name, match in sorted(by_name.items())
    )


def _first(named: Iterable[tuple[str, NameMatch]]) -> dict[str, NameMatch]:
    by_name: dict[str, NameMatch] = {}
    for name, match in named:
        by_name.setdefault(name, match)
    return by_name


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


def repeated_names(about: Key, route: AnyRoute) -> Iterator[Finding]:
    """Yield a finding for each header or query parameter that is repeated in a list; the first is used (2.4)."""
    for where, names in () if isinstance(route, ConnectionRoute) else _named(route):
        for number, name in enumerate(names):
            if (first := names.index(name)) != number:
                message = f"{where}[{first}] already has the name {name!r}, and only that entry is used; remove one of the two"
                yield Finding(about, Reason.NAME_REPEATED, f"{where}[{number}].name", message)


def _not_portable(about: Key, route: AnyRoute) -> Iterator[Finding]:
    """Yield a note for each regular expression outside of the Gateway API's portable subset (GEP-4359)."""
    for field, pattern in () if isinstance(route, ConnectionRoute) else _patterns(route):
        if fault := portability_fault(pattern):
            message = (
                f"headgate reads the expression '{pattern}' as RE2 does, but {fault}: other implementations of the Gateway API may "
                "match other requests"
            )
            yield Finding(about, Reason.REGEX_NOT_PORTABLE, field, message)


def _patterns(route: HTTPRoute | GRPCRoute) -> Iterator[tuple[str, str]]:
    """Yield the regular expressions of a route with their field paths."""
    rules: Sequence[HTTPRouteRule | GRPCRouteRule] = route.spec.rules
    for number, rule in enumerate(rules):
        matches: Sequence[HTTPRouteMatch | GRPCRouteMatch] = rule.matches
        for index, match in enumerate(matches):
            yield from _patterns_of(match, f"spec.rules[{number}].matches[{index}]")


def _patterns_of(match: HTTPRouteMatch | GRPCRouteMatch, where: str) -> Iterator[tuple[str, str]]:
    written = [(f"{where}.headers[{index}].value", header) for index, header in enumerate(match.headers)]
    if isinstance(match, HTTPRouteMatch):
        written += [(f"{where}.queryParams[{index}].value", each) for index, each in enumerate(match.query_params)]
        if match.path.type == _REGEX:
            yield f"{where}.path.value", match.path.value
    elif match.method and match.method.type == _REGEX:
        yield f"{where}.method.service", match.method.service or ""
        yield f"{where}.method.method", match.method.method or ""
    yield from ((field, each.value) for field, each in written if each.type == _REGEX)


def _named(route: HTTPRoute | GRPCRoute) -> Iterator[tuple[str, list[str]]]:
    """Yield the field path of each list of names, with the names in the form in which they are compared."""
    rules: Sequence[HTTPRouteRule | GRPCRouteRule] = route.spec.rules
    for number, rule in enumerate(rules):
        yield from _named_in_rule(rule, f"spec.rules[{number}]")


def _named_in_rule(rule: HTTPRouteRule | GRPCRouteRule, where: str) -> Iterator[tuple[str, list[str]]]:
    matches: Sequence[HTTPRouteMatch | GRPCRouteMatch] = rule.matches
    for index, match in enumerate(matches):
        yield f"{where}.matches[{index}].headers", _ignoring_case(match.headers)
        if isinstance(match, HTTPRouteMatch):
            yield f"{where}.matches[{index}].queryParams", [parameter.name for parameter in match.query_params]
    yield from _edited(rule.filters, f"{where}.filters")
    for index, backend in enumerate(rule.backend_refs):
        yield from _edited(backend.filters, f"{where}.backendRefs[{index}].filters")


def _edited(filters: Sequence[RouteFilter], where: str) -> Iterator[tuple[str, list[str]]]:
    for index, route_filter in enumerate(filters):
        edits = {
            "requestHeaderModifier": route_filter.request_header_modifier,
            "responseHeaderModifier": route_filter.response_header_modifier,
        }
        for field, edit in edits.items():
            if edit:
                yield f"{where}[{index}].{field}.set", _ignoring_case(edit.set)
                yield f"{where}[{index}].{field}.add", _ignoring_case(edit.add)


def _ignoring_case(items: Iterable[NameMatch | HTTPHeader]) -> list[str]:
    return [header.name.lower() for header in items]
