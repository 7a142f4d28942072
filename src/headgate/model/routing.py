"""What the mesh does with a request, as plain values.

A service is named `namespace/name`; a port is its number. Everything is sorted, so equal meshes are equal values.
"""

from collections.abc import Iterable

from headgate.model.filters import NO_FILTERS, Filters, Redirect, Sticky, Timeouts
from headgate.model.matching import ANY, Match
from headgate.model.protocols import Protocol
from headgate.model.refs import PortRef
from headgate.model.secrets import PrivateText
from headgate.model.workloads import Workload
from headgate.resources.meta import Key, Value

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


class Step(Value, frozen=True, kw_only=True):
    """A match of a split that the requests of a route fit besides: `match` (`group/match`) of `split`, whose root is `ref`."""

    ref: PortRef
    split: Key
    match: str


class Route(Value, frozen=True, kw_only=True):
    """Requests and their split. `origin` is the object that asked for it; none for a service's plain behaviour.

    `name` tells the routes of one origin apart: `group/match` of an HTTPRouteGroup, the rule's number of an HTTPRoute.
    A rule that names roots of splits with matches becomes several routes; `steps` are the matches that each is for.
    With `redirect` the request gets no backend.
    """

    split: Split
    match: Match = ANY
    name: str = ""
    origin: Key | None = None
    steps: tuple[Step, ...] = ()
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
