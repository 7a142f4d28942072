"""A server behind a proxy in three places, without mutual TLS and with it: two Envoys that all tests of a module share.

The places are the Service's own address, the HTTP proxy and a Gateway. With mutual TLS, a second Envoy is the sidecar of
the server.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from tests.authority import CLIENT, DOMAIN, WEB
from tests.envoy.inbound_rig import InboundRig
from tests.envoy.raw_http import RawConnection, RawMessage, RawServer, connect
from tests.envoy.rig import ADDRESS, EnvoyRig
from tests.waiting import until
from tests.wire import Address, listens

from headgate.envoy.encode import encode
from headgate.envoy.view import Node, project
from headgate.model.host_names import by_host
from headgate.model.routing import (
    Endpoint,
    Endpoints,
    Frontend,
    GatewayPort,
    HostRoutes,
    InboundPort,
    Mesh,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    Split,
    Target,
)

SHOP = "shop.example.com"
SERVICES = {"plain": "127.0.0.2", "secure": "127.0.0.3"}
"""The addresses of the Services, without mutual TLS and with it."""


class Place(NamedTuple):
    """Where a client sends its requests; with `base`, the target of a request is a URL. `path` is that of requests over HTTP/2."""

    name: str
    address: Address
    base: str = ""
    host: str = "web.example"
    path: str = "/"

    def head(
        self, target: str = "/", *lines: str, method: str = "GET", version: str = "1.1", host: str | None = ""
    ) -> str:
        """Return the head of a request; `host` None means no Host header."""
        fields = [] if host is None else [f"Host: {host or self.host}"]
        return "\r\n".join([f"{method} {self.base}{target} HTTP/{version}", *fields, *lines, "", ""])

    def connect(self) -> RawConnection:
        """Open a connection, which the test closes. `HttpRig.reset` closes connections of `HttpRig.connect`."""
        return connect(self.address)

    def ask(self, target: str = "/", *lines: str, body: bytes = b"", **more: Any) -> RawMessage:
        """Send a request on a connection of its own; return the response."""
        with contextlib.closing(self.connect()) as connection:
            connection.send(self.head(target, *lines, **more).encode() + body)
            return connection.response()


class HttpRig(EnvoyRig):
    """The proxy with all places. `servers` are two servers; requests go to the first one, unless a test splits them.

    `protocol` is that of the servers.
    """

    def __init__(self, protocol: Protocol = Protocol.HTTP) -> None:
        super().__init__()
        self.protocol = protocol
        self.proxy = self.free()
        self.node = Node(id=self.node.id, proxy_address=self.proxy.host, proxy_port=self.proxy.port)
        self.servers = (RawServer(), RawServer())
        self.ports = {name: self.free().port for name in SERVICES}
        self.gateways = {name: self.free().port for name in SERVICES}
        self.named = {name: self.free().port for name in SERVICES}
        self.sidecar = InboundRig()
        self.inbound: tuple[InboundPort, ...] = ()
        self._clients: list[RawConnection] = []
        self._stack = contextlib.ExitStack()

    @property
    def server(self) -> RawServer:
        """The first server."""
        return self.servers[0]

    def __enter__(self) -> Self:
        self._stack.enter_context(self.sidecar)
        super().__enter__()
        self.inbound = tuple(self.sidecar.port(server.address.port, self.protocol) for server in self.servers)
        self.sidecar.serve(*self.inbound)
        for port in self.inbound:
            self.sidecar.wait_for(port)
        self.set_routes()
        until(lambda: all(listens(place.address) for name in SERVICES for place in self.places(name)), "it listens")
        return self

    def __exit__(self, *_: object) -> None:
        self._close_clients()
        super().__exit__()
        self._stack.close()
        for server in self.servers:
            server.close()

    def connect(self, place: Place) -> RawConnection:
        """Open a client's connection, which `reset` closes."""
        self._clients.append(place.connect())
        return self._clients[-1]

    def reset(self) -> None:
        """End all connections, those in the proxies' pools too, and let the servers answer as at first.

        A test that fails leaves its connections open. A server may reset its connections: the next test's request would
        use up its retries on connections in a pool.
        """
        self._close_clients()
        for server in self.servers:
            server.end_connections()
            server.use()

    def _close_clients(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()

    def set_routes(self, *weights: int, **more: Any) -> None:
        """Split the requests of all places between the servers, by default all to the first; `more` are fields of routes."""
        credential = self.sidecar.authority.issue(CLIENT)
        mesh = self._mesh(weights or (1,), more)

        async def give() -> None:
            self._memo.begin_build()
            self._proxy.config.set(encode(project(mesh, self.node, credential), self._memo))

        self.network.run(give())
        until(self.settled, "the proxy has acknowledged the configuration")

    def places(self, service: str) -> Sequence[Place]:
        """Return the places of `plain` or `secure`."""
        name = f"{service}.default:{self.ports[service]}"
        return (
            Place("service", Address(SERVICES[service], self.ports[service])),
            Place("proxy", self.proxy, f"http://{name}", name),
            Place("gateway", Address(ADDRESS, self.gateways[service])),
        )

    def named_place(self, service: str) -> Place:
        """Return the port of a Gateway that has only routes of the host `SHOP`."""
        return Place("named gateway", Address(ADDRESS, self.named[service]), host=SHOP)

    def _mesh(self, weights: Sequence[int], more: dict[str, Any]) -> Mesh:
        def backend(service: str, number: int) -> PortRef:
            return PortRef(f"default/{service}-{number}", 80)

        def route(service: str) -> Route:
            targets = (
                Target(ref=backend(service, number), weight=weight, protocol=self.protocol)
                for number, weight in enumerate(weights)
            )
            return Route(split=Split(targets=tuple(targets)), **more)

        def ready(service: str, number: int) -> Endpoint:
            if service == "plain":
                return Endpoint(address=ADDRESS, port=self.servers[number].address.port)
            return Endpoint(address=ADDRESS, port=self.inbound[number].port, identity=WEB)

        def gateway(name: str, service: str, port: int, host: str) -> GatewayPort:
            entry = HostRoutes(host=host, routes=(route(service),), listener="*")
            return GatewayPort(gateway=f"default/{name}", address=ADDRESS, port=port, hosts=by_host(entry))

        return Mesh(
            domain=DOMAIN,
            frontends=tuple(
                Frontend(service=f"default/{name}", address=SERVICES[name], ports=(port,))
                for name, port in self.ports.items()
            ),
            tables=tuple(
                RouteTable(ref=PortRef(f"default/{name}", port), routes=(route(name),), protocol=self.protocol)
                for name, port in self.ports.items()
            ),
            endpoints=tuple(
                Endpoints(ref=backend(name, number), ready=(ready(name, number),))
                for name in SERVICES
                for number in range(len(self.servers))
            ),
            gateways=(
                *(gateway("edge", name, port, "*") for name, port in self.gateways.items()),
                *(gateway("named", name, port, SHOP) for name, port in self.named.items()),
            ),
        )
