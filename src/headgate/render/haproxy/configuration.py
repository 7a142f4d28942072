"""The whole configuration of HAProxy, from a selection of ports."""

from collections.abc import Iterator

from headgate.model.identities import PrivateText
from headgate.render.haproxy import backends, certificates
from headgate.render.haproxy.frontends import TABLE, FrontendRoute, host_name, http_frontend, tcp_frontend
from headgate.render.haproxy.shares import Division, divide
from headgate.render.haproxy.unsupported import ONE_ADDRESS, add_of_split, add_omissions, is_left_out
from headgate.render.haproxy.words import name_of, owner_name
from headgate.render.omissions import Collector
from headgate.render.output import Rendered, heading
from headgate.render.proxy_ports import ProxyPort, Selection
from headgate.render.route_omissions import add_external_names, place_of
from headgate.resources.meta import Value

MAIN = "haproxy.cfg"
_DEFAULTS = (
    "global",
    "    default-path config",
    "",
    "defaults",
    "    mode http",
    "    timeout connect 5s",
    "    timeout client 24d",  # HAProxy's longest; the routes have the limits
    "    timeout server 24d",
    "    timeout tunnel 24d",
    "    timeout http-keep-alive 60s",  # after a reload, the previous worker waits for idle connections this long
    "    retries 0",
    "    no option redispatch",
)


class PlannedPort(Value, frozen=True, kw_only=True):
    """A port with its planned routes; a port that is not HTTP has `connections`."""

    port: ProxyPort
    routes: tuple[FrontendRoute, ...] = ()
    connections: Division | None = None

    @property
    def counted(self) -> tuple[str, ...]:
        """Return the names of the splits with turns, which are keys of the stick table."""
        if self.connections:
            return (owner_name(self.port, self.port.owner),) if self.connections.total > 1 else ()
        return tuple(planned.name for planned in self.routes if planned.division.total > 1)


def render(selection: Selection) -> Rendered:
    """Render the configuration; `haproxy -W -f DIR/haproxy.cfg` starts with it."""
    collector = Collector(selection.omissions)
    plans = [_plan(port, selection, collector) for port in selection.ports]
    add_external_names(collector, selection, ONE_ADDRESS)
    omissions = collector.omissions()
    lines = [*heading("haproxy", omissions), *_DEFAULTS, *_table(plans), *_resolvers(selection)]
    for plan in plans:
        lines += _http(plan) if plan.connections is None else _tcp(plan, plan.connections)
    files: dict[str, str | PrivateText] = {MAIN: "\n".join([*lines, ""])}
    for plan in plans:
        files.update(certificates.files(plan.port))
    return Rendered(main=MAIN, files=files, omissions=omissions)


def _plan(port: ProxyPort, selection: Selection, collector: Collector) -> PlannedPort:
    if not port.protocol.is_http:
        route = port.connections
        division = divide(owner_name(port, port.owner), route.split, selection)
        add_of_split(collector, place_of(port, route), route.split, division, call="connection")
        return PlannedPort(port=port, connections=division)
    routes = []
    for host in port.hosts:
        entry = host_name(port, host)
        for number, route in enumerate(host.routes):
            place, name = place_of(host, route), name_of(entry, number)
            if is_left_out(collector, place, route):
                continue
            division = divide(name, route.split, selection)
            add_omissions(collector, place, route, division)
            routes.append(FrontendRoute(name=name, host=entry, route=route, division=division))
    return PlannedPort(port=port, routes=tuple(routes))


def _table(plans: list[PlannedPort]) -> Iterator[str]:
    """Yield the section of the table that counts the requests of splits."""
    if names := [name for plan in plans for name in plan.counted]:
        longest = max(map(len, names)) + 1
        yield from ("", f"backend {TABLE}")
        yield f"    stick-table type string len {longest} size {len(names)} nopurge store gpc0"


def _resolvers(selection: Selection) -> Iterator[str]:
    if any(endpoint.resolved for ready in selection.endpoints.values() for endpoint in ready):
        yield from ("", f"resolvers {backends.RESOLVERS}", "    parse-resolv-conf")


def _http(plan: PlannedPort) -> Iterator[str]:
    port = plan.port
    yield from http_frontend(port, plan.routes)
    for planned in plan.routes:
        if planned.route.redirect:
            yield from backends.redirect(planned.name, planned.route, planned.route.redirect, port)
        else:
            yield from backends.http_backends(planned.route, planned.division, port)


def _tcp(plan: PlannedPort, connections: Division) -> Iterator[str]:
    yield from tcp_frontend(plan.port, connections, owner_name(plan.port, plan.port.owner))
    yield from backends.tcp_backends(connections)
