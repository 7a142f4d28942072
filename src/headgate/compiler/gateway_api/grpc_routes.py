"""GRPCRoutes to routes of the model: a method is a path, `/package.Service/Method`."""

from headgate.compiler.gateway_api.destinations import Destinations
from headgate.compiler.gateway_api.http_routes import headers
from headgate.compiler.gateway_api.rules import CompiledRoute, Rule, compiled_rules
from headgate.model.requests import Match, Path
from headgate.resources.meta import Key
from headgate.resources.routes import GRPCMethodMatch, GRPCRoute, GRPCRouteMatch, GRPCRouteRule

NAME = "[^/]+"


def compile_grpc_route(places: Destinations, key: Key, item: GRPCRoute) -> CompiledRoute:
    """Compile a GRPCRoute."""
    rules = [_rule(number, rule) for number, rule in enumerate(item.spec.rules or (GRPCRouteRule(),))]
    done = compiled_rules(places, key, rules, created=item.metadata.creation_timestamp)
    return done.attached_by(item.spec.parent_refs, item.spec.hostnames)


def _rule(number: int, rule: GRPCRouteRule) -> Rule:
    return Rule(
        field=f"spec.rules[{number}]",
        number=number,
        matches=tuple(_match(match) for match in rule.matches or (GRPCRouteMatch(),)),
        filters=rule.filters,
        backends=rule.backend_refs,
        ignored=("sessionPersistence",) if rule.session_persistence else (),
    )


def _match(item: GRPCRouteMatch) -> Match:
    return Match(path=path(item.method) if item.method else None, headers=headers(item.headers))


def path(method: GRPCMethodMatch) -> Path | None:
    """Return the paths of the calls that a method match is for; none for every call."""
    if not method.service and not method.method:
        return None
    if method.type == "RegularExpression":
        return Path(kind="regex", value=f"/(?:{method.service or NAME})/(?:{method.method or NAME})")
    if method.service and method.method:
        return Path(kind="exact", value=f"/{method.service}/{method.method}")
    if method.service:
        return Path(kind="prefix", value=f"/{method.service}")
    return Path(kind="regex", value=f"/{NAME}/{method.method}")
