"""The program of most test pods: an HTTP server that answers with its $NAME and writes a dot for each request.

The dots are in the file $COUNT, so that a test can count requests after the pod has ended.
"""

import asyncio
import os
import signal

NAME = os.environ["NAME"]
QUIET_S = 0.3  # after SIGTERM, the seconds without a request before the server ends, so that no request is lost
COUNT = os.open(os.environ["COUNT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
BODY = f"{NAME}\n".encode()


class Served(asyncio.Protocol):
    """One connection of a client; requests have no body."""

    last = 0.0

    def __init__(self) -> None:
        self.read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport, to which responses are written."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each complete request."""
        *heads, self.read = (self.read + data).split(b"\r\n\r\n")
        for _ in heads:
            Served.last = asyncio.get_running_loop().time()
            os.write(COUNT, b".")
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY))


async def main() -> None:
    """Serve on every $PORT_... of the environment until SIGTERM."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    for port in {value for name, value in os.environ.items() if name.startswith("PORT_")}:
        await loop.create_server(Served, os.environ["HOST"], int(port))
    await ended.wait()
    Served.last = loop.time()
    while loop.time() < Served.last + QUIET_S:
        await asyncio.sleep(QUIET_S / 10)


asyncio.run(main())
