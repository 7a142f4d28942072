"""Render ports that are not HTTP: Envoy forwards their connections as bytes (003; docs/tasks/protocols.md).

No listener filter waits for the client's first bytes, so a server that speaks first is reached at once. The only exception
is a TLS port with TLSRoutes, where the server name in the client's first bytes selects the cluster. Clients of the HTTP
proxy reach the same clusters by CONNECT.
"""

from collections.abc import Iterable

from headgate.envoy import listeners, names, pb, traffic_stats, tunnels
from headgate.envoy import routes as http_routes
from headgate.envoy.clusters import address, pod_and_port
from headgate.envoy.http_connections import route_configuration
from headgate.envoy.planned_routes import ClusterWeight, RoutePlan, ServerNamePlan
from headgate.model.routing import Endpoint

NO_CLUSTER = (ClusterWeight(cluster=names.MISSING, weight=1),)
EVERY_NAME = "*"
"""The server name of connections that fit no other server name, or have none."""
ATTEMPTS = 3  # attempts to connect; if an endpoint refuses, Envoy tries another one
_REFUSAL = (
    "headgate: %s carries connections, not HTTP requests. Connect to the Service's own address, or through this proxy "
    "by CONNECT (curl --proxytunnel).\n"
)


def listener(
    name: str,
    host: str,
    port: int,
    shares: tuple[ClusterWeight, ...],
    server_names: tuple[ServerNamePlan, ...] = (),
) -> pb.Listener:
    """Return the listener on a Service's own address that forwards connections: all to `shares`, or by server name."""
    message = _listener(name, address(host, port), _chain(shares, traffic_stats.connections(name)))
    if not server_names:
        return message
    return with_chains_by_server_name(message, [chain_of_server_name(name, planned) for planned in server_names])


def redirected_listener(
    name: str,
    host: str,
    port: int,
    shares: tuple[ClusterWeight, ...],
    server_names: tuple[ServerNamePlan, ...] = (),
) -> pb.Listener:
    """Return the listener for redirected connections to an address; it binds no socket."""
    return listeners.unbound(listener(name, host, port, shares, server_names))


def chain_of_server_name(listener_name: str, planned: ServerNamePlan) -> pb.FilterChain:
    """Return the filter chain for TLS connections with a server name. Bytes that are not TLS reach no backend."""
    chain = _chain(planned.shares, traffic_stats.connections(listener_name))
    chain.name = planned.host
    if planned.host != EVERY_NAME:
        chain.filter_chain_match.server_names.append(planned.host)
    if planned.shares != NO_CLUSTER:
        chain.filter_chain_match.transport_protocol = "tls"
    return chain


def with_chains_by_server_name(message: pb.Listener, chains: Iterable[pb.FilterChain]) -> pb.Listener:
    """Return a listener that reads the server name (SNI) of a connection, and selects its filter chain by it."""
    del message.filter_chains[:]
    message.filter_chains.extend(chains)
    message.listener_filters.append(
        pb.ListenerFilter(name="envoy.filters.listener.tls_inspector", typed_config=pb.pack(pb.TlsInspector()))
    )
    return message


def tunnel_listener(name: str, listener_name: str, server_names: tuple[ServerNamePlan, ...]) -> pb.Listener:
    """Return the listener inside the proxy that forwards the connections in tunnels by server name.

    They count as those of the listener `listener_name` on the Service's own address.
    """
    message = pb.Listener(name=name, internal_listener=pb.Listener.InternalListenerConfig())
    return with_chains_by_server_name(
        message, [chain_of_server_name(listener_name, planned) for planned in server_names]
    )


def pod_listener(name: str, endpoint: Endpoint, share: ClusterWeight) -> pb.Listener:
    """Return the listener for redirected connections to one endpoint."""
    ref = names.parse(name)
    logs = traffic_stats.pod_connections(name, pod_and_port(endpoint), ref.service if ref else "")
    return listeners.unbound(_listener(name, address(endpoint.address, endpoint.port), _chain((share,), logs)))


def outbound_listener(name: str, host: str, port: int, share: ClusterWeight) -> pb.Listener:
    """Return the listener that accepts all redirected connections.

    It hands each to the listener of its original destination. Connections to addresses without a listener are forwarded
    to `share`. A connection that was not redirected has no original destination and is closed.
    """
    logs = traffic_stats.passthrough_connections(share.cluster) if share.cluster != names.MISSING else ()
    listener = _listener(name, address(host, port), _chain((share,), logs))
    listener.use_original_dst.CopyFrom(pb.BoolValue(value=True))
    return listener


