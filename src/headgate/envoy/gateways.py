"""Render Gateways: for each port, a listener on the Gateway's address and the route configurations of that listener."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from headgate.envoy import gateway_hosts, listeners, names, pb, routes, tcp_proxy
from headgate.envoy.config_source import ads
from headgate.envoy.names import GatewayRef
from headgate.envoy.route_filters import ListenerInfo
from headgate.envoy.route_plan import ClusterPlan, ClusterWeight, PlannedRoute, Planner, Protocols, Ready
from headgate.model.routing import GatewayPort, HostRoutes, PortRef, Route, Split
from headgate.resources.meta import Value

_EVERY_NAME = "*"
ALPN = ("h2", "http/1.1")
_NOWHERE = Route(split=Split(targets=()))
_TLS = "envoy.transport_sockets.tls"


class HostPlan(Value, frozen=True, kw_only=True):
    """The routes for one host, in order of precedence.

    With `listener`, requests on connections to other TLS listeners get 421.
    """

    host: str
    routes: tuple[PlannedRoute, ...]
    listener: str = ""


class TlsPlan(Value, frozen=True, kw_only=True):
    """The certificates of the TLS listener with the hostname `host`; `*` is for connections to no other listener."""

    host: str
    secrets: tuple[str, ...]


class ScopePlan(Value, frozen=True, kw_only=True):
    """The virtual host of `host` on the Gateway port with the name `port`, or those of all wildcards."""

    port: str
    host: str
    hosts: tuple[HostPlan, ...]

    @property
    def name(self) -> str:
        """Return the name of the scope."""
        return gateway_hosts.scope_name(self.port, self.host)

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
    """One port of a Gateway and its clusters; `scopes` is empty on ports that are not HTTP."""

    listener: ListenerPlan
    scopes: tuple[ScopePlan, ...]
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
        tls=tuple(_tls(port)),
    )
    scopes = tuple(_scopes(planner, ref, port)) if requests else ()
    return GatewayPlan(listener, scopes, tuple(planner.clusters.values()))


def _scopes(planner: Planner, ref: GatewayRef, port: GatewayPort) -> Iterator[ScopePlan]:
    """Yield a scope for each host, and one for all wildcards."""
    name = names.gateway(ref)
    plans = [_host(planner, port, item) for item in port.hosts]
    wildcards = tuple(plan for plan in plans if _is_wildcard(plan.host))
    yield ScopePlan(port=name, host=gateway_hosts.WILDCARDS, hosts=wildcards)
    for plan in plans:
        if not _is_wildcard(plan.host):
            yield ScopePlan(port=name, host=plan.host, hosts=(plan,))


def _host(planner: Planner, port: GatewayPort, item: HostRoutes) -> HostPlan:
    one = "" if _is_wildcard(item.host) else item.host
    listener_info = ListenerInfo(scheme="https" if port.tls else "http", port=port.port, host=one)
    has_more_listeners = len({host for host, _ in port.tls}) > 1
    return HostPlan(
        host=item.host,
        routes=tuple(planner.plan_routes(item.routes, listener_info)),
        listener=item.listener if has_more_listeners else "",
    )


def _is_wildcard(host: str) -> bool:
    return host.startswith("*")


def _connections(planner: Planner, port: GatewayPort) -> tuple[ClusterWeight, ...]:
    """Return the weighted clusters of a TCP port; without backends, `MISSING`, so that Envoy closes connections."""
    planned = planner.plan_route(port.connections or _NOWHERE, ListenerInfo(scheme="", port=port.port))
    return planned.clusters or (ClusterWeight(cluster=names.MISSING, weight=1),)


def _tls(port: GatewayPort) -> Iterator[TlsPlan]:
    """Yield the certificates of each TLS listener."""
    by_host: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for host, certificate in port.tls:
        by_host[host] += (names.secret(certificate.secret),)
    for host, secrets in by_host.items():
        yield TlsPlan(host=host, secrets=secrets)


def scope(found: ScopePlan) -> pb.ScopedRouteConfiguration:
    """Return a scope. In the scope of the wildcards, the most specific one matches."""
    return gateway_hosts.scope(found.port, found.host, [_virtual_host(item, found.port) for item in found.hosts])


def _virtual_host(item: HostPlan, port: str) -> pb.VirtualHost:
    host = routes.virtual_host(item.host, item.host, item.routes, parent=port)
    if item.listener:
        host.routes.insert(0, gateway_hosts.misdirected(item.listener))
    return host


def listener(found: ListenerPlan) -> pb.Listener:
    """Return the listener of a port; with TLS, the client's SNI selects the certificate."""
    if not found.tls:
        return _plain(found)
    message = _plain(found)
    chains = [_chain(found, item) for item in found.tls]
    del message.filter_chains[:]
    message.filter_chains.extend(chains)
    message.listener_filters.append(
        pb.ListenerFilter(name="envoy.filters.listener.tls_inspector", typed_config=pb.pack(pb.TlsInspector()))
    )
    return message


def _plain(found: ListenerPlan, tls_listener: str = "") -> pb.Listener:
    if found.shares:
        return tcp_proxy.listener(found.name, found.address, found.port, found.shares)
    return listeners.gateway_listener(found.name, found.address, found.port, tls_listener)


def _chain(found: ListenerPlan, shown: TlsPlan) -> pb.FilterChain:
    """Return the filter chain of a TLS listener."""
    filters = _plain(found, shown.host).filter_chains[0].filters
    context = pb.DownstreamTlsContext(
        common_tls_context=pb.CommonTlsContext(
            tls_params=pb.TlsParameters(tls_minimum_protocol_version=pb.TlsParameters.TlsProtocol.TLSv1_2),
            tls_certificate_sds_secret_configs=[
                pb.SdsSecretConfig(name=secret, sds_config=ads()) for secret in shown.secrets
            ],
            alpn_protocols=() if found.shares else ALPN,
        )
    )
    named = shown.host != _EVERY_NAME
    return pb.FilterChain(
        name=shown.host,
        filter_chain_match=pb.FilterChainMatch(server_names=[shown.host]) if named else None,
        filters=filters,
        transport_socket=pb.TransportSocket(name=_TLS, typed_config=pb.pack(context)),
    )
