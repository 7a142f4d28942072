"""The whole configuration of nginx, from a selection of ports."""

from collections.abc import Iterator

from headgate.model.identities import PrivateText
from headgate.render.nginx import streams
from headgate.render.nginx.locations import Output
from headgate.render.nginx.servers import Servers, definitions, settings
from headgate.render.nginx.syntax import Variables, block
from headgate.render.nginx.upstreams import Upstreams
from headgate.render.omissions import Collector
from headgate.render.output import Rendered, heading
from headgate.render.proxy_ports import Selection
from headgate.render.route_omissions import add_external_names

MAIN = "nginx.conf"
IDLE_CONNECTIONS = 64
RESOLVED_ONCE = "nginx resolves the name only when it starts or reloads, and does not start if that fails"


def render(selection: Selection, *, stream_module: str = "") -> Rendered:
    """Render the configuration; `nginx -p DIR -c nginx.conf` starts with it.

    `stream_module` is the file of nginx's stream module, which some packages load at run time.
    """
    collector = Collector(selection.omissions)
    files: dict[str, str | PrivateText] = {}
    connections = list(_stream(selection, collector))
    http = list(_http(selection, collector, files))
    loaded = [f"load_module {stream_module};"] if connections and stream_module else []
    lines = [*loaded, "worker_processes auto;", "pid nginx.pid;", *block("events", ["worker_connections 1024;"])]
    lines += [*block("http", http), *(block("stream", connections) if connections else ())]
    add_external_names(collector, selection, RESOLVED_ONCE)
    omissions = collector.omissions()
    files[MAIN] = "\n".join([*heading("nginx", omissions), *lines, ""])
    return Rendered(main=MAIN, files=files, omissions=omissions)


def _http(selection: Selection, collector: Collector, files: dict[str, str | PrivateText]) -> Iterator[str]:
    variables, upstreams = Variables(), Upstreams(selection.endpoints, connections=IDLE_CONNECTIONS)
    output = Output(variables, upstreams, collector)
    servers = [
        line for port in selection.ports if port.hosts for line in Servers(port, selection, output, files).lines()
    ]
    if servers:
        yield from settings(servers)
        yield from definitions()
        yield from variables.lines()
        yield from upstreams.lines()
        yield from servers


def _stream(selection: Selection, collector: Collector) -> Iterator[str]:
    upstreams = Upstreams(selection.endpoints)
    servers = list(streams.servers(selection, upstreams, collector))
    if servers:
        yield "proxy_connect_timeout 5s;"
        yield "proxy_timeout 365d;"
        yield "proxy_next_upstream off;"
        yield from upstreams.lines()
        yield from servers
