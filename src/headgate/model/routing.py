"""The routing model as immutable values: destinations, workloads, and access rules.

A service is named `namespace/name`, a port by its number. All lists are sorted, so equal meshes are equal values.
"""

import enum
from collections.abc import Iterable
from typing import Literal, NamedTuple

from msgspec import field

from headgate.model.identities import PrivateText
from headgate.model.requests import ANY, NO_FILTERS, Filters, Match, Redirect, Timeouts
from headgate.resources.meta import Key, Value


class PortRef(NamedTuple):
    """A port of a service (`namespace/name`), which clients connect to and splits distribute traffic to."""

    service: str
    port: int

    def __str__(self) -> str:
        return f"{self.service}:{self.port}"


class Protocol(enum.Enum):
    """The protocol of a port (003, D16). It decides what proxies can inspect and how they call the backend."""

    HTTP = "http"  # HTTP/1.1 to the backend; clients may use HTTP/2
    HTTP2 = "http2"  # HTTP/2 to the backend, also for gRPC
    HTTP_ANY = "http-any"  # the HTTP version of the client to the backend
    TCP = "tcp"
    TCP_SERVER_FIRST = "tcp-server-first"
    TLS = "tls"  # opaque, passed through

    @property
    def is_http(self) -> bool:
        """Say whether proxies see single requests; otherwise they see only connections."""
        return self in {Protocol.HTTP, Protocol.HTTP2, Protocol.HTTP_ANY}


AMBIGUOUS_PATH = r"//|/\.\.?(?:[/;]|%3[bB]|$)|\\|%(?:2[eEfF]|5[cC])"
"""Matches (RE2, anywhere) parts of a path that applications read in different ways: an empty segment, `.` and `..` (also
with parameters after a semicolon), a backslash, and their escaped forms. Access rules with a path never allow such paths."""


class RequestRule(Value, frozen=True, kw_only=True):
    """Requests on HTTP ports that a grant allows; `name` is `group/match` of the HTTPRouteGroup."""

    name: str
    match: Match


class ConnectionRule(Value, frozen=True, kw_only=True):
    """Connections on non-HTTP ports that a grant allows; `name` is the TCPRoute.

    `ports` are ports of the workload or of Services that lead there; empty means all ports.
    """

    name: str
    ports: tuple[int, ...] = ()


class Grant(Value, frozen=True, kw_only=True):
    """The permissions of a TrafficTarget (`origin`) for some identities; `port` limits them to a port of the workload."""

    origin: Key
    sources: tuple[str, ...]
    port: int = 0
    requests: tuple[RequestRule, ...] = ()
    connections: tuple[ConnectionRule, ...] = ()


class Access(Value, frozen=True, kw_only=True):
    """The authorization of a workload: open to every caller, or `closed` to all callers without a grant."""

    closed: bool = False
    grants: tuple[Grant, ...] = ()


OPEN = Access()


PROBE_PORT = 15020  # a transparent sidecar answers health checks of the orchestrator here


class TlsMode(enum.Enum):
    """Which connections a workload accepts, and which its clients open: plaintext or mutual TLS.

    An mTLS migration moves a workload to a neighboring mode of this order. Such a step is safe as soon as every proxy has
    acknowledged the mode before.
    """

    PLAIN = "plain"  # accepts plaintext only; clients send plaintext
    READY = "ready"  # accepts both; clients send plaintext
    PERMISSIVE = "permissive"  # accepts both; clients that have an identity use mutual TLS
    STRICT = "strict"  # accepts mutual TLS only

    @property
    def accepts_tls(self) -> bool:
        """Say whether the workload's proxy accepts mutual TLS."""
        return self is not TlsMode.PLAIN

    @property
    def accepts_plaintext(self) -> bool:
        """Say whether the workload's proxy accepts plaintext."""
        return self is not TlsMode.STRICT

    @property
    def clients_use_tls(self) -> bool:
        """Say whether clients that have an identity call the workload with mutual TLS."""
        return self in {TlsMode.PERMISSIVE, TlsMode.STRICT}

    def step_toward(self, target: "TlsMode") -> "TlsMode":
        """Return the next mode on the way to a target, or the target itself when it is reached."""
        order = list(TlsMode)
        here, there = order.index(self), order.index(target)
        return order[here + (there > here) - (there < here)]


