"""The ports that a proxy listens on, selected from a mesh by Services and Gateways.

Each Service port and each Gateway port becomes a port of the proxy with the same number. Services and Gateways that
share a number share the port: the host of a request distinguishes them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import structs

from headgate.model.authorities import authorities, url_host
from headgate.model.edge_tls import ClientCertificates, ListenerCertificate
from headgate.model.routing import (
    Endpoint,
    Frontend,
    GatewayPort,
    Mesh,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    Split,
)
from headgate.render.backend_tls import tls_omissions, without_tls
from headgate.render.filter_omissions import closed, filter_omissions
from headgate.render.identities import identity_omissions
from headgate.render.omissions import Omission, OmissionReason
from headgate.render.resilience_omissions import resilience_omissions
from headgate.render.session_omissions import session_omissions, without_drained
from headgate.resources.gateway_api.gateway import GROUP
from headgate.resources.meta import Key, Value
from headgate.resources.registry import SERVICE

ANY_HOST = "*"
NOWHERE = Route(split=Split(targets=()))
"""The route of a port that accepts connections for no backend."""


class PortHost(Value, frozen=True, kw_only=True):
    """The routes for some host names of a port, in the order in which the first match is used.

    `names` has full names, `*.example.com`, or `*` for every other host. With `edge`, the client is outside the mesh,
    so headers that only proxies set are removed. `listener` is as in HostRoutes. `where` names the port in messages.
    """

    owner: Key
    where: str
    names: tuple[str, ...]
    routes: tuple[Route, ...]
    edge: bool = False
    listener: str = ANY_HOST


class ProxyPort(Value, frozen=True, kw_only=True):
    """A port to listen on; an empty `address` means all addresses.

    HTTP ports have `hosts`, and HTTPS ports also `tls` and `client_certificates`, as in GatewayPort. Other ports have one route, `connections`.
    `bound` is the port to bind if clients reach it as `port` of another address; else 0.
    """

    owner: Key
    port: int
    address: str = ""
    bound: int = 0
    protocol: Protocol = Protocol.HTTP
    hosts: tuple[PortHost, ...] = ()
    tls: tuple[tuple[str, ListenerCertificate], ...] = ()
    client_certificates: ClientCertificates | None = None
    connections: Route = NOWHERE

    @property
    def where(self) -> str:
        """Return the name of the port in messages."""
        return f"port {self.port}"

    @property
    def scheme(self) -> str:
        """Return the scheme of the URLs that clients use."""
        return "https" if self.tls else "http"

    @property
    def bind(self) -> str:
        """Return the address and the port to bind: `[fd00::1]:8080`, or `:8080` for all addresses."""
        return f"{url_host(self.address)}:{self.bound or self.port}"


class Selection(Value, frozen=True, kw_only=True):
    """What a renderer renders: the ports, and all endpoints and protocols that their routes may need.

    With `dns`, the endpoints are those of `Chosen.dns`. `omissions` has those of every proxy.
    """

    ports: tuple[ProxyPort, ...]
    endpoints: Mapping[PortRef, tuple[Endpoint, ...]]
    protocols: Mapping[PortRef, Protocol]
    dns: bool = False
    omissions: tuple[Omission, ...] = ()

    def refs(self) -> frozenset[PortRef]:
        """Return the backends of all routes and mirrors."""
        return frozenset(ref for route in _routes(self.ports) for ref in route.callees)


class Chosen(NamedTuple):
    """The chosen Services and Gateways (`namespace/name`), and the address to listen on; no names mean all.

    With `dns`, the endpoint of each Service port is the DNS name of the Service, instead of the addresses of its pods.
    """

    services: Collection[str] = ()
    gateways: Collection[str] = ()
    address: str = ""
    dns: bool = False

    def has_service(self, name: str) -> bool:
        """Return whether a Service is chosen."""
        return name in self.services if self.services or self.gateways else True

    def has_gateway(self, name: str) -> bool:
        """Return whether a Gateway is chosen."""
        return name in self.gateways if self.services or self.gateways else True


def select(mesh: Mesh, chosen: Chosen = Chosen()) -> Selection:  # noqa: B008 - it is immutable
    """Return the ports of the chosen Services and Gateways. Names that the mesh does not have select nothing."""
    by_number: dict[int, ProxyPort] = {}
    omissions: list[Omission] = []
    services = {front.service for front in mesh.frontends}
    for port in sorted(_chosen_ports(mesh, chosen), key=lambda port: port.port):  # stable: Gateways come first
        before = by_number.get(port.port)
        joined = _joined(before, port) if before else port
        if joined:
            by_number[port.port] = joined
        elif before:
            message = f"{before.owner} has this port already"
            omissions.append(
                Omission(
                    origin=port.owner, where=port.where, what="", reason=OmissionReason.PORT_CONFLICT, message=message
                )
            )
    return Selection(
        ports=tuple(_with_default(port) for port in by_number.values()),
        endpoints={
            entry.ref: _by_name(entry.ref, mesh.domain)
            if chosen.dns and entry.ready and entry.ref.service in services
            else entry.ready
            for entry in mesh.endpoints
        },
        protocols={table.ref: table.protocol for table in mesh.tables},
        dns=chosen.dns,
        omissions=(
            *omissions,
            *_server_name_omissions(mesh, chosen),
            *_consumer_omissions(mesh, chosen),
            *_udp_omissions(mesh, chosen),
            *identity_omissions(mesh, _routes(by_number.values())),
            *filter_omissions(_routes(by_number.values())),
            *tls_omissions(_written_routes(mesh, chosen)),
            *session_omissions(_routes(by_number.values())),
            *resilience_omissions(mesh, _routes(by_number.values()), _owners(by_number.values())),
        ),
    )


def _written_routes(mesh: Mesh, chosen: Chosen) -> Iterator[Route]:
    """Yield the routes of the chosen Gateways and Services with the TLS of their backends."""
    for port in mesh.gateways:
        yield from port.routes if chosen.has_gateway(port.gateway) else ()
    for table in mesh.tables:
        yield from table.routes if chosen.has_service(table.ref.service) else ()


def _routes(ports: Iterable[ProxyPort]) -> Iterator[Route]:
    for port in ports:
        yield from (route for host in port.hosts for route in host.routes)
        yield port.connections


def _owners(ports: Iterable[ProxyPort]) -> Iterator[Key]:
    for port in ports:
        yield from (port.owner, *(host.owner for host in port.hosts))


def _by_name(ref: PortRef, domain: str) -> tuple[Endpoint, ...]:
    namespace, name = ref.service.split("/")
    return (Endpoint(address=f"{name}.{namespace}.svc.{domain}", port=ref.port, resolved=True),)


def _chosen_ports(mesh: Mesh, chosen: Chosen) -> Iterator[ProxyPort]:
    for port in mesh.gateways:
        if chosen.has_gateway(port.gateway) and port.protocol not in {Protocol.TLS, Protocol.UDP}:
            yield _of_gateway(port, chosen.address)
    fronts = {front.service: front for front in mesh.frontends}
    for table in mesh.tables:
        if chosen.has_service(table.ref.service) and not table.server_names:
            yield _of_service(table, fronts[table.ref.service], mesh.domain, chosen.address)


def _of_gateway(port: GatewayPort, address: str) -> ProxyPort:
    owner = Key(GROUP, "Gateway", *port.gateway.split("/"))
    passed_on = {name.listener for name in port.server_names}
    hosts = tuple(
        PortHost(
            owner=owner,
            where=f"port {port.port}, host {host.host}",
            names=(host.host,),
            routes=tuple(map(_rendered, host.routes)),
            edge=True,
            listener=host.listener,
        )
        for _, host in sorted(port.hosts.items())
        if host.listener not in passed_on
    )
    return ProxyPort(
        owner=owner,
        port=port.port,
        address=address,
        protocol=port.protocol,
        hosts=hosts,
        tls=tuple((host, certificate) for host, certificate in port.tls if host not in passed_on),
        client_certificates=port.client_certificates,
        connections=without_tls(port.connections or NOWHERE),
    )


def _rendered(route: Route) -> Route:
    return without_drained(without_tls(closed(route)))


def _server_name_omissions(mesh: Mesh, chosen: Chosen) -> Iterator[Omission]:
    """Yield an omission for each server name with a route: rendered proxies do not choose a backend by it."""
    for port in mesh.gateways:
        for name in port.server_names if chosen.has_gateway(port.gateway) else ():
            if name.route and name.route.origin:
                yield Omission(
                    origin=name.route.origin,
                    where=f"port {port.port}, host {name.host}",
                    what="",
                    reason=OmissionReason.SERVER_NAME,
                    message="connections are not forwarded by the server name (SNI); use Envoy for this Gateway",
                )
    for table in mesh.tables:
        for name in table.server_names if chosen.has_service(table.ref.service) else ():
            if name.route and name.route.origin:
                yield Omission(
                    origin=name.route.origin,
                    where=f"port {table.ref.port} of Service {table.ref.service}, host {name.host}",
                    what="",
                    reason=OmissionReason.SERVER_NAME,
                    message="connections are not forwarded by the server name (SNI); use Envoy for this Service",
                )


def _consumer_omissions(mesh: Mesh, chosen: Chosen) -> Iterator[Omission]:
    """Yield an omission for each route that applies to clients of a namespace: rendered proxies don't know theirs."""
    for consumer in mesh.consumers:
        ref = consumer.table.ref
        for route in consumer.table.all_routes if chosen.has_service(ref.service) else ():
            if route.origin:
                yield Omission(
                    origin=route.origin,
                    where=f"port {ref.port} of Service {ref.service}",
                    what="",
                    reason=OmissionReason.CONSUMER_ROUTE,
                    message=f"clients of namespace {consumer.namespace} get the routes of all clients; use a sidecar",
                )


