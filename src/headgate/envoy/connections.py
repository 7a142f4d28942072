"""Ports that are not HTTP: connections are passed on as they come, byte by byte (003; docs/protocols.md).

No listener filter waits for the client's first bytes, so a server that speaks first is heard at once. Clients of the HTTP
proxy reach the same clusters through CONNECT.
"""

from headgate.envoy import pb
from headgate.envoy.clusters import address
from headgate.envoy.plan import RoutePlan, WeightedName

CONNECT = "CONNECT"
ATTEMPTS = 3  # an endpoint that refuses costs the client nothing while another one accepts
_REFUSAL = (
    "headgate: %s carries connections, not HTTP requests. Connect to the Service's own address, or through this proxy by "
    "CONNECT (curl --proxytunnel).\n"
)


def listener(name: str, host: str, port: int, shares: tuple[WeightedName, ...]) -> pb.Listener:
    """Return the listener on a Service's own address that passes connections on."""
    forever = pb.Duration(seconds=0)  # how long a connection may be silent is the application's decision
    proxy = pb.TcpProxy(stat_prefix="mesh", idle_timeout=forever, max_connect_attempts=pb.UInt32Value(value=ATTEMPTS))
    if len(shares) == 1:
        proxy.cluster = shares[0].cluster
    else:
        weights = [pb.TcpProxy.WeightedCluster.ClusterWeight(name=item.cluster, weight=item.weight) for item in shares]
        proxy.weighted_clusters.CopyFrom(pb.TcpProxy.WeightedCluster(clusters=weights))
    passes = pb.Filter(name="envoy.filters.network.tcp_proxy", typed_config=pb.pack(proxy))
    return pb.Listener(
        name=name,
        address=address(host, port),
        filter_chains=[pb.FilterChain(filters=[passes])],
        enable_reuse_port=pb.BoolValue(value=False),  # as on HTTP ports (listeners.py)
    )


def routes(plan: RoutePlan) -> pb.RouteConfiguration:
    """Return what clients of the HTTP proxy get: CONNECT opens a connection, a request is told what to do instead."""
    place = plan.name.partition("/")[2]
    refusal = pb.DirectResponseAction(status=400, body=pb.DataSource(inline_string=_REFUSAL % place))
    found = [connect(plan.draws[-1].clusters), pb.Route(match=pb.RouteMatch(prefix="/"), direct_response=refusal)]
    host = pb.VirtualHost(name=plan.name, domains=["*"], routes=found)
    return pb.RouteConfiguration(name=plan.name, virtual_hosts=[host])


def connect(shares: tuple[WeightedName, ...]) -> pb.Route:
    """Return the route that opens a connection to one of the clusters for each CONNECT, by their weights."""
    tunnel = pb.RouteAction.UpgradeConfig(
        upgrade_type=CONNECT, connect_config=pb.RouteAction.UpgradeConfig.ConnectConfig()
    )
    action = pb.RouteAction(
        timeout=pb.Duration(seconds=0),
        upgrade_configs=[tunnel],
        retry_policy=pb.RetryPolicy(retry_on="connect-failure", num_retries=pb.UInt32Value(value=ATTEMPTS - 1)),
    )
    if len(shares) == 1:
        action.cluster = shares[0].cluster
    else:
        weights = [
            pb.WeightedCluster.ClusterWeight(name=item.cluster, weight=pb.UInt32Value(value=item.weight))
            for item in shares
        ]
        action.weighted_clusters.CopyFrom(pb.WeightedCluster(clusters=weights))
    return pb.Route(match=pb.RouteMatch(connect_matcher=pb.RouteMatch.ConnectMatcher()), route=action)
