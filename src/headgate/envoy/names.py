"""Names of Envoy resources. They can be parsed, to find the object behind a rejection or a counter.

outbound/<namespace>/<service>/<port>                  listener, routes, scope, cluster and endpoints of a Service port
split/<namespace>/<service>/<port>/<namespace>/<name>  cluster of one backend, if a split has a cluster for each
match/<namespace>/<service>/<port>/<namespace>/<name>  cluster for the requests that a split's groups match
route/<namespace>/<service>/<port>/<rule>              cluster of a route object's rule on a Service port
gateway/<namespace>/<gateway>/<port>                   listener of a port of a Gateway
gateway-udp/<namespace>/<gateway>/<port>               listener of a UDP port of a Gateway; its clusters begin so too
gateway/<namespace>/<gateway>/<port>/<host>            scope of a host, with its routes; `*` for all wildcards
gateway/<namespace>/<gateway>/<port>/<rule>            cluster of a rule: <kind>/<namespace>/<name>/<number>
.../via/<namespace>/<name>/<port>                      cluster of a rule, for requests that a split matches too
.../tls                                                cluster of a TLSRoute's rule, for connections to backends with TLS of the proxy
mirror/<namespace>/<service>/<port>                    cluster for mirrored requests
mirror/<namespace>/<service>/<port>/<namespace>/<name> cluster for mirrored requests that a split's groups match
mirror/<namespace>/<service>/<port>/by/<namespace>/<name> cluster for the mirror of a split (its annotation)
mirror/.../<protocol>                                  mirror cluster of backends with a protocol of their own, such as XBackends
mirror/.../from/gateway/<namespace>/<gateway>/<port>   mirror cluster of a Gateway port that calls backends with TLS
mirror/.../to/<namespace>/<service>                    mirror cluster of one backend, if each backend has its own
auth/<namespace>/<service>/<port>                      cluster of an authorization server that is called over HTTP
auth/<namespace>/<service>/<port>/grpc                 cluster of an authorization server that is called over gRPC
auth/.../from/gateway/<namespace>/<gateway>/<port>     cluster of an authorization server that a Gateway port calls with TLS
secret/<namespace>/<name>                              certificate of a Gateway's listeners
authorities/<namespace>/<gateway>/<port>               authorities of the certificates that clients of a Gateway port need
none/<namespace>/<service>/<port>                      cluster without endpoints: its share of requests gets 503
missing                                                cluster that does not exist: its share of requests gets 500
host/<namespace>/<service>/<port>/<authority>          scope of one spelling of a host, for clients of the HTTP proxy
proxy, probe                                           listeners of the HTTP proxy, for clients and for `headgate try`
localhost                                              listener for names below `.localhost`
localhost/localhost, localhost/*.localhost, localhost/*  scopes of that listener for hosts that are no name of a Service
tunnel                                                 a listener inside the proxy for the requests in tunnels (CONNECT) to HTTP
                                                       ports, and the cluster that leads to it
tunnel/<namespace>/<service>/<port>                    a listener inside the proxy for the connections in tunnels to a port with
                                                       TLSRoutes, and the cluster that leads to it
requests                                               filter chain that a transparent sidecar's listeners share,
                                                       and the listener that keeps it
scopes                                                 listener that keeps the scopes in a gateway
outbound, outbound6                                    a transparent sidecar's outbound listeners (IPv4, IPv6)
passthrough                                            cluster of the original destination, for unknown addresses
pod/<namespace>/<service>/<port>/<address>/<port>      routes and cluster of one pod, for the HTTP proxy;
                                                       its listener, if its Service has no address
direct/<namespace>/<service>/<port>/<identity>         cluster of such pods with that identity, which are called by mTLS
inbound                                                listener of a transparent sidecar for inbound connections
inbound/<port>                                         listener of an explicit sidecar, for a port of its pod
inbound/<port>/<protocol>                              routes and cluster of a port of the pod: the application itself
callers/<port>/<protocol>                              a listener inside the proxy with the allowed identities of a port,
                                                       and the cluster that leads to it
inbound/other                                          cluster of the ports of the pod that belong to no Service
probes, probes/<port>                                  listener and clusters of the kubelet's HTTP probes
probes/<container>/<kind>                              cluster of a TCP or gRPC probe
traces                                                 cluster of the collector of spans
identity, roots                                        the proxy's own certificate, and its trusted root certificates
"""

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from headgate.kinds import GATEWAY
from headgate.model.authorities import authorities as authorities  # noqa: PLC0414  # part of this module's interface
from headgate.model.edge_tls import BackendTls
from headgate.model.routing import GatewayPort, PortRef, Protocol
from headgate.resources.meta import Key

