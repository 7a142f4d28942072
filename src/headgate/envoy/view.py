"""What one proxy gets to see of the mesh."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from headgate.model.identities import Credential
from headgate.model.protocols import Protocol
from headgate.model.refs import PortRef
from headgate.model.routing import Endpoint, Mesh
from headgate.model.workloads import Workload
from headgate.resources.meta import Value

SIDECAR = "sidecar"  # begins the ids of sidecars: sidecar/<namespace>/<pod>
OUTBOUND_PORT = 15001  # where a sidecar takes what its application sends: redirected, or as an HTTP proxy
INBOUND_PORT = 15006  # where a transparent sidecar takes what is redirected from other pods
PROBE_PORT = 15020  # where the orchestrator's health checks find a transparent sidecar
TRANSPARENT_UID = 1337  # the user of a transparent sidecar, by which the redirection knows it


class Node(Value, frozen=True, kw_only=True):
    """A proxy. A gateway listens on every Service address and is an HTTP proxy besides; a sidecar is for one `workload`.

    `proxy_address` and `proxy_port` are where it is that proxy; `probe` is the path of the unix socket for `headgate try`.
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
    def addresses(self) -> Mapping[PortRef, str]:
        """Where the proxy listens for each Service port; not those that it can't bind or that have no address."""
        return {
            PortRef(front.service, port): front.address
            for front in self.mesh.frontends
            for port in front.ports
            if front.address and port not in front.unbindable
        }

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


def project(mesh: Mesh, node: Node, credential: Credential | None = None) -> View:
    """Return the part of the mesh that a proxy needs: for a gateway, all of it.

    `credential` is what it proves its identity with; without one it calls nobody who wants to know who calls.
    """
    return View(node, mesh, credential)
