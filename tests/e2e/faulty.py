"""A pod that does what the path says: `GET /503/900` is answered with 503 after 900 milliseconds."""

import asyncio
import os
import re

PATH = re.compile(rb"[A-Z]+ /(\d+)/(\d+) ")


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one connection's requests, which have no body."""
    try:
        while found := PATH.match(await reader.readuntil(b"\r\n\r\n")):
            status, milliseconds = map(int, found.groups())
            await asyncio.sleep(milliseconds / 1000)
            writer.write(b"HTTP/1.1 %d Told\r\ncontent-length: 0\r\n\r\n" % status)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    """Serve on every port that the environment names."""
    for port in {value for name, value in os.environ.items() if name.startswith("PORT_")}:
        await asyncio.start_server(serve, os.environ["HOST"], int(port))
    await asyncio.Event().wait()


asyncio.run(main())
