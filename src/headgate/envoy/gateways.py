"""Render Gateways: for each port, a listener on the Gateway's address and the route configurations of that listener."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import NamedTuple

from headgate.envoy import listeners, names, pb, routes, tcp_proxy
from headgate.envoy.config_source import ads
from headgate.envoy.names import GatewayRef
from headgate.envoy.route_filters import ListenerInfo
from headgate.envoy.route_plan import ClusterPlan, ClusterWeight, PlannedRoute, Planner, Protocols, Ready
from headgate.model.evaluate import MISDIRECTED
from headgate.model.routing import GatewayPort, HostRoutes, PortRef, Route, Split
from headgate.resources.meta import Value

_EVERY_NAME = "*"
ALPN = ("h2", "http/1.1")
CACHED_HOSTS = 10_000  # hosts whose rendered routes are kept: about 2 kB for each
_MISDIRECTED = (
    "headgate: this TLS connection was opened for another listener of the Gateway; open a new one for this host\n"
)
_NOWHERE = Route(split=Split(targets=()))
_TLS = "envoy.transport_sockets.tls"


class HostPlan(Value, frozen=True, kw_only=True):
    """The routes for one host, in order of precedence."""

    host: str
    routes: tuple[PlannedRoute, ...]


class TlsPlan(Value, frozen=True, kw_only=True):
    """The certificates and routes for connections with the SNI `host`; `*` is for all other connections.

    `routes` names the route configuration; it is empty on ports that are not HTTP.
    """

    host: str
    secrets: tuple[str, ...]
    routes: str = ""


class HostPlans(Value, frozen=True, kw_only=True):
    """The virtual hosts of a listener on the Gateway port `parent`; requests for `misdirected` hosts get 421."""

    name: str
    parent: str
    hosts: tuple[HostPlan, ...]
    misdirected: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Return all clusters that the routes name."""
        return tuple(dict.fromkeys(name for host in self.hosts for planned in host.routes for name in planned.needs))


