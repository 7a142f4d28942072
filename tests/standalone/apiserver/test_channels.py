"""The channels of a session, with messages that are given to the WebSocket in the test's process."""

import asyncio
from typing import Any

import pytest
from starlette.websockets import WebSocket

from headgate.standalone.apiserver.channels import UNREAD_BYTES, Channels, StdinStalled, TerminalSize


async def channels(*messages: bytes, **options: Any) -> Channels:
    """Return the channels of an accepted WebSocket that receives messages, and then waits."""
    events = [{"type": "websocket.connect"}, *({"type": "websocket.receive", "bytes": message} for message in messages)]

    async def receive() -> Any:
        return events.pop(0) if events else await asyncio.Event().wait()

    async def send(_: Any) -> None:
        pass

    socket = WebSocket({"type": "websocket", "path": "/", "headers": []}, receive, send)
    await socket.accept()
    return Channels(socket, **options)


def ignore(_: TerminalSize) -> None:
    pass


async def test_stdin_that_no_command_reads_ends_the_session() -> None:
    flood = [b"\x00" + b"x" * 100_000] * 100
    stalled = await channels(*flood, unread_seconds=0.01)
    with pytest.raises(StdinStalled):
        await stalled.receive(ignore)
    assert UNREAD_BYTES < len(await stalled.read_stdin()) <= UNREAD_BYTES + 100_000


async def test_stdin_is_received_while_it_is_read() -> None:
    flood = [b"\x00" + b"x" * 100_000] * 100
    read = await channels(*flood, b"\xff\x00")
    receiving = asyncio.create_task(read.receive(ignore))
    total = 0
    while data := await read.read_stdin():
        total += len(data)
    assert total == 10_000_000
    receiving.cancel()


async def test_sizes_of_the_terminal_are_passed_on() -> None:
    sizes: asyncio.Queue[TerminalSize] = asyncio.Queue()
    resized = await channels(b'\x04{"Width":80,"Height":24}')
    receiving = asyncio.create_task(resized.receive(sizes.put_nowait))
    assert await sizes.get() == TerminalSize(80, 24)
    receiving.cancel()
