"""The network side of the end-to-end tests: backends that count requests, and clients that keep connections open.

Backends and clients run on an event loop in a separate thread, so that traffic flows while a test works.
"""

import asyncio
import errno
import socket
import sys
import threading
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import uvloop

T = TypeVar("T")
DEADLINE_S = 60.0
RESET, HANG = "reset", "hang"
"""Faults of a backend: it closes the connection without a response, or withholds the response."""
LISTENING = "0A"  # the state of a listening socket in /proc/net/tcp
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
H2_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
H2_SETTINGS_ACK = b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"
H2_LARGE_WINDOW = b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x3f\xff\xff\xff"
H2_STATUSES = {8: "200", 9: "204", 13: "404", 14: "500"}  # by index (RFC 7541, appendix A)


class Address(NamedTuple):
    """A TCP address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def listens(address: Address) -> bool:
    """Return whether a socket listens on an address (/proc/net/tcp), without opening a connection that counts."""
    host = int.from_bytes(socket.inet_aton(address.host), sys.byteorder)
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any(row[1] == f"{host:08X}:{address.port:04X}" and row[3] == LISTENING for row in rows)


class Answer(NamedTuple):
    """The response that a client received; without one, `status` is 0 and `body` is the name of the error."""

    status: int
    body: str
    headers: Mapping[str, str]

    @property
    def answered_by(self) -> str:
        """Return the backend's name, or the status as text if it is not 200, or the name of the error."""
        return self.body.strip() if self.status in {0, 200} else str(self.status)


class Network:
    """An event loop in its own thread, with all servers and connections of a test."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()  # a request takes half of the processor time of asyncio's own loop
        self.opened: set[asyncio.BaseTransport | asyncio.Server] = set()
        self._thread = threading.Thread(target=self.loop.run_forever, name="network", daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine on the loop; return its future."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result. After a time limit it ends, and sends nothing more."""
        running = self.begin(work)
        try:
            return running.result(3 * DEADLINE_S)
        except TimeoutError:
            running.cancel()
            raise

    def close(self) -> None:
        """Cancel all tasks, close all connections, and stop the loop."""
        self.run(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_S)
        self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for opened in tuple(self.opened):
            opened.close()
        await asyncio.sleep(0)  # let the loop run the callbacks that close transports


class Received(NamedTuple):
    """A request as a backend received it; the names of headers are in lower case."""

    target: str
    headers: Mapping[str, str]


class Backend:
    """An HTTP server in the test's process that answers with its name and counts requests.

    Tests may set `status` and `headers` (of all responses), `failing` (a path that gets 500) and `hangs` (to withhold
    responses). `faults` has what happens to the next requests instead: a status such as `503 Busy`, RESET, or HANG.
    `last` is the last request.
    """

    def __init__(self, network: Network, name: str, address: str = "127.0.0.1", port: int = 0) -> None:
        self.name = name
        self.requests = 0
        self.hosts: Counter[str] = Counter()
        self.status = "200 OK"
        self.headers: Mapping[str, str] = {}
        self.failing = ""
        self.hangs = False
        self.faults: list[str] = []
        self.last = Received("", {})
        self.network = network
        self._server = network.run(self._listen(Address(address, port)))
        self.address = Address(*self._server.sockets[0].getsockname())

    async def _listen(self, at: Address) -> asyncio.Server:
        server = await asyncio.get_running_loop().create_server(lambda: _Served(self), *at)
        self.network.opened.add(server)
        return server

    def reset_count(self) -> int:
        """Return the number of requests since the last call, and reset the count."""
        found, self.requests = self.requests, 0
        return found

    def close(self) -> None:
        """Stop listening; open connections stay open."""
        self.network.loop.call_soon_threadsafe(self._server.close)


