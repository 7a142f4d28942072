"""The routing model as plain values: who may send what where, and what becomes of it on the way.

A service is named `namespace/name`; a port is its number. Everything is sorted, so equal meshes are equal values.
"""

import enum
from collections.abc import Iterable
from typing import Literal, NamedTuple

from msgspec import field

from headgate.model.identities import PrivateText
from headgate.model.requests import ANY, NO_FILTERS, Filters, Match, Redirect, Timeouts
from headgate.resources.meta import Key, Value


class PortRef(NamedTuple):
    """One port of one service (`namespace/name`); what clients connect to and what splits are made of."""

    service: str
    port: int

    def __str__(self) -> str:
        return f"{self.service}:{self.port}"


class Protocol(enum.Enum):
    """What is spoken on a port (003, D16): it decides what a proxy may look at, and how it calls the backend."""

    HTTP = "http"  # HTTP/1.1 to the backend; clients may speak HTTP/2
    HTTP2 = "http2"  # HTTP/2 to the backend, gRPC too
    HTTP_ANY = "http-any"  # to the backend what the client speaks
    TCP = "tcp"
    TCP_SERVER_FIRST = "tcp-server-first"
    TLS = "tls"  # opaque, passed through

    @property
    def is_http(self) -> bool:
        """Whether requests are seen one by one; else connections are."""
        return self in {Protocol.HTTP, Protocol.HTTP2, Protocol.HTTP_ANY}


AMBIGUOUS_PATH = r"//|/\.\.?(?:[/;]|%3[bB]|$)|\\|%(?:2[eEfF]|5[cC])"
"""Finds (RE2, anywhere) what makes an application read a path as another one than it looks like: an empty segment, `.`
and `..` (with parameters behind a semicolon too), a backslash, and these escaped. A rule about paths never allows such a path."""


class RequestRule(Value, frozen=True, kw_only=True):
    """Requests on HTTP ports that a rule allows; `name` is `group/match` of its HTTPRouteGroup."""

    name: str
    match: Match


class ConnectionRule(Value, frozen=True, kw_only=True):
    """Connections on ports that are not HTTP; `name` is the TCPRoute. No ports are all ports.

    A port is one of the workload's own, or a port of a Service that leads there.
    """

    name: str
    ports: tuple[int, ...] = ()


class Grant(Value, frozen=True, kw_only=True):
    """What some identities may do. `origin` is the TrafficTarget; `port` limits it to one port of the workload."""

    origin: Key
    sources: tuple[str, ...]
    port: int = 0
    requests: tuple[RequestRule, ...] = ()
    connections: tuple[ConnectionRule, ...] = ()


class Access(Value, frozen=True, kw_only=True):
    """Who may call a workload: everybody, or, when it is `closed`, only those whom a grant allows it."""

    closed: bool = False
    grants: tuple[Grant, ...] = ()


OPEN = Access()


PROBE_PORT = 15020  # where the orchestrator's health checks find a transparent sidecar


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
    """A protocol that is spoken on a port of a workload, and the Service ports that lead there with it."""

    protocol: Protocol
    services: tuple[PortRef, ...] = ()


class InboundPort(Value, frozen=True, kw_only=True):
    """A port of a workload. `application` is where its process listens: elsewhere only when capture is explicit.

    The first of `protocols` is what clients speak that do not say which Service they mean: that of the oldest (D15). Clients
    with mutual TLS say it by SNI (`server_name`), so each gets what his Service says.
    """

    port: int
    application: int
    protocols: tuple[PortProtocol, ...] = field(name="spoken")


class Probe(Value, frozen=True, kw_only=True):
    """An HTTP health check of the orchestrator, which has no identity; `name` is `container/kind`.

    `https`: the application's own TLS, whose certificate nobody looks at.
    """

    name: str
    port: int
    path: str
    https: bool = False


