"""Push meshes of a test to a real Envoy over the real xDS server, to test rendering without the compiler."""

import asyncio
import json
import os
import ssl
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

from tests.ports import free_port
from tests.waiting import until
from tests.wire import DEADLINE_S, Address, Answer, Client, Load, Network, Request

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
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.proxies.envoy_flags import EnvoyFlags
from headgate.standalone.proxies.envoy_process import EnvoyProcess
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer
from headgate.xds.unary_methods import UnaryMethod

NODE = Node(id="rig")
SHORT_DRAIN = EnvoyFlags(drain_s=1)  # tests wait for connections to close
ADDRESS = "127.0.0.1"


class EchoedRequest(NamedTuple):
    """A request that a backend received, with its header names in lower case."""

    path: str
    headers: Mapping[str, str]


class Echo:
    """An HTTP backend that records requests and answers with its name.

    Tests may set `status` and `body` (of all responses) and `hangs` (to withhold responses until `release`).
    """

    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        self.body = name
        self.seen: list[EchoedRequest] = []
        self.status = "200 OK"
        self.hangs = False
        self.withheld: list[_EchoConnection] = []
        self.network = network
        self._server = network.run(self._listen())
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.get_running_loop().create_server(lambda: _EchoConnection(self), ADDRESS, 0)
        self.network.opened.add(server)
        return server

    def take_requests(self) -> list[EchoedRequest]:
        """Return the requests since the last call, and forget them."""
        requests, self.seen = self.seen, []
        return requests

    def release(self) -> None:
        """Send the withheld responses, and withhold no further ones."""
        self.hangs = False
        waiting, self.withheld = self.withheld, []
        for connection in waiting:
            self.network.loop.call_soon_threadsafe(connection.answer)

    def close(self) -> None:
        """Stop listening: new connections are refused."""
        self.network.loop.call_soon_threadsafe(self._server.close)


