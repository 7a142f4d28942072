"""A minimal HTTP server for the programs of pods: requests have no body, and the path decides the response's status."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable

Answer = Callable[[re.Match[bytes]], Awaitable[int]]


async def serve(path: re.Pattern[bytes], answer: Answer) -> None:
    """Serve forever on every $PORT_... of the environment; `answer` returns the status for a matched request."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while found := path.match(await reader.readuntil(b"\r\n\r\n")):
                writer.write(b"HTTP/1.1 %d Answered\r\ncontent-length: 0\r\n\r\n" % await answer(found))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    for port in {value for name, value in os.environ.items() if name.startswith("PORT_")}:
        await asyncio.start_server(converse, os.environ["HOST"], int(port))
    await asyncio.Event().wait()
