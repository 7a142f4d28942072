"""What one proxy gets to see of the mesh."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from headgate.model.refs import PortRef
from headgate.model.routing import Endpoint, Mesh, Protocol
from headgate.resources.meta import Value


class Node(Value, frozen=True, kw_only=True):
    """A proxy. A gateway listens on every Service address and is an HTTP proxy besides.

    `proxy_address` and `proxy_port` are where it is that proxy; `probe` is the path of the unix socket for `headgate try`.
    """

    id: str
    role: Literal["gateway"] = "gateway"
    proxy_address: str = ""
    proxy_port: int = 0
    probe: str = ""


class View:
    """A proxy's part of the mesh, with the index that its rendering asks for."""

    def __init__(self, node: Node, mesh: Mesh) -> None:
        self.node = node
        self.mesh = mesh

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


def project(mesh: Mesh, node: Node) -> View:
    """Return the part of the mesh that a proxy needs: for a gateway, all of it."""
    return View(node, mesh)
