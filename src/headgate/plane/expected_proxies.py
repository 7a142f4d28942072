"""The proxies that a mesh should have: those of the host, and those of pods."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec import structs

from headgate.envoy.view import Node, gateway_proxy, sidecar
from headgate.identity.issuers import CertificateSpec
from headgate.model.identities import gateway_id
from headgate.model.routing import Mesh, Workload


class HostProxies(NamedTuple):
    """The gateways and the paths that the host sets before the first build.

    `gateways` has the proxies that exist without a pod. `try_sockets` maps a node ID to the path of the socket that
    `headgate try` uses. `addresses` has the IP addresses from which these proxies, and other programs of the machine, call pods
    with networks of their own. `published` maps an address and port on which a gateway listens to the address at which users of the
    machine reach the port; empty if they can't.
    """

    gateways: Sequence[Node] = ()
    try_sockets: Callable[[str], str] = lambda _node_id: ""
    addresses: Collection[str] = ()
    published: Callable[[str, int], str] = lambda address, _port: address


class ExpectedProxies:
    """The proxies that a mesh should have: the gateways, and a sidecar for each workload."""

    def __init__(self, mesh: Mesh | None, host: HostProxies) -> None:
        self.source = (mesh.workloads, mesh.gateway_pods, mesh.trust_domain) if mesh else None
        self._mesh = mesh
        self._host = host

    @cached_property
    def gateways(self) -> Sequence[Node]:
        """The gateways of the host, and on a cluster the proxies of the Gateways' pods."""
        return [*self._host.gateways, *map(gateway_proxy, self._mesh.gateway_pods if self._mesh else ())]

    @cached_property
    def nodes(self) -> Sequence[tuple[Node, Workload | None]]:
        """All proxies, each sidecar with its workload, and each gateway with None."""
        workloads = self._mesh.workloads if self._mesh else ()
        sidecars = [(sidecar(workload), workload) for workload in workloads]
        return [
            *((node, None) for node in self.gateways),
            *(
                (structs.replace(node, try_socket=self._host.try_sockets(node.id)), workload)
                for node, workload in sidecars
            ),
        ]

    @cached_property
    def certificates(self) -> Mapping[str, CertificateSpec]:
        """The identity and the DNS names that each proxy's certificate must contain, by node ID."""
        domain = self._mesh.trust_domain if self._mesh else ""
        return {
            node.id: CertificateSpec(identity=workload.identity, subjects=workload.subjects)
            if workload
            else CertificateSpec(identity=gateway_id(domain))
            for node, workload in self.nodes
        }

    @cached_property
    def pods(self) -> Mapping[str, str]:
        """The UID of each proxy's pod, by node ID."""
        gateways = {gateway_proxy(pod).id: pod.uid for pod in (self._mesh.gateway_pods if self._mesh else ())}
        return gateways | {node.id: workload.uid for node, workload in self.nodes if workload}
