"""Backends and clients for protocols other than HTTP/1.1: TCP, TLS, HTTP/2 and WebSocket."""

import asyncio
import datetime as dt
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.wire import DEADLINE_S, H2_PREFACE, H2_SETTINGS, H2_SETTINGS_ACK, Address, Network

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
FREE_PORT = Address("127.0.0.1", 0)
UPGRADE = "GET /chat HTTP/1.1\r\nhost: {host}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"


class HasAddress(Protocol):
    """A server with an address."""

    address: Address


class TcpServer:
    """A TCP server in the test's process; it counts connections and passes each to `serve`."""

    def __init__(
        self,
        network: Network,
        serve: Callable[[Stream], Awaitable[None]],
        tls: ssl.SSLContext | None = None,
        at: Address = FREE_PORT,
    ) -> None:
        self.connections = 0
        self._serve = serve
        self._network = network
        self._server = network.run(self._listen(at, tls))
        self.address = Address(*self._server.sockets[0].getsockname())

    async def _listen(self, at: Address, tls: ssl.SSLContext | None) -> asyncio.Server:
        server = await asyncio.start_server(self._accept, *at, ssl=tls)
        self._network.opened.add(server)
        return server

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._serve((reader, writer))
        except (OSError, EOFError):
            return
        finally:
            writer.close()

    def close(self) -> None:
        """Stop listening."""
        self._network.loop.call_soon_threadsafe(self._server.close)


def greeting_server(
    network: Network, name: str, tls: ssl.SSLContext | None = None, at: Address = FREE_PORT
) -> TcpServer:
    """Start a server that sends its name first, as MySQL sends a greeting, and then echoes."""

    async def serve(stream: Stream) -> None:
        reader, writer = stream
        writer.write(f"{name}\n".encode())
        while data := await reader.read(4096):
            writer.write(data)

    return TcpServer(network, serve, tls, at)


def plain_server(network: Network, name: str, at: Address = FREE_PORT) -> TcpServer:
    """Start a greeting server without TLS."""
    return greeting_server(network, name, at=at)


def tls_server(network: Network, name: str, at: Address = FREE_PORT) -> TcpServer:
    """Start a greeting server with a certificate for the host `db`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as directory:
        context.load_cert_chain(certificate(Path(directory)))
    return greeting_server(network, name, context, at)


def http2_server(network: Network, name: str, at: Address = FREE_PORT) -> TcpServer:
    """Start a server that speaks only HTTP/2 without TLS; it answers with its name."""

    async def serve(stream: Stream) -> None:
        reader, writer = stream
        if await reader.readexactly(len(H2_PREFACE)) != H2_PREFACE:
            return
        writer.write(H2_SETTINGS)
        while True:
            head = await reader.readexactly(9)
            await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == 4 and not head[4] & 1:
                writer.write(H2_SETTINGS_ACK)
            if head[3] == 1:
                body = name.encode()
                size = str(len(body)).encode()
                block = b"\x88\x0f\x0d" + bytes([len(size)]) + size  # :status 200, content-length (RFC 7541)
                writer.write(len(block).to_bytes(3, "big") + b"\x01\x04" + head[5:] + block)
                writer.write(len(body).to_bytes(3, "big") + b"\x00\x01" + head[5:] + body)

    return TcpServer(network, serve, at=at)


def websocket_server(network: Network, name: str, at: Address = FREE_PORT) -> TcpServer:
    """Start a server that accepts every upgrade, sends its name, and then echoes."""

    async def serve(stream: Stream) -> None:
        reader, writer = stream
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n")
        writer.write(f"{name}\n".encode())
        while data := await reader.read(4096):
            writer.write(data)

    return TcpServer(network, serve, at=at)


class Exchange(NamedTuple):
    """The first line that a client received, and the echo of what it sent."""

    greeting: str
    echo: str


async def talk(address: Address, send: str = "", *, tls: ssl.SSLContext | None = None, tunnel: str = "") -> Exchange:
    """Connect, read the greeting, then send text and read its echo. `tunnel` is the target of a CONNECT to a proxy."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(*address, ssl=tls, server_hostname="db" if tls else None)
        try:
            if tunnel:
                writer.write(f"CONNECT {tunnel} HTTP/1.1\r\nhost: {tunnel}\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                if b" 200 " not in head:
                    return Exchange(head.split()[1].decode(), "")
            try:
                first = (await reader.readline()).decode().strip()
            except ConnectionError:
                first = ""
            writer.write(send.encode())
            back = await reader.readexactly(len(send)) if first and send else b""
            return Exchange(first, back.decode())
        finally:
            writer.close()


async def connect_often(address: Address, count: int, *, tunnel: str = "") -> Counter[str]:
    """Open connections one after the other; return the number of greetings by server."""
    return Counter([(await talk(address, tunnel=tunnel)).greeting for _ in range(count)])


async def upgrade(address: Address, send: str, host: str = "any", origin: str = "") -> Sequence[str]:
    """Upgrade a connection to WebSocket, as a page of `origin` if given; return the status, the server's first line, and the echo."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(UPGRADE.format(host=f"{host}\r\norigin: {origin}" if origin else host).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        first = await reader.readline()
        writer.write(send.encode())
        back = await reader.readexactly(len(send))
        return [text.decode().strip() for text in (head.split()[1], first, back)]
    finally:
        writer.close()


def certificate(directory: Path) -> Path:
    """Write a key and a self-signed certificate for the host `db` into one file; return its path."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "db")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("db")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "db.pem"
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    path.write_bytes(key.private_bytes(pem, pkcs8, plain) + signed.public_bytes(pem))
    return path
