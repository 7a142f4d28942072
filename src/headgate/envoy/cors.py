"""Render CORS policies: a filter answers preflights, and adds headers to responses for scripts of other origins (GEP-1767).

The filter does nothing on a route without a cluster. So such a route, a redirect or a failure, gets two rows before it (`rows`): one
for preflights, whose cluster no request reaches, and one for allowed origins.
"""

from collections.abc import Iterator
from functools import cache

from msgspec import structs

from headgate.envoy import pb
from headgate.envoy.names import MISSING
from headgate.envoy.planned_routes import ClusterWeight, PlannedRoute
from headgate.model.cors import Cors, announcing, from_origins, origin_pattern

NAME = "envoy.filters.http.cors"
_OPTIONS = "OPTIONS"


@cache
def filter_of_connections() -> pb.HttpFilter:
    """Return the filter. It does nothing on routes without a policy."""
    return pb.HttpFilter(name=NAME, typed_config=pb.pack(pb.HttpCors()))


def rows(planned: PlannedRoute) -> Iterator[PlannedRoute]:
    """Yield the rows of a route table for a planned route, in order."""
    if planned.cors and not planned.clusters:
        match = planned.match
        if not match.methods or _OPTIONS in match.methods:
            preflight = structs.replace(match, methods=(_OPTIONS,), headers=(*match.headers, *announcing()))
            nowhere = (ClusterWeight(cluster=MISSING, weight=1),)
            yield structs.replace(planned, match=preflight, clusters=nowhere, redirect=None, status=0)
        if planned.cors.origins:
            allowed = structs.replace(match, headers=(*match.headers, from_origins(planned.cors)))
            yield structs.replace(planned, match=allowed, allows_origin=True)
    yield planned


def enable(route: pb.Route, cors: Cors, *, allows_origin: bool) -> None:
    """Give a route a policy. The filter also answers preflights of origins that the policy does not allow, without its headers.

    A route without a cluster that `allows_origin` gets the headers that the filter would add.
    """
    policy = pb.HttpCorsPolicy(
        allow_origin_string_match=[_origin(origin) for origin in cors.origins],
        allow_methods=",".join(cors.methods),
        allow_headers=",".join(cors.headers),
        expose_headers=",".join(cors.exposed),
        max_age=str(cors.max_age),
        allow_credentials=pb.BoolValue(value=cors.credentials),
        forward_not_matching_preflights=pb.BoolValue(value=False),
    )
    route.typed_per_filter_config[NAME].CopyFrom(pb.pack(policy))
    _add(route, "vary", "Origin")  # a cache must not serve the response to scripts of another origin
    if allows_origin:
        _add(route, "access-control-allow-origin", "%REQ(origin)%")
        if cors.credentials:
            _add(route, "access-control-allow-credentials", "true")
        if cors.exposed:
            _add(route, "access-control-expose-headers", ",".join(cors.exposed))


def _add(route: pb.Route, name: str, value: str) -> None:
    append = pb.HeaderValueOption.HeaderAppendAction.APPEND_IF_EXISTS_OR_ADD
    header = pb.HeaderValue(key=name, value=value)
    route.response_headers_to_add.append(pb.HeaderValueOption(header=header, append_action=append))


def _origin(origin: str) -> pb.StringMatcher:
    if "*" not in origin:
        return pb.StringMatcher(exact=origin)
    return pb.StringMatcher(safe_regex=pb.RegexMatcher(regex=origin_pattern(origin)))
