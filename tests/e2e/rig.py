"""A real Envoy that is fed with meshes made by hand over the real xDS server: what rendering alone is to be judged by."""

import asyncio
import json
import os
import ssl
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.e2e.wire import DEADLINE_S, Address, Answer, Client, Load, Network, Request
from tests.e2e.world import until
from tests.ports import free_port

from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project
from headgate.model.routing import (
    Endpoint,
    Endpoints,
    Frontend,
    Mesh,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    Split,
    Target,
)
from headgate.standalone.proxies.envoy_process import EnvoyProcess, find_envoy
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

NODE = Node(id="rig")
ADDRESS = "127.0.0.1"


class Seen(NamedTuple):
    """A request as a backend got it; header names in lower case."""

    path: str
    headers: Mapping[str, str]


class Echo:
    """An HTTP server that keeps what it is asked, and answers with it. `status` may be changed, and `hangs`."""

    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        self.seen: list[Seen] = []
        self.status = "200 OK"
        self.hangs = False
        self.network = network
        self._server = network.run(self._listen())
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.get_running_loop().create_server(lambda: _EchoConnection(self), ADDRESS, 0)
        self.network.opened.add(server)
        return server

    def take_requests(self) -> list[Seen]:
        """Return the requests since the last call."""
        found, self.seen = self.seen, []
        return found

    def close(self) -> None:
        """Stop listening: connections are refused from now on."""
        self.network.loop.call_soon_threadsafe(self._server.close)


class _EchoConnection(asyncio.Protocol):
    def __init__(self, echo: Echo) -> None:
        self._echo = echo
        self._read = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._echo.network.opened.add(transport)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._echo.network.opened.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        *heads, self._read = (self._read + data).split(b"\r\n\r\n")
        for head in heads:
            first, *lines = head.decode().split("\r\n")
            pairs = [line.partition(": ") for line in lines]
            headers: dict[str, str] = {}
            for name, _, value in pairs:
                headers[name.lower()] = f"{headers[name.lower()]},{value}" if name.lower() in headers else value
            self._echo.seen.append(Seen(first.split()[1], headers))
            if not self._echo.hangs:
                body = self._echo.name
                answer = (
                    f"HTTP/1.1 {self._echo.status}\r\nx-server: {body}\r\ncontent-length: {len(body)}\r\n\r\n{body}"
                )
                self._transport.write(answer.encode())


