"""The routing model as immutable values: destinations and workloads.

A service is named `namespace/name`, a port by its number. All lists are sorted, so equal meshes are equal values.
"""

import enum
from collections.abc import Iterator
from typing import Literal, NamedTuple

from msgspec import structs

from headgate.model.access import OPEN, Access
from headgate.model.cors import Cors
from headgate.model.edge_tls import BackendTls, ClientCertificates, ListenerCertificate
from headgate.model.gateway_pods import GatewayPod
from headgate.model.mutual_tls import TlsMode
from headgate.model.probes import HealthCheck, PortCheck
from headgate.model.requests import ANY, NO_FILTERS, Filters, Match, Redirect, Timeouts
from headgate.model.resilience import DEFAULT, Resilience, Retry
from headgate.model.sessions import PersistentSession
from headgate.model.traces import TraceSource, Tracing
from headgate.resources.meta import Key, Value
from headgate.shared_map import SharedMap


class PortRef(NamedTuple):
    """A TCP port of a service (`namespace/name`), to which clients and splits send traffic, or a UDP port for UDPRoutes only."""

    service: str
    port: int
    is_udp: bool = False

    def __str__(self) -> str:
        return f"{self.service}:{self.port}{'/UDP' if self.is_udp else ''}"


class Protocol(enum.Enum):
    """The protocol of a port (003, D16). It decides what proxies can inspect and how they connect to the backend."""

    HTTP = "http"  # HTTP/1.1 to the backend; clients may use HTTP/2.
    HTTP2 = "http2"  # HTTP/2 to the backend, also for gRPC.
    HTTP_ANY = "http-any"  # Proxies call the backend with the client's HTTP version.
    TCP = "tcp"
    TCP_SERVER_FIRST = "tcp-server-first"
    TLS = "tls"  # proxies forward the encrypted bytes without decrypting them
    UDP = "udp"  # of ports of Gateways only; proxies forward datagrams

    @property
    def is_http(self) -> bool:
        """Return whether proxies read the requests of this protocol; otherwise they only forward bytes."""
        return self is Protocol.HTTP or self is Protocol.HTTP2 or self is Protocol.HTTP_ANY


class PortProtocol(Value, frozen=True, kw_only=True):
    """One protocol of a workload's port, and the Service ports with this protocol that forward to the port.

    The sidecar closes connections to the application that are idle for `idle` milliseconds; 0 means the default.
    """

    protocol: Protocol
    services: tuple[PortRef, ...] = ()
    idle: int = 0


class InboundPort(Value, frozen=True, kw_only=True):
    """A port of a workload. `application` is the port on which the process listens.

    The two ports differ only with an explicit sidecar. The first of `protocols` is that of the oldest Service; it
    applies to clients that do not name a Service (D15). Clients with mutual TLS name one by SNI (`server_name`).
    """

    port: int
    application: int
    protocols: tuple[PortProtocol, ...]


class Workload(Value, frozen=True, kw_only=True):
    """A pod with a sidecar.

    `name` is `namespace/pod`, `identity` the SPIFFE ID; `subjects` has the DNS names in its certificate (R75). `uid` differs from those
    of earlier pods with the name. `tls_mode` is the current mode, `target_tls_mode` the last one of the mTLS migration. A transparent
    sidecar intercepts all traffic; an explicit one is the HTTP proxy of its process. `revision` is that of headgate, empty: the default.
    """

    name: str
    address: str
    identity: str
    uid: str = ""
    capture: Literal["transparent", "explicit"] = "transparent"
    subjects: tuple[str, ...] = ()
    ports: tuple[InboundPort, ...] = ()
    tls_mode: TlsMode = TlsMode.PERMISSIVE
    target_tls_mode: TlsMode = TlsMode.PERMISSIVE
    access: Access = OPEN
    probes: tuple[HealthCheck, ...] = ()
    port_checks: tuple[PortCheck, ...] = ()
    traces: TraceSource | None = None
    revision: str = ""