PROXY = "proxy"
TRY = "probe"
TUNNEL = "tunnel"
LOCALHOST = "localhost"
MISSING = "missing"
SHARED_CHAIN = "requests"
SCOPES = "scopes"
OUTBOUND = "outbound"
OUTBOUND6 = "outbound6"
PASSTHROUGH = "passthrough"
INBOUND = "inbound"
OTHER_PORTS = "inbound/other"
CALLERS = "callers"
PROBES = "probes"
TRACES = "traces"
IDENTITY = "identity"
ROOTS = "roots"
SYSTEM_ROOTS = "roots/system"
TRAFFIC_SPLIT = "TrafficSplit"
TLS_ROUTE = "TLSRoute"
_GATEWAY, _UDP_GATEWAY = "gateway", "gateway-udp"
MIRROR = "mirror/"
"""How the name of each mirror cluster begins."""
_MATCH = "match"
_BY = "/by/"
_FROM, _TO = "/from/", "/to/"
_MIRROR_OF_SPLIT = re.compile(rf"{MIRROR}[^/]+/[^/]+/\d+{_BY}([^/]+/[^/]+)(?:/[^/]+)?(?:(?:{_FROM}|{_TO}).+)?")
_PARTS_OF_A_RULE = 8
_PARTS_OF_A_PORT = 4
_RULE = re.compile(r"(?:^|/)(?:route|gateway|gateway-udp)/[^/]+/[^/]+/\d+/([A-Za-z]+Route)/([^/]+)/([^/]+)/(\d+)")


class GatewayRef(NamedTuple):
    """One port of a Gateway (`namespace/name`), or one of its hosts that have a scope of their own (`*`: all wildcards)."""

    gateway: str
    port: int
    host: str = ""
    is_udp: bool = False


class InboundRef(NamedTuple):
    """One port of a sidecar's own pod and a protocol there. Without a protocol, it names the port's listener."""

    port: int
    protocol: Protocol | None = None


RouteParent: TypeAlias = PortRef | GatewayRef
"""The parent of routes: a Service port or a port of a Gateway."""


def outbound(ref: PortRef) -> str:
    """Return the name of a Service port's resources."""
    return f"outbound/{ref.service}/{ref.port}"


def tunnel(outbound_name: str) -> str:
    """Return the name of the listener for connections in tunnels to a Service port, whose resources have this name."""
    return f"{TUNNEL}/{outbound_name.partition('/')[2]}"


def is_tunnel(cluster: str) -> bool:
    """Return whether a cluster leads to a listener inside the proxy, which counts the traffic in the tunnel."""
    return cluster.partition("/")[0] == TUNNEL


def backend(ref: PortRef, target: str) -> str:
    """Return the name of the cluster for one backend (`namespace/name`) of the split on `ref`."""
    return f"split/{ref.service}/{ref.port}/{target}"


def matched_requests(ref: PortRef, origin: Key | None) -> str:
    """Return the name of the cluster for the requests to `ref` that match the groups of the split `origin`."""
    split = f"{origin.namespace}/{origin.name}" if origin else ""
    return f"{_MATCH}/{ref.service}/{ref.port}/{split}"


def matching_split(name: str) -> str:
    """Return the split (`namespace/name`) in the name of a `matched_requests` cluster; empty for other clusters."""
    kind, *parts = name.split("/")
    return "/".join(parts[3:5]) if kind == _MATCH else ""