class PortProtocol(Value, frozen=True, kw_only=True):
    """A protocol of a workload's port, with the Service ports that lead there and have this protocol."""

    protocol: Protocol
    services: tuple[PortRef, ...] = ()


class InboundPort(Value, frozen=True, kw_only=True):
    """A port of a workload; `application` is the port of its process, another one only with explicit capture.

    The first of `protocols` is that of the oldest Service; it applies to clients that do not name a Service
    (D15). Clients with mutual TLS name the Service by SNI (`server_name`), so they get the protocol of that
    Service.
    """

    port: int
    application: int
    protocols: tuple[PortProtocol, ...] = field(name="spoken")


class Probe(Value, frozen=True, kw_only=True):
    """An HTTP health check of the orchestrator, which has no identity; `name` is `container/kind`.

    `https` means TLS of the application itself; its certificate is not verified.
    """

    name: str
    port: int
    path: str
    https: bool = False


class Workload(Value, frozen=True, kw_only=True):
    """A pod with a sidecar.

    `name` is `namespace/pod`, `identity` the SPIFFE ID, and `subjects` are the DNS names in its certificate
    (R75). `uid` distinguishes it from earlier pods of the same name; empty if unknown. `tls_mode` is in force;
    `target_tls_mode` is where its mTLS migration ends. A transparent sidecar intercepts all traffic of the pod;
    an explicit one has the pod's address and is an HTTP proxy for the process.
    """

    name: str
    address: str
    identity: str
    uid: str = ""
    capture: Literal["transparent", "explicit"] = "transparent"
    subjects: tuple[str, ...] = ()
    ports: tuple[InboundPort, ...] = ()
    tls_mode: TlsMode = field(default=TlsMode.PERMISSIVE, name="stage")
    target_tls_mode: TlsMode = field(default=TlsMode.PERMISSIVE, name="target")
    access: Access = OPEN
    probes: tuple[Probe, ...] = ()


def server_name(ref: PortRef, domain: str) -> str:
    """Return the SNI for a Service port: `8080.website.default.svc.cluster.local`."""
    namespace, service = ref.service.split("/")
    return f"{ref.port}.{service}.{namespace}.svc.{domain}"


class SlotRange(Value, frozen=True, kw_only=True):
    """Adjacent slots of users with one destination: `ref`, or an error with `status` if it is None."""

    slots: int
    ref: PortRef | None = None
    status: int = 503


class Sticky(Value, frozen=True, kw_only=True):
    """How a split identifies its users: a cookie (issued if missing), a header, or the source address.

    `slot_ranges` cover all slots of `model/hash_slots.py` in order.
    """

    kind: Literal["cookie", "header", "source"]
    name: str = ""
    slot_ranges: tuple[SlotRange, ...] = field(default=(), name="sides")


LONGEST_CONNECTION_S = 60 * 60  # seconds, between proxies


class Endpoint(Value, frozen=True, kw_only=True, order=True):
    """A ready address of a Service port; `workload` is `namespace/pod` if known.

    With `resolved`, the address is an external DNS name, which proxies resolve. With `identity`, proxies that
    have an identity use mutual TLS and verify this one.
    """

    address: str
    port: int
    workload: str = ""
    identity: str = ""
    resolved: bool = False


class Endpoints(Value, frozen=True, kw_only=True):
    """The ready endpoints of a Service port."""

    ref: PortRef
    ready: tuple[Endpoint, ...]


class Target(Value, frozen=True, kw_only=True):
    """A share of the traffic with a relative weight of at least 1; `filters` apply to this share only.

    `protocol` overrides the protocol of the port's own table.
    """

    ref: PortRef
    weight: int
    filters: Filters = NO_FILTERS
    protocol: Protocol | None = None


class Broken(Value, frozen=True, kw_only=True):
    """A share of the traffic that gets an error response (D9 `fail`, D11); `reason` is the cause."""

    weight: int
    reason: str
    status: int = 503


class Split(Value, frozen=True, kw_only=True):
    """The distribution of traffic by relative weight; an empty split answers every request with 503.

    With `sticky`, the slot of a user decides (docs/sticky.md), and the weights are numbers of slots.
    """

    targets: tuple[Target, ...]
    broken: tuple[Broken, ...] = ()
    sticky: Sticky | None = None


