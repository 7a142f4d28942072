"""Render CORS policies: a filter answers preflights, and adds headers to responses for scripts of other origins (GEP-1767)."""

from functools import cache

from headgate.envoy import pb
from headgate.model.cors import Cors, origin_pattern

NAME = "envoy.filters.http.cors"


@cache
def filter_of_connections() -> pb.HttpFilter:
    """Return the filter. It does nothing on routes without a policy."""
    return pb.HttpFilter(name=NAME, typed_config=pb.pack(pb.HttpCors()))


def enable(route: pb.Route, cors: Cors) -> None:
    """Give a route a policy. The filter also answers preflights of origins that the policy does not allow, without its headers."""
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
    append = pb.HeaderValueOption.HeaderAppendAction.APPEND_IF_EXISTS_OR_ADD
    vary = pb.HeaderValue(
        key="vary", value="Origin"
    )  # a cache must not serve the response to scripts of another origin
    route.response_headers_to_add.append(pb.HeaderValueOption(header=vary, append_action=append))


def _origin(origin: str) -> pb.StringMatcher:
    if "*" not in origin:
        return pb.StringMatcher(exact=origin)
    return pb.StringMatcher(safe_regex=pb.RegexMatcher(regex=origin_pattern(origin)))