def no_endpoints(ref: RouteParent) -> str:
    """Return the name of the cluster without endpoints, which answers a share of a split on `ref` with 503."""
    return f"{gateway(ref)}/none" if isinstance(ref, GatewayRef) else f"none/{ref.service}/{ref.port}"


def host_scope(ref: PortRef, authority: str) -> str:
    """Return the name of the scope that maps one spelling of a host to the routes of `ref`."""
    return f"host/{ref.service}/{ref.port}/{authority}"


def is_host_scope(name: str) -> bool:
    """Return whether a name is that of a host's scope."""
    return name.startswith("host/")


def gateway(ref: GatewayRef) -> str:
    """Return the name of a Gateway port's listener, or of a host's scope."""
    first = _UDP_GATEWAY if ref.is_udp else _GATEWAY
    return f"{first}/{ref.gateway}/{ref.port}{f'/{ref.host}' if ref.host else ''}"


def gateway_port(port: GatewayPort) -> GatewayRef:
    """Return the reference to a Gateway port."""
    return GatewayRef(port.gateway, port.port, is_udp=port.protocol is Protocol.UDP)


def is_host_of(port: str, name: str) -> bool:
    """Return whether a name is that of a host's scope on the Gateway port with the name `port`."""
    return name.startswith(f"{port}/")


def parent(ref: RouteParent) -> str:
    """Return the name of the RouteConfiguration for a Service port or a Gateway port."""
    return gateway(ref) if isinstance(ref, GatewayRef) else outbound(ref)


def rule(ref: RouteParent, origin: Key, number: str, through: Iterable[tuple[Key, int]] = ()) -> str:
    """Return the cluster name for one rule of a route object.

    `through` lists the splits whose groups the requests also match, each with its port.
    """
    first = gateway(ref) if isinstance(ref, GatewayRef) else f"route/{ref.service}/{ref.port}"
    more = "".join(f"/via/{split.namespace}/{split.name}/{port}" for split, port in through)
    return f"{first}/{origin.kind}/{origin.namespace}/{origin.name}/{number}{more}"


def with_tls(name: str) -> str:
    """Return the name of a TLSRoute rule's cluster that adds TLS, beside the one that passes on the client's TLS."""
    return f"{name}/tls"


def secured(name: str, ref: RouteParent) -> str:
    """Return the name of a cluster for copies or for authorization with the TLS of a Gateway port, beside that of clients in the mesh."""
    return f"{name}{_FROM}{parent(ref)}"


def mirror(ref: PortRef, split: Key | None = None, *, by: Key | None = None, protocol: Protocol | None = None) -> str:
    """Return the name of the mirror cluster of a Service port; with `split`, for requests that its groups match.

    With `by`, it is that of the mirror of this split, which rules do not share. With `protocol`, it is that of targets with
    a protocol of their own: routes of different kinds may call one server over different protocols.
    """
    name = f"{MIRROR}{ref.service}/{ref.port}"
    if by:
        name += f"{_BY}{by.namespace}/{by.name}"
    elif split:
        name += f"/{split.namespace}/{split.name}"
    return f"{name}/{protocol.value}" if protocol else name


def external_auth(ref: PortRef, *, grpc: bool) -> str:
    """Return the name of an authorization server's cluster."""
    return f"auth/{ref.service}/{ref.port}{'/grpc' if grpc else ''}"


def mirroring_split(name: str) -> str:
    """Return the split (`namespace/name`) whose mirror a cluster belongs to; empty for other clusters."""
    match = _MIRROR_OF_SPLIT.fullmatch(name)
    return match[1] if match else ""


def backend_mirror(name: str, target: str) -> str:
    """Return the name of the mirror cluster of one backend (`namespace/name`), if each backend has its own."""
    return f"{name}{_TO}{target}"


def is_part_of_mirror(name: str, cluster: str) -> bool:
    """Return whether a cluster is that of the mirror `name`, that of a Gateway port with TLS, or that of one backend."""
    return cluster == name or cluster.startswith((f"{name}{_FROM}", f"{name}{_TO}"))


