"""Gateways: one listener and one route configuration for each of their ports, on the Gateway's own address."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from headgate.envoy import connections, listeners, names, pb, routes
from headgate.envoy.filters import Entrance
from headgate.envoy.names import GatewayRef
from headgate.envoy.plan import ClusterPlan, Draw, Planner, Protocols, Ready, WeightedName
from headgate.envoy.sources import ads
from headgate.model.refs import PortRef
from headgate.model.routing import GatewayPort, HostRoutes, Route, Split
from headgate.resources.meta import Value

_EVERY_NAME = "*"
ALPN = ("h2", "http/1.1")
_NOWHERE = Route(split=Split(targets=()))
_TLS = "envoy.transport_sockets.tls"


class HostPlan(Value, frozen=True, kw_only=True):
    """The routes for one host, in their order."""

    host: str
    draws: tuple[Draw, ...]


class Certificates(Value, frozen=True, kw_only=True):
    """The secrets that are shown to clients which ask for one of `server_names`; no names are all clients."""

    server_names: tuple[str, ...]
    secrets: tuple[str, ...]


class HostPlans(Value, frozen=True, kw_only=True):
    """The hosts of a port of a Gateway."""

    name: str
    hosts: tuple[HostPlan, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """Return every cluster that the routes name."""
        return tuple(dict.fromkeys(name for host in self.hosts for draw in host.draws for name in draw.needs))


class ListenerPlan(Value, frozen=True, kw_only=True):
    """What listens on a port of a Gateway; `shares` are where connections go, none where requests are routed."""

    name: str
    address: str
    port: int
    shares: tuple[WeightedName, ...] = ()
    tls: tuple[Certificates, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Return every cluster that the listener names."""
        return tuple(item.cluster for item in self.shares if item.cluster != names.MISSING)


class GatewayPlan(NamedTuple):
    """One port of a Gateway and the clusters that it needs; `routes` is none where connections are passed on."""

    listener: ListenerPlan
    routes: HostPlans | None
    clusters: tuple[ClusterPlan, ...]


def plan(
    port: GatewayPort, ready: Ready, protocols: Protocols, *, domain: str = "", opaque: Collection[PortRef] = ()
) -> GatewayPlan:
    """Decide how a port of a Gateway is served; with `domain`, endpoints with an identity are called by mutual TLS.

    `opaque` are the Service ports whose pods take connections.
    """
    ref = GatewayRef(port.gateway, port.port)
    name = names.gateway(ref)
    planner = Planner(ref, ready, protocols, domain=domain, opaque=opaque)
    requests = port.protocol.is_http
    hosts = HostPlans(name=name, hosts=tuple(_host(planner, port, item) for item in port.hosts)) if requests else None
    listener = ListenerPlan(
        name=name,
        address=port.address,
        port=port.port,
        shares=() if requests else _connections(planner, port),
        tls=tuple(_certificates(port)),
    )
    return GatewayPlan(listener, hosts, tuple(planner.clusters.values()))


def _host(planner: Planner, port: GatewayPort, item: HostRoutes) -> HostPlan:
    one = "" if item.host.startswith("*") else item.host
    entrance = Entrance(scheme="https" if port.tls else "http", port=port.port, host=one)
    return HostPlan(host=item.host, draws=tuple(planner.draws(item.routes, entrance)))


def _connections(planner: Planner, port: GatewayPort) -> tuple[WeightedName, ...]:
    """Return where connections go; without a route, or when every share is broken, they are closed."""
    draw = planner.draw(port.connections or _NOWHERE, Entrance(scheme="", port=port.port))
    return draw.clusters or (WeightedName(cluster=names.MISSING, weight=1),)


def _certificates(port: GatewayPort) -> Iterator[Certificates]:
    """Yield the certificates, each set of them once, with the names that it is for."""
    by_name: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for name, certificate in port.tls:
        by_name[name] += (names.secret(certificate.secret),)
    by_secrets: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, secrets in by_name.items():
        by_secrets[secrets if name != _EVERY_NAME else ()].append(name)
    for secrets, server_names in by_secrets.items():
        if secrets:
            yield Certificates(server_names=tuple(server_names), secrets=secrets)
    if _EVERY_NAME in by_name:
        yield Certificates(server_names=(), secrets=by_name[_EVERY_NAME])


def configuration(found: HostPlans) -> pb.RouteConfiguration:
    """Return the routes of a port. The most specific host decides, whatever port the client writes behind it."""
    hosts = [routes.virtual_host(item.host, item.host, item.draws, place=found.name) for item in found.hosts]
    message = routes.configuration(found.name, hosts)
    message.ignore_port_in_host_matching = True
    return message


def listener(found: ListenerPlan) -> pb.Listener:
    """Return the listener of a port; with certificates it speaks TLS, and chooses by the name that the client asks for."""
    if found.shares:
        message = connections.listener(found.name, found.address, found.port, found.shares)
    else:
        message = listeners.edge_listener(found.name, found.address, found.port)
    if found.tls:
        filters = list(message.filter_chains[0].filters)
        del message.filter_chains[:]
        message.filter_chains.extend(_chain(filters, item, http=not found.shares) for item in found.tls)
        message.listener_filters.append(
            pb.ListenerFilter(name="envoy.filters.listener.tls_inspector", typed_config=pb.pack(pb.TlsInspector()))
        )
    return message


def _chain(filters: list[pb.Filter], shown: Certificates, *, http: bool) -> pb.FilterChain:
    context = pb.DownstreamTlsContext(
        common_tls_context=pb.CommonTlsContext(
            tls_params=pb.TlsParameters(tls_minimum_protocol_version=pb.TlsParameters.TlsProtocol.TLSv1_2),
            tls_certificate_sds_secret_configs=[
                pb.SdsSecretConfig(name=secret, sds_config=ads()) for secret in shown.secrets
            ],
            alpn_protocols=ALPN if http else (),
        )
    )
    return pb.FilterChain(
        name=shown.server_names[0] if shown.server_names else _EVERY_NAME,
        filter_chain_match=pb.FilterChainMatch(server_names=shown.server_names) if shown.server_names else None,
        filters=filters,
        transport_socket=pb.TransportSocket(name=_TLS, typed_config=pb.pack(context)),
    )
