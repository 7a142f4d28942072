"""Plan a Service port, and the connections of a port by server name, from the model alone."""

from collections.abc import Collection

from headgate.envoy import names
from headgate.envoy.cluster_plan import ClusterPlan
from headgate.envoy.planned_routes import ClusterWeight, RoutePlan, ServerNamePlan
from headgate.envoy.route_filters import ListenerInfo
from headgate.envoy.route_plan import NO_PROTOCOLS, Planner, Protocols, Ready
from headgate.model.routing import PortRef, Route, RouteTable, Split

_NOWHERE = Route(split=Split(targets=()))


def plan_service_port(
    table: RouteTable,
    ready: Ready,
    protocols: Protocols = NO_PROTOCOLS,
    *,
    domain: str = "",
    opaque: Collection[PortRef] = (),
) -> tuple[RoutePlan, tuple[ClusterPlan, ...]]:
    """Plan the routes and clusters of a Service port; with `domain`, endpoints are called by mTLS.

    `opaque` has the Service ports whose pods are called with TCP, not HTTP.
    """
    planner = Planner(table.ref, ready, protocols, domain=domain, opaque=opaque)
    listener = ListenerInfo(scheme="http", port=table.ref.port)
    planned = tuple(planner.plan_routes(table.routes, listener))
    server_names = tuple(
        ServerNamePlan(host=name.host, shares=connections(planner, name.route, table.ref.port))
        for name in table.server_names
    )
    plan = RoutePlan(name=names.outbound(table.ref), routes=planned, server_names=server_names)
    return plan, tuple(planner.clusters.values())


def connections(planner: Planner, route: Route | None, port: int) -> tuple[ClusterWeight, ...]:
    """Return the weighted clusters of connections; without backends, `MISSING`, so that Envoy closes them."""
    planned = planner.plan_route(route or _NOWHERE, ListenerInfo(scheme="", port=port))
    return planned.clusters or (ClusterWeight(cluster=names.MISSING, weight=1),)
