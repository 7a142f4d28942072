"""HTTPRoutes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from headgate import durations
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


class PathMatch(Input, frozen=True, kw_only=True):
    """A match by path."""

    type: Literal["Exact", "PathPrefix", "RegularExpression"] = "PathPrefix"
    value: str = "/"


class HTTPRouteMatch(Input, frozen=True, kw_only=True):
    """A match of HTTP requests: all fields that are set must match."""

    path: PathMatch = PathMatch()
    headers: tuple[NameMatch, ...] = ()
    query_params: tuple[NameMatch, ...] = ()
    method: str | None = None


class HTTPRouteTimeouts(Input, frozen=True, kw_only=True):
    """Timeouts of the whole request and of one attempt at a backend, as durations; zero means no limit."""

    request: str | None = None
    backend_request: str | None = None


class HTTPRouteRule(Input, frozen=True, kw_only=True):
    """A rule for requests that satisfy one of `matches` (empty: all requests): its filters, backends and timeouts.

    `retry` and `session_persistence` may have any content, because objects were stored before their schemas
    (`compiler.resilience`, `compiler.gateway_api.sessions`).
    """

    name: str = ""
    matches: tuple[HTTPRouteMatch, ...] = ()
    filters: tuple[RouteFilter, ...] = ()
    backend_refs: tuple[RouteBackend, ...] = ()
    timeouts: HTTPRouteTimeouts = HTTPRouteTimeouts()
    retry: Any = None
    session_persistence: Any = None


class HTTPRouteSpec(Input, frozen=True, kw_only=True):
    """`spec` of an HTTPRoute. Without rules it has one rule for all requests, which has no backend."""

    parent_refs: tuple[ParentReference, ...] = ()
    use_default_gateways: str = ""
    hostnames: tuple[str, ...] = ()
    rules: tuple[HTTPRouteRule, ...] = (HTTPRouteRule(matches=(HTTPRouteMatch(),)),)


class HTTPRoute(Resource, frozen=True, kw_only=True):
    """An HTTPRoute: it sends HTTP requests to backends."""

    spec: HTTPRouteSpec = HTTPRouteSpec()


_PATH = re.compile(r"/([A-Za-z0-9/\-._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*")
_FORBIDDEN = ("//", "/./", "/../", "%2f", "%2F", "#")
_FORBIDDEN_ENDS = ("/..", "/.")


def http_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in an HTTPRoute that its schema can't express."""
    yield from tcp_route_causes(obj)
    for where, rule in items(part(obj, "spec"), "rules", "spec"):
        for place, match in items(rule, "matches", where):
            path = part(match, "path")
            yield from text_causes(path, "value", f"{place}.path", path_fault)
            yield from regex_causes(match, "headers", place)
            yield from regex_causes(match, "queryParams", place)
        yield from rule_causes(rule, where, rule.get("matches"))
        yield from _timeout_causes(part(rule, "timeouts"), f"{where}.timeouts")


def path_fault(value: str) -> str:
    """Return why a path can't be used in a match; empty if it can."""
    if not value.startswith("/"):
        return "must begin with /"
    for sign in _FORBIDDEN:
        if sign in value:
            return f"must not contain {sign!r}: applications may read such a path as another one, and proxies match paths as they are written"
    for end in _FORBIDDEN_ENDS:
        if value.endswith(end):
            return f"must not end with {end!r}"
    if "?" in value:
        return "must not have a query; match the query with queryParams"
    return (
        ""
        if _PATH.fullmatch(value)
        else "has characters that a path can't have; percent-encode them, for example a space as %20"
    )


def _timeout_causes(timeouts: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield a mistake if the timeout of one attempt is longer than the timeout of the whole request."""
    try:
        whole = durations.milliseconds(timeouts.get("request") or "0s")
        attempt = durations.milliseconds(timeouts.get("backendRequest") or "0s")
    except (TypeError, ValueError):  # an invalid duration, which the schema's check reports
        return
    if whole and attempt > whole:
        message = f"must not be longer than the timeout of the whole request ({timeouts['request']})"
        yield Cause(f"{where}.backendRequest", message)


KIND = Kind(
    names_of("HTTPRoute", GATEWAY),
    versions=("v1", "v1beta1"),
    status=True,
    shape=HTTPRoute,
    checks=http_route_causes,
    unread=re.compile(r"spec\.rules\[\d+\]\.(retry|sessionPersistence)\b.*"),
    columns=(NAME, HOSTNAMES, *STATE, AGE, PARENTS),
    recorded=True,
    listeners=("HTTP", "HTTPS"),
    ready_by=ReadyBy.PARENTS,
)
