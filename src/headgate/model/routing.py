"""What the mesh does with a request, as plain values.

A service is named `namespace/name`; a port is its number. Everything is sorted, so equal meshes are equal values.
"""

from typing import NamedTuple

from headgate.model.matching import ANY, Match
from headgate.resources.meta import Key, Value


class PortRef(NamedTuple):
    """One port of one service; what clients connect to and what splits are made of."""

    service: str
    port: int

    def __str__(self) -> str:
        return f"{self.service}:{self.port}"


class Endpoint(Value, frozen=True, kw_only=True, order=True):
    """A place that serves now. `workload` is `namespace/pod` where it is known."""

    address: str
    port: int
    workload: str = ""


class Endpoints(Value, frozen=True, kw_only=True):
    """The ready endpoints behind one port of one service."""

    ref: PortRef
    ready: tuple[Endpoint, ...]


class Target(Value, frozen=True, kw_only=True):
    """A share of the traffic: relative weight, at least 1."""

    ref: PortRef
    weight: int


class Broken(Value, frozen=True, kw_only=True):
    """A share that keeps its weight and is answered with 503 (D9 `fail`); `reason` names the cause."""

    weight: int
    reason: str


class Split(Value, frozen=True, kw_only=True):
    """Where requests go, by relative weight; with nothing in it, every request is answered with 503."""

    targets: tuple[Target, ...]
    broken: tuple[Broken, ...] = ()


class Route(Value, frozen=True, kw_only=True):
    """Requests and their split. `origin` is the object that asked for it; none for a service's plain behaviour.

    `name` is what the user calls the match: `group/match` of an HTTPRouteGroup.
    """

    split: Split
    match: Match = ANY
    name: str = ""
    origin: Key | None = None


class RouteTable(Value, frozen=True, kw_only=True):
    """What happens to requests for one port of a service; the first route that matches decides."""

    ref: PortRef
    routes: tuple[Route, ...]


class Frontend(Value, frozen=True, kw_only=True):
    """A service that clients can call. `address` is its own IP, empty when it has none (headless).

    `unbindable` are ports that the machine's user may not listen on: they are served to proxy clients only.
    """

    service: str
    address: str = ""
    ports: tuple[int, ...] = ()
    unbindable: tuple[int, ...] = ()


class Mesh(Value, frozen=True, kw_only=True):
    """Everything that proxies need to know. `domain` ends every full name (`cluster.local`)."""

    domain: str
    frontends: tuple[Frontend, ...] = ()
    tables: tuple[RouteTable, ...] = ()
    endpoints: tuple[Endpoints, ...] = ()
