"""What one proxy gets to see of the mesh."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from headgate.model import authorities
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.model.identities import SYSTEM_NAMESPACE, Credential
from headgate.model.protocols import Protocol
from headgate.model.refs import PortRef
from headgate.model.routing import Endpoint, Mesh, roots
from headgate.model.workloads import Workload
from headgate.resources.meta import Value

SIDECAR = "sidecar"  # begins the ids of sidecars: sidecar/<namespace>/<pod>
OUTBOUND_PORT = 15001  # where a sidecar takes what its application sends: redirected, or as an HTTP proxy
INBOUND_PORT = 15006  # where a transparent sidecar takes what is redirected from other pods
TRANSPARENT_UID = 1337  # the user of a transparent sidecar, by which the redirection knows it


class Node(Value, frozen=True, kw_only=True):
    """A proxy. A gateway listens on every Service address and is an HTTP proxy besides; a sidecar is for one `workload`.

    `proxy_address` and `proxy_port` are where it is that proxy; `probe` is the path of the unix socket for `headgate try`,
    empty where it has none.
    """

    id: str
    role: Literal["gateway", "sidecar"] = "gateway"
    workload: str = ""
    proxy_address: str = ""
    proxy_port: int = 0
    probe: str = ""


class View:
    """A proxy's part of the mesh, with the index that its rendering asks for."""

    def __init__(self, node: Node, mesh: Mesh, credential: Credential | None = None) -> None:
        self.node = node
        self.mesh = mesh
        self.credential = credential

    @cached_property
    def ready(self) -> Mapping[PortRef, tuple[Endpoint, ...]]:
        """Ready endpoints by Service port."""
        return {entry.ref: entry.ready for entry in self.mesh.endpoints}

    @cached_property
    def protocols(self) -> Mapping[PortRef, Protocol]:
        """What is spoken on the Service ports that are not plain HTTP."""
        return {table.ref: table.protocol for table in self.mesh.tables if table.protocol is not Protocol.HTTP}

    @cached_property
    def spoken(self) -> Mapping[PortRef, Protocol]:
        """How pods are called: by what their Service ports say, or take from a root."""
        return {**self.protocols, **roots(self.mesh.tables)}

    @cached_property
    def proxied(self) -> Mapping[PortRef, tuple[Endpoint, ...]]:
        """The pods that clients of the HTTP proxy may call by their own addresses."""
        return authorities.pods(self.mesh) if self.node.proxy_port else {}

    @cached_property
    def opaque(self) -> frozenset[PortRef]:
        """The Service ports whose pods take connections: not HTTP by what they say, or by what they take from a root."""
        return frozenset(ref for ref, protocol in self.spoken.items() if not protocol.is_http)

    @cached_property
    def workload(self) -> Workload | None:
        """The pod whose sidecar the proxy is; none for a gateway, and when the pod is gone."""
        if self.node.role != SIDECAR:
            return None
        return next((item for item in self.mesh.workloads if item.name == self.node.workload), None)

    @property
    def identity(self) -> str:
        """Who a sidecar's pod is; empty for a gateway, which is everybody's."""
        return self.workload.identity if self.workload else ""

    @property
    def home(self) -> str:
        """The namespace of the clients, in which short names are looked up."""
        return self.node.workload.partition("/")[0] or DEFAULT_NAMESPACE

    @property
    def is_redirected(self) -> bool:
        """Whether connections are brought to the proxy, whatever their address: so it is for a transparent sidecar."""
        return self.node.role == SIDECAR and not self.node.proxy_port

    @property
    def tls_domain(self) -> str:
        """The domain of server names, when the proxy calls endpoints with an identity by mutual TLS; else empty."""
        return self.mesh.domain if self.credential else ""

    @cached_property
    def addresses(self) -> Mapping[PortRef, str]:
        """Where the proxy listens for each Service port; not those that it can't bind or that have no address.

        A sidecar that is an HTTP proxy listens on none of them: they are the gateway's.
        """
        if self.node.role == SIDECAR and not self.is_redirected:
            return {}
        return {
            PortRef(front.service, port): front.address
            for front in self.mesh.frontends
            for port in front.ports
            if front.address and (self.is_redirected or port not in front.unbindable)
        }

    @cached_property
    def pods(self) -> Mapping[PortRef, tuple[Endpoint, ...]]:
        """The endpoints that clients connect to themselves: those of Services without an address, each of them once.

        Of two Services with one endpoint the first counts.
        """
        taken = {(address, ref.port) for ref, address in self.addresses.items()}
        found: dict[PortRef, tuple[Endpoint, ...]] = {}
        for front in self.mesh.frontends if self.is_redirected else ():
            for ref in (PortRef(front.service, port) for port in front.ports if not front.address):
                new = {(item.address, item.port): item for item in self.ready.get(ref, ()) if not item.resolved}
                found[ref] = tuple(item for place, item in new.items() if place not in taken)
                taken |= new.keys()
        return found

    def has_requests(self, ref: PortRef) -> bool:
        """Say whether requests are seen one by one on a Service port; else connections are."""
        return self.protocols.get(ref, Protocol.HTTP).is_http


def sidecar(workload: Workload) -> Node:
    """Return the proxy of a workload."""
    explicit = workload.capture == "explicit"
    return Node(
        id=f"{SIDECAR}/{workload.name}",
        role="sidecar",
        workload=workload.name,
        proxy_address=workload.address if explicit else "",
        proxy_port=OUTBOUND_PORT if explicit else 0,
    )


def pod_of(node_id: str) -> str:
    """Return the pod (`namespace/name`) whose sidecar a proxy is; empty for a gateway."""
    kind, _, pod = node_id.partition("/")
    return pod if kind == SIDECAR else ""


def place_of(node_id: str) -> tuple[str, str]:
    """Return the namespace and name by which users know a proxy: its pod's; a gateway is in `headgate-system`."""
    namespace, _, name = pod_of(node_id).partition("/")
    return (namespace, name) if name else (SYSTEM_NAMESPACE, node_id)


def project(mesh: Mesh, node: Node, credential: Credential | None = None) -> View:
    """Return the part of the mesh that a proxy needs: for a gateway, all of it.

    `credential` is what it proves its identity with; without one it calls everybody in plaintext.
    """
    return View(node, mesh, credential)
