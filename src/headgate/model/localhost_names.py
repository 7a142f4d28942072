"""The names below `.localhost` by which browsers of one machine reach the HTTP ports of Services.

Browsers, curl and systemd-resolved resolve these names to the loopback address without a query (RFC 6761, 6.3):

SERVICE.NAMESPACE.localhost             port 80, or the HTTP port with the lowest number
SERVICE.localhost                       the same, for Services of the namespace `default`
PORTNAME.SERVICE.NAMESPACE.localhost    the port of that name
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from headgate.model.authorities import DEFAULT_NAMESPACE, DEFAULT_PORT
from headgate.model.routing import Frontend, Mesh, PortRef

LOCALHOST = "localhost"


class LocalhostName(NamedTuple):
    """A name of a Service (`namespace/name`) and the HTTP port that it leads to; 0 if it has no such port."""

    host: str
    service: str
    port: int


def names_of(front: Frontend, http_ports: Collection[int]) -> Iterator[LocalhostName]:
    """Yield all names of a Service; `http_ports` has those of its ports that are HTTP."""
    namespace, name = front.service.split("/")
    port = first_port(http_ports)
    yield LocalhostName(f"{name}.{namespace}.{LOCALHOST}", front.service, port)
    if namespace == DEFAULT_NAMESPACE:
        yield LocalhostName(f"{name}.{LOCALHOST}", front.service, port)
    for number, port_name in zip(front.ports, front.port_names, strict=False):
        if port_name:
            host = f"{port_name}.{name}.{namespace}.{LOCALHOST}"
            yield LocalhostName(host, front.service, number if number in http_ports else 0)


def is_name(host: str) -> bool:
    """Return whether a host ends in `.localhost`, as the names of Services do."""
    return host.lower().removesuffix(".").endswith(f".{LOCALHOST}")


def resolve(mesh: Mesh, host: str) -> PortRef | None:
    """Return the HTTP port of a Service that a name leads to; None if it leads to none."""
    name, http_ports = host.lower().removesuffix("."), _http_ports(mesh)
    for front in mesh.frontends:
        for named in names_of(front, http_ports.get(front.service, ())):
            if named.port and named.host == name:
                return PortRef(front.service, named.port)
    return None


def url(host: str, port: int) -> str:
    """Return the URL of a name at the port of its listener."""
    return f"http://{host}" if port == DEFAULT_PORT else f"http://{host}:{port}"


def first_port(http_ports: Collection[int]) -> int:
    """Return the HTTP port that names without a port name lead to; 0 if there is none."""
    return DEFAULT_PORT if DEFAULT_PORT in http_ports else min(http_ports, default=0)


def shortest_names(mesh: Mesh) -> Iterator[LocalhostName]:
    """Yield the shortest name of each HTTP port that has a name, ordered by Service and port."""
    http_ports = _http_ports(mesh)
    for front in mesh.frontends:
        by_port: dict[int, LocalhostName] = {}
        for named in names_of(front, http_ports.get(front.service, ())):
            shortest = by_port.get(named.port, named)
            by_port[named.port] = min(shortest, named, key=lambda each: len(each.host))
        by_port.pop(0, None)
        yield from (by_port[port] for port in sorted(by_port))


def _http_ports(mesh: Mesh) -> dict[str, set[int]]:
    """Return the HTTP ports of each Service that has one."""
    http_ports: dict[str, set[int]] = {}
    for table in mesh.tables:
        if table.protocol.is_http:
            http_ports.setdefault(table.ref.service, set()).add(table.ref.port)
    return http_ports
