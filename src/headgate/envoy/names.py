"""Names of Envoy resources: made here alone, and read back here, so that a refusal or a counter finds its object.

outbound/<namespace>/<service>/<port>                  listener, routes, scope, cluster and endpoints of a Service port
split/<namespace>/<service>/<port>/<namespace>/<name>  cluster of one backend, where a split needs one for each
match/<namespace>/<service>/<port>/<namespace>/<name>  cluster for the requests that a split's groups match
route/<namespace>/<service>/<port>/<rule>              cluster of a rule of an HTTPRoute or the like on a Service port
gateway/<namespace>/<gateway>/<port>                   listener and routes of a port of a Gateway
gateway/<namespace>/<gateway>/<port>/tls/<host>        routes of the TLS listener with that hostname
gateway/<namespace>/<gateway>/<port>/<rule>            cluster of a rule there; a rule is <kind>/<namespace>/<name>/<number>
.../via/<namespace>/<name>/<port>                      the same for requests that groups of a split match, behind <rule>
mirror/<namespace>/<service>/<port>                    cluster for copies of requests
mirror/<namespace>/<service>/<port>/<namespace>/<name> the same for requests that groups of a split match
mirror/.../to/<namespace>/<service>                    cluster for the copies of one backend, where each needs one
secret/<namespace>/<name>                              certificate that listeners of Gateways show
none/<namespace>/<service>/<port>                      cluster that never has endpoints: a share that must fail
missing                                                cluster that never exists: a share that is answered with 500
host/<namespace>/<service>/<port>/<authority>          one spelling of a host for clients of the HTTP proxy
proxy, probe                                           listeners of the HTTP proxy, for clients and for `headgate try`
tunnel                                                 cluster of the proxy's own listeners, for CONNECT to HTTP ports
requests                                               filter chain that listeners of a transparent sidecar share, and a listener
                                                       that keeps it
outbound, outbound6                                    listeners of a transparent sidecar, for what its pod sends (IPv4, IPv6)
passthrough                                            cluster of whatever address a redirected connection was meant for
pod/<namespace>/<service>/<port>/<address>/<port>      what leads to one pod: routes and cluster for clients of the HTTP proxy;
                                                       listener for redirected connections, where its Service has no address
direct/<namespace>/<service>/<port>/<identity>         cluster of such pods that must prove to be that identity
inbound                                                listener of a transparent sidecar, for what others send to its pod
inbound/<port>                                         listener of an explicit sidecar, for a port of its pod
inbound/<port>/<protocol>                              routes and cluster of a port of the pod: the application itself
inbound/other                                          cluster of the ports of the pod that no Service leads to
probes, probes/<port>                                  listener and clusters of the orchestrator's health checks
identity, roots                                        certificate of the proxy itself, and the authorities that it believes
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from headgate.model.authorities import authorities as authorities  # noqa: PLC0414  # names are looked up here
from headgate.model.routing import PortRef, Protocol
from headgate.resources.meta import Key

PROXY = "proxy"
TRY = "probe"
TUNNEL = "tunnel"
MISSING = "missing"
SHARED_CHAIN = "requests"
OUTBOUND = "outbound"
OUTBOUND6 = "outbound6"
PASSTHROUGH = "passthrough"
INBOUND = "inbound"
OTHER_PORTS = "inbound/other"
PROBES = "probes"
IDENTITY = "identity"
ROOTS = "roots"
TRAFFIC_SPLIT = "TrafficSplit"
ROUTE_GROUP = "gateway.networking.k8s.io"
_GATEWAY = "gateway"
_MATCH = "match"
_PARTS_OF_A_RULE = 8
_PARTS_OF_A_PORT = 4


class GatewayRef(NamedTuple):
    """One port of a Gateway (`namespace/name`)."""

    gateway: str
    port: int


class InboundRef(NamedTuple):
    """One port of a sidecar's own pod; without a protocol, its listener."""

    port: int
    protocol: Protocol | None = None


RouteParent: TypeAlias = PortRef | GatewayRef
"""What has routes: a Service port, or a port of a Gateway."""


def outbound(ref: PortRef) -> str:
    """Name what belongs to a Service port."""
    return f"outbound/{ref.service}/{ref.port}"


def backend(ref: PortRef, target: str) -> str:
    """Name the cluster of one backend (`namespace/name`) of the split on `ref`."""
    return f"split/{ref.service}/{ref.port}/{target}"


def matched_requests(ref: PortRef, origin: Key | None) -> str:
    """Name the cluster for the requests to `ref` that an object's groups match."""
    split = f"{origin.namespace}/{origin.name}" if origin else ""
    return f"{_MATCH}/{ref.service}/{ref.port}/{split}"


def matching_split(name: str) -> str:
    """Return the split (`namespace/name`) whose groups' requests a cluster is for; empty for all other clusters."""
    kind, *parts = name.split("/")
    return "/".join(parts[3:5]) if kind == _MATCH else ""


