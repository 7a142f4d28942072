"""Ports whose connections nginx forwards without reading requests (the stream module)."""

from collections.abc import Iterator

from headgate.render.nginx.syntax import block
from headgate.render.nginx.upstreams import Upstreams
from headgate.render.omissions import Collector
from headgate.render.proxy_ports import ProxyPort, Selection
from headgate.render.route_omissions import add_sticky, place_of
from headgate.render.shares import grouped


def servers(selection: Selection, upstreams: Upstreams, collector: Collector) -> Iterator[str]:
    """Yield the servers of all ports without hosts; a failing share closes its connections."""
    for port in selection.ports:
        if port.protocol.is_http:
            continue
        route = port.connections
        add_sticky(collector, place_of(port, route), route.split, proxy="nginx", call="connection")
        shares = grouped(route.split, selection.endpoints, {})
        targets = [target for group in shares.groups for target in group.targets]
        upstream = upstreams.add(f"headgate_{port.port}", targets, shares.failing)
        yield from block("server", [f"listen {listen(port)};", f"proxy_pass {upstream};"])


def listen(port: ProxyPort) -> str:
    """Return the parameter of `listen`: without an address, only the number of the port."""
    return port.bind.removeprefix(":")
