"""What all our HTTP servers have in common: they run inside a program that handles its own signals, and keep no log."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

_SHUTDOWN_SECONDS = 3


class Server(uvicorn.Server):
    """A server of an application; `options` are further ones of uvicorn's."""

    def __init__(self, app: ASGIApp, **options: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                access_log=False,  # a log of requests would hold names of secrets
                log_config=None,
                log_level="error",
                ws="none",
                server_header=False,
                lifespan="off",
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
                **options,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program."""
        yield


async def serve_on_loopback(
    server: Server, listener: socket.socket, closing: Callable[[], object] = lambda: None
) -> None:
    """Answer on a bound loopback socket until cancelled; `closing` ends what would go on for ever.

    Raises ValueError for an address of the network.
    """
    address = listener.getsockname()[0]
    if not ipaddress.ip_address(address).is_loopback:
        raise ValueError(f"this server is for this machine only: bind 127.0.0.1, not {address}")
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    finally:
        closing()
        server.should_exit = True
        await serving


async def until(closing: asyncio.Event, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what comes until the server closes."""
    closed = asyncio.ensure_future(closing.wait())
    pending: asyncio.Future[bytes] | None = None
    try:
        while not closed.done():
            pending = asyncio.ensure_future(anext(pieces))
            await asyncio.wait({pending, closed}, return_when=asyncio.FIRST_COMPLETED)
            if pending.done():
                yield pending.result()
    except StopAsyncIteration:
        return
    finally:
        closed.cancel()
        if pending:
            pending.cancel()