class SlotRange(Value, frozen=True, kw_only=True):
    """Adjacent hash slots, `slots` in number: their requests go to `ref`, or get the error `status` if `ref` is None."""

    slots: int
    ref: PortRef | None = None
    status: int = 503


class Sticky(Value, frozen=True, kw_only=True):
    """The way in which a split identifies a user: by a cookie, a header, or the source address.

    `name` is the name of the cookie or header. The proxy issues a missing cookie. `slot_ranges` assign all hash slots
    (`model/hash_slots.py`) to backends, in the order of the slots.
    """

    kind: Literal["cookie", "header", "source"]
    name: str = ""
    slot_ranges: tuple[SlotRange, ...] = ()


LONGEST_CONNECTION_S = 60 * 60  # seconds after which proxies replace a connection to another proxy


class Endpoint(Value, frozen=True, kw_only=True, order=True):
    """A ready address of a Service port; `workload` is `namespace/pod` if known.

    With `resolved`, the address is a DNS name outside the mesh. Proxies with a certificate verify `identity` (SPIFFE ID).
    A `terminating` endpoint is not ready, but serves while no endpoint of the port is ready (D31). `hostname` is that of a
    pod of a headless Service (`pod_names`).
    """

    address: str
    port: int
    workload: str = ""
    identity: str = ""
    resolved: bool = False
    terminating: bool = False
    hostname: str = ""


class Endpoints(Value, frozen=True, kw_only=True):
    """The endpoints of a Service port that get its requests: the ready ones, or else those that serve while they terminate."""

    ref: PortRef
    ready: tuple[Endpoint, ...]


class Target(Value, frozen=True, kw_only=True):
    """A backend of a split: the Service port `ref` gets a share of the traffic by its relative `weight`.

    `filters` apply to the requests of this share only. `protocol` overrides the protocol in the route table of `ref`.
    `root` is the Service (`namespace/name`) whose split gave a route's requests to `ref`; empty if the route names `ref`
    itself too, and in the root's own table. `policy_roots` has all such Services then, also `ref`'s own one, for their policies. `resilience` is that of the
    Service that clients or the route call, and so is `session`, unless all targets have the same: then the route has it. Gateways call it with `tls`.
    """

    ref: PortRef
    weight: int
    filters: Filters = NO_FILTERS
    protocol: Protocol | None = None
    root: str = ""
    policy_roots: tuple[str, ...] = ()
    resilience: Resilience = DEFAULT
    session: PersistentSession | None = None
    tls: BackendTls | None = None


class Broken(Value, frozen=True, kw_only=True):
    """A share of the traffic that gets the error response `status` (D9 `fail`, D11), because of `reason`."""

    weight: int
    reason: str
    status: int = 503


class Redirected(Value, frozen=True, kw_only=True):
    """A share of the traffic that gets a redirect, because of a filter of its backend."""

    weight: int
    redirect: Redirect
    filters: Filters = NO_FILTERS


class Split(Value, frozen=True, kw_only=True):
    """The distribution of traffic by relative weight; an empty split answers every request with 503.

    With `sticky`, the hash slot of a user selects the backend (docs/tasks/sticky.md), and the weights are numbers of slots.
    With the `order` `random`, each cycle of the weights has a new order of the backends (docs/tasks/canary.md).
    """

    targets: tuple[Target, ...]
    broken: tuple[Broken, ...] = ()
    redirected: tuple[Redirected, ...] = ()
    sticky: Sticky | None = None
    order: Literal["rotation", "random"] = "rotation"


class Mirror(Value, frozen=True, kw_only=True):
    """A mirror: it gets the fraction `numerator / denominator` of the requests; its responses are dropped (002).

    Each mirrored request goes to one of `targets` by weight. `ref` is the Service port in the mirror's backendRef. If
    `ref` is the root of splits with matches, `split` is the split whose match the requests fit; None if they fit no
    match. `by` is the split whose annotation is the mirror (`split_mirrors`); None for a mirror of a route's rule.
    """

    ref: PortRef
    targets: tuple[Target, ...]
    numerator: int
    denominator: int
    split: Key | None = None
    by: Key | None = None