class Rig:
    """The proxy, the Service `default/web` on `where`, and backends by name. Use it as a context."""

    def __init__(self, root: Path) -> None:
        """`root` is an empty directory with a short path."""
        self.node = NODE
        self.network = Network()
        self.address = self.free()
        self.echoes: dict[str, Echo] = {}
        self._fleet = Fleet()
        self._proxy = self._fleet.expect(NODE.id)
        self._memo = Memo()
        self._server = XdsServer(self._fleet)
        content = bootstrap(node_id=NODE.id, xds_socket=f"{root}/xds.sock", admin_socket=f"{root}/admin.sock")
        self.envoy = EnvoyProcess(find_envoy(os.environ), content, directory=root / "envoy", admin=root / "admin.sock")
        self._root = root

    def __enter__(self) -> Self:
        self.network.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.network.run(self.envoy.stop())
        self.network.run(self._server.stop())
        self.network.close()

    async def _start(self) -> None:
        await self._server.start(f"unix:{self._root}/xds.sock")
        self._proxy.config.set(encode(project(Mesh(domain="cluster.local"), NODE), self._memo))
        await self.envoy.start()
        await self.envoy.ready()

    def free(self) -> Address:
        """Return an address that nobody listens on."""

        return Address(ADDRESS, free_port(ADDRESS))

    def echo(self, name: str) -> Echo:
        """Return the backend of that name, as new: it answers 200, and what it saw is forgotten."""
        echo = self.echoes[name] = self.echoes.get(name) or Echo(self.network, name)
        echo.status, echo.hangs, echo.seen = "200 OK", False, []
        return echo

    def take_requests(self, name: str) -> list[Seen]:
        """Return what the backend of that name saw since the last time."""
        return self.echoes[name].take_requests()

    def last_path(self, name: str) -> str:
        """Return the path of the last request to a backend."""
        return self.take_requests(name)[-1].path

    def last_headers(self, name: str, path: str | None = None) -> Mapping[str, str]:
        """Return the headers of the last request to a backend, which must have had that path."""
        last = self.take_requests(name)[-1]
        assert path in {None, last.path}, last.path
        return last.headers

    def ref(self, name: str) -> PortRef:
        """Point at the Service `default/NAME`."""
        return PortRef(f"default/{name}", 80)

    def target(self, name: str, weight: int = 1, **more: Any) -> Target:
        """Return a share of the backend of that name."""
        return Target(ref=self.ref(name), weight=weight, **more)

    def route(self, *names: str, **more: Any) -> Route:
        """Return a route to equal shares of backends."""
        return Route(split=Split(targets=tuple(self.target(name) for name in names)), **more)

    def apply(self, *routes: Route, places: Mapping[str, Iterable[Echo]] | None = None, **more: Any) -> Mesh:
        """Give `default/web` these routes, and wait until the proxy holds that. `places` are Services of several backends.

        `more` are other fields of the mesh, which is returned.
        """
        ref = PortRef("default/web", self.address.port)
        known = {name: [echo] for name, echo in self.echoes.items()} | {k: list(v) for k, v in (places or {}).items()}
        mesh = Mesh(
            domain="cluster.local",
            frontends=(Frontend(service=ref.service, address=ADDRESS, ports=(ref.port,)),),
            tables=(RouteTable(ref=ref, routes=routes or (Route(split=Split(targets=())),), protocol=Protocol.HTTP),),
            endpoints=tuple(
                Endpoints(ref=self.ref(name), ready=tuple(Endpoint(address=ADDRESS, port=echo.port) for echo in echoes))
                for name, echoes in known.items()
            ),
            **more,
        )
        self.push(mesh)
        return mesh

    def push(self, mesh: Mesh, node: Node = NODE) -> None:
        """Give the proxy a whole mesh, and wait until it holds that."""

        async def give() -> None:
            self._memo.begin_build()
            self._proxy.config.set(encode(project(mesh, node), self._memo))

        self.network.run(give())
        until(self.settled, "the proxy holds the configuration")

    def settled(self) -> bool:
        """Say whether the proxy has what it is to have; it must not have refused anything."""
        return self.network.run(self._look())

    async def _look(self) -> bool:
        """Look at the proxy where its stream runs: a session is not made for two threads."""
        assert not (refused := list(self._proxy.refusals())), refused
        return self._proxy.settled()

    def ask(
        self,
        target: str = "/",
        *,
        host: str = "web.example",
        address: Address | None = None,
        tls: str = "",
        **headers: str,
    ) -> Answer:
        """Send one request over a new connection, with TLS where the name is given that `tls` asks for."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        client = Client(Request(address or self.address, target, host, names))

        async def once() -> Answer:
            try:
                if tls:
                    client._reader, client._writer = await asyncio.open_connection(
                        *(address or self.address), ssl=_trusting(), server_hostname=tls
                    )
                return await client.ask()
            except OSError as error:
                return Answer(0, type(error).__name__, {})
            finally:
                client.close()

        return self.network.run(once())

    def ask_when_listening(self, target: str = "/", **more: Any) -> Answer:
        """Ask until the listener is there."""
        return until(lambda: answer if (answer := self.ask(target, **more)).status else None, "the listener")

    def load(self, count: int, connections: int = 8, path: str = "/") -> Counter[str]:
        """Send some requests over a few connections; return who answered how often."""
        requests = [Request(self.address, path, "web.example")] * connections
        return Load(self.network, requests, most=count).wait()

    def handshake(
        self, address: Address, name: str, *, alpn: Iterable[str] = (), newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> tuple[str, str, str]:
        """Shake hands for a name; return the certificate (PEM), the ALPN protocol and the TLS version."""

        async def shake() -> tuple[str, str, str]:
            trust = _trusting()
            trust.maximum_version = newest
            if alpn:
                trust.set_alpn_protocols(list(alpn))
            async with asyncio.timeout(DEADLINE_S):
                _, writer = await asyncio.open_connection(*address, ssl=trust, server_hostname=name)
            session = writer.get_extra_info("ssl_object")
            found = session.getpeercert(binary_form=True), session.selected_alpn_protocol(), session.version()
            writer.close()
            return ssl.DER_cert_to_PEM_cert(found[0]), found[1] or "", found[2]

        return self.network.run(shake())

    def count(self, suffix: str) -> int:
        """Return the sum of the proxy's counters whose names end like that."""
        found = self.network.run(self.envoy.admin.get_json("/stats?format=json"))["stats"]
        return sum(int(item["value"]) for item in found if item.get("name", "").endswith(suffix))

    def configured(self, kind: str) -> Any:
        """Return what Envoy itself says that it holds of a kind, `RoutesConfigDump` and the like."""
        dump = self.network.run(self.envoy.admin.get_json("/config_dump?include_eds"))
        return json.dumps([item for item in dump["configs"] if item["@type"].endswith(kind)])


def _trusting() -> ssl.SSLContext:
    """Return a client's side of TLS that looks at certificates and believes them all."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust
