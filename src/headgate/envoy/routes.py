"""Route configurations, and the spellings of hosts under which clients of the HTTP proxy reach them."""

from headgate.envoy import pb
from headgate.envoy.plan import RoutePlan

RETRY_ON = "connect-failure,refused-stream,reset-before-request"  # only what has certainly not reached the application
RETRIES = 2
OTHER_HOST_ATTEMPTS = 5


def routes(plan: RoutePlan) -> pb.RouteConfiguration:
    """Return the routes of one Service port; whoever arrives here means that Service, so every host is right."""
    route = pb.Route(match=pb.RouteMatch(prefix="/"), route=_action(plan))
    return pb.RouteConfiguration(
        name=plan.name, virtual_hosts=[pb.VirtualHost(name=plan.name, domains=["*"], routes=[route])]
    )


def _action(plan: RoutePlan) -> pb.RouteAction:
    forever = pb.Duration(seconds=0)  # how long a request may take is the application's decision
    retry = pb.RetryPolicy(
        retry_on=RETRY_ON,
        num_retries=pb.UInt32Value(value=RETRIES),
        retry_host_predicate=[
            pb.RetryPolicy.RetryHostPredicate(
                name="envoy.retry_host_predicates.previous_hosts", typed_config=pb.pack(pb.PreviousHostsPredicate())
            )
        ],
        host_selection_retry_max_attempts=OTHER_HOST_ATTEMPTS,
    )
    if len(plan.clusters) == 1:
        return pb.RouteAction(cluster=plan.clusters[0].cluster, timeout=forever, retry_policy=retry)
    weighted = pb.WeightedCluster(
        clusters=[
            pb.WeightedCluster.ClusterWeight(name=item.cluster, weight=pb.UInt32Value(value=item.weight))
            for item in plan.clusters
        ]
    )
    return pb.RouteAction(weighted_clusters=weighted, timeout=forever, retry_policy=retry)


def scope(name: str, authority: str, routes_name: str) -> pb.ScopedRouteConfiguration:
    """Return the scope that sends requests for one `authority` to the named routes."""
    fragment = pb.ScopedRouteConfiguration.Key.Fragment(string_key=authority)
    return pb.ScopedRouteConfiguration(
        name=name,
        route_configuration_name=routes_name,
        key=pb.ScopedRouteConfiguration.Key(fragments=[fragment]),
    )