class ExternalAuth(Value, frozen=True, kw_only=True):
    """The authorization server at `ref`, which decides about each request of a route before a backend gets it (GEP-1494).

    Over HTTP, it gets the method, and the path after `path`; over gRPC, Envoy's `CheckRequest`. Besides, it gets the request's
    `headers`, by name; empty: none over HTTP, all over gRPC. The backend gets the `response_headers` of its response; empty: all. It
    gets at most `body` bytes of the body. Gateways call it with `tls`. Over HTTP, `server_protocol` overrides the protocol in
    the route table of `ref`.
    """

    ref: PortRef
    protocol: Literal["HTTP", "GRPC"]
    path: str = ""
    headers: tuple[str, ...] = ()
    response_headers: tuple[str, ...] = ()
    body: int = 0
    tls: BackendTls | None = None
    server_protocol: Protocol | None = None


class SplitMatch(Value, frozen=True, kw_only=True):
    """A match of `split` that a route's requests fit. `match` is its name (`group/match`), `ref` the split's root."""

    ref: PortRef
    split: Key
    match: str


class Route(Value, frozen=True, kw_only=True):
    """A route: the requests that fit `match` are distributed by `split`.

    `origin` is the object that defines the route; None for a Service without routes. `name` is unique in the origin:
    `group/match` of an HTTPRouteGroup, or the rule's index of an HTTPRoute. If a backend of a rule is the root of
    splits with matches, the rule becomes several routes; `split_matches` has the matches that the requests of this
    route fit. With `redirect`, the proxy answers with a redirect; with `cors`, it answers preflights. With `session`, targets with the weight 0 keep their sessions. Without `retry`, `envoy.retries` has the default.
    With `external_auth`, its server must first allow the request. `needs_permission` is set even if this server can't be called.
    """

    split: Split
    match: Match = ANY
    name: str = ""
    origin: Key | None = None
    split_matches: tuple[SplitMatch, ...] = ()
    redirect: Redirect | None = None
    cors: Cors | None = None
    external_auth: ExternalAuth | None = None
    needs_permission: bool = False
    session: PersistentSession | None = None
    filters: Filters = NO_FILTERS
    mirrors: tuple[Mirror, ...] = ()
    timeouts: Timeouts = Timeouts()
    retry: Retry | None = None

    @property
    def callees(self) -> Iterator[PortRef]:
        """Yield the Service ports that proxies call for the route's requests: its backends, its mirrors' and its authorization server."""
        yield from (target.ref for target in self.split.targets)
        yield from (target.ref for mirror in self.mirrors for target in mirror.targets)
        if self.external_auth:
            yield self.external_auth.ref


class ServerName(Value, frozen=True, kw_only=True):
    """The TLS connections of a Gateway or Service port whose server name (SNI) fits `host` best: they follow `route`, or are closed.

    At a Gateway, with `terminated`, the proxy ends TLS with the certificates of the listener with the hostname `listener`.
    """

    host: str
    listener: str = "*"
    terminated: bool = False
    route: Route | None = None


class RouteTable(Value, frozen=True, kw_only=True):
    """The routes of a Service port; the first route that matches a request is used.

    A port that is not HTTP has one route for its connections, or, with TLSRoutes, `server_names` by host. `resilience` is for calls of single pods.
    """

    ref: PortRef
    routes: tuple[Route, ...]
    server_names: tuple[ServerName, ...] = ()
    protocol: Protocol = Protocol.HTTP
    resilience: Resilience = DEFAULT

    @property
    def all_routes(self) -> tuple[Route, ...]:
        """Return the routes of requests and connections; one route of several server names occurs once."""
        if not self.server_names:
            return self.routes
        return (*self.routes, *dict.fromkeys(name.route for name in self.server_names if name.route))