class Mirror(Value, frozen=True, kw_only=True):
    """Copies of a fraction of the requests, to one of `targets` by weight; responses to copies are dropped (002).

    `ref` is the Service port in the mirror's backendRef. If it is the root of splits with matches, `split` is the
    one whose match the requests fit; None for no match.
    """

    ref: PortRef
    targets: tuple[Target, ...]
    numerator: int
    denominator: int
    split: Key | None = None


class SplitMatch(Value, frozen=True, kw_only=True):
    """A match of a split that a route's requests also fit: `match` (`group/match`) of `split` with root `ref`."""

    ref: PortRef
    split: Key
    match: str


class Route(Value, frozen=True, kw_only=True):
    """Requests with their split; `origin` is the object of the route, None for a Service without routes.

    `name` is unique in the origin: `group/match` of an HTTPRouteGroup, or the rule's index of an HTTPRoute. A
    rule with roots of splits with matches becomes several routes; `split_matches` are the matches of each. With
    `redirect` the request goes to no backend.
    """

    split: Split
    match: Match = ANY
    name: str = ""
    origin: Key | None = None
    split_matches: tuple[SplitMatch, ...] = field(default=(), name="steps")
    redirect: Redirect | None = None
    filters: Filters = NO_FILTERS
    mirrors: tuple[Mirror, ...] = ()
    timeouts: Timeouts = Timeouts()


class RouteTable(Value, frozen=True, kw_only=True):
    """The routes of a Service port; the first route that matches decides.

    A port that is not HTTP has one route, whose split distributes connections.
    """

    ref: PortRef
    routes: tuple[Route, ...]
    protocol: Protocol = Protocol.HTTP


class Frontend(Value, frozen=True, kw_only=True):
    """A Service that clients can call; `address` is its clusterIP, empty for a headless Service.

    `unbindable` are the ports on which headgate has no permission to listen; only the HTTP proxy serves them.
    """

    service: str
    address: str = ""
    ports: tuple[int, ...] = ()
    unbindable: tuple[int, ...] = ()


class HostRoutes(Value, frozen=True, kw_only=True):
    """The routes for a host: `*`, `*.example.com` or a full name; requests without a match get 404.

    `listener` is the hostname of the host's listener. Requests on TLS connections to another listener get 421.
    """

    host: str
    routes: tuple[Route, ...]
    listener: str = "*"


class Certificate(Value, frozen=True, kw_only=True):
    """The certificate of a listener; `secret` (`namespace/name`) is its source. The key is never printed."""

    secret: str
    chain: str
    key: PrivateText


class GatewayPort(Value, frozen=True, kw_only=True):
    """A port of a Gateway (`namespace/name`) on the Gateway's own address.

    HTTP and HTTPS ports have `hosts`. `tls` are certificates by listener hostname, selected by SNI. TCP ports
    have one route for `connections`.
    """

    gateway: str
    address: str
    port: int
    protocol: Protocol = Protocol.HTTP
    hosts: tuple[HostRoutes, ...] = ()
    tls: tuple[tuple[str, Certificate], ...] = ()
    connections: Route | None = None


class Mesh(Value, frozen=True, kw_only=True):
    """The whole routing model of all proxies; `domain` is the suffix of full Service names (`cluster.local`).

    `passthrough`: transparent sidecars forward traffic to addresses of no Service. `scoped`: sidecars know only
    the Services that their workload may call (the setting `access: deny`). After `connection_seconds`, proxies
    replace a connection between them as soon as its last request is done.
    """

    domain: str
    trust_domain: str = "cluster.local"
    passthrough: bool = True
    scoped: bool = False
    connection_seconds: int = LONGEST_CONNECTION_S
    frontends: tuple[Frontend, ...] = ()
    tables: tuple[RouteTable, ...] = ()
    endpoints: tuple[Endpoints, ...] = ()
    gateways: tuple[GatewayPort, ...] = ()
    workloads: tuple[Workload, ...] = ()


def roots(tables: Iterable[RouteTable]) -> dict[PortRef, Protocol]:
    """Return the protocol of the root for each backend of a split; if there are several roots, of the first one.

    Clients of the root call the backend with it, and so do direct clients where proxies need a single protocol.
    """
    found: dict[PortRef, Protocol] = {}
    for table in tables:
        for target in (target for route in table.routes for target in route.split.targets):
            if target.protocol:
                found.setdefault(target.ref, target.protocol)
    return found