def pod(ref: PortRef, address: str, port: int) -> str:
    """Return the name of the listener for one endpoint of a headless Service."""
    return f"pod/{ref.service}/{ref.port}/{address}/{port}"


def direct_cluster(ref: PortRef, identity: str) -> str:
    """Return the cluster name for the endpoints with an identity, for Services without an address."""
    return f"direct/{ref.service}/{ref.port}/{identity}"


def secret(name: str) -> str:
    """Return the name of the certificate in a Secret (`namespace/name`)."""
    return f"secret/{name}"


def authorities_of(ref: GatewayRef) -> str:
    """Return the name of the authorities that sign the certificates of a Gateway port's clients."""
    return f"authorities/{ref.gateway}/{ref.port}"


def policy_roots(tls: BackendTls) -> str:
    """Return the name of the CA certificates of a BackendTLSPolicy or XBackend; those that trust the proxy's system share them."""
    kind = "policy" if tls.origin.kind == "BackendTLSPolicy" else tls.origin.kind.lower()
    return f"{kind}/{tls.origin.namespace}/{tls.origin.name}" if tls.roots else SYSTEM_ROOTS


def inbound(ref: InboundRef) -> str:
    """Return the resource name for a port of a sidecar's own pod."""
    return f"{INBOUND}/{ref.port}/{ref.protocol.value}" if ref.protocol else f"{INBOUND}/{ref.port}"


def callers(ref: InboundRef) -> str:
    """Return the name of the listener that selects a filter chain by the client's identity, and of its cluster."""
    return f"{CALLERS}/{ref.port}/{ref.protocol.value if ref.protocol else ''}"


def probe_cluster(port: int, *, https: bool = False) -> str:
    """Return the cluster name for the probes of a pod's port."""
    return f"{PROBES}/{port}/https" if https else f"{PROBES}/{port}"


def port_check_cluster(name: str) -> str:
    """Return the name of the cluster for a TCP or gRPC probe, `container/kind`."""
    return f"{PROBES}/{name}"


def is_mirror(name: str) -> bool:
    """Return whether a name is that of a mirror cluster."""
    return name.startswith(MIRROR)


def parse_gateway(name: str) -> GatewayRef | None:
    """Return the Gateway port that a resource belongs to; None for other resources."""
    parts = name.split("/", maxsplit=_PARTS_OF_A_PORT)
    if len(parts) < _PARTS_OF_A_PORT or parts[0] not in {_GATEWAY, _UDP_GATEWAY}:
        return None
    return GatewayRef(f"{parts[1]}/{parts[2]}", int(parts[3]), is_udp=parts[0] == _UDP_GATEWAY)


def parse_rule(name: str) -> Key | None:
    """Return the route object whose rule a cluster belongs to; None for other clusters."""
    parts = name.split("/")
    if len(parts) < _PARTS_OF_A_RULE or parts[0] not in {_GATEWAY, _UDP_GATEWAY, "route"}:
        return None
    return Key(GATEWAY, *parts[_PARTS_OF_A_PORT : _PARTS_OF_A_RULE - 1])


def rule_in(text: str) -> tuple[Key, str] | None:
    """Return the route object and the number of its rule in the name of a rule's cluster; None for other clusters.

    The name of a route may be before the name of the cluster, as in the attributes of `traffic_stats`.
    """
    match = _RULE.search(text)
    return (Key(GATEWAY, *match.group(1, 2, 3)), match[4]) if match else None


def parse(name: str) -> PortRef | None:
    """Return the Service port that a resource belongs to; None for Gateways and the proxy's own listeners."""
    parts = name.split("/", maxsplit=_PARTS_OF_A_PORT)
    if len(parts) < _PARTS_OF_A_PORT or parts[0] in {_GATEWAY, _UDP_GATEWAY}:
        return None
    _, namespace, service, port = parts[:_PARTS_OF_A_PORT]
    return PortRef(f"{namespace}/{service}", int(port))
