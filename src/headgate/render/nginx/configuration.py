"""The whole configuration of nginx, from a selection of ports."""

from collections.abc import Iterator

from headgate.model.routing import Route
from headgate.render.omissions import in_order
from headgate.render.output import Rendered, heading
from headgate.render.proxy_ports import Selection
from headgate.render.weights import server_weights

MAIN = "nginx.conf"


def render(selection: Selection) -> Rendered:
    """Render the configuration; `nginx -p DIR -c nginx.conf` starts with it."""
    omissions = in_order(selection.omissions)
    lines = [*heading("nginx", omissions), "pid nginx.pid;", "events {", "}", "http {", *_http(selection), "}"]
    return Rendered(main=MAIN, files={MAIN: "\n".join([*lines, ""])}, omissions=omissions)


def _http(selection: Selection) -> Iterator[str]:
    for port in selection.ports:
        for host in port.hosts:
            name = f"headgate_{port.port}"
            yield from _upstream(name, host.routes[-1], selection)
            yield f"server {{ listen {port.port}; location / {{ proxy_pass http://{name}; }} }}"


def _upstream(name: str, route: Route, selection: Selection) -> Iterator[str]:
    shares = {
        item.ref: (item.weight, [f"{end.address}:{end.port}" for end in selection.endpoints.get(item.ref, ())])
        for item in route.split.targets
    }
    yield f"upstream {name} {{"
    yield f"    zone {name} 64k;"
    for servers in server_weights(shares).values():
        yield from (f"    server {address} weight={weight} max_fails=0;" for address, weight in servers)
    yield "}"
