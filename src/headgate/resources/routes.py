"""Types of the Gateway API's routes, with the fields that headgate reads (requirements 2.4).

A missing number is None if the field has no default, or if writing the default value has another effect (D3).
Durations are texts such as `1h30m` (`durations.milliseconds`).
"""

from typing import Any, Literal

from headgate.resources.gateway import GROUP
from headgate.resources.meta import Input, Resource


class ParentReference(Input, frozen=True, kw_only=True):
    """The parent of a route: a Gateway, or a Service for traffic in the mesh. An empty namespace means the route's own."""

    name: str
    group: str = GROUP
    kind: str = "Gateway"
    namespace: str = ""
    section_name: str = ""
    port: int | None = None


class BackendReference(Input, frozen=True, kw_only=True):
    """A reference to a backend: a Service and its port. An empty namespace means the route's own."""

    name: str
    group: str = ""
    kind: str = "Service"
    namespace: str = ""
    port: int | None = None


class HTTPHeader(Input, frozen=True, kw_only=True):
    """A header and its value."""

    name: str
    value: str


class HeaderModifier(Input, frozen=True, kw_only=True):
    """Headers to replace, to append and to remove."""

    set: tuple[HTTPHeader, ...] = ()
    add: tuple[HTTPHeader, ...] = ()
    remove: tuple[str, ...] = ()


class PathModifier(Input, frozen=True, kw_only=True):
    """A new path: it replaces the whole path, or the prefix that the rule matched."""

    type: Literal["ReplaceFullPath", "ReplacePrefixMatch"]
    replace_full_path: str | None = None
    replace_prefix_match: str | None = None


class RequestRedirect(Input, frozen=True, kw_only=True):
    """A redirect response. Missing parts of the new URL are copied from the request."""

    scheme: str | None = None
    hostname: str | None = None
    path: PathModifier | None = None
    port: int | None = None
    status_code: int = 302


class URLRewrite(Input, frozen=True, kw_only=True):
    """A new host or path for the request to the backend."""

    hostname: str | None = None
    path: PathModifier | None = None


class Fraction(Input, frozen=True, kw_only=True):
    """A fraction of the requests. A missing numerator or denominator is 100 (R48)."""

    numerator: int | None = None
    denominator: int | None = None


class RequestMirror(Input, frozen=True, kw_only=True):
    """A mirror of requests.

    Without `percent` and `fraction` every request is mirrored; `fraction` overrides `percent` (D3).
    """

    backend_ref: BackendReference
    percent: int | None = None
    fraction: Fraction | None = None


class RouteFilter(Input, frozen=True, kw_only=True):
    """A filter of requests or responses; `type` says which field is set."""

    type: Literal[
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
        "RequestMirror",
        "RequestRedirect",
        "URLRewrite",
        "ExtensionRef",
    ]
    request_header_modifier: HeaderModifier | None = None
    response_header_modifier: HeaderModifier | None = None
    request_mirror: RequestMirror | None = None
    request_redirect: RequestRedirect | None = None
    url_rewrite: URLRewrite | None = None


class RouteBackend(BackendReference, frozen=True, kw_only=True):
    """A backend of HTTP or gRPC requests: its relative weight, and filters for requests to this backend."""

    weight: int = 1
    filters: tuple[RouteFilter, ...] = ()


class PathMatch(Input, frozen=True, kw_only=True):
    """A match by path."""

    type: Literal["Exact", "PathPrefix", "RegularExpression"] = "PathPrefix"
    value: str = "/"


class NameMatch(Input, frozen=True, kw_only=True):
    """A match by the value of a header or query parameter."""

    name: str
    value: str
    type: Literal["Exact", "RegularExpression"] = "Exact"


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

    `retry` may have any content, because objects were stored before its schema (`compiler.resilience`). headgate reports
    `session_persistence` as not supported, so its content is not decoded.
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
    hostnames: tuple[str, ...] = ()
    rules: tuple[HTTPRouteRule, ...] = (HTTPRouteRule(matches=(HTTPRouteMatch(),)),)


class HTTPRoute(Resource, frozen=True, kw_only=True):
    """An HTTPRoute: it sends HTTP requests to backends."""

    spec: HTTPRouteSpec = HTTPRouteSpec()


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
    """A rule for gRPC calls that satisfy one of `matches` (empty: all calls): its filters and backends."""

    name: str = ""
    matches: tuple[GRPCRouteMatch, ...] = ()
    filters: tuple[RouteFilter, ...] = ()
    backend_refs: tuple[RouteBackend, ...] = ()
    session_persistence: Any = None


class GRPCRouteSpec(Input, frozen=True, kw_only=True):
    """`spec` of a GRPCRoute: its parents, hosts and rules."""

    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[GRPCRouteRule, ...] = ()


class GRPCRoute(Resource, frozen=True, kw_only=True):
    """A GRPCRoute: it sends gRPC calls to backends."""

    spec: GRPCRouteSpec = GRPCRouteSpec()


class ConnectionBackend(BackendReference, frozen=True, kw_only=True):
    """A backend of TCP connections and its relative weight."""

    weight: int = 1


class TCPRouteRule(Input, frozen=True, kw_only=True):
    """The backends of TCP connections."""

    name: str = ""
    backend_refs: tuple[ConnectionBackend, ...] = ()


class TCPRouteSpec(Input, frozen=True, kw_only=True):
    """`spec` of a TCPRoute: its parents and its rule."""

    parent_refs: tuple[ParentReference, ...] = ()
    rules: tuple[TCPRouteRule, ...] = ()


class TCPRoute(Resource, frozen=True, kw_only=True):
    """The Gateway API's TCPRoute: it sends TCP connections to backends. SMI's TCPRoute is another kind."""

    spec: TCPRouteSpec = TCPRouteSpec()


Route = HTTPRoute | GRPCRoute | TCPRoute
