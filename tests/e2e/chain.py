"""A pod that calls on: `GET /2` is answered after a `GET /1` to each host in $CALLS, `GET /0` at once."""

import asyncio
import os
import re
from urllib.parse import urlsplit

PATH = re.compile(rb"GET /(\d+) ")
CALLS = os.environ["CALLS"].split()
PROXY = urlsplit(os.environ["http_proxy"])


async def ask(host: str, left: int) -> bytes:
    """Send a request to a host through the pod's proxy; return the head of the answer."""
    reader, writer = await asyncio.open_connection(PROXY.hostname, PROXY.port)
    writer.write(f"GET http://{host}:8080/{left} HTTP/1.1\r\nhost: {host}:8080\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one connection's requests, which have no body: 200 when all that were called did."""
    try:
        while found := PATH.match(await reader.readuntil(b"\r\n\r\n")):
            left = int(found[1])
            answers = await asyncio.gather(*(ask(host, left - 1) for host in CALLS)) if left else []
            fine = all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
            writer.write(b"HTTP/1.1 %d Told\r\ncontent-length: 0\r\n\r\n" % (200 if fine else 502))
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
