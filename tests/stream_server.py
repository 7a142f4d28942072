"""Serve streams in the event loop of a test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LOOPBACK = ("127.0.0.1", 0)


@contextlib.asynccontextmanager
async def stream_server(
    serve: Serve, at: tuple[str, int] | Path = LOOPBACK, **options: Any
) -> AsyncIterator[asyncio.Server]:
    """Serve on an address, or on the Unix socket of a path. `options` has those of asyncio.

    `serve` may raise OSError and EOFError when its client leaves, and its return closes the connection. The end of the context cancels
    it, and waits until all connections are closed: one that outlives the event loop is a ResourceWarning in a later test.
    """
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError):
            await serve(reader, writer)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections[asyncio.create_task(run(reader, writer))] = writer

    if isinstance(at, Path):
        server = await asyncio.start_unix_server(accept, at, **options)
    else:
        server = await asyncio.start_server(accept, *at, **options)
    closed = asyncio.create_task(server.wait_closed())
    await asyncio.sleep(0)  # in Python 3.11 it waits for the connections only if it begins before `close`
    try:
        yield server
    finally:
        server.close()
        for task, writer in connections.items():
            task.cancel()
            writer.transport.abort()
        ended = await asyncio.gather(*connections, return_exceptions=True)
        await closed
    for end in ended:
        if isinstance(end, Exception):
            raise end
