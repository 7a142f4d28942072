"""The Gateway API's TLSRoutes."""

from headgate.kinds import GATEWAY, names_of
from headgate.resources.columns import AGE, NAME
from headgate.resources.gateway_api.routes import HOSTNAMES, PARENTS, STATE
from headgate.resources.gateway_api.tcp_route import TCPRouteSpec, tcp_route_causes
from headgate.resources.kind import Kind, ReadyBy
from headgate.resources.meta import Resource


class TLSRouteSpec(TCPRouteSpec, frozen=True, kw_only=True):
    """`spec` of a TLSRoute: its parents, server names (SNI) and rule. Versions before v1alpha3 need no `hostnames`."""

    hostnames: tuple[str, ...] = ()


class TLSRoute(Resource, frozen=True, kw_only=True):
    """A TLSRoute: it sends TLS connections to backends by their server name."""

    spec: TLSRouteSpec = TLSRouteSpec()


KIND = Kind(
    names_of("TLSRoute", GATEWAY),
    versions=("v1", "v1alpha3", "v1alpha2"),
    status=True,
    shape=TLSRoute,
    checks=tcp_route_causes,
    columns=(NAME, HOSTNAMES, *STATE, AGE, PARENTS),
    recorded=True,
    listeners=("TLS",),
    ready_by=ReadyBy.PARENTS,
)
