"""The sockets of clients and servers in an event loop, which a test closes before it ends."""

import asyncio
import contextlib
import socket
from weakref import WeakSet

from aiohttp import AddrInfoType


class Sockets(WeakSet[socket.socket]):
    """Sockets that may still wait for the other side's end of TLS, such as those of closed WebSockets: aiohttp waits for none."""

    def open(self, address: AddrInfoType) -> socket.socket:
        """Return a new socket for an address: the `socket_factory` of a connector."""
        opened = socket.socket(*address[:3])
        self.add(opened)
        return opened

    async def close(self) -> None:
        """End all connections, and wait until they are closed."""
        for opened in tuple(self):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        while any(opened.fileno() >= 0 for opened in self):
            await asyncio.sleep(0)
