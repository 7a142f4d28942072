"""Render the names of Services below `.localhost`, by which browsers reach them at one port of the machine.

The listener finds the routes of a Service's HTTP port by scope, as the HTTP proxy does (ADR 0002). The key of a scope is `PREFIX` and
the host without its port. All hosts that are no name of a Service share two scopes, which answer with 404.
"""

from collections.abc import Iterator

from headgate.envoy import names, pb, routes, tcp_proxy
from headgate.envoy.config import SCOPES, Part
from headgate.envoy.http_connections import route_configuration
from headgate.envoy.planned_routes import RoutePlan
from headgate.envoy.unrouted import LOCALHOST_PREFIX, OTHER_HOSTS, UNKNOWN_NAME, mark_found
from headgate.model.localhost_names import LOCALHOST, names_of, shortest_names, url
from headgate.model.routing import Frontend, Mesh, PortRef, RouteTable

MOST_LISTED = 100  # names in an answer, so that no resource grows with the mesh
_NOT_FOUND, _OK = 404, 200
_LARGEST_BODY = 64 * 1024  # Envoy allows 4 KiB by default; a name has at most 63 * 3 characters
_NO_HTTP = "headgate: %s leads to no HTTP port of the Service %s, so browsers can't open it. `kubectl -n %s get service %s` shows its ports.\n"
_NOT_BELOW_LOCALHOST = (
    f"headgate: only names that end in .{LOCALHOST} are served here. %s lists them.\n"  # against DNS rebinding
)


def of_service(front: Frontend, tables: tuple[RouteTable, ...]) -> Iterator[Part]:
    """Yield the scopes of a Service's names; those that lead to no HTTP port answer with the reason."""
    http_ports = {table.ref.port for table in tables if table.protocol.is_http}
    namespace, service = front.service.split("/")
    for named in names_of(front, http_ports) if front.ports else ():
        name = names.host_scope(PortRef(front.service, named.port), named.host)
        key = f"{LOCALHOST_PREFIX}{named.host}"
        if named.port:
            routes_name = names.outbound(PortRef(front.service, named.port))
            yield Part(SCOPES, name, routes.host_scope, (name, key, routes_name))
        else:
            text = _NO_HTTP % (named.host, front.service, namespace, service)
            yield Part(SCOPES, name, _answer, (name, key, _NOT_FOUND, text))


def listed(mesh: Mesh) -> tuple[tuple[str, ...], int]:
    """Return the names to list, at most MOST_LISTED, and the number of further ones."""
    hosts = tuple(named.host for named in shortest_names(mesh))
    return hosts[:MOST_LISTED], len(hosts[MOST_LISTED:])


def of_other_hosts(port: int, hosts: tuple[str, ...], further: int) -> Iterator[Part]:
    """Yield the scopes of `localhost`, which lists names of Services, and of all hosts that are no name of a Service.

    `hosts` has the names to list, `further` the number of those that are not listed, and `port` is the listener's.
    """
    rows = [f"  {url(host, port)}" for host in hosts]
    rows += [f"  and {further} more: kubectl get services --all-namespaces"] if further else []
    listed = "\n".join(["Names of Services:", *rows] if rows else ["No Service has an HTTP port."]) + "\n"
    unknown = f"headgate: no Service has this name.\n{listed}"
    for key, status, text in (
        (LOCALHOST_PREFIX + LOCALHOST, _OK, listed),
        (UNKNOWN_NAME, _NOT_FOUND, unknown),
        (OTHER_HOSTS, _NOT_FOUND, _NOT_BELOW_LOCALHOST % url(LOCALHOST, port)),
    ):
        yield Part(SCOPES, key, _answer, (key, key, status, text))


def service_routes(plan: RoutePlan) -> pb.RouteConfiguration:
    """Return the routes of an HTTP port for the HTTP proxy and the listener of the names (`unrouted.localhost_attempt`)."""
    return mark_found(tcp_proxy.routes_with_tunnel(plan))


def _answer(name: str, key: str, status: int, text: str) -> pb.ScopedRouteConfiguration:
    answer = pb.DirectResponseAction(status=status, body=pb.DataSource(inline_string=text))
    host = pb.VirtualHost(
        name="all", domains=["*"], routes=[pb.Route(match=pb.RouteMatch(prefix=""), direct_response=answer)]
    )
    configuration = mark_found(route_configuration("", [host]))
    configuration.max_direct_response_body_size_bytes.CopyFrom(pb.UInt32Value(value=_LARGEST_BODY))
    return routes.inline_scope(name, key, configuration)
