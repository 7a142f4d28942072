"""The base of all HTTP servers: uvicorn without signal handlers and access log, bounded, their end, and streamed responses."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate import event_loop
from headgate.api.bounded_protocol import HEAD_BYTES, BoundedProtocol
from headgate.backoff import Backoff, until_done

MAX_CONNECTIONS = 1000
"""The connections of a server. One more closes the connection that has waited for its client longest, as nginx does."""
MAX_HANDSHAKES = 400
"""The TLS handshakes at a time. One more waits until one of them ends, and ends the oldest if that has taken a second: a burst
of honest clients waits, and idle ones make room."""
WEBSOCKET_MESSAGE_BYTES = 256 * 1024
_HANDSHAKE_SECONDS = 10.0
_PATIENCE_SECONDS = 1.0  # the time that a handshake has while further ones wait
_LONGEST_ACCEPT_PAUSE_S = 1.0  # while the process has no free file descriptor
_SHUTDOWN_SECONDS = 3  # time for open requests to finish when the server stops
_IDLE_SECONDS = 120
"""The time after which the server closes an idle connection.

Go's clients, such as a cluster's API server, close it after 90 s. A server must not close it first: a client may send a
request at that moment, and repeats only idempotent ones.
"""
_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
_TICK_SECONDS = 1.0  # the time between two checks for slow clients


class Server(uvicorn.Server):
    """A server of an application. `websockets` also serves WebSockets; `options` has further options of uvicorn."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        http: type[BoundedProtocol] = BoundedProtocol,
        websockets: bool = False,
        **options: Any,
    ) -> None:
        self._ending = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                drained(closing_unread(app), self._ending),
                http=http,
                h11_max_incomplete_event_size=HEAD_BYTES,
                access_log=False,  # a log of paths would contain the names of Secrets
                log_config=None,
                log_level="error",
                ws=_web_socket if websockets else "none",  # type: ignore[arg-type]  # uvicorn only calls it
                ws_max_size=WEBSOCKET_MESSAGE_BYTES,
                ws_ping_interval=None,  # a client that does not read now, such as one with a pager, answers no ping
                ws_per_message_deflate=False,
                proxy_headers=False,
                server_header=False,
                lifespan="off",
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
                timeout_keep_alive=_IDLE_SECONDS,
                **options,
            )
        )
        self._protocol = http
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: dict[asyncio.Task[None], float] = {}  # when each began; oldest first

    def end(self) -> None:
        """Let `serve` end after the requests that have arrived."""
        self.should_exit = True
        self._ending.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers, because headgate handles signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on bound sockets. uvicorn and asyncio would accept any number of them."""
        self.servers = []
        for listener in sockets or ():
            listener.settimeout(0)
            listener.listen(self.config.backlog)
            self._accepting.append(asyncio.create_task(self._accept(listener)))
        self.started = True

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            backoff = Backoff(longest_s=_LONGEST_ACCEPT_PAUSE_S)
            await until_done(partial(self._accept_next, listener), "", on=OSError, backoff=backoff)

    async def _accept_next(self, listener: socket.socket) -> None:
        """Accept a connection. A cancellation leaves it in the queue of the listener; `sock_accept` could lose it."""
        await _readable(listener)
        await self._until_handshake_possible()
        with contextlib.suppress(BlockingIOError):  # the client has left
            self._begin_opening(listener.accept()[0])

    def _begin_opening(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        opening = asyncio.create_task(self._open(connection))
        self._handshakes[opening] = asyncio.get_running_loop().time()
        opening.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _until_handshake_possible(self) -> None:
        """Wait while there are too many handshakes; end the oldest when it has taken too long."""
        now = asyncio.get_running_loop().time
        while len(self._handshakes) >= MAX_HANDSHAKES:
            oldest, began = next(iter(self._handshakes.items()))
            left = began + _PATIENCE_SECONDS - now()
            if left <= 0:
                oldest.cancel()
                del self._handshakes[oldest]
            else:
                await asyncio.wait(self._handshakes, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _open(self, connection: socket.socket) -> None:
        """Make the TLS handshake of a connection, and serve it. Failures of a client are not logged."""
        tls = self.config.ssl
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._create_protocol,
                connection,
                ssl=tls,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if tls else None,
            )
            stack.pop_all()  # now the transport closes the socket
        if len(connections := self._connections()) > MAX_CONNECTIONS:
            waiting = [connection for connection in connections if connection.awaits_client]
            if waiting:
                min(waiting, key=lambda connection: connection.since).transport.abort()

    def _create_protocol(self) -> BoundedProtocol:
        return self._protocol(config=self.config, server_state=self.server_state, app_state={})

    def _connections(self) -> list[BoundedProtocol]:
        return [connection for connection in self.server_state.connections if isinstance(connection, BoundedProtocol)]

    async def main_loop(self) -> None:
        """Tick each second until `end`. uvicorn's own loop wakes ten times as often, and notices the end later."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._ending.wait()

    async def on_tick(self, counter: int) -> bool:
        """Close connections with slow clients."""
        now = asyncio.get_running_loop().time()
        for connection in self._connections():
            connection.close_overdue(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer all requests that have arrived, and close the connections.

        The kernel resets the connections that it still has when the listener closes, so all of them are accepted before.
        """
        await _end(self._accepting)
        for listener in sockets or ():
            self._accept_queued(listener)
            listener.close()
        if self._handshakes:
            await asyncio.wait(self._handshakes, timeout=_PATIENCE_SECONDS)
            await _end(self._handshakes)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)  # waits for 0.1 s at least
        for connection in self.server_state.connections:
            event_loop.abort(connection.transport)  # its client was too slow

    def _accept_queued(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # BlockingIOError: there are no more
            while len(self._handshakes) < MAX_HANDSHAKES:
                self._begin_opening(listener.accept()[0])


async def _readable(listener: socket.socket) -> None:
    """Wait until a connection can be accepted."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(listener, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(listener)


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    canceled = [task for task in tasks if task.cancel()]
    await asyncio.gather(*canceled, return_exceptions=True)


def _web_socket(**options: Any) -> Any:
    """Return the protocol of a WebSocket. Its library is imported for the first one: 15 ms of a start."""
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol  # noqa: PLC0415

    return WSProtocol(**options)


async def serve(server: Server, listener: socket.socket, closing: Callable[[], object] = lambda: None) -> None:
    """Serve on a bound socket until canceled. `closing` is then called to end streamed responses."""
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    finally:
        closing()
        server.end()
        await serving


async def serve_on_loopback(
    server: Server, listener: socket.socket, closing: Callable[[], object] = lambda: None
) -> None:
    """Serve on a bound loopback socket until canceled. `closing` is then called to end streamed responses.

    Raises ValueError for an address that is not loopback.
    """
    address = listener.getsockname()[0]
    if not ipaddress.ip_address(address).is_loopback:
        raise ValueError(f"this server must listen on loopback, not on {address}; bind 127.0.0.1")
    await serve(server, listener, closing)


def drained(app: ASGIApp, draining: asyncio.Event) -> ASGIApp:
    """Let the responses of an application close their connections once `draining` is set.

    So a client sends its next request on a new connection, which leads to another replica.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, _closing(send, draining.is_set))

    return answer


def closing_unread(app: ASGIApp) -> ASGIApp:
    """Let a response close its connection if the application has not read the whole body of the request.

    So a body that the application refuses, such as that of an unknown client, is not read.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if all(name not in _BODY_HEADERS or value == b"0" for name, value in scope["headers"]):
            await app(scope, receive, send)
            return
        is_unread = True

        async def receive_body() -> Message:
            nonlocal is_unread
            message = await receive()
            is_unread = message["type"] == "http.disconnect" or message.get("more_body", False)
            return message

        await app(scope, receive_body, _closing(send, lambda: is_unread))

    return answer


def _closing(send: Send, closes: Callable[[], bool]) -> Send:
    """Return a `send` whose responses close their connections if `closes()` is true when they start."""

    async def send_closing(message: Message) -> None:
        if message["type"] == "http.response.start" and closes():
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    return send_closing


class StreamResponse(Response):
    """A streamed response. It ends when its source ends, the client disconnects, or the server closes.

    In each case the source is closed before the request ends, so it releases its resources at once.
    """

    def __init__(self, source: AsyncGenerator[bytes], closing: asyncio.Event, media_type: str) -> None:
        """Stream the pieces of `source` until `closing` is set."""
        self.status_code, self.media_type, self.background = 200, media_type, None
        self._source = source
        self._closing = closing
        self.init_headers()

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response (ASGI). Exceptions of the source are raised."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending = asyncio.ensure_future(self._send(send))
        ends = asyncio.ensure_future(_disconnected(receive)), asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((sending, *ends), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, *ends):
                task.cancel()
            await asyncio.gather(sending, *ends, return_exceptions=True)
            await self._source.aclose()
        if not sending.cancelled():
            sending.result()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        async for piece in self._source:
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
