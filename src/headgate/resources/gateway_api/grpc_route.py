"""GRPCRoutes."""

import re
from collections.abc import Iterator
from typing import Any, Literal

from headgate.errors import Cause
from headgate.kinds import GATEWAY, names_of
from headgate.resources.columns import AGE, NAME
from headgate.resources.gateway_api.route_checks import items, regex_causes, rule_causes, text_causes
from headgate.resources.gateway_api.routes import (
    HOSTNAMES,
    PARENTS,
    STATE,
    NameMatch,
    ParentReference,
    RouteBackend,
    RouteFilter,
)
from headgate.resources.gateway_api.tcp_route import tcp_route_causes
from headgate.resources.kind import Kind, ReadyBy
from headgate.resources.meta import Input, Object, Resource, part
from headgate.resources.schema.check import method_fault, service_fault


class GRPCMethodMatch(Input, frozen=True, kw_only=True):
    """A match by gRPC service and method. A missing service or method matches all."""

    type: Literal["Exact", "RegularExpression"] = "Exact"
    service: str | None = None
    method: str | None = None


class GRPCRouteMatch(Input, frozen=True, kw_only=True):
    """A match of gRPC calls: all fields that are set must match."""

    method: GRPCMethodMatch | None = None
    headers: tuple[NameMatch, ...] = ()


class GRPCRouteRule(Input, frozen=True, kw_only=True):
    """A rule for gRPC calls that satisfy one of `matches` (empty: all calls): its filters and backends.

    `session_persistence` may have any content, as that of an HTTPRoute.
    """

    name: str = ""
    matches: tuple[GRPCRouteMatch, ...] = ()
    filters: tuple[RouteFilter, ...] = ()
    backend_refs: tuple[RouteBackend, ...] = ()
    session_persistence: Any = None


class GRPCRouteSpec(Input, frozen=True, kw_only=True):
    """`spec` of a GRPCRoute: its parents, hosts and rules."""

    parent_refs: tuple[ParentReference, ...] = ()
    use_default_gateways: str = ""
    hostnames: tuple[str, ...] = ()
    rules: tuple[GRPCRouteRule, ...] = ()


class GRPCRoute(Resource, frozen=True, kw_only=True):
    """A GRPCRoute: it sends gRPC calls to backends."""

    spec: GRPCRouteSpec = GRPCRouteSpec()


def grpc_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a GRPCRoute that its schema can't express."""
    yield from tcp_route_causes(obj)
    for where, rule in items(part(obj, "spec"), "rules", "spec"):
        for place, match in items(rule, "matches", where):
            method = part(match, "method")
            if match.get("method") is not None and not (method.get("service") or method.get("method")):
                message = "names neither service nor method; name one of them, or leave out the method match to match all calls"
                yield Cause(f"{place}.method", message)
            for field, grammar in (("service", service_fault), ("method", method_fault)):
                if method.get(field):
                    yield from text_causes(method, field, f"{place}.method", grammar)
            yield from regex_causes(match, "headers", place)
        yield from rule_causes(rule, where, None)


KIND = Kind(
    names_of("GRPCRoute", GATEWAY),
    status=True,
    shape=GRPCRoute,
    checks=grpc_route_causes,
    unread=re.compile(r"spec\.rules\[\d+\]\.sessionPersistence\b.*"),
    columns=(NAME, HOSTNAMES, *STATE, AGE, PARENTS),
    recorded=True,
    listeners=("HTTP", "HTTPS"),
    ready_by=ReadyBy.PARENTS,
)