class Workload(Value, frozen=True, kw_only=True):
    """A pod with a sidecar. `name` is `namespace/pod`, `identity` its SPIFFE ID, `subjects` the DNS names it shows (R75).

    `uid` tells it from other pods that have, or had, its name; empty where nobody knows.

    `tls_mode` is in force; `target_tls_mode` is where its mTLS migration ends. A transparent sidecar sees everything that the pod's network
    carries; an explicit one is the pod's address and an HTTP proxy for its process.
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
    """Return the SNI with which clients say which Service port they mean: `8080.website.default.svc.cluster.local`."""
    namespace, service = ref.service.split("/")
    return f"{ref.port}.{service}.{namespace}.svc.{domain}"


class SlotRange(Value, frozen=True, kw_only=True):
    """Slots of users beside each other, and where they go: to `ref`, or, without one, to an error with `status`."""

    slots: int
    ref: PortRef | None = None
    status: int = 503


class Sticky(Value, frozen=True, kw_only=True):
    """What identifies a user, whose side of a split stays: a cookie (issued when absent), a header, or the address.

    `slot_ranges` are all slots of `model/hash_slots.py` in their order.
    """

    kind: Literal["cookie", "header", "source"]
    name: str = ""
    slot_ranges: tuple[SlotRange, ...] = field(default=(), name="sides")


LONGEST_CONNECTION_S = 60 * 60  # between proxies


class Endpoint(Value, frozen=True, kw_only=True, order=True):
    """A place that serves now. `workload` is `namespace/pod` where it is known.

    With `resolved`, the address is a DNS name outside the mesh, which proxies resolve.

    With `identity`, a proxy that has one itself calls it with mutual TLS, and it must prove to be that.
    """

    address: str
    port: int
    workload: str = ""
    identity: str = ""
    resolved: bool = False


class Endpoints(Value, frozen=True, kw_only=True):
    """The ready endpoints behind one port of one service."""

    ref: PortRef
    ready: tuple[Endpoint, ...]


class Target(Value, frozen=True, kw_only=True):
    """A share of the traffic: relative weight, at least 1; `filters` are for this share only.

    `protocol` is how it is called here; none is what the table of its own port says.
    """

    ref: PortRef
    weight: int
    filters: Filters = NO_FILTERS
    protocol: Protocol | None = None


class Broken(Value, frozen=True, kw_only=True):
    """A share that keeps its weight and is answered with an error (D9 `fail`, D11); `reason` names the cause."""

    weight: int
    reason: str
    status: int = 503


class Split(Value, frozen=True, kw_only=True):
    """Where requests go, by relative weight; with nothing in it, every request is answered with 503.

    With `sticky`, a user stays on one side (docs/sticky.md): its slots decide, and the weights are numbers of slots.
    """

    targets: tuple[Target, ...]
    broken: tuple[Broken, ...] = ()
    sticky: Sticky | None = None


class Mirror(Value, frozen=True, kw_only=True):
    """A copy of a fraction of the requests, for one of `targets` by weight; the answers to copies are dropped (002).

    `ref` is the Service port that the mirror names. Where that is the root of splits, `split` is the one with matches that
    the requests fit; None where they fit no match.
    """

    ref: PortRef
    targets: tuple[Target, ...]
    numerator: int
    denominator: int
    split: Key | None = None


class SplitMatch(Value, frozen=True, kw_only=True):
    """A match of a split that the requests of a route fit besides: `match` (`group/match`) of `split`, whose root is `ref`."""

    ref: PortRef
    split: Key
    match: str


class Route(Value, frozen=True, kw_only=True):
    """Requests and their split. `origin` is the object that asked for it; none for a service's plain behaviour.

    `name` tells the routes of one origin apart: `group/match` of an HTTPRouteGroup, the rule's number of an HTTPRoute.
    A rule that names roots of splits with matches becomes several routes; `split_matches` are the matches that each is for.
    With `redirect` the request gets no backend.
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
    """What happens to requests for one port of a service; the first route that matches decides.

    On a port that is not HTTP there is one route, and its split is for connections.
    """

    ref: PortRef
    routes: tuple[Route, ...]
    protocol: Protocol = Protocol.HTTP


class Frontend(Value, frozen=True, kw_only=True):
    """A service that clients can call. `address` is its own IP, empty when it has none (headless).

    `unbindable` are ports that the machine's user may not listen on: they are served to proxy clients only.
    """

    service: str
    address: str = ""
    ports: tuple[int, ...] = ()
    unbindable: tuple[int, ...] = ()


class HostRoutes(Value, frozen=True, kw_only=True):
    """Routes for requests to a host: `*`, `*.example.com` or a full name. Nothing matches: 404.

    `listener` is the hostname of the listener that the host belongs to; TLS connections for another one get 421.
    """

    host: str
    routes: tuple[Route, ...]
    listener: str = "*"


class Certificate(Value, frozen=True, kw_only=True):
    """What a listener shows its clients; `secret` (`namespace/name`) names it. The key is never printed."""

    secret: str
    chain: str
    key: PrivateText


class GatewayPort(Value, frozen=True, kw_only=True):
    """One port of a Gateway (`namespace/name`) on its own address.

    HTTP and HTTPS ports have `hosts`; `tls` are the certificates by the hostname of their listener, and are shown to
    clients that ask for such a name.
    TCP ports have one route, for connections.
    """

    gateway: str
    address: str
    port: int
    protocol: Protocol = Protocol.HTTP
    hosts: tuple[HostRoutes, ...] = ()
    tls: tuple[tuple[str, Certificate], ...] = ()
    connections: Route | None = None


class Mesh(Value, frozen=True, kw_only=True):
    """Everything that proxies need to know. `domain` ends every full name (`cluster.local`).

    `passthrough` says whether transparent sidecars pass on what goes to an address that is no Service's, `scoped` whether
    sidecars are told only of Services that their workload may call (the setting `access`: `deny`). After
    `connection_seconds` proxies renew a connection between them, when its last request is done.
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
    """Return what the backends of splits take from their roots, the first one where there are several.

    So clients of the root call them; and so do their own, where proxies of pods have to know what they get.
    """
    found: dict[PortRef, Protocol] = {}
    for table in tables:
        for target in (target for route in table.routes for target in route.split.targets):
            if target.protocol:
                found.setdefault(target.ref, target.protocol)
    return found