class ConsumerTable(Value, frozen=True, kw_only=True):
    """The routes of a Service port for clients of `namespace` that have a sidecar, in place of the Service's own (GAMMA)."""

    namespace: str
    table: RouteTable


class Frontend(Value, frozen=True, kw_only=True):
    """A Service that clients can call; `address` is its clusterIP, empty for a headless Service. `port_names` belong to `ports`.

    headgate may not listen on `unbindable` ports: only the HTTP proxy reaches them. With `other_proxy`, a proxy without xDS listens.
    """

    service: str
    address: str = ""
    ports: tuple[int, ...] = ()
    port_names: tuple[str, ...] = ()
    unbindable: tuple[int, ...] = ()
    other_proxy: bool = False


class HostRoutes(Value, frozen=True, kw_only=True):
    """The routes of a Gateway port for one `host`: `*`, `*.example.com` or a full name.

    A request that matches no route gets 404. `listener` is the hostname of the Gateway listener that the routes are
    attached to. A request on a TLS connection to another listener gets 421 (Misdirected Request).
    """

    host: str
    routes: tuple[Route, ...]
    listener: str = "*"


class GatewayPort(Value, frozen=True, kw_only=True):
    """A port of a Gateway (`namespace/name`) on the Gateway's own address. HTTP and HTTPS ports have `hosts`, by name.

    `tls` has pairs of a listener's hostname and its certificate; the proxy selects one by the SNI of the connection.
    Clients of all listeners that end TLS present `client_certificates`, if any. TCP and UDP ports have one route, `connections`. With TLS
    listeners, `server_names` has those of their connections, sorted.
    Backends with `Target.tls` get the certificate `client`.
    """

    gateway: str
    address: str
    port: int
    protocol: Protocol = Protocol.HTTP
    hosts: SharedMap[str, HostRoutes] = SharedMap()
    tls: tuple[tuple[str, ListenerCertificate], ...] = ()
    connections: Route | None = None
    server_names: tuple[ServerName, ...] = ()
    client_certificates: ClientCertificates | None = None
    client: ListenerCertificate | None = None

    @property
    def routes(self) -> tuple[Route, ...]:
        """Return all routes."""
        return (*(route for host in self.hosts.values() for route in host.routes), *self.connection_routes)

    @property
    def connection_routes(self) -> tuple[Route, ...]:
        """Return all routes of connections."""
        return tuple(filter(None, (self.connections, *(name.route for name in self.server_names))))


class Mesh(Value, frozen=True, kw_only=True):
    """The whole routing model of all proxies; `domain` is the suffix of full Service names (`cluster.local`).

    With `passthrough`, transparent sidecars forward traffic to addresses of no Service. With `scoped`, sidecars have only
    Services that their workload may call (`access: deny`). A proxy replaces connections to other proxies after `connection_seconds`.
    """

    domain: str
    trust_domain: str = "cluster.local"
    passthrough: bool = True
    scoped: bool = False
    connection_seconds: int = LONGEST_CONNECTION_S
    frontends: tuple[Frontend, ...] = ()
    tables: tuple[RouteTable, ...] = ()
    consumers: tuple[ConsumerTable, ...] = ()
    endpoints: tuple[Endpoints, ...] = ()
    gateways: tuple[GatewayPort, ...] = ()
    gateway_pods: tuple[GatewayPod, ...] = ()
    tracing: Tracing | None = None
    workloads: tuple[Workload, ...] = ()

    def seen_from(self, namespace: str) -> "Mesh":
        """Return the mesh as clients of a namespace with a sidecar see it: their own routes are in `tables`."""
        own = {consumer.table.ref: consumer.table for consumer in self.consumers if consumer.namespace == namespace}
        return structs.replace(self, tables=tuple(own.get(table.ref, table) for table in self.tables)) if own else self

    @property
    def all_tables(self) -> tuple[RouteTable, ...]:
        """Return the tables of all clients, and those for clients of single namespaces."""
        return (*self.tables, *(consumer.table for consumer in self.consumers)) if self.consumers else self.tables
