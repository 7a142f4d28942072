"""What the Gateway API's routes share: their types, with the fields that headgate reads (requirements 2.4), and columns.

A missing number is None if the field has no default, or if writing the default value has another effect (D3).
Durations are texts such as `1h30m` (`durations.milliseconds`).
"""

from typing import Literal

from headgate.resources import cells
from headgate.resources.columns import PROGRAMMED, Column
from headgate.resources.gateway_api.gateway import GROUP
from headgate.resources.meta import Input

ALL_DEFAULTS = "All"
"""The only scope of default Gateways (GEP-3793)."""


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


class CORS(Input, frozen=True, kw_only=True):
    """Which websites' scripts may send requests and read the responses. Lists contain names, or only `*`."""

    allow_origins: tuple[str, ...] = ()
    allow_methods: tuple[str, ...] = ()
    allow_headers: tuple[str, ...] = ()
    expose_headers: tuple[str, ...] = ()
    allow_credentials: bool = False
    max_age: int = 5


class ForwardedBody(Input, frozen=True, kw_only=True):
    """The most bytes of a request's body that an authorization server gets; 0 for none."""

    max_size: int = 0


class AuthHeaders(Input, frozen=True, kw_only=True):
    """What a request for permission contains; for a server over gRPC, only `allowed_headers` is set.

    `path` precedes the path. The server gets the request's `allowed_headers`, and the backend the `allowed_response_headers` of the
    server's response.
    """

    path: str = ""
    allowed_headers: tuple[str, ...] = ()
    allowed_response_headers: tuple[str, ...] = ()


class HTTPExternalAuth(Input, frozen=True, kw_only=True):
    """An authorization server that decides about each request (GEP-1494); `protocol` says which of `grpc` and `http` is set."""

    protocol: Literal["HTTP", "GRPC"]
    backend_ref: BackendReference
    grpc: AuthHeaders | None = None
    http: AuthHeaders | None = None
    forward_body: ForwardedBody = ForwardedBody()


class RouteFilter(Input, frozen=True, kw_only=True):
    """A filter of requests or responses; `type` says which field is set."""

    type: Literal[
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
        "RequestMirror",
        "RequestRedirect",
        "URLRewrite",
        "ExtensionRef",
        "CORS",
        "ExternalAuth",
    ]
    request_header_modifier: HeaderModifier | None = None
    response_header_modifier: HeaderModifier | None = None
    request_mirror: RequestMirror | None = None
    request_redirect: RequestRedirect | None = None
    url_rewrite: URLRewrite | None = None
    cors: CORS | None = None
    external_auth: HTTPExternalAuth | None = None


class RouteBackend(BackendReference, frozen=True, kw_only=True):
    """A backend of HTTP or gRPC requests: its relative weight, and filters for requests to this backend."""

    weight: int = 1
    filters: tuple[RouteFilter, ...] = ()


class NameMatch(Input, frozen=True, kw_only=True):
    """A match by the value of a header or query parameter."""

    name: str
    value: str
    type: Literal["Exact", "RegularExpression"] = "Exact"


PROGRAMMED_AT_PARENT = "headgate.dev/Programmed"
"""The condition of a route at a parent: whether all proxies have acknowledged it. The Gateway API has no such condition."""
PARENTS = Column(
    "Parents", "", "The parents that the route attaches to.", cell=cells.names("spec.parentRefs"), wide=True
)
HOSTNAMES = Column("Hostnames", "", "The hostnames that the route matches.", cell=cells.names("spec.hostnames"))
STATE = (
    Column("Accepted", "", "Whether every parent accepts the route.", cell=cells.at_parents("Accepted")),
    Column("Programmed", "", PROGRAMMED, cell=cells.at_parents(PROGRAMMED_AT_PARENT)),
)


class CookieConfig(Input, frozen=True, kw_only=True):
    """The lifetime of a cookie."""

    lifetime_type: Literal["Session", "Permanent"] = "Session"


class SessionPersistence(Input, frozen=True, kw_only=True):
    """The sessionPersistence of a rule or of a policy without mistakes."""

    session_name: str = ""
    absolute_timeout: str = ""
    type: Literal["Cookie", "Header"] = "Cookie"
    cookie_config: CookieConfig = CookieConfig()

    @property
    def is_permanent(self) -> bool:
        """Whether the cookie and the session end after the timeout."""
        return self.cookie_config.lifetime_type == "Permanent"
