"""Idle connections, and streamed responses: their source is closed as soon as the response ends, for any reason."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncGenerator, Iterator

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message

from headgate.api.bounded_protocol import REQUEST_SECONDS, UNREAD_SECONDS, BoundedProtocol
from headgate.api.http_server import Server, StreamResponse, serve

IDLE_SECONDS_OF_GO = 90
"""The time after which Go's HTTP clients close an idle connection."""


@pytest.fixture(autouse=True)
def without_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


class Client:
    """A client that reads `reads` pieces of a stream and then stalls; `leave` closes its connection."""

    def __init__(self, reads: int) -> None:
        self.body: list[bytes] = []
        self.is_ended = self.is_closed = False
        self.stopped = asyncio.Event()
        self.closing = asyncio.Event()
        self._reads = reads
        self._left = asyncio.Event()

    async def source(self) -> AsyncGenerator[bytes]:
        """Yield pieces until the generator is closed."""
        try:
            while True:
                yield b"piece"
        finally:
            self.is_closed = True

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            return
        if not message["more_body"]:
            self.is_ended = True
            return
        if len(self.body) == self._reads:
            self.stopped.set()
            await asyncio.Event().wait()
        self.body.append(message["body"])

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self._left.set()

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """Serve the client until it stalls, run the `async with` block, then wait until the response has ended."""
        stream = StreamResponse(self.source(), self.closing, "text/plain")
        serving = asyncio.ensure_future(stream({"type": "http"}, self.receive, self.send))
        await self.stopped.wait()
        yield
        await serving


async def test_a_client_that_disconnects_during_a_write_ends_the_stream() -> None:
    client = Client(reads=2)
    async with client.reading():
        client.leave()
    assert (client.body, client.is_closed) == ([b"piece"] * 2, True)


async def test_a_closing_server_ends_the_stream() -> None:
    client = Client(reads=1)
    async with client.reading():
        client.closing.set()
    assert (client.is_ended, client.is_closed) == (True, True)


async def test_an_exception_of_the_source_is_raised() -> None:
    async def source() -> AsyncGenerator[bytes]:
        yield b"piece"
        raise LookupError("the source failed")

    client = Client(reads=2)
    with pytest.raises(LookupError):
        await StreamResponse(source(), client.closing, "text/plain")({"type": "http"}, client.receive, client.send)
    assert not client.is_ended


def test_a_server_closes_an_idle_connection_after_its_client() -> None:
    """Else a request could arrive while the server closes the connection."""
    assert Server(Starlette()).config.timeout_keep_alive > IDLE_SECONDS_OF_GO


class Late:
    """A server with one connection, and the same server as it is a few seconds later."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        app = Starlette(
            routes=[
                Route("/body", self._body, methods=["POST"]),
                Route("/stream", lambda _request: StreamResponse(self._endless(), self.closing, "text/plain")),
            ]
        )
        self.server = Server(app)
        self.started = asyncio.Event()

    async def _body(self, request: Request) -> Response:
        self.started.set()
        return Response(await request.body())

    async def _endless(self) -> AsyncGenerator[bytes]:
        while True:
            await asyncio.sleep(0)
            yield b"piece" * 1000

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Serve, and open a connection to the server."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(serve(self.server, listener, self.closing.set))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            while not self.server.server_state.connections:
                await asyncio.sleep(0)
            yield reader, writer
            writer.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    @property
    def protocol(self) -> BoundedProtocol:
        (protocol,) = self.server.server_state.connections
        assert isinstance(protocol, BoundedProtocol)
        return protocol

    def after(self, seconds: float) -> bool:
        """Return whether the connection is closed `seconds` from now."""
        protocol = self.protocol
        protocol.close_overdue(asyncio.get_running_loop().time() + seconds)
        return protocol.transport.is_closing()


@pytest.mark.parametrize("sent", [b"", b"GET /body HT", b"GET /body HTTP/1.1\r\nhost: x\r\n"])
async def test_a_connection_without_a_whole_head_is_closed(sent: bytes) -> None:
    late = Late()
    async with late.connection() as (_, writer):
        writer.write(sent)
        await writer.drain()
        assert not late.after(REQUEST_SECONDS - 1)
        assert late.after(REQUEST_SECONDS + 1)


async def test_a_body_that_does_not_arrive_is_closed_and_an_idle_connection_is_not() -> None:
    late = Late()
    async with late.connection() as (reader, writer):
        writer.write(b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nab")
        assert b"200 OK" in await reader.readuntil(b"ab")
        assert not late.after(REQUEST_SECONDS + 1)
        late.started.clear()
        writer.write(b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\na")
        await late.started.wait()
        assert not late.after(REQUEST_SECONDS - 1)
        assert late.after(REQUEST_SECONDS + 1)


async def test_a_client_that_does_not_read_a_stream_is_closed() -> None:
    """Its response is buffered: 1,500 such watches held 1.4 GB."""
    late = Late()
    async with late.connection() as (reader, writer):
        writer.write(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        while not late.protocol.flow.write_paused:
            await asyncio.sleep(0)
        assert not late.after(UNREAD_SECONDS - 1)
        assert late.after(UNREAD_SECONDS + 1)


def assert_last_response(client: socket.socket) -> None:
    """Read a connection to its end, which follows a response that says so."""
    client.settimeout(20)
    with client.makefile("rb") as stream:
        received = stream.read()
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close" in received.lower()
    assert received.endswith(b"here")


async def test_a_server_that_ends_answers_the_requests_that_have_arrived() -> None:
    """As webhooks of a replica that is deleted: the API server does not repeat a request whose connection is reset."""

    async def answer(_: Request) -> Response:
        return Response("here")

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, contextlib.ExitStack() as stack:
        server = Server(Starlette(routes=[Route("/", answer)]))
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0)
        clients = [stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(20)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        server.end()
        await serving
        for client in clients:
            assert_last_response(client)


async def test_requests_that_arrive_while_a_server_closes_its_connections_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel has their first bytes, and the event loop has not read them yet."""

    async def answer(_: Request) -> Response:
        return Response("here")

    request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
    shutdown = uvicorn.Server.shutdown
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        server = Server(Starlette(routes=[Route("/", answer)]))
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        whole, halved, slow, idle = (
            stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(4)
        )

        async def send_and_shut_down(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
            whole.sendall(request)
            halved.sendall(request[:9])
            slow.sendall(request[:9])
            asyncio.get_running_loop().call_soon(halved.sendall, request[9:])  # after the first step of the shutdown
            await shutdown(server, sockets)

        monkeypatch.setattr(uvicorn.Server, "shutdown", send_and_shut_down)
        monkeypatch.setattr(server.config, "timeout_graceful_shutdown", 1)
        while len(server.server_state.connections) < 4:
            await asyncio.sleep(0)
        server.end()
        await serving
        for client in (whole, halved):
            assert_last_response(client)
        assert idle.recv(1) == b""
        assert slow.recv(1) == b""
