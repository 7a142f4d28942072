"""The outbound side of a sidecar: a real Envoy, and servers that record requests over TLS and in plaintext."""

import asyncio
import ctypes
import os
import socket
import ssl
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from tests.authority import Authority, account
from tests.envoy.rig import ADDRESS, EnvoyRig
from tests.waiting import until
from tests.wire import DEADLINE_S, H2_PREFACE, Address, Answer, Client, Network, Request

from headgate.envoy.encode import encode
from headgate.envoy.node_ids import OUTBOUND_PORT
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
    Workload,
)

PORT = 80
CLIENT = account("client")
SERVICES = "10.98.0.0/16"
MARK = 7  # the firewall mark of packets that are redirected
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_HANDSHAKE = 0x16  # the first byte of TLS


class TlsConnection(NamedTuple):
    """A TLS connection as the server saw it; `peer` is the client's identity."""

    peer: str
    server_name: str
    alpn: str
    version: str


class TlsServer:
    """A server that answers every request with its name; it records TLS and plaintext separately."""

    def __init__(self, rig: "OutboundRig", name: str, *, identity: str = "", address: str = ADDRESS) -> None:
        self.name = name
        self.network = rig.network
        self.authority = rig.authority
        self.address = address
        self.plaintext = b""  # bytes received without TLS
        self.decrypted = b""  # bytes received over TLS, decrypted
        self.tls_connections: list[TlsConnection] = []
        self.requests = 0
        self.tls_requests = 0  # requests received over TLS
        self.opened: set[asyncio.Transport] = set()
        self._files = rig.root
        self.identity = identity
        self.tls = self._context() if identity else None
        self._server = rig.network.run(self._listen())
        self.port = int(self._server.sockets[0].getsockname()[1])

    def change_identity(self, identity: str) -> None:
        """Serve with a certificate for another identity, and close all connections."""
        self.identity, self.tls = identity, self._context(identity)
        self.network.loop.call_soon_threadsafe(self._close_connections)

    def _close_connections(self) -> None:
        for transport in tuple(self.opened):
            transport.close()

    def _context(self, identity: str = "") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        credential = self.authority.issue(identity or self.identity)
        file = self._files / f"{self.name}.pem"
        file.write_text(credential.key.reveal() + credential.chain)
        context.load_cert_chain(file)
        context.load_verify_locations(cadata=credential.roots)
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["headgate", "h2", "http/1.1"])
        context.sni_callback = _note_server_name
        return context

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.get_running_loop().create_server(lambda: _SniffedConnection(self), self.address, 0)
        self.network.opened.add(server)
        return server

    def endpoint(self, identity: str | None = None) -> Endpoint:
        """Return this server's endpoint; clients expect `identity` there, by default the server's own identity."""
        expected = self.identity if identity is None else identity
        return Endpoint(address=self.address, port=self.port, identity=expected)


