"""Render Gateways: for each port, a listener on the Gateway's address and the route configurations of that listener."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from headgate.envoy import gateway_hosts, http_connections, listeners, names, pb, routes, tcp_proxy, udp_proxy
from headgate.envoy.clusters import wildcard_address
from headgate.envoy.config_source import ads
from headgate.envoy.planned_routes import ClusterWeight, PlannedRoute, ServerNamePlan, clusters_of
from headgate.envoy.port_plan import connections
from headgate.envoy.route_filters import ListenerInfo
from headgate.envoy.route_plan import Planner
from headgate.envoy.traces import SpanResource
from headgate.envoy.values import duration
from headgate.model.routing import GatewayPort, HostRoutes, Protocol
from headgate.resources.meta import Value

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


class ClientsPlan(Value, frozen=True, kw_only=True):
    """The certificates of clients: the name of the secret with their authorities, and whether all clients need one."""

    authorities: str
    required: bool


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


class PlannedListener(Value, frozen=True, kw_only=True):
    """The listener of a Gateway port; `shares` has the clusters of a TCP or UDP port, empty on all other ports.

    Sessions of a UDP port end after `idle_ms`; 0 means the default.
    """

    name: str
    address: str
    port: int
    shares: tuple[ClusterWeight, ...] = ()
    tls: tuple[TlsPlan, ...] = ()
    server_names: tuple[ServerNamePlan, ...] = ()
    clients: ClientsPlan | None = None
    traces: SpanResource | None = None
    is_udp: bool = False
    idle_ms: int = 0

    @property
    def needs(self) -> tuple[str, ...]:
        """Return all clusters that the listener names."""
        own = (share.cluster for share in self.shares if share.cluster != names.MISSING)
        return tuple(dict.fromkeys((*own, *clusters_of(self.server_names))))


def plan_listener(planner: Planner, port: GatewayPort) -> PlannedListener:
    """Plan the listener of a Gateway port, without its hosts."""
    ref = names.gateway_port(port)
    if port.protocol is Protocol.UDP:
        return _plan_udp(planner, port)
    secrets, clients = _secrets(port), port.client_certificates
    passed_on = {name.host for name in port.server_names}
    return PlannedListener(
        name=names.gateway(ref),
        address=port.address,
        port=port.port,
        shares=() if port.protocol.is_http or port.server_names else connections(planner, port.connections, port.port),
        tls=tuple(TlsPlan(host=host, secrets=own) for host, own in secrets.items() if host not in passed_on),
        server_names=tuple(
            ServerNamePlan(
                host=name.host,
                shares=connections(planner, name.route, port.port),
                secrets=secrets[name.listener] if name.terminated else (),
            )
            for name in port.server_names
        ),
        clients=ClientsPlan(authorities=names.authorities_of(ref), required=not clients.optional) if clients else None,
    )


def _plan_udp(planner: Planner, port: GatewayPort) -> PlannedListener:
    """Plan the listener of a UDP port; the time of idle sessions is that of the first backend."""
    route = udp_proxy.with_session_limit(port.connections) if port.connections else None
    targets = route.split.targets if route else ()
    return PlannedListener(
        name=names.gateway(names.gateway_port(port)),
        address=port.address,
        port=port.port,
        shares=_sessions(connections(planner, route, port.port), names.no_endpoints(names.gateway_port(port))),
        is_udp=True,
        idle_ms=targets[0].resilience.timeouts.idle if targets else 0,
    )


def _sessions(shares: Iterable[ClusterWeight], without_endpoints: str) -> tuple[ClusterWeight, ...]:
    """Return the clusters of sessions. Envoy counts the datagrams that it drops only where no cluster exists."""
    return tuple(
        structs.replace(share, cluster=names.MISSING) if share.cluster == without_endpoints else share
        for share in shares
    )


def plan_wildcards(planner: Planner, port: GatewayPort) -> ScopePlan:
    """Plan the scope for all wildcards of a port, which are its hosts."""
    name = names.gateway(names.gateway_port(port))
    plans = tuple(_host(planner, port, host_routes) for _, host_routes in sorted(port.hosts.items()))
    return ScopePlan(port=name, host=gateway_hosts.WILDCARDS, hosts=plans)


def plan_host(planner: Planner, port: GatewayPort, host_routes: HostRoutes) -> ScopePlan:
    """Plan the scope of a host that is no wildcard; of `port`, everything but its hosts is used."""
    name = names.gateway(names.gateway_port(port))
    return ScopePlan(port=name, host=host_routes.host, hosts=(_host(planner, port, host_routes),))


def _host(planner: Planner, port: GatewayPort, host_routes: HostRoutes) -> HostPlan:
    own_host = host_routes.host if gateway_hosts.has_own_scope(host_routes.host) else ""
    listener_info = ListenerInfo(scheme="https" if port.tls else "http", port=port.port, host=own_host)
    has_more_listeners = len({*(host for host, _ in port.tls), *(name.listener for name in port.server_names)}) > 1
    return HostPlan(
        host=host_routes.host,
        routes=tuple(planner.plan_routes(host_routes.routes, listener_info)),
        listener=host_routes.listener if has_more_listeners else "",
    )


def _secrets(port: GatewayPort) -> Mapping[str, tuple[str, ...]]:
    """Return the certificates of each listener that ends TLS, by its hostname."""
    by_host: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for host, certificate in port.tls:
        by_host[host] += (names.secret(certificate.secret),)
    return by_host


def scope(plan: ScopePlan) -> pb.ScopedRouteConfiguration:
    """Return a scope. In the scope of the wildcards, the most specific one matches."""
    return gateway_hosts.scope(plan.port, plan.host, [_virtual_host(host, plan.port) for host in plan.hosts])


def _virtual_host(plan: HostPlan, port: str) -> pb.VirtualHost:
    host = routes.virtual_host(plan.host, plan.host, plan.routes, parent=port)
    if plan.listener:
        host.routes.insert(0, gateway_hosts.misdirected(plan.listener))
    return host


def listener(plan: PlannedListener) -> pb.Listener:
    """Return the listener of a port; with TLS, the client's SNI selects the certificate, or the clusters."""
    if plan.is_udp:
        return udp_proxy.listener(plan.name, plan.address, plan.port, plan.shares, plan.idle_ms)
    message = _plain(plan)
    if plan.address == "::":
        message.address.CopyFrom(wildcard_address(plan.address, plan.port))
    if not plan.tls and not plan.server_names:
        return message
    chains = [_https_chain(plan, tls) for tls in plan.tls]
    chains += [_connections_chain(plan, name) for name in plan.server_names]
    return tcp_proxy.with_chains_by_server_name(message, chains)


def _plain(plan: PlannedListener) -> pb.Listener:
    """Return the listener without TLS; its filter chains are those of TCP and HTTP ports."""
    if plan.shares or (plan.server_names and not plan.tls):
        return tcp_proxy.listener(plan.name, plan.address, plan.port, plan.shares)
    return listeners.gateway_listener(plan.name, plan.address, plan.port, traces=plan.traces)


def _https_chain(plan: PlannedListener, shown: TlsPlan) -> pb.FilterChain:
    """Return the filter chain of an HTTPS listener."""
    plain = listeners.gateway_listener(plan.name, plan.address, plan.port, shown.host, plan.traces)
    return _with_tls(_chain(shown.host, plain), plan.clients, shown.secrets, http_connections.ALPN)


def _connections_chain(plan: PlannedListener, name: ServerNamePlan) -> pb.FilterChain:
    """Return the filter chain of a TLS listener for a server name."""
    chain = tcp_proxy.chain_of_server_name(plan.name, name)
    return _with_tls(chain, plan.clients, name.secrets) if name.secrets else chain


def _chain(host: str, plain: pb.Listener) -> pb.FilterChain:
    """Return the filter chain of a listener, for connections with the server name `host`."""
    match = pb.FilterChainMatch(server_names=[host]) if host != tcp_proxy.EVERY_NAME else None
    return pb.FilterChain(name=host, filter_chain_match=match, filters=plain.filter_chains[0].filters)


def _with_tls(
    chain: pb.FilterChain, clients: ClientsPlan | None, secrets: Sequence[str], alpn: Sequence[str] = ()
) -> pb.FilterChain:
    """Return a filter chain that ends TLS."""
    context = pb.DownstreamTlsContext(
        common_tls_context=pb.CommonTlsContext(
            tls_params=pb.TlsParameters(tls_minimum_protocol_version=pb.TlsParameters.TlsProtocol.TLSv1_2),
            tls_certificate_sds_secret_configs=[
                pb.SdsSecretConfig(name=secret, sds_config=ads()) for secret in secrets
            ],
            alpn_protocols=alpn,
        )
    )
    if clients:
        _validate_clients(context, clients)
    chain.transport_socket.CopyFrom(pb.TransportSocket(name=_TLS, typed_config=pb.pack(context)))
    chain.transport_socket_connect_timeout.CopyFrom(duration(http_connections.HANDSHAKE_MS))
    return chain


def _validate_clients(context: pb.DownstreamTlsContext, clients: ClientsPlan) -> None:
    """Validate the certificates of clients. The authorities are a secret, so that a change to them changes no listener.

    A resumed session would not be validated again, after the certificate expired or its authority was removed.
    """
    verification = pb.CertificateValidationContext.TrustChainVerification
    accepted = verification.VERIFY_TRUST_CHAIN if clients.required else verification.ACCEPT_UNTRUSTED
    combined = pb.CommonTlsContext.CombinedCertificateValidationContext(
        default_validation_context=pb.CertificateValidationContext(trust_chain_verification=accepted),
        validation_context_sds_secret_config=pb.SdsSecretConfig(name=clients.authorities, sds_config=ads()),
    )
    context.common_tls_context.combined_validation_context.CopyFrom(combined)
    context.require_client_certificate.CopyFrom(pb.BoolValue(value=clients.required))
    context.disable_stateless_session_resumption = context.disable_stateful_session_resumption = True
