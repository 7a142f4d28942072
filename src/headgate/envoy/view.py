"""Views of the mesh: `MeshView` for all proxies of one kind, `ProxyView` for one proxy."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import filterfalse
from operator import attrgetter
from typing import Literal, NamedTuple

from msgspec import structs

from headgate.envoy.backends import BackendSources, RoutedPort
from headgate.envoy.gateway_hosts import has_own_scope
from headgate.envoy.node_ids import GATEWAY, OUTBOUND_PORT, SIDECAR
from headgate.envoy.traces import SpanResource, of_gateways
from headgate.envoy.visibility import AllowedSources, allowed_sources
from headgate.model import authorities
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.model.gateway_pods import GatewayPod, gateway_pod_port
from headgate.model.host_names import by_host
from headgate.model.identities import Credential
from headgate.model.pod_names import named_pods
from headgate.model.routing import (
    Endpoint,
    Frontend,
    GatewayPort,
    HostRoutes,
    Mesh,
    PortRef,
    RouteTable,
    Workload,
)
from headgate.resources.meta import Value
from headgate.shared_map import SharedMap

EVERYWHERE = "0.0.0.0"  # noqa: S104  # only in the pod's network namespace
EVERYWHERE6 = "::"


class Node(Value, frozen=True, kw_only=True):
    """A proxy. A sidecar serves one `workload`, and a gateway with `gateway` serves this Gateway (`namespace/name`).

    A gateway with `service` serves this Service (`namespace/name`). A gateway with neither serves all Gateways, listens on
    all Service addresses and is an HTTP proxy too.

    `proxy_address` and `proxy_port` locate the HTTP proxy. `try_socket` is the path of the unix socket
    for `headgate try`, empty if there is none. `localhost_port` is the port on the loopback address for names below `.localhost`, 0 if
    there is none.
    """

    id: str
    role: Literal["gateway", "sidecar"] = "gateway"
    workload: str = ""
    gateway: str = ""
    service: str = ""
    proxy_address: str = ""
    proxy_port: int = 0
    try_socket: str = ""
    localhost_port: int = 0


class ProxyKind(NamedTuple):
    """The properties that decide which resources a proxy shares with other proxies.

    `consumer` is the namespace of a sidecar if the mesh has routes for clients of this namespace only, else empty.
    """

    role: Literal["gateway", "sidecar"]
    http_proxy: bool
    has_certificate: bool
    gateway: str
    service: str
    localhost_port: int = 0
    consumer: str = ""

    @property
    def is_redirected(self) -> bool:
        """Whether the proxy gets redirected connections, as transparent sidecars do."""
        return self.role == SIDECAR and not self.http_proxy


class ServiceSettings(NamedTuple):
    """The settings that the resources of every Service depend on.

    `tls_domain` is the domain in SNI if endpoints with an identity are called by mTLS, else empty. `traces` is what a gateway sends
    spans as; a sidecar sends them as its workload.
    """

    kind: ProxyKind
    domain: str
    tls_domain: str
    connection_seconds: int
    traces: SpanResource | None = None


class MeshSettings(NamedTuple):
    """The settings of a mesh that each proxy's own resources depend on.

    With `passthrough`, transparent sidecars forward connections to unknown addresses. With `scoped`, a sidecar has
    only the Services that its workload may call. `has_ipv6` says whether a Service has an IPv6 address. `collector` gets the spans
    of proxies; empty: none.
    """

    domain: str
    trust_domain: str
    passthrough: bool
    scoped: bool
    has_ipv6: bool
    collector: str = ""


class PortView(NamedTuple):
    """A Service port and everything that its resources depend on.

    `address` and `port` are where the proxy listens for the port; `address` is empty if it does not listen. `proxy_pods` has the
    pods that clients of the HTTP proxy may call by their own addresses, and `named_pods` by their names. `direct_pods` are
    those for clients with redirected connections.
    """

    table: RouteTable
    backends: tuple[RoutedPort, ...]
    address: str
    port: int
    proxy_pods: tuple[Endpoint, ...]
    named_pods: tuple[Endpoint, ...]
    direct_pods: tuple[Endpoint, ...]


class ServiceView(NamedTuple):
    """A Service and everything that its resources depend on."""

    front: Frontend
    ports: tuple[PortView, ...]
    settings: ServiceSettings


class GatewayView(NamedTuple):
    """A port of a Gateway and everything that its resources depend on, without the hosts that have a scope of their own."""

    port: GatewayPort
    backends: tuple[RoutedPort, ...]
    settings: ServiceSettings


class HostView(NamedTuple):
    """A host of a Gateway port and everything that its resources depend on; `port` has no hosts."""

    port: GatewayPort
    host: HostRoutes
    backends: tuple[RoutedPort, ...]
    settings: ServiceSettings


class HostSources(NamedTuple):
    """Everything on which the view of a Gateway port's host depends, besides its routes; `port` has no hosts."""

    port: GatewayPort
    backend_sources: BackendSources
    settings: ServiceSettings


