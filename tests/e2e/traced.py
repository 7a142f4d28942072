"""The program of a pod that passes trace headers on: it calls the host in $NEXT, if there is one, and answers what it got.

The answer to a request is a JSON array: the headers that this pod received, then those of the pods that it called.
"""

import asyncio
import json
import os
from urllib.parse import urlsplit

NEXT = os.environ.get("NEXT", "")
PASSED_ON = ("traceparent", "tracestate", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled")


async def call(headers: dict[str, str]) -> list[dict[str, str]]:
    """Call the next pod through this pod's proxy with the trace headers of the request; return its answer."""
    proxy = urlsplit(os.environ["http_proxy"])
    reader, writer = await asyncio.open_connection(proxy.hostname, proxy.port)
    passed = "".join(f"{name}: {headers[name]}\r\n" for name in PASSED_ON if name in headers)
    writer.write(f"GET http://{NEXT}:8080/ HTTP/1.1\r\nhost: {NEXT}:8080\r\nconnection: close\r\n{passed}\r\n".encode())
    answer = await reader.read()
    writer.close()
    found: list[dict[str, str]] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection, which have no body."""
    try:
        while True:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = json.dumps([headers, *(await call(headers) if NEXT else [])]).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    """Serve on every $PORT_... of the environment."""
    for port in {value for name, value in os.environ.items() if name.startswith("PORT_")}:
        await asyncio.start_server(converse, os.environ["HOST"], int(port))
    await asyncio.Event().wait()


asyncio.run(main())