def _udp_omissions(mesh: Mesh, chosen: Chosen) -> Iterator[Omission]:
    """Yield an omission for each UDP port: rendered proxies forward no datagrams."""
    for port in mesh.gateways:
        route = port.connections
        if chosen.has_gateway(port.gateway) and port.protocol is Protocol.UDP and route and route.origin:
            yield Omission(
                origin=route.origin,
                where=f"UDP port {port.port}",
                what="",
                reason=OmissionReason.UDP,
                message="datagrams are not forwarded; use Envoy for this Gateway",
            )


def _of_service(table: RouteTable, front: Frontend, domain: str, address: str) -> ProxyPort:
    owner = SERVICE.key(*table.ref.service.split("/"))
    port = ProxyPort(owner=owner, port=table.ref.port, address=address, protocol=table.protocol)
    if not table.protocol.is_http:
        return structs.replace(port, connections=without_tls(table.routes[0]))
    spelled = (name for name, number in authorities(front, domain) if number == table.ref.port)
    names = tuple(dict.fromkeys(name.removesuffix(f":{table.ref.port}") for name in spelled))
    host = PortHost(owner=owner, where=port.where, names=names, routes=tuple(map(_rendered, table.routes)))
    return structs.replace(port, hosts=(host,))


def _joined(before: ProxyPort, port: ProxyPort) -> ProxyPort | None:
    """Return a port with the hosts of two; None if one port can't serve both."""
    if not before.hosts or not port.hosts or before.tls or port.tls or before.protocol is not port.protocol:
        return None
    taken = {name for host in before.hosts for name in host.names}
    if any(name in taken for host in port.hosts for name in host.names):
        return None
    return structs.replace(before, hosts=(*before.hosts, *port.hosts))


def _with_default(port: ProxyPort) -> ProxyPort:
    """Return a port whose only Service also gets the requests for all other hosts."""
    if len(port.hosts) != 1 or port.hosts[0].edge:
        return port
    host = port.hosts[0]
    return structs.replace(port, hosts=(structs.replace(host, names=(*host.names, ANY_HOST)),))