class _EchoConnection(asyncio.Protocol):
    def __init__(self, echo: Echo) -> None:
        self._echo = echo
        self._read = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._echo.network.opened.add(self._transport)

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
            self._echo.seen.append(EchoedRequest(first.split()[1], headers))
            if self._echo.hangs:
                self._echo.withheld.append(self)
            else:
                self.answer()

    def answer(self) -> None:
        """Send a response."""
        start, body = f"HTTP/1.1 {self._echo.status}\r\nx-server: {self._echo.name}", self._echo.body
        self._transport.write(f"{start}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())


class EnvoyRig:
    """A proxy, the Service `default/web` on `address`, and backends by name. Use it as a context manager.

    The proxy ends old connections after a second (`flags`). `bootstrap_changes` are fields of its bootstrap, and
    `unary_methods` those of the xDS server. The files are in `root`.
    """

    def __init__(
        self,
        *,
        flags: EnvoyFlags = SHORT_DRAIN,
        bootstrap_changes: Mapping[str, Any] | None = None,
        unary_methods: Mapping[str, UnaryMethod] | None = None,
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="hg")  # a short path: Unix sockets allow 107 bytes
        self.root = Path(self._directory.name)
        self.node = NODE
        self.network = Network()
        self.address = self.free()
        self.echoes: dict[str, Echo] = {}
        self._fleet = Fleet()
        self._proxy = self._fleet.expect(NODE.id)
        self._memo = Memo()
        self._server = XdsServer(self._fleet, unary_methods=unary_methods or {})
        self._xds, admin = self.root / "xds.sock", self.root / "admin.sock"
        content = json.loads(bootstrap(node_id=NODE.id, xds_socket=str(self._xds), admin_socket=str(admin)))
        self.envoy = EnvoyProcess(
            find_envoy(os.environ),
            json.dumps({**content, **(bootstrap_changes or {})}).encode(),
            directory=self.root / "envoy",
            admin=admin,
            flags=flags,
        )

    def __enter__(self) -> Self:
        self.network.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.network.run(self.envoy.stop())
        self.network.run(self._server.stop())
        self.network.close()
        self._directory.cleanup()

    async def _start(self) -> None:
        await self._server.start(f"unix:{self._xds}")
        self._proxy.config.set(encode(project(Mesh(domain="cluster.local"), NODE), self._memo))
        await self.envoy.start()
        await self.envoy.ready(DEADLINE_S)

    def free(self) -> Address:
        """Return an unused address."""
        return Address(ADDRESS, free_port(ADDRESS))

    def echo(self, name: str) -> Echo:
        """Start or reset the backend `name` and return it: the backend answers 200 and has no recorded requests."""
        echo = self.echoes[name] = self.echoes.get(name) or Echo(self.network, name)
        echo.status, echo.hangs, echo.seen, echo.withheld = "200 OK", False, [], []
        return echo

    def take_requests(self, name: str) -> list[EchoedRequest]:
        """Return the requests of a backend since the last call, and forget them."""
        return self.echoes[name].take_requests()

    def last_path(self, name: str) -> str:
        """Return the path of the last request to a backend."""
        return self.take_requests(name)[-1].path

    def last_headers(self, name: str, path: str | None = None) -> Mapping[str, str]:
        """Return the headers of the last request to a backend; assert its path if given."""
        last = self.take_requests(name)[-1]
        assert path in {None, last.path}, last.path
        return last.headers

    def ref(self, name: str) -> PortRef:
        """Return the reference of port 80 of the Service `default/NAME`."""
        return PortRef(f"default/{name}", 80)

    def target(self, name: str, weight: int = 1, **more: Any) -> Target:
        """Return a split's target for a backend."""
        return Target(ref=self.ref(name), weight=weight, **more)

    def route(self, *names: str, **more: Any) -> Route:
        """Return a route that splits requests equally between backends."""
        return Route(split=Split(targets=tuple(self.target(name) for name in names)), **more)

    def apply(self, *routes: Route, services: Mapping[str, Iterable[Echo]] | None = None, **more: Any) -> Mesh:
        """Push a mesh in which `default/web` has these routes; wait until the proxy has acknowledged it, and return it.

        Each backend has a Service of its name; `services` adds more Services. `more` are fields of the mesh.
        """
        ref = PortRef("default/web", self.address.port)
        backends = {name: [echo] for name, echo in self.echoes.items()}
        backends |= {name: list(echoes) for name, echoes in (services or {}).items()}
        mesh = Mesh(
            domain="cluster.local",
            frontends=(Frontend(service=ref.service, address=ADDRESS, ports=(ref.port,)),),
            tables=(RouteTable(ref=ref, routes=routes or (Route(split=Split(targets=())),), protocol=Protocol.HTTP),),
            endpoints=tuple(
                Endpoints(ref=self.ref(name), ready=tuple(Endpoint(address=ADDRESS, port=echo.port) for echo in echoes))
                for name, echoes in backends.items()
            ),
            **more,
        )
        self.push(mesh)
        return mesh

    def push(self, mesh: Mesh, node: Node = NODE) -> None:
        """Push a mesh to the proxy, and wait until the proxy has acknowledged it."""

        async def give() -> None:
            self._memo.begin_build()
            self._proxy.config.set(encode(project(mesh, node), self._memo))

        self.network.run(give())
        until(self.settled, "the proxy has acknowledged the configuration")

    def settled(self) -> bool:
        """Return whether the proxy has acknowledged its configuration. Raises AssertionError on a rejection."""
        return self.network.run(self._look())

    async def _look(self) -> bool:
        """Return `settled`, computed on the event loop of the stream, because a session is not thread-safe."""
        assert not (rejected := list(self._proxy.rejections())), rejected
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
        """Send one request over a new connection; `tls` is the server name (SNI) for TLS, empty for plaintext."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        client = Client(Request(address or self.address, target, host, names))

        async def once() -> Answer:
            try:
                if tls:
                    await _open_tls(client, address or self.address, tls)
                return await client.ask()
            except OSError as error:
                return Answer(0, type(error).__name__, {})
            finally:
                client.close()

        return self.network.run(once())

    def tls_client(self, address: Address, host: str) -> Client:
        """Return a client with an open TLS connection for requests to a host."""
        client = Client(Request(address, "/", host))
        self.network.run(_open_tls(client, address, host))
        return client

    def ask_when_listening(self, target: str = "/", **more: Any) -> Answer:
        """Repeat a request until the listener answers; return the answer."""
        answer = until(lambda: got if (got := self.ask(target, **more)).status else None, "the listener answers")
        assert answer
        return answer

    def load(self, count: int, connections: int = 8, path: str = "/") -> Counter[str]:
        """Send `count` requests; return the number of answers by backend (or status, or error)."""
        requests = [Request(self.address, path, "web.example")] * connections
        return Load(self.network, requests, most=count).wait()

    def handshake(
        self, address: Address, name: str, *, alpn: Iterable[str] = (), newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> tuple[str, str, str]:
        """Do a TLS handshake for a server name; return the certificate (PEM), the ALPN protocol and the TLS version."""

        async def shake() -> tuple[str, str, str]:
            trust = _accept_any_certificate()
            trust.maximum_version = newest
            if alpn:
                trust.set_alpn_protocols(list(alpn))
            async with asyncio.timeout(DEADLINE_S):
                _, writer = await asyncio.open_connection(*address, ssl=trust, server_hostname=name)
            session = writer.get_extra_info("ssl_object")
            certificate = ssl.DER_cert_to_PEM_cert(session.getpeercert(binary_form=True))
            writer.close()
            return certificate, session.selected_alpn_protocol() or "", session.version()

        return self.network.run(shake())

    def count(self, suffix: str) -> int:
        """Return the sum of the proxy's counters whose names end with `suffix`."""
        counters = self.network.run(self.envoy.admin.get_json("/stats?format=json"))["stats"]
        return sum(int(counter["value"]) for counter in counters if counter.get("name", "").endswith(suffix))

    def configured(self, kind: str) -> Any:
        """Return a part of Envoy's config dump as JSON text; `kind` is its type, for example `RoutesConfigDump`."""
        dump = self.network.run(self.envoy.admin.get_json("/config_dump?include_eds"))
        return json.dumps([part for part in dump["configs"] if part["@type"].endswith(kind)])


async def _open_tls(client: Client, address: Address, name: str) -> None:
    client._reader, client._writer = await asyncio.open_connection(
        *address, ssl=_accept_any_certificate(), server_hostname=name
    )


def _accept_any_certificate() -> ssl.SSLContext:
    """Return a client's TLS context that accepts every certificate."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust
