"""The explanation of a request in the inspect API: the request as its spec; where it goes, and why, as its status."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from headgate.resources.inspect import API_VERSION, Answer, ExactShare, ObjectName
from headgate.resources.meta import Key, Object
from headgate.resources.request_spec import LONGEST_HOST, CallerKind, RequestSpec, read_client
from headgate.resources.smi.split_fields import StickyBy

MUTUAL_TLS: Literal["MutualTLS"] = "MutualTLS"
PLAINTEXT: Literal["Plaintext"] = "Plaintext"
TLS: Literal["TLS"] = "TLS"
PLAIN = "the Service itself (no route)"
GATEWAY_CALLER = "the gateway"
NO_CALLER = "this cluster has no gateway, so access is not explained; name the caller (--from)"
PortProtocol: TypeAlias = Annotated[
    str,
    Meta(extra_json_schema={"enum": ["http", "http2", "http-any", "tcp", "tcp-server-first", "tls", "udp", ""]}),
]
"""The protocol of a port in the words of `appProtocol`; empty for an unknown host."""


class HeaderField(Answer, frozen=True, kw_only=True):
    """A header of a request."""

    name: str
    value: str


class RequestCaller(Answer, frozen=True, kw_only=True):
    """The sender of a request, in the namespace of the explanation."""

    kind: CallerKind
    name: str


class ExplanationSpec(Answer, frozen=True, kw_only=True):
    """A request. Without a `caller` the gateway sends it; on a cluster without one access is not explained. `gateway` is the Gateway that it goes through.

    A short host name means a Service in the namespace of the explanation. With the number of a `revision`, the objects are
    those of that revision. `server_name` is the SNI of a TLS connection, by default the URL's host.
    """

    url: str
    method: str = "GET"
    headers: tuple[HeaderField, ...] = ()
    caller: RequestCaller | None = None
    gateway: str = ""
    server_name: Annotated[str, Meta(max_length=LONGEST_HOST)] = ""
    revision: int = 0

    def request(self, namespace: str) -> RequestSpec:
        """Return the request."""
        return RequestSpec(
            url=self.url,
            method=self.method,
            headers=tuple((field.name, field.value) for field in self.headers),
            caller=f"{self.caller.kind}/{self.caller.name}" if self.caller else "",
            via=f"gateway/{self.gateway}" if self.gateway else "",
            namespace=namespace,
            server_name=self.server_name,
        )


def explanation_spec(request: RequestSpec, revision: int = 0) -> ExplanationSpec:
    """Return a request in the format of the API. Raises BadRequest."""
    origin = read_client(request.caller, request.namespace)
    return ExplanationSpec(
        url=request.url,
        method=request.method,
        headers=tuple(HeaderField(name=name, value=value) for name, value in request.headers),
        caller=RequestCaller(kind=origin.kind, name=origin.name) if origin else None,
        gateway=request.via.partition("/")[2],
        server_name=request.server_name,
        revision=revision,
    )


class Arrival(Answer, frozen=True, kw_only=True):
    """The outcome of a request at one endpoint; `workload` is `namespace/pod`, empty if unknown.

    `transport_message` says why the request arrives by mutual TLS or in plaintext. `object` and `rule` name the access rule
    that allows the request, `message` says why it is allowed or denied, and `remedy_message` what the user can change.
    `remedy_objects` has the objects that would allow this caller's requests with exactly this method and path, or its connections, in
    the order to create them, where a TrafficTarget can and closes no open pod. `wide_remedy_objects` would allow all its requests to the
    port; it is empty too if an access rule at the port names the caller already.
    """

    workload: str
    address: str
    transport: Literal["MutualTLS", "TLS", "Plaintext"]
    transport_message: str
    allowed: bool
    object: Key | None
    rule: str
    message: str
    remedy_message: str
    remedy_objects: tuple[Object, ...] = ()
    wide_remedy_objects: tuple[Object, ...] = ()


class ExplainedBackend(Answer, frozen=True, kw_only=True):
    """A backend's share of the requests.

    With a `status_code`, the proxy answers these requests itself, because of `reason`. With the reason `NotConnected`, their
    connection fails.
    """

    service: str
    port: int
    share: ExactShare
    ready_endpoints: int
    status_code: int
    reason: str
    message: str
    filter_messages: tuple[str, ...]
    arrivals: tuple[Arrival, ...]

    @property
    def is_denied(self) -> bool:
        """Whether every endpoint denies the request."""
        return bool(self.arrivals) and not any(arrival.allowed for arrival in self.arrivals)


class LeftOutBackend(Answer, frozen=True, kw_only=True):
    """A backend of a split with a `weight` that gets nothing on the port, with the reason and the message of its finding."""

    service: str
    weight: int
    reason: str
    message: str


class Copy(Answer, frozen=True, kw_only=True):
    """The backend of a mirror, and the fraction of the requests that proxies mirror to it."""

    service: str
    port: int
    share: ExactShare
    arrivals: tuple[Arrival, ...]


class AuthorizationServer(Answer, frozen=True, kw_only=True):
    """The server that must allow the request first (ExternalAuth), and how the calls of the caller's proxy arrive at its pods."""

    service: str
    port: int
    ready_endpoints: int
    arrivals: tuple[Arrival, ...]

    @property
    def is_denied(self) -> bool:
        """Whether no endpoint is ready, or every one denies the call, so that no request passes."""
        denied = bool(self.arrivals) and not any(arrival.allowed for arrival in self.arrivals)
        return denied or not self.ready_endpoints


