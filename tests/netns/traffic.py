"""Applications and clients in pods: sockets of the pods' namespaces on the test's event loop."""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from tests.wire import (
    H2_LARGE_WINDOW,
    H2_PREFACE,
    H2_SETTINGS,
    H2_SETTINGS_ACK,
    Address,
    Answer,
    _h2_answer,
    _headers,
    send,
)

PATIENCE_S = 60
CLOSED = "closed"


Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Header: TypeAlias = tuple[str, str | int]


class HasSockets(Protocol):
    """A pod: it has sockets of its network namespace."""

    def open_socket(self, family: socket.AddressFamily) -> socket.socket:
        """Return a socket."""

    def listening(self, port: int, address: str = "0.0.0.0") -> socket.socket:
        """Return a listening socket."""


class PodRequest(NamedTuple):
    """A request that an application received."""

    method: str
    path: str
    headers: Mapping[str, str]
    peer: str


async def connect(pod: HasSockets, where: Address, **tls: Any) -> Stream:
    """Connect from a pod, as the application's user; `tls` are arguments of asyncio.open_connection."""
    made = pod.open_socket(socket.AF_INET6 if ":" in where.host else socket.AF_INET)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.get_running_loop().sock_connect(made, where)
            return await asyncio.open_connection(sock=made, **tls)
    except BaseException:
        made.close()
        raise


async def ask(
    pod: HasSockets,
    where: Address,
    method: str = "GET",
    path: str = "/",
    *,
    body: bytes = b"",
    headers: Iterable[Header] = (),
) -> Answer:
    """Send one request over a new connection."""
    try:
        reader, writer = await connect(pod, where)
    except OSError as error:
        return Answer(0, type(error).__name__, {})
    try:
        return await answered(reader, writer, method, path, body=body, headers=headers)
    finally:
        writer.close()


async def ask_often(pod: HasSockets, where: Address, count: int, path: str = "/") -> Counter[str | int]:
    """Send requests one after another over one connection; count the responses by backend or status."""
    reader, writer = await connect(pod, where)
    try:
        answers = [await answered(reader, writer, "GET", path) for _ in range(count)]
        return Counter(answer.body if answer.status == 200 else answer.status for answer in answers)
    finally:
        writer.close()


async def answered(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Iterable[Header] = (),
) -> Answer:
    """Send one request over a connection; return its response."""
    fields: list[Header] = [("host", "any"), ("content-length", len(body)), *headers]
    sent = "".join(f"{name}: {value}\r\n" for name, value in fields)
    try:
        async with asyncio.timeout(PATIENCE_S):
            writer.write(f"{method} {path} HTTP/1.1\r\n{sent}\r\n".encode() + body)
            head = await reader.readuntil(b"\r\n\r\n")
            received = _headers(head)
            content = await reader.readexactly(int(received.get("content-length", 0)))
    except (EOFError, ConnectionError):
        return Answer(0, CLOSED, {})
    return Answer(int(head.split(maxsplit=2)[1]), content.decode().strip(), received)


async def ask_h2(pod: HasSockets, where: Address, count: int) -> Counter[str]:
    """Send requests over one HTTP/2 connection; count the responses by backend."""
    reader, writer = await connect(pod, where)
    writer.write(H2_PREFACE + H2_SETTINGS + H2_LARGE_WINDOW)
    counts: Counter[str] = Counter()
    try:
        async with asyncio.timeout(PATIENCE_S):
            for stream in range(1, 2 * count, 2):
                block = b"\x82\x86\x84\x01\x03any"  # GET, http, /, :authority (RFC 7541)
                writer.write(len(block).to_bytes(3, "big") + b"\x01\x05" + stream.to_bytes(4, "big") + block)
                counts[await _h2_answer(reader, writer)] += 1
    except (EOFError, ConnectionError):
        counts[CLOSED] += 1
    finally:
        writer.close()
    return counts


