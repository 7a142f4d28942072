"""What the pods of the end-to-end tests run: an HTTP server that answers its $NAME and writes a dot for each request.

The dots are in the file $COUNT, so that they outlive the pod and can be counted while it is away.
"""

import asyncio
import os
import signal

NAME = os.environ["NAME"]
QUIET_S = 0.3  # after the last request, when asked to end: requests under way have arrived by then
COUNT = os.open(os.environ["COUNT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
BODY = f"{NAME}\n".encode()


class Served(asyncio.Protocol):
    """One connection; requests have no body."""

    last = 0.0

    def __init__(self) -> None:
        self.read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note whom to answer."""
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
    """Serve on every port that the environment names, until asked to end."""
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
