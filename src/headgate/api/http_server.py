"""The base of all HTTP servers: uvicorn without signal handlers and access log, their end, and streamed responses."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SHUTDOWN_SECONDS = 3  # time for open requests to finish when the server stops
_IDLE_SECONDS = 120
"""The time after which the server closes an idle connection.

Go's clients, such as a cluster's API server, close it after 90 s. A server must not close it first: a client may send a
request at that moment, and repeats only idempotent ones.
"""
_READING_PASSES = 2  # the passes of the event loop in which it reads all sockets once


class Server(uvicorn.Server):
    """A server of an application. `options` are further options of uvicorn."""

    def __init__(self, app: ASGIApp, **options: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                access_log=False,  # a log of paths would contain the names of Secrets
                log_config=None,
                log_level="error",
                ws="none",
                server_header=False,
                lifespan="off",
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
                timeout_keep_alive=_IDLE_SECONDS,
                **options,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers, because headgate handles signals."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer all requests that have arrived, and close the connections."""
        for _ in range(_READING_PASSES):
            await asyncio.sleep(0)
        await super().shutdown(sockets)


async def serve(server: Server, listener: socket.socket, closing: Callable[[], object] = lambda: None) -> None:
    """Serve on a bound socket until canceled. `closing` is then called to end streamed responses."""
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    finally:
        closing()
        server.should_exit = True
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
        async def send_closing(message: Message) -> None:
            if message["type"] == "http.response.start" and draining.is_set():
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        await app(scope, receive, send_closing)

    return answer


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