class _Served(asyncio.Protocol):
    """One connection to a backend; requests have no body."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._read = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._backend.network.opened.add(self._transport)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._backend.network.opened.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        *heads, self._read = (self._read + data).split(b"\r\n\r\n")
        for head in heads:
            self._backend.requests += 1
            self._backend.last = Received(head.split()[1].decode(), _headers(head))
            self._backend.hosts[self._backend.last.headers.get("host", "")] += 1
            fault = self._backend.faults.pop(0) if self._backend.faults else ""
            if fault == RESET:
                self._transport.abort()
                return
            body = f"{self._backend.name}\n"
            fields = {**self._backend.headers, "content-length": len(body)}
            status = (
                "500 Failing" if self._backend.last.target == self._backend.failing else fault or self._backend.status
            )
            lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields.items())]
            answer = "\r\n".join([*lines, "", body])
            if not (self._backend.hangs or fault == HANG):
                self._transport.write(answer.encode())


class Request(NamedTuple):
    """A client's request. `target` is a path, or a URL for an HTTP proxy."""

    address: Address
    target: str = "/"
    host: str = ""
    headers: Mapping[str, str] = {}
    version: str = "1.1"
    method: str = "GET"

    def encoded(self) -> bytes:
        """Return the request as HTTP/1 bytes."""
        fields = {"host": self.host, **self.headers}
        lines = [
            f"{self.method} {self.target} HTTP/{self.version}",
            *(f"{name}: {value}" for name, value in fields.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write to an open connection. Raises ConnectionError if the peer has closed it, for which uvloop has RuntimeError."""
    if writer.is_closing():
        raise ConnectionResetError("the connection is closed")
    writer.write(data)


class Client:
    """A client with one keep-alive connection, opened with the first request."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._encoded = request.encoded()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self) -> Answer:
        """Send the request once; return the answer, also for an error."""
        try:
            async with asyncio.timeout(2 * DEADLINE_S):
                return await self._ask()
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            named = errno.errorcode.get(error.errno or 0) if type(error) is OSError else None  # such as EHOSTUNREACH
            return Answer(0, named or type(error).__name__, {})

    async def _ask(self) -> Answer:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._request.address)
        send(self._writer, self._encoded)
        head = await self._reader.readuntil(b"\r\n\r\n")
        headers = _headers(head)
        if "content-length" in headers:
            body = await self._reader.readexactly(int(headers["content-length"]))
        else:
            body = await self._reader.read()
            self.close()
        if headers.get("connection", "") == "close":
            self.close()
        return Answer(int(head.split(maxsplit=2)[1]), body.decode(errors="replace"), headers)

    def change(self, request: Request) -> None:
        """Send another request from now on, over the same connection."""
        self._request, self._encoded = request, request.encoded()

    def close(self) -> None:
        """Close the connection."""
        if self._writer:
            self._writer.close()
        self._reader = self._writer = None


async def ask_once(request: Request) -> Answer:
    """Send a request on a connection of its own; return the answer, also for an error."""
    client = Client(request)
    try:
        return await client.ask()
    finally:
        client.close()


class Load:
    """Continuous requests over some connections until `stop`; `counts` has the answers so far, by backend."""

    def __init__(self, network: Network, requests: Sequence[Request], *, most: int = 0, pause: float = 0.0) -> None:
        """Start one connection for each of `requests`, with a pause (seconds) after each answer.

        `most` limits the number of requests; 0 means no limit.
        """
        self.counts: Counter[str] = Counter()
        self._left = most or -1
        self._pause = pause
        self._stopping = False
        self._work = [network.begin(self._flow(Client(request))) for request in requests]

    @property
    def sent(self) -> int:
        """Return the number of finished requests, failed ones included."""
        return sum(self.counts.values())

    def wait(self) -> Counter[str]:
        """Wait until all requests are finished; return the number of answers by backend."""
        for work in self._work:
            work.result(3 * DEADLINE_S)
        return self.counts

    def stop(self) -> Counter[str]:
        """Stop after the current request of each connection; return the number of answers by backend."""
        self._stopping = True
        return self.wait()

    async def _flow(self, client: Client) -> None:
        try:
            while self._left and not self._stopping:
                self._left -= 1
                answer = await client.ask()
                self.counts[answer.answered_by] += 1
                if (
                    self._pause or not answer.status
                ):  # refused connections without a pause would take all processor time
                    await asyncio.sleep(self._pause or 0.01)
        finally:
            client.close()


async def ask_h2(address: Address, authority: str, count: int) -> Counter[str]:
    """Send requests one by one over one HTTP/2 connection without TLS; return the number of answers by backend."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(H2_PREFACE + H2_SETTINGS + H2_LARGE_WINDOW)
    counts: Counter[str] = Counter()
    try:
        for stream in range(1, 2 * count, 2):
            block = (
                b"\x82\x86\x84\x01" + bytes([len(authority)]) + authority.encode()
            )  # HPACK: GET, http, /, :authority
            writer.write(len(block).to_bytes(3, "big") + b"\x01\x05" + stream.to_bytes(4, "big") + block)
            counts[await _h2_answer(reader, writer)] += 1
    finally:
        writer.close()
    return counts


async def _h2_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    status, body, ended = "", b"", False
    while not ended:
        head = await reader.readexactly(9)
        kind, flags = head[3], head[4]
        payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
        if kind == 4 and not flags & 1:
            writer.write(H2_SETTINGS_ACK)
        elif kind == 1:
            status = H2_STATUSES.get(payload[0] & 0x7F, "other")
        elif kind == 0:
            body += payload
        elif kind in {3, 7}:
            return f"http/2 frame {kind}"
        ended = kind in {0, 1} and bool(flags & 1)
    return body.decode().strip() if status == "200" else status


async def ask_unix(path: str, target: str) -> bytes:
    """Send a GET request over a Unix socket; return the body."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(f"GET {target} HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    rest = await reader.read()
    writer.close()
    return _unchunked(rest) if "transfer-encoding" in _headers(head) else rest


def _unchunked(text: bytes) -> bytes:
    body = b""
    while text:
        size, _, text = text.partition(b"\r\n")
        body, text = body + text[: int(size, 16)], text[int(size, 16) + 2 :]
    return body


def _headers(head: bytes) -> dict[str, str]:
    """Return the headers of a request or response; the values of repeated names are joined with commas (RFC 9110)."""
    found: dict[str, str] = {}
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = line.decode().partition(":")
        if colon:
            written = found.get(name.lower())
            found[name.lower()] = value.strip() if written is None else f"{written},{value.strip()}"
    return found