class ChosenMatch(Answer, frozen=True, kw_only=True):
    """A match of a split that requests of a route fit."""

    split: Key
    match: str

    def __str__(self) -> str:
        """Return the match as text: `group/match of TrafficSplit default/website`."""
        return f"{self.match} of {self.split}"


class ExplainedRoute(Answer, frozen=True, kw_only=True):
    """A route: the object that defines it, null for a Service without routes; and its rule or match there.

    If a rule's backends are roots of splits, the rule becomes one route for each match of these splits. `matches` has the
    matches of splits that requests of this route fit.
    """

    object: Key | None = None
    name: str = ""
    matches: tuple[ChosenMatch, ...] = ()

    @property
    def words(self) -> str:
        """The object that defines the route, and the rule or match: `HTTPRoute default/website, rule 0`."""
        part = f", {'match' if '/' in self.name else 'rule'} {self.name}" if self.name else ""
        return f"{self.object or PLAIN}{part}" + "".join(f", match {match}" for match in self.matches)


class Tried(Answer, frozen=True, kw_only=True):
    """A route that was tried, or a `host` of a Gateway that was, and the result.

    `message` is the first unmet condition of a failed one. Routes after the matched one are not tried.
    """

    route: ExplainedRoute | None = None
    host: str = ""
    result: Literal["Matched", "Failed", "NotTried"]
    message: str = ""


class Remark(Answer, frozen=True, kw_only=True):
    """A finding about an object that affects the explained request."""

    object: Key
    reason: str
    field: str
    message: str


class ExplainedCaller(Answer, frozen=True, kw_only=True):
    """The sender of a request: null means the gateway. `identity` is its SPIFFE ID at the pods, empty for plaintext.

    Without an object and an identity no caller is named, and the cluster has no gateway; then the backends have no arrivals.
    """

    object: Key | None
    identity: str
    message: str

    def __str__(self) -> str:
        """Return the caller as text."""
        return str(self.object or GATEWAY_CALLER)

    @property
    def is_named(self) -> bool:
        """Whether the sender is known: an object, or the gateway."""
        return bool(self.object or self.identity)


class Sanitizing(Answer, frozen=True, kw_only=True):
    """What the proxy does with a request before routing: each header that it removes or replaces, with the reason.

    With a `status_code`, it refuses the malformed request.
    """

    status_code: int = 0
    messages: tuple[str, ...] = ()


class Stickiness(Answer, frozen=True, kw_only=True):
    """How a split keeps a user at one backend: by a cookie or header called `name`, or by the client's address.

    `service` and `port` name the backend of the request's user, if the request identifies one; with a `status_code`, the proxy
    answers this user itself.
    """

    by: StickyBy
    name: str = ""
    service: str = ""
    port: int = 0
    status_code: int = 0

    @property
    def words(self) -> str:
        """What identifies a user, in words."""
        return "the client's address" if self.by is StickyBy.SOURCE else f"the {self.by.value.lower()} {self.name}"


class ClientTrace(Answer, frozen=True, kw_only=True):
    """The trace of the client, which proxies continue. `recorded`: proxies send spans."""

    id: str
    sampled: bool
    recorded: bool


class ExplanationStatus(Answer, frozen=True, kw_only=True):
    """Where a request goes, and why.

    `service` or `gateway` is the `namespace/name` at which the request arrives; both are empty for an unknown host. `route`
    is null if none matches. `port_message` says why a URL without a port means this one. `client_certificate_message` says which certificate the client presents to a Gateway, in words; empty if it
    needs none. `location` is the address of a redirect. `fallback_message` says what happens when no backend can
    get traffic, and `unready_messages` why pods of backends without a ready endpoint are not ready. `candidates` has the routes in the order of precedence. `revision` is the one of headgate by whose rules all
    this is so, empty for the default one; `revision_message` says why it is not that of the caller's proxy.
    """

    url: str
    caller: ExplainedCaller
    service: str
    gateway: str
    port: int
    port_message: str = ""
    protocol: PortProtocol
    protocol_message: str
    host: str
    client_certificate_message: str
    sanitizing: Sanitizing | None
    route: ExplainedRoute | None
    backends: tuple[ExplainedBackend, ...]
    left_out: tuple[LeftOutBackend, ...] = ()
    mirrors: tuple[Copy, ...]
    authorization_server: AuthorizationServer | None = None
    filter_messages: tuple[str, ...]
    location: str
    stickiness: Stickiness | None
    fallback_message: str
    candidates: tuple[Tried, ...]
    remarks: tuple[Remark, ...]
    trace: ClientTrace | None
    revision: str = ""
    revision_message: str = ""
    unready_messages: tuple[str, ...] = ()


class Explanation(Answer, frozen=True, kw_only=True):
    """The explanation of a request. A client creates it with a spec, and gets the status; nothing is stored."""

    metadata: ObjectName = ObjectName()
    spec: ExplanationSpec
    status: ExplanationStatus | None = None
    api_version: str = API_VERSION
    kind: str = "Explanation"