def no_endpoints(ref: RouteParent) -> str:
    """Name the cluster without endpoints that fails a share of a split on `ref`."""
    return f"{gateway(ref)}/none" if isinstance(ref, GatewayRef) else f"none/{ref.service}/{ref.port}"


def host_scope(ref: PortRef, authority: str) -> str:
    """Name the scope that sends one spelling of a host to the routes of `ref`."""
    return f"host/{ref.service}/{ref.port}/{authority}"


def is_host_scope(name: str) -> bool:
    """Say whether a name is that of a spelling of a host."""
    return name.startswith("host/")


def gateway(ref: GatewayRef) -> str:
    """Name what belongs to a port of a Gateway."""
    return f"{_GATEWAY}/{ref.gateway}/{ref.port}"


def listener_routes(ref: GatewayRef, host: str) -> str:
    """Name the routes of the TLS listener with a hostname, on a port of a Gateway."""
    return f"{gateway(ref)}/tls/{host}"


def is_listener_routes(port: str, name: str) -> bool:
    """Say whether a name is that of a TLS listener's routes on a port of a Gateway, given by the port's name."""
    return name.startswith(f"{port}/tls/")


def parent(ref: RouteParent) -> str:
    """Name the routes of a Service port or of a port of a Gateway."""
    return gateway(ref) if isinstance(ref, GatewayRef) else outbound(ref)


def rule(ref: RouteParent, origin: Key, number: str, through: Iterable[tuple[Key, int]] = ()) -> str:
    """Name the cluster of one rule of a route object, for requests that fit the groups of splits on some ports too."""
    first = gateway(ref) if isinstance(ref, GatewayRef) else f"route/{ref.service}/{ref.port}"
    more = "".join(f"/via/{split.namespace}/{split.name}/{port}" for split, port in through)
    return f"{first}/{origin.kind}/{origin.namespace}/{origin.name}/{number}{more}"


def mirror(ref: PortRef, split: Key | None = None) -> str:
    """Name the cluster for copies that go to a Service port, of requests that fit the groups of a split there."""
    return f"mirror/{ref.service}/{ref.port}" + (f"/{split.namespace}/{split.name}" if split else "")


def backend_mirror(name: str, target: str) -> str:
    """Name the cluster for the copies that one backend (`namespace/name`) gets, where each needs one."""
    return f"{name}/to/{target}"


def pod(ref: PortRef, address: str, port: int) -> str:
    """Name the listener for one endpoint of a Service port that has no address of its own."""
    return f"pod/{ref.service}/{ref.port}/{address}/{port}"


def direct_cluster(ref: PortRef, identity: str) -> str:
    """Name the cluster of the endpoints of such a Service port that must prove an identity."""
    return f"direct/{ref.service}/{ref.port}/{identity}"


def secret(name: str) -> str:
    """Name the certificate of a Secret (`namespace/name`)."""
    return f"secret/{name}"


def inbound(ref: InboundRef) -> str:
    """Name what belongs to a port of a sidecar's own pod."""
    return f"{INBOUND}/{ref.port}/{ref.protocol.value}" if ref.protocol else f"{INBOUND}/{ref.port}"


def probe_cluster(port: int, *, https: bool = False) -> str:
    """Name the cluster of the health checks on a port of the pod."""
    return f"{PROBES}/{port}/https" if https else f"{PROBES}/{port}"


def is_mirror(name: str) -> bool:
    """Say whether a cluster gets copies of requests only."""
    return name.startswith("mirror/")


def parse_gateway(name: str) -> GatewayRef | None:
    """Return the port of a Gateway that a resource belongs to, if it does."""
    parts = name.split("/", maxsplit=_PARTS_OF_A_PORT)
    if len(parts) < _PARTS_OF_A_PORT or parts[0] != _GATEWAY:
        return None
    return GatewayRef(f"{parts[1]}/{parts[2]}", int(parts[3]))


def parse_inbound(name: str) -> InboundRef | None:
    """Return the port of a sidecar's own pod that a resource belongs to, if it does."""
    kind, _, rest = name.partition("/")
    port, _, protocol = rest.partition("/")
    if kind != INBOUND or not port.isdecimal():
        return None
    return InboundRef(int(port), Protocol(protocol) if protocol else None)


def parse_rule(name: str) -> Key | None:
    """Return the route object whose rule a cluster belongs to, if it does."""
    parts = name.split("/")
    if len(parts) < _PARTS_OF_A_RULE or parts[0] not in {_GATEWAY, "route"}:
        return None
    return Key(ROUTE_GROUP, *parts[_PARTS_OF_A_PORT : _PARTS_OF_A_RULE - 1])


def parse(name: str) -> PortRef | None:
    """Return the Service port that a resource belongs to; none for Gateways and the listeners of the HTTP proxy."""
    parts = name.split("/", maxsplit=_PARTS_OF_A_PORT)
    if len(parts) < _PARTS_OF_A_PORT or parts[0] == _GATEWAY:
        return None
    _, namespace, service, port = parts[:_PARTS_OF_A_PORT]
    return PortRef(f"{namespace}/{service}", int(port))
