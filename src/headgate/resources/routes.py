"""The Gateway API's routes, as far as headgate reads them (requirements 2.4).

An optional number, or one whose default must not be mistaken for something written (D3), is None when absent.
Durations are texts such as `1h30m` (`durations.milliseconds`).
"""

from typing import Any, Literal

from headgate.resources.gateway import GROUP
from headgate.resources.meta import Input, Resource


class ParentReference(Input, frozen=True, kw_only=True):
    """What a route attaches to: a Gateway, or a Service (the mesh). An empty namespace is the route's own."""

    name: str
    group: str = GROUP
    kind: str = "Gateway"
    namespace: str = ""
    section_name: str = ""
    port: int | None = None


class BackendReference(Input, frozen=True, kw_only=True):
    """Names what answers: a Service and its port. An empty namespace is the route's own."""

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
    """Headers to replace, to append to, and to take away."""

    set: tuple[HTTPHeader, ...] = ()
    add: tuple[HTTPHeader, ...] = ()
    remove: tuple[str, ...] = ()


class PathModifier(Input, frozen=True, kw_only=True):
    """Another path: all of it, or instead of the prefix that the rule matched."""

    type: Literal["ReplaceFullPath", "ReplacePrefixMatch"]
    replace_full_path: str | None = None
    replace_prefix_match: str | None = None


class RequestRedirect(Input, frozen=True, kw_only=True):
    """An answer that names another address; what is absent stays as the request has it."""

    scheme: str | None = None
    hostname: str | None = None
    path: PathModifier | None = None
    port: int | None = None
    status_code: int = 302


class URLRewrite(Input, frozen=True, kw_only=True):
    """Another host or path towards the backend."""

    hostname: str | None = None
    path: PathModifier | None = None


class Fraction(Input, frozen=True, kw_only=True):
    """A part of the requests; whatever is absent counts as 100 (R48)."""

    numerator: int | None = None
    denominator: int | None = None


class RequestMirror(Input, frozen=True, kw_only=True):
    """A copy of requests; neither `percent` nor `fraction` is every request, with both the fraction counts (D3)."""

    backend_ref: BackendReference
    percent: int | None = None
    fraction: Fraction | None = None


class RouteFilter(Input, frozen=True, kw_only=True):
    """A change of requests or answers; `type` says which field is set."""

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
    """A backend of HTTP or gRPC requests: its relative weight, and changes for its share alone."""

    weight: int = 1
    filters: tuple[RouteFilter, ...] = ()


class PathMatch(Input, frozen=True, kw_only=True):
    """Which paths a rule is for."""

    type: Literal["Exact", "PathPrefix", "RegularExpression"] = "PathPrefix"
    value: str = "/"


class NameMatch(Input, frozen=True, kw_only=True):
    """A header or a query parameter by its name, and the value that it must have."""

    name: str
    value: str
    type: Literal["Exact", "RegularExpression"] = "Exact"


class HTTPRouteMatch(Input, frozen=True, kw_only=True):
    """Requests: everything that is given must fit."""

    path: PathMatch = PathMatch()
    headers: tuple[NameMatch, ...] = ()
    query_params: tuple[NameMatch, ...] = ()
    method: str | None = None


class HTTPRouteTimeouts(Input, frozen=True, kw_only=True):
    """Durations: for the whole request, and for one attempt at a backend; zero is no limit."""

    request: str | None = None
    backend_request: str | None = None


class HTTPRouteRule(Input, frozen=True, kw_only=True):
    """Requests that fit one of `matches` (no matches: all), and what becomes of them.

    headgate has rules of its own for `retry` and `session_persistence`, so it only notes that these are written.
    """

    name: str = ""
    matches: tuple[HTTPRouteMatch, ...] = ()
    filters: tuple[RouteFilter, ...] = ()
    backend_refs: tuple[RouteBackend, ...] = ()
    timeouts: HTTPRouteTimeouts = HTTPRouteTimeouts()
    retry: Any = None
    session_persistence: Any = None


class HTTPRouteSpec(Input, frozen=True, kw_only=True):
    """Where the route is attached, for which hosts, and its rules; without rules every request finds no backend."""

    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[HTTPRouteRule, ...] = (HTTPRouteRule(matches=(HTTPRouteMatch(),)),)


class HTTPRoute(Resource, frozen=True, kw_only=True):
    """Sends HTTP requests to backends."""

    spec: HTTPRouteSpec = HTTPRouteSpec()


class GRPCMethodMatch(Input, frozen=True, kw_only=True):
    """A gRPC method; whatever is absent is any."""

    type: Literal["Exact", "RegularExpression"] = "Exact"
    service: str | None = None
    method: str | None = None


class GRPCRouteMatch(Input, frozen=True, kw_only=True):
    """Calls: everything that is given must fit."""

    method: GRPCMethodMatch | None = None
    headers: tuple[NameMatch, ...] = ()


class GRPCRouteRule(Input, frozen=True, kw_only=True):
    """Calls that fit one of `matches` (no matches: all), and what becomes of them."""

    name: str = ""
    matches: tuple[GRPCRouteMatch, ...] = ()
    filters: tuple[RouteFilter, ...] = ()
    backend_refs: tuple[RouteBackend, ...] = ()
    session_persistence: Any = None


class GRPCRouteSpec(Input, frozen=True, kw_only=True):
    """Where the route is attached, for which hosts, and its rules."""

    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[GRPCRouteRule, ...] = ()


class GRPCRoute(Resource, frozen=True, kw_only=True):
    """Sends gRPC calls to backends."""

    spec: GRPCRouteSpec = GRPCRouteSpec()


class ConnectionBackend(BackendReference, frozen=True, kw_only=True):
    """A backend of connections and its relative weight."""

    weight: int = 1


class TCPRouteRule(Input, frozen=True, kw_only=True):
    """Where connections go."""

    name: str = ""
    backend_refs: tuple[ConnectionBackend, ...] = ()


class TCPRouteSpec(Input, frozen=True, kw_only=True):
    """Where the route is attached, and its rule."""

    parent_refs: tuple[ParentReference, ...] = ()
    rules: tuple[TCPRouteRule, ...] = ()


class TCPRoute(Resource, frozen=True, kw_only=True):
    """Sends TCP connections to backends (`gateway.networking.k8s.io`; SMI's kind of the name is another)."""

    spec: TCPRouteSpec = TCPRouteSpec()


Route = HTTPRoute | GRPCRoute | TCPRoute
