"""Upstreams: the servers of a split with exact weights, and servers that stand for failing shares."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headgate.model.authorities import endpoint_authority
from headgate.model.routing import Endpoint, PortRef, Target
from headgate.render.nginx.syntax import block
from headgate.render.weights import server_weights

FAILING = "unix:/dev/null/{}"
"""The address of a failing share, with its status: nginx can never connect to a socket below a file, and the status
of such a request is that in the address."""
_ZONE_KB, _SERVER_KB = 64, 1


class Upstreams:
    """The upstreams of a configuration. `connections` is the number of idle connections to keep; 0 for connections on TCP ports."""

    def __init__(self, endpoints: Mapping[PortRef, Sequence[Endpoint]], *, connections: int = 0) -> None:
        self._endpoints = endpoints
        self._connections = connections
        self._lines: list[str] = []
        self._names: dict[str, int] = {}

    def add(self, name: str, targets: Iterable[Target], failing: Mapping[int, int]) -> str:
        """Add an upstream and return its name; `failing` has the weights of failing shares by status.

        Ports with the same number on several addresses have the same names, so a number may be appended.
        """
        self._names[name] = self._names.get(name, 0) + 1
        name = name if self._names[name] == 1 else f"{name}_{self._names[name]}"
        shares = {
            index: (target.weight, list(map(endpoint_authority, self._endpoints.get(target.ref, ()))))
            for index, target in enumerate(targets)
        }
        statuses = {-status: (weight, [FAILING.format(status)]) for status, weight in failing.items() if weight}
        servers = [server for items in server_weights(shares | statuses).values() for server in items]
        size = max(_ZONE_KB, _SERVER_KB * len(servers))
        lines = [
            f"zone {name} {size}k;",
            *(f"server {place} weight={weight} max_fails=0;" for place, weight in servers),
        ]
        if self._connections:
            lines.append(f"keepalive {self._connections};")
        self._lines += block(f"upstream {name}", lines)
        return name

    def lines(self) -> Iterator[str]:
        """Yield the definitions."""
        yield from self._lines