def _listener(name: str, where: pb.Address, chain: pb.FilterChain) -> pb.Listener:
    return pb.Listener(
        name=name,
        address=where,
        filter_chains=[chain],
        enable_reuse_port=pb.BoolValue(value=False),  # off, as on all listeners (listeners.py)
    )


def _chain(shares: tuple[ClusterWeight, ...], logs: Iterable[pb.AccessLog] = ()) -> pb.FilterChain:
    """Return the filter chain that forwards connections to one of the clusters, by weight."""
    forever = pb.Duration(seconds=0)  # applications decide how long a connection may be idle
    proxy = pb.TcpProxy(stat_prefix="mesh", idle_timeout=forever, max_connect_attempts=pb.UInt32Value(value=ATTEMPTS))
    traffic_stats.log_connections(proxy, logs)
    clusters = shares or NO_CLUSTER
    if len(clusters) == 1:
        proxy.cluster = clusters[0].cluster
    else:
        weights = [
            pb.TcpProxy.WeightedCluster.ClusterWeight(name=share.cluster, weight=share.weight) for share in clusters
        ]
        proxy.weighted_clusters.CopyFrom(pb.TcpProxy.WeightedCluster(clusters=weights))
    return pb.FilterChain(filters=[pb.Filter(name="envoy.filters.network.tcp_proxy", typed_config=pb.pack(proxy))])


def connect_routes(plan: RoutePlan) -> pb.RouteConfiguration:
    """Return the routes for clients of the HTTP proxy: CONNECT opens a connection, other requests get 400."""
    service_port = plan.name.partition("/")[2]
    refusal = pb.DirectResponseAction(status=400, body=pb.DataSource(inline_string=_REFUSAL % service_port))
    inside = (ClusterWeight(cluster=names.tunnel(plan.name), weight=1),)
    routes = [
        connect_route(plan.name, inside if plan.server_names else plan.connections),
        pb.Route(match=pb.RouteMatch(prefix="/"), direct_response=refusal),
    ]
    host = pb.VirtualHost(name=plan.name, domains=["*"], routes=routes)
    return route_configuration(plan.name, [host])


def connect_route(name: str, shares: tuple[ClusterWeight, ...]) -> pb.Route:
    """Return the route of CONNECT, which opens a connection to one of the clusters, by weight.

    Connections without a cluster are counted for `name`, the parent of the route.
    """
    tunnel = pb.RouteAction.UpgradeConfig(
        upgrade_type=tunnels.CONNECT, connect_config=pb.RouteAction.UpgradeConfig.ConnectConfig()
    )
    action = pb.RouteAction(
        timeout=pb.Duration(seconds=0),
        upgrade_configs=[tunnel],
        retry_policy=pb.RetryPolicy(retry_on="connect-failure", num_retries=pb.UInt32Value(value=ATTEMPTS - 1)),
    )
    clusters = shares or NO_CLUSTER
    if len(clusters) == 1:
        action.cluster = clusters[0].cluster
    else:
        weights = [
            pb.WeightedCluster.ClusterWeight(name=share.cluster, weight=pb.UInt32Value(value=share.weight))
            for share in clusters
        ]
        action.weighted_clusters.CopyFrom(pb.WeightedCluster(clusters=weights))
    route = pb.Route(match=pb.RouteMatch(connect_matcher=pb.RouteMatch.ConnectMatcher()), route=action)
    if clusters == NO_CLUSTER:
        route.name = traffic_stats.route_name_without_cluster(name)
    return route


def routes_with_tunnel(plan: RoutePlan) -> pb.RouteConfiguration:
    """Return the routes of an HTTP port. The first route accepts CONNECT and leads to the proxy's own listener.

    This listener uses the same routes for the requests in the tunnel (`listeners.tunnel_listener`).
    """
    configuration = http_routes.routes(plan)
    configuration.request_headers_to_remove.append(tunnels.HEADER)
    route = connect_route(plan.name, (ClusterWeight(cluster=names.TUNNEL, weight=1),))
    tunnels.enable(route)
    configuration.virtual_hosts[0].routes.insert(0, route)
    return configuration