async def talk(
    pod: HasSockets, where: Address, say: bytes = b"", *, listen_first: bool = False, **tls: Any
) -> tuple[str, str] | str:
    """Open a connection; return (the server's first line, the echo of `say`), or CLOSED."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await connect(pod, where, **tls)
            try:
                first = (await reader.readline()).decode().strip() if listen_first else ""
                if listen_first and not first:
                    return CLOSED
                send(writer, say)
                return first, (await reader.readexactly(len(say))).decode()
            finally:
                writer.close()
    except (EOFError, OSError, ssl.SSLError) as error:
        if isinstance(error, TimeoutError):
            raise
        return CLOSED


class Application:
    """A server in a pod. `seen` has its requests, `peers` the addresses of its clients; `close` stops the server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[PodRequest] = []
        self.peers: list[str] = []
        self._arrived = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(
        self,
        listening: socket.socket,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Serve connections to a listening socket."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.add(writer)
            self.peers.append(writer.get_extra_info("peername")[0])
            try:
                await serve(reader, writer)
            except (EOFError, OSError):
                return
            finally:
                self._writers.discard(writer)
                writer.close()

        self._server = await asyncio.start_server(accept, sock=listening, ssl=tls)
        return self

    async def end_listening(self) -> None:
        """Stop listening; connections stay open."""
        assert self._server
        self._server.close()

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        await self.end_listening()
        for writer in tuple(self._writers):
            writer.close()

    async def until_seen(self, count: int) -> None:
        """Wait until the application has received `count` requests."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.seen) < count:
                self._arrived.clear()
                await self._arrived.wait()

    def _see(self, seen: PodRequest) -> None:
        self.seen.append(seen)
        self._arrived.set()

    async def web(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve HTTP/1.1 and HTTP/2: respond with the application's name."""
        first = await reader.readexactly(len(H2_PREFACE))
        await (self._h2(reader, writer) if first == H2_PREFACE else self._h1(first, reader, writer))

    async def _h1(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")[0]
        while True:
            head = first if first.endswith(b"\r\n\r\n") else first + await reader.readuntil(b"\r\n\r\n")
            method, path, _ = head.decode().split("\r\n")[0].split()
            headers = _headers(head)
            await reader.readexactly(int(headers.get("content-length", 0)))
            self._see(PodRequest(method, path, headers, peer))
            writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(self.name)}\r\n\r\n{self.name}".encode())
            first = b""

    async def _h2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(H2_SETTINGS)
        body = self.name.encode()
        while True:
            head = await reader.readexactly(9)
            await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == 4 and not head[4] & 1:
                writer.write(H2_SETTINGS_ACK)
            if head[3] == 1:
                self._see(PodRequest("HTTP/2", "", {}, writer.get_extra_info("peername")[0]))
                writer.write(b"\x00\x00\x01\x01\x04" + head[5:] + b"\x88")
                writer.write(len(body).to_bytes(3, "big") + b"\x00\x01" + head[5:] + body)

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a TCP protocol in which the client speaks first."""
        while data := await reader.read(4096):
            writer.write(data)

    async def greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a TCP protocol in which the server speaks first."""
        writer.write(f"{self.name}\n".encode())
        await self.echo(reader, writer)


class Relay(Application):
    """A forwarder of connections between a pod and a unix socket, for libraries that open their own sockets."""

    async def forward_to_socket(self, pod: HasSockets, port: int, path: str) -> Self:
        """Forward from a pod's port to a unix socket."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _both((reader, writer), await asyncio.open_unix_connection(path))

        return await self.listen(pod.listening(port), serve)

    async def forward_to_port(self, pod: HasSockets, port: int, target: int) -> Self:
        """Forward from a pod's port to a port of this machine's loopback address."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _both((reader, writer), await asyncio.open_connection("127.0.0.1", target))

        return await self.listen(pod.listening(port), serve)

    async def forward_from_socket(self, path: str, pod: HasSockets, where: Address) -> Self:
        """Forward from a unix socket to a destination that the pod calls."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.add(writer)
            await _both((reader, writer), await connect(pod, where))

        self._server = await asyncio.start_unix_server(accept, path)
        return self


async def _both(one: Stream, other: Stream) -> None:
    try:
        await asyncio.gather(_pump(one[0], other[1]), _pump(other[0], one[1]))
    finally:
        one[1].close()
        other[1].close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    except OSError:
        pass
    finally:
        writer.close()
