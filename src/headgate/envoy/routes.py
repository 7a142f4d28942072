"""Route configurations, and the spellings of hosts under which clients of the HTTP proxy reach them."""

from headgate.envoy import pb
from headgate.envoy.plan import Draw, RoutePlan
from headgate.envoy.sticky import hash_policies
from headgate.model.matching import Header, Match, Text

RETRY_ON = "connect-failure,refused-stream,reset-before-request"  # only what has certainly not reached the application
RETRIES = 2
OTHER_HOST_ATTEMPTS = 5


def routes(plan: RoutePlan) -> pb.RouteConfiguration:
    """Return the routes of one Service port; whoever arrives here means that Service, so every host is right."""
    found = [pb.Route(match=_match(draw.match), route=_action(draw)) for draw in plan.draws]
    return pb.RouteConfiguration(
        name=plan.name, virtual_hosts=[pb.VirtualHost(name=plan.name, domains=["*"], routes=found)]
    )


def _match(match: Match) -> pb.RouteMatch:
    headers = [_header(header) for header in match.headers]
    if match.methods:
        methods = Text(value="|".join(match.methods), regex=True)
        headers.insert(0, _header(Header(name=":method", text=methods)))
    if match.path is None:
        return pb.RouteMatch(prefix="/", headers=headers)
    if match.path.kind == "exact":
        return pb.RouteMatch(path=match.path.value, headers=headers)
    if match.path.kind == "prefix":
        return pb.RouteMatch(path_separated_prefix=match.path.value, headers=headers)
    return pb.RouteMatch(safe_regex=pb.RegexMatcher(regex=match.path.value), headers=headers)


def _header(header: Header) -> pb.HeaderMatcher:
    text = header.text
    if not text.regex:
        return pb.HeaderMatcher(name=header.name, string_match=pb.StringMatcher(exact=text.value))
    pattern = pb.StringMatcher(safe_regex=pb.RegexMatcher(regex=text.value))
    return pb.HeaderMatcher(name=header.name, string_match=pattern)


def _action(draw: Draw) -> pb.RouteAction:
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
    if len(draw.clusters) == 1 and draw.sticky is None:
        return pb.RouteAction(cluster=draw.clusters[0].cluster, timeout=forever, retry_policy=retry)
    weighted = pb.WeightedCluster(
        clusters=[
            pb.WeightedCluster.ClusterWeight(name=item.cluster, weight=pb.UInt32Value(value=item.weight))
            for item in draw.clusters
        ],
        use_hash_policy=pb.BoolValue(value=True) if draw.sticky else None,
    )
    return pb.RouteAction(
        weighted_clusters=weighted, timeout=forever, retry_policy=retry, hash_policy=hash_policies(draw.sticky)
    )


def scope(name: str, authority: str, routes_name: str) -> pb.ScopedRouteConfiguration:
    """Return the scope that sends requests for one `authority` to the named routes."""
    fragment = pb.ScopedRouteConfiguration.Key.Fragment(string_key=authority)
    return pb.ScopedRouteConfiguration(
        name=name,
        route_configuration_name=routes_name,
        key=pb.ScopedRouteConfiguration.Key(fragments=[fragment]),
    )
