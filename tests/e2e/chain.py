"""The program of a pod that calls other pods: for `GET /N` it sends `GET /N-1` to each host in $CALLS, down to 0."""

import asyncio
import os
import re
from urllib.parse import urlsplit

from path_server import serve

PATH = re.compile(rb"GET /(\d+) ")
CALLS = os.environ["CALLS"].split()
PROXY = urlsplit(os.environ["http_proxy"])


async def ask(host: str, left: int) -> bytes:
    """Send `GET /LEFT` to a host through the pod's proxy; return the response."""
    reader, writer = await asyncio.open_connection(PROXY.hostname, PROXY.port)
    writer.write(f"GET http://{host}:8080/{left} HTTP/1.1\r\nhost: {host}:8080\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


async def answer(found: re.Match[bytes]) -> int:
    """Return 200 if all called hosts returned 200, else 502."""
    left = int(found[1])
    answers = await asyncio.gather(*(ask(host, left - 1) for host in CALLS)) if left else []
    return 200 if all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers) else 502


asyncio.run(serve(PATH, answer))
