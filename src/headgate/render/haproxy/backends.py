"""Backend sections: the servers of a share, and the rules that requests and responses pass."""

from collections.abc import Iterator

from headgate.model.authorities import endpoint_authority
from headgate.model.requests import Redirect
from headgate.model.routing import Protocol, Route
from headgate.render.haproxy.filters import redirect_rules, rules
from headgate.render.haproxy.shares import BackendServer, Division, SectionShare
from headgate.render.haproxy.words import name_of
from headgate.render.output import one_line
from headgate.render.proxy_ports import ProxyPort

RESOLVERS = "system"


def http2_name(name: str) -> str:
    """Return the name of the section that calls the servers of another section with HTTP/2."""
    return name_of(name, "http2")


def origin(route: Route) -> Iterator[str]:
    """Yield a comment that names the object of a route; nothing for a Service without routes."""
    if route.origin:
        yield f"# {one_line(f'{route.origin}, {route.name}' if route.name else str(route.origin))}"


def http_backends(route: Route, division: Division, port: ProxyPort) -> Iterator[str]:
    """Yield the sections of a route."""
    for share in division.shares:
        if share.redirect:
            yield from redirect(share.name, route, share.redirect, port)
            continue
        yield from _http_backend(share.name, route, share, http2=share.protocol is Protocol.HTTP2)
        if share.protocol is Protocol.HTTP_ANY:
            yield from _http_backend(http2_name(share.name), route, share, http2=True)


def _http_backend(name: str, route: Route, share: SectionShare, *, http2: bool) -> Iterator[str]:
    yield from ("", *origin(route), f"backend {name}")
    if not share.servers:
        yield f"    http-request return status {share.status}"
        return
    yield "    balance roundrobin"
    if limit := route.timeouts.shortest:
        yield f"    timeout server {limit}ms"
    for filters in (route.filters, share.filters):
        yield from (f"    {rule}" for rule in rules(filters, route.match.path))
    yield from (f"    {_server(server)}{' proto h2' if http2 else ''}" for server in share.servers)


def redirect(name: str, route: Route, response: Redirect, port: ProxyPort) -> Iterator[str]:
    """Yield the section that answers requests of a route with a redirect."""
    yield from ("", *origin(route), f"backend {name}")
    yield from (f"    {rule}" for rule in redirect_rules(response, route.match.path, port))


def tcp_backends(division: Division) -> Iterator[str]:
    """Yield the sections of a port that is not HTTP; HAProxy closes connections to a section without servers."""
    for share in division.shares:
        yield from ("", f"backend {share.name}", "    mode tcp", "    balance roundrobin")
        yield from (f"    {_server(server)}" for server in share.servers)


def _server(server: BackendServer) -> str:
    endpoint = server.endpoint
    resolved = f" resolvers {RESOLVERS} init-addr libc,none" if endpoint.resolved else ""
    return f"server {server.name} {endpoint_authority(endpoint)} weight {server.weight}{resolved}"
