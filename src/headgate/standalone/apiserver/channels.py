"""Channels on a WebSocket: the subprotocols `v5.channel.k8s.io` and `v4.channel.k8s.io`, which kubectl exec and attach speak.

The first byte of each binary message is the number of its channel. A client of v5 closes its stdin with a message on channel
255 that has the number of the channel to close.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The subprotocols, the preferred one first."""
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
UNREAD_BYTES = 256 * 1024
"""The part of stdin that is buffered for a command that does not read it."""
UNREAD_SECONDS = 60.0
"""The time for which a command may leave its stdin unread while more arrives. The server answers no ping meanwhile, and kubectl
gives up after a minute without an answer."""
_NORMAL, _PROTOCOL_ERROR = 1000, 1002
_LARGEST_SIZE = 0xFFFF  # of a terminal, in columns or rows


class ProtocolError(Exception):
    """The client has sent what the subprotocol does not allow."""


class StdinStalled(Exception):
    """The command has not read its stdin for `UNREAD_SECONDS`."""


class TerminalSize(msgspec.Struct, frozen=True, rename="pascal"):
    """The size of a terminal in characters."""

    width: int
    height: int


class Channels:
    """The channels of an accepted WebSocket. `receive` must run for `read_stdin` to return."""

    def __init__(self, websocket: WebSocket, *, unread_seconds: float = UNREAD_SECONDS) -> None:
        self._websocket = websocket
        self._unread_seconds = unread_seconds
        self._stdin: list[bytes] = []
        self._unread = 0
        self._stdin_closed = False
        self._changed = asyncio.Event()

    async def send(self, channel: int, data: bytes) -> None:
        """Send data on a channel; wait while the client does not read."""
        await self._websocket.send_bytes(bytes((channel,)) + data)

    async def finish(self, status: Mapping[str, Any]) -> None:
        """Send the result of the command, and close the WebSocket."""
        await self.send(ERROR, msgspec.json.encode(status))
        await self._websocket.close(_NORMAL)

    async def reject(self, error: ProtocolError) -> None:
        """Close the WebSocket after an error of the client."""
        await self._websocket.close(_PROTOCOL_ERROR, str(error))

    async def read_stdin(self) -> bytes:
        """Wait for data of stdin; return an empty value at its end."""
        while not self._stdin and not self._stdin_closed:
            self._changed.clear()
            await self._changed.wait()
        if not self._stdin:
            return b""
        data = b"".join(self._stdin)
        self._stdin.clear()
        self._unread = 0
        self._changed.set()
        return data

    async def receive(self, resize: Callable[[TerminalSize], None]) -> None:
        """Receive messages until the client has gone, and call `resize` for each size. Raises ProtocolError and StdinStalled."""
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                message = await self._websocket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                content = message.get("bytes")
                if not content:
                    raise ProtocolError("a message must be binary and begin with the number of its channel")
                await self._take(content[0], content[1:], resize)

    async def _take(self, channel: int, data: bytes, resize: Callable[[TerminalSize], None]) -> None:
        if channel == STDIN:
            await self._take_stdin(data)
        elif channel == RESIZE:
            resize(_size(data))
        elif channel == CLOSE and data == bytes((STDIN,)):
            self._stdin_closed = True
            self._changed.set()
        else:
            raise ProtocolError(f"a client can't send on channel {channel}")

    async def _take_stdin(self, data: bytes) -> None:
        if self._stdin_closed:
            raise ProtocolError("stdin is closed")
        if not data:
            return
        self._stdin.append(data)
        self._unread += len(data)
        self._changed.set()
        while self._unread > UNREAD_BYTES:
            self._changed.clear()
            try:
                async with asyncio.timeout(self._unread_seconds):
                    await self._changed.wait()
            except TimeoutError as error:
                raise StdinStalled from error


def _size(data: bytes) -> TerminalSize:
    try:
        size = msgspec.json.decode(data, type=TerminalSize)
    except msgspec.DecodeError as error:
        raise ProtocolError("the size of the terminal must be JSON with Width and Height") from error
    if not (0 <= size.width <= _LARGEST_SIZE and 0 <= size.height <= _LARGEST_SIZE):
        raise ProtocolError(f"the size of the terminal must be 0 to {_LARGEST_SIZE}")
    return size