class ListenerPlan(Value, frozen=True, kw_only=True):
    """The listener of a Gateway port; `shares` are the clusters of a TCP port, empty on an HTTP port."""

    name: str
    address: str
    port: int
    shares: tuple[ClusterWeight, ...] = ()
    tls: tuple[TlsPlan, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Return all clusters that the listener names."""
        return tuple(item.cluster for item in self.shares if item.cluster != names.MISSING)


class GatewayPlan(NamedTuple):
    """One port of a Gateway and its clusters; `routes` is empty on ports that are not HTTP."""

    listener: ListenerPlan
    routes: tuple[HostPlans, ...]
    clusters: tuple[ClusterPlan, ...]


def plan_gateway_port(
    port: GatewayPort, ready: Ready, protocols: Protocols, *, domain: str = "", opaque: Collection[PortRef] = ()
) -> GatewayPlan:
    """Plan the resources of a Gateway port; with `domain`, endpoints with an identity are called by mTLS.

    `opaque` are the Service ports whose pods are called with TCP, not HTTP.
    """
    ref = GatewayRef(port.gateway, port.port)
    name = names.gateway(ref)
    planner = Planner(ref, ready, protocols, domain=domain, opaque=opaque)
    requests = port.protocol.is_http
    listener = ListenerPlan(
        name=name,
        address=port.address,
        port=port.port,
        shares=() if requests else _connections(planner, port),
        tls=tuple(_tls(ref, port)),
    )
    hosts = tuple(_by_listener(planner, ref, port)) if requests else ()
    return GatewayPlan(listener, hosts, tuple(planner.clusters.values()))


def _by_listener(planner: Planner, ref: GatewayRef, port: GatewayPort) -> Iterator[HostPlans]:
    """Yield the virtual hosts of each TLS listener; without TLS, all listeners of a port share one set."""
    name = names.gateway(ref)
    plans = [(item.listener, _host(planner, port, item)) for item in port.hosts]
    if not port.tls:
        yield HostPlans(name=name, parent=name, hosts=tuple(plan for _, plan in plans))
    listeners = dict.fromkeys(host for host, _ in port.tls)
    for listener in listeners:
        yield HostPlans(
            name=names.listener_routes(ref, listener),
            parent=name,
            hosts=tuple(plan for owner, plan in plans if owner == listener),
            misdirected=tuple(host.host for owner, host in plans if owner != listener),
        )


def _host(planner: Planner, port: GatewayPort, item: HostRoutes) -> HostPlan:
    one = "" if item.host.startswith("*") else item.host
    listener_info = ListenerInfo(scheme="https" if port.tls else "http", port=port.port, host=one)
    return HostPlan(host=item.host, routes=tuple(planner.plan_routes(item.routes, listener_info)))


def _connections(planner: Planner, port: GatewayPort) -> tuple[ClusterWeight, ...]:
    """Return the weighted clusters of a TCP port; without backends, `MISSING`, so that Envoy closes connections."""
    planned = planner.plan_route(port.connections or _NOWHERE, ListenerInfo(scheme="", port=port.port))
    return planned.clusters or (ClusterWeight(cluster=names.MISSING, weight=1),)


def _tls(ref: GatewayRef, port: GatewayPort) -> Iterator[TlsPlan]:
    """Yield the certificates and routes of each TLS listener."""
    by_host: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for host, certificate in port.tls:
        by_host[host] += (names.secret(certificate.secret),)
    for host, secrets in by_host.items():
        yield TlsPlan(
            host=host, secrets=secrets, routes=names.listener_routes(ref, host) if port.protocol.is_http else ""
        )


def configuration(found: HostPlans) -> pb.RouteConfiguration:
    """Return a route configuration. The most specific host matches, and the port in the request's host is ignored."""
    hosts = [_virtual_host(item, found.parent) for item in found.hosts]
    message = routes.configuration(found.name, [*hosts, *map(_misdirected, found.misdirected)])
    message.ignore_port_in_host_matching = True
    return message


@lru_cache(CACHED_HOSTS)
def _virtual_host(item: HostPlan, parent: str) -> pb.VirtualHost:
    """Return the routes of one host. The result is shared: its callers must not change it."""
    return routes.virtual_host(item.host, item.host, item.routes, parent=parent)


def _misdirected(host: str) -> pb.VirtualHost:
    """Return the 421 response for requests whose host belongs to another TLS listener than their connection."""
    body = pb.DataSource(inline_string=_MISDIRECTED)
    answer = pb.DirectResponseAction(status=MISDIRECTED, body=body)
    route = pb.Route(match=pb.RouteMatch(prefix=""), direct_response=answer)
    return pb.VirtualHost(name=host, domains=[host], routes=[route])


def listener(found: ListenerPlan) -> pb.Listener:
    """Return the listener of a port; with TLS, the client's SNI selects the certificate and the routes."""
    if not found.tls:
        return _plain(found, found.name)
    message = _plain(found, found.tls[0].routes)
    chains = [_chain(list(_plain(found, item.routes).filter_chains[0].filters), item) for item in found.tls]
    del message.filter_chains[:]
    message.filter_chains.extend(chains)
    message.listener_filters.append(
        pb.ListenerFilter(name="envoy.filters.listener.tls_inspector", typed_config=pb.pack(pb.TlsInspector()))
    )
    return message


def _plain(found: ListenerPlan, routes_name: str) -> pb.Listener:
    if found.shares:
        return tcp_proxy.listener(found.name, found.address, found.port, found.shares)
    return listeners.gateway_listener(found.name, found.address, found.port, routes_name)


def _chain(filters: list[pb.Filter], shown: TlsPlan) -> pb.FilterChain:
    context = pb.DownstreamTlsContext(
        common_tls_context=pb.CommonTlsContext(
            tls_params=pb.TlsParameters(tls_minimum_protocol_version=pb.TlsParameters.TlsProtocol.TLSv1_2),
            tls_certificate_sds_secret_configs=[
                pb.SdsSecretConfig(name=secret, sds_config=ads()) for secret in shown.secrets
            ],
            alpn_protocols=ALPN if shown.routes else (),
        )
    )
    named = shown.host != _EVERY_NAME
    return pb.FilterChain(
        name=shown.host,
        filter_chain_match=pb.FilterChainMatch(server_names=[shown.host]) if named else None,
        filters=filters,
        transport_socket=pb.TransportSocket(name=_TLS, typed_config=pb.pack(context)),
    )