def _note_server_name(session: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    session.headgate_name = name or ""  # type: ignore[attr-defined]


class _SniffedConnection(asyncio.Protocol):
    """One connection to a server; its first byte shows whether the client uses TLS."""

    def __init__(self, server: TlsServer) -> None:
        self._server = server
        self._read = b""
        self._session: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._handshake_done = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.opened.add(self._transport)
        self._server.network.opened.add(self._transport)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._server.opened.discard(self._transport)
        self._server.network.opened.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._session is None and data[0] == _HANDSHAKE and self._server.tls and not self._read:
            self._session = self._server.tls.wrap_bio(self._incoming, self._outgoing, server_side=True)
        if self._session is None:
            self._server.plaintext += data
            if data[0] == _HANDSHAKE:
                self._transport.close()
            self._parse(data)
            return
        self._incoming.write(data)
        try:
            self._decrypt(self._session)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # the handshake failed: the client expects another identity
            self._transport.close()
        self._flush()

    def _decrypt(self, session: ssl.SSLObject) -> None:
        if not self._handshake_done:
            session.do_handshake()
            self._handshake_done = True
            certificate: dict[str, Any] = session.getpeercert() or {}
            server_name = getattr(session, "headgate_name", "")
            self._server.tls_connections.append(
                TlsConnection(
                    dict(certificate["subjectAltName"])["URI"],
                    server_name,
                    session.selected_alpn_protocol() or "",
                    session.version() or "",
                )
            )
        while data := session.read(2**16):
            self._server.decrypted += data
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        self._read += data
        if self._read.startswith(b"GET "):
            *heads, self._read = self._read.split(b"\r\n\r\n")
            body = self._server.name
            for _ in heads:
                self._count()
                self._send(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        elif self._read.endswith(b"\n") and not self._read.startswith(H2_PREFACE[:3]):
            self._count()
            self._read = b""
            self._send(f"{self._server.name}\n".encode())

    def _count(self) -> None:
        self._server.tls_requests += self._session is not None  # first: a test that sees the request must see its TLS
        self._server.requests += 1

    def _send(self, data: bytes) -> None:
        if self._session is None:
            self._transport.write(data)
        else:
            self._session.write(data)
            self._flush()

    def _flush(self) -> None:
        if encrypted := self._outgoing.read():
            self._transport.write(encrypted)


class OutboundRig(EnvoyRig):
    """The sidecar of `default/client`, an HTTP proxy on `address`. Use it as a context manager."""

    def __init__(self) -> None:
        super().__init__()
        self.authority = Authority()
        self.credential = self.authority.issue(CLIENT)
        self.node = Node(
            id=self.node.id,
            role="sidecar",
            workload="default/client",
            proxy_address=ADDRESS,
            proxy_port=self.address.port,
        )

    def server(self, name: str, identity: str = "", **more: str) -> TlsServer:
        """Start a server; if `identity` is set, it accepts TLS in addition to plaintext."""
        return TlsServer(self, name, identity=identity, **more)

    def mesh(
        self,
        endpoints: Mapping[str, Iterable[Endpoint]],
        *,
        protocol: Protocol = Protocol.HTTP,
        addresses: Mapping[str, str] | None = None,
        **weights: int,
    ) -> Mesh:
        """Return a mesh with Services of the namespace `default` and their endpoints; `web` is split by `weights`.

        `addresses` has the addresses of Services; other Services have none.
        """
        own = addresses or {}
        shares = tuple(Target(ref=_ref(name), weight=weight) for name, weight in weights.items())
        targets = {name: (Target(ref=_ref(name), weight=1),) for name in endpoints} | (
            {"web": shares} if shares else {}
        )
        return Mesh(
            domain="cluster.local",
            frontends=tuple(
                Frontend(service=f"default/{name}", address=own.get(name, ""), ports=(PORT,)) for name in targets
            ),
            tables=tuple(
                RouteTable(ref=_ref(name), routes=(Route(split=Split(targets=chosen)),), protocol=protocol)
                for name, chosen in targets.items()
            ),
            endpoints=tuple(Endpoints(ref=_ref(name), ready=tuple(ready)) for name, ready in endpoints.items()),
            workloads=(Workload(name="default/client", address="127.9.9.9", identity=CLIENT, capture="explicit"),),
        )

    def push(self, mesh: Mesh, node: Node | None = None) -> None:
        """Push a mesh to the proxy; wait until the proxy uses it and listens."""

        async def give() -> None:
            self._memo.begin_build()
            self._proxy.config.set(encode(project(mesh, node or self.node, self.credential), self._memo))

        self.network.run(give())
        until(self.settled, "the proxy has acknowledged the configuration")
        self.wait_until_listening()

    def wait_until_listening(self) -> None:
        """Wait until the proxy answers requests."""
        until(lambda: self.get("unknown").status, "the proxy answers requests")

    def request(self, service: str = "web", **headers: str) -> Request:
        """Return a request to a Service through the HTTP proxy."""
        host = f"{service}.default:{PORT}"
        return Request(self.address, f"http://{host}/", host, headers)

    def get(self, service: str = "web") -> Answer:
        """Send one request over a new connection; return the answer."""
        client = Client(self.request(service))

        async def once() -> Answer:
            try:
                return await client.ask()
            finally:
                client.close()

        return self.network.run(once())

    def tunnel(self, service: str, data: bytes = b"hello\n") -> bytes:
        """Send bytes through a CONNECT tunnel; return the answer, or the status of a failed CONNECT."""

        async def go() -> bytes:
            reader, writer = await asyncio.open_connection(*self.address)
            host = f"{service}.default:{PORT}"
            writer.write(f"CONNECT {host} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            try:
                async with asyncio.timeout(DEADLINE_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    if b" 200 " not in head:
                        return head.split()[1]
                    writer.write(data)
                    return await reader.read(100)
            finally:
                writer.close()

        return self.network.run(go())


def _ref(name: str) -> PortRef:
    return PortRef(f"default/{name}", PORT)


# --- redirected connections, in a new network namespace


class RedirectedRig(OutboundRig):
    """A transparent sidecar in a new network namespace: connections to `SERVICES` with `MARK` are redirected to it."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node(id=self.node.id, role="sidecar", workload="default/client")

    async def _start(self) -> None:
        _enter_new_network()
        await super()._start()

    def wait_until_listening(self) -> None:
        """Do nothing: there is no HTTP proxy to wait for."""

    def exchange(self, address: Address, data: bytes = b"hello\n", *, mark: int = MARK) -> bytes:
        """Connect and send bytes; return the answer, empty if the connection is closed or refused."""
        connection = OpenConnection(self.network, address, mark)
        try:
            return connection.exchange(data)
        except ConnectionError:
            return b""
        finally:
            connection.close()


class OpenConnection:
    """A client with one TCP connection that stays open between exchanges."""

    def __init__(self, network: Network, address: Address, mark: int = MARK) -> None:
        self._network = network
        self._address = address
        self._mark = mark
        self._sock: socket.socket | None = None

    def exchange(self, data: bytes = b"hello\n") -> bytes:
        """Send bytes; return the answer, empty if the connection is closed."""
        return self._network.run(self._exchange(data))

    async def _exchange(self, data: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DEADLINE_S):
            if self._sock is None:  # created here, because a socket belongs to the network namespace of its thread
                self._sock = socket.socket()
                self._sock.setblocking(False)
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, self._mark)
                await loop.sock_connect(self._sock, self._address)
            await loop.sock_sendall(self._sock, data)
            return await loop.sock_recv(self._sock, 4096)

    def close(self) -> None:
        """Close the connection."""
        if self._sock:
            self._sock.close()


def _enter_new_network() -> None:
    """Move this thread and its child processes to a new network namespace, which is removed when they end."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "unshare")
    redirect = ["-p", "tcp", "-d", SERVICES, "-m", "mark", "--mark", str(MARK), "-j", "REDIRECT"]
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "route", "add", "local", SERVICES, "dev", "lo"],
        ["iptables", "-t", "nat", "-A", "OUTPUT", *redirect, "--to-ports", str(OUTBOUND_PORT)],
    ):
        subprocess.run(command, check=True, capture_output=True)


def redirection_skip_reason() -> str:
    """Return why connections can't be redirected on this machine; empty if they can."""
    if os.geteuid():
        return "creating a network namespace needs root"
    try:
        done = subprocess.run(["unshare", "-n", "iptables", "-t", "nat", "-S"], capture_output=True, check=False)
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    return "" if done.returncode == 0 else f"iptables can't redirect here: {done.stderr.decode().strip()}"