def host_view(sources: HostSources, name: str, host: HostRoutes) -> HostView | None:
    """Return the view of a host; None if it has no scope of its own."""
    if not has_own_scope(name):
        return None
    return HostView(sources.port, host, sources.backend_sources.backends(host.routes), sources.settings)


class MeshView:
    """The mesh as all proxies of one kind see it."""

    def __init__(self, mesh: Mesh, kind: ProxyKind) -> None:
        self.mesh = mesh.seen_from(kind.consumer)
        self.kind = kind
        self.settings = ServiceSettings(
            kind._replace(consumer=""),  # most Services have the same resources for all namespaces
            mesh.domain,
            mesh.domain if kind.has_certificate else "",
            mesh.connection_seconds,
            of_gateways(kind.gateway or kind.service) if mesh.tracing and kind.role == GATEWAY else None,
        )

    def services(self) -> Iterator[ServiceView]:
        """Yield all Services; none for the proxy of one Gateway, and only its own for the proxy of one Service."""
        if self.kind.gateway:
            return
        own = self.kind.service
        fronts = {front.service: front for front in self.mesh.frontends}
        tables: dict[str, list[RouteTable]] = defaultdict(list)
        for table in self.mesh.tables:
            if own in ("", table.ref.service):
                tables[table.ref.service].append(table)
        for name, service_tables in tables.items():
            yield ServiceView(
                fronts.get(name) or Frontend(service=name), tuple(map(self._port, service_tables)), self.settings
            )

    def gateways(self) -> Iterator[tuple[GatewayView, SharedMap[str, HostRoutes]]]:
        """Yield the ports of Gateways, each with all of its hosts.

        Sidecars and the proxy of one Service have none. The proxy of one Gateway has only the ports of that Gateway.
        """
        for port in self.mesh.gateways if self.kind.role != SIDECAR and not self.kind.service else ():
            if self.kind.gateway not in ("", port.gateway):
                continue
            wildcards = [port.hosts[host] for host in sorted(filterfalse(has_own_scope, port.hosts))]
            routes = [route for host in wildcards for route in host.routes]
            backends = self._sources.backends((*routes, *port.connection_routes))
            yield GatewayView(structs.replace(port, hosts=by_host(*wildcards)), backends, self.settings), port.hosts

    def host_sources(self, port: GatewayPort) -> HostSources:
        """Return that on which the hosts of a Gateway port depend."""
        return HostSources(structs.replace(port, hosts=()), self._sources, self.settings)

    @cached_property
    def allowed_sources(self) -> Mapping[str, AllowedSources] | None:
        """The identities to which each Service is visible (D21); None if this kind of proxy has all Services.

        A transparent sidecar that forwards unknown addresses has all Services. Otherwise it would forward calls of a
        hidden Service in plaintext, past the proxies, instead of denying them.
        """
        passes_on = self.kind.is_redirected and self.mesh.passthrough
        return allowed_sources(self.mesh) if self.mesh.scoped and self.kind.role == SIDECAR and not passes_on else None

    def _port(self, table: RouteTable) -> PortView:
        ref = table.ref
        return PortView(
            table,
            self._sources.backends(table.all_routes, ref),
            self._addresses.get(ref, ""),
            gateway_pod_port(ref.port) if self.kind.service else ref.port,
            self._proxy_pods.get(ref, ()),
            self.named_pods.get(ref, ()),
            self._direct_pods.get(ref, ()),
        )

    @cached_property
    def _sources(self) -> BackendSources:
        return BackendSources(self.mesh)

    @cached_property
    def _proxy_pods(self) -> Mapping[PortRef, tuple[Endpoint, ...]]:
        return authorities.pods(self.mesh) if self.kind.http_proxy else {}

    @cached_property
    def named_pods(self) -> Mapping[PortRef, tuple[Endpoint, ...]]:
        """The pods of headless Services that clients of the HTTP proxy call by their names."""
        return named_pods(self.mesh) if self.kind.http_proxy else {}

    @cached_property
    def _addresses(self) -> Mapping[PortRef, str]:
        """The address on which the proxy listens for each Service port; ports without a listener are missing.

        An explicit sidecar listens on none of these addresses: the gateway does. The proxy of one Service listens on all
        addresses of its pod.
        """
        if self.kind.service:
            return {
                PortRef(front.service, port): EVERYWHERE6 if ":" in front.address else EVERYWHERE
                for front in self.mesh.frontends
                if front.service == self.kind.service
                for port in front.ports
            }
        redirected = self.kind.is_redirected
        if self.kind.role == SIDECAR and not redirected:
            return {}
        return {
            PortRef(front.service, port): front.address
            for front in self.mesh.frontends
            for port in front.ports
            if front.address and (redirected or not (front.other_proxy or port in front.unbindable))
        }

    @cached_property
    def _direct_pods(self) -> Mapping[PortRef, tuple[Endpoint, ...]]:
        """The endpoints that clients call by their addresses: those of Services without an address, each once.

        If two Services have the same endpoint, only the first Service lists it.
        """
        taken = {(address, ref.port) for ref, address in self._addresses.items()}
        by_ref: dict[PortRef, tuple[Endpoint, ...]] = {}
        for front in self.mesh.frontends if self.kind.is_redirected else ():
            for ref in (PortRef(front.service, port) for port in front.ports if not front.address):
                new = {
                    (endpoint.address, endpoint.port): endpoint
                    for endpoint in self._sources.ready.get(ref, ())
                    if not endpoint.resolved
                }
                by_ref[ref] = tuple(endpoint for place, endpoint in new.items() if place not in taken)
                taken |= new.keys()
        return by_ref


class ProxyView(NamedTuple):
    """One proxy and its view of the mesh. `workload` is a sidecar's pod; None for a gateway and for a deleted pod.

    `credential` is the proxy's certificate; a proxy without a certificate calls every endpoint in plaintext.
    """

    node: Node
    mesh: Mesh
    workload: Workload | None
    credential: Credential | None

    @property
    def kind(self) -> ProxyKind:
        """The kind of the proxy; proxies of the same kind share resources."""
        node = self.node
        has_certificate = self.credential is not None
        home = client_namespace(node) if node.role == SIDECAR else ""
        return ProxyKind(
            node.role,
            node.proxy_port > 0,
            has_certificate,
            node.gateway,
            node.service,
            node.localhost_port,
            consumer=home if any(consumer.namespace == home for consumer in self.mesh.consumers) else "",
        )

    @property
    def identity(self) -> str:
        """The identity of a sidecar's pod; empty for a gateway."""
        return self.workload.identity if self.workload else ""

    @property
    def client_namespace(self) -> str:
        """The namespace of the clients, in which short names are looked up."""
        return client_namespace(self.node)


def mesh_settings(mesh: Mesh) -> MeshSettings:
    """Return the settings of a mesh that each proxy's own resources depend on."""
    has_ipv6 = any(":" in front.address for front in mesh.frontends)
    collector = mesh.tracing.collector if mesh.tracing else ""
    return MeshSettings(mesh.domain, mesh.trust_domain, mesh.passthrough, mesh.scoped, has_ipv6, collector)


def sidecar(workload: Workload) -> Node:
    """Return the sidecar of a workload."""
    explicit = workload.capture == "explicit"
    return Node(
        id=f"{SIDECAR}/{workload.name}",
        role="sidecar",
        workload=workload.name,
        proxy_address=workload.address if explicit else "",
        proxy_port=OUTBOUND_PORT if explicit else 0,
    )


def gateway_proxy(pod: GatewayPod) -> Node:
    """Return the proxy in the pod of a Gateway or a Service."""
    return Node(id=f"{GATEWAY}/{pod.name}", gateway=pod.gateway, service=pod.service)


def client_namespace(node: Node) -> str:
    """Return the namespace of a proxy's clients, in which short names are looked up."""
    return node.workload.partition("/")[0] or DEFAULT_NAMESPACE


def project(mesh: Mesh, node: Node, credential: Credential | None = None) -> ProxyView:
    """Return the view of a proxy; the view of a gateway is the whole mesh."""
    workload = None
    if node.role == SIDECAR:
        workloads = mesh.workloads  # sorted by name
        index = bisect_left(workloads, node.workload, key=attrgetter("name"))
        if index < len(workloads) and workloads[index].name == node.workload:
            workload = workloads[index]
    return ProxyView(node, mesh, workload, credential)
