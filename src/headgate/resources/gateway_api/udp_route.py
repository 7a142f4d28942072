"""The Gateway API's UDPRoutes. SMI's UDPRoute is another kind."""

from headgate.kinds import GATEWAY, names_of
from headgate.resources.columns import AGE, NAME
from headgate.resources.gateway_api.routes import PARENTS, STATE
from headgate.resources.gateway_api.tcp_route import TCPRouteSpec, tcp_route_causes
from headgate.resources.kind import Kind, ReadyBy
from headgate.resources.meta import Resource


class GatewayUDPRoute(Resource, frozen=True, kw_only=True):
    """The Gateway API's UDPRoute: it sends datagrams to backends. Its fields are those of a TCPRoute."""

    spec: TCPRouteSpec = TCPRouteSpec()


KIND = Kind(
    names_of("UDPRoute", GATEWAY),
    versions=("v1", "v1alpha2"),
    status=True,
    shape=GatewayUDPRoute,
    checks=tcp_route_causes,
    columns=(NAME, *STATE, AGE, PARENTS),
    recorded=True,
    listeners=("UDP",),
    ready_by=ReadyBy.PARENTS,
)
