"""Idle connections, and streamed responses: their source is closed as soon as the response ends, for any reason."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Iterator

import pytest
from starlette.applications import Starlette
from starlette.types import Message

from headgate.api.http_server import Server, StreamResponse

IDLE_SECONDS_OF_GO = 90
"""The time after which Go's HTTP clients close an idle connection."""


@pytest.fixture(autouse=True)
def without_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


class Client:
    """A client that reads `reads` pieces of a stream and then stalls; `leave` closes its connection."""

    def __init__(self, reads: int) -> None:
        self.body: list[bytes] = []
        self.is_ended = self.is_closed = False
        self.stopped = asyncio.Event()
        self.closing = asyncio.Event()
        self._reads = reads
        self._left = asyncio.Event()

    async def source(self) -> AsyncGenerator[bytes]:
        """Yield pieces until the generator is closed."""
        try:
            while True:
                yield b"piece"
        finally:
            self.is_closed = True

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            return
        if not message["more_body"]:
            self.is_ended = True
            return
        if len(self.body) == self._reads:
            self.stopped.set()
            await asyncio.Event().wait()
        self.body.append(message["body"])

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self._left.set()

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """Serve the client until it stalls, run the `async with` block, then wait until the response has ended."""
        stream = StreamResponse(self.source(), self.closing, "text/plain")
        serving = asyncio.ensure_future(stream({"type": "http"}, self.receive, self.send))
        await self.stopped.wait()
        yield
        await serving


async def test_a_client_that_disconnects_during_a_write_ends_the_stream() -> None:
    client = Client(reads=2)
    async with client.reading():
        client.leave()
    assert (client.body, client.is_closed) == ([b"piece"] * 2, True)


async def test_a_closing_server_ends_the_stream() -> None:
    client = Client(reads=1)
    async with client.reading():
        client.closing.set()
    assert (client.is_ended, client.is_closed) == (True, True)


async def test_an_exception_of_the_source_is_raised() -> None:
    async def source() -> AsyncGenerator[bytes]:
        yield b"piece"
        raise LookupError("the source failed")

    client = Client(reads=2)
    with pytest.raises(LookupError):
        await StreamResponse(source(), client.closing, "text/plain")({"type": "http"}, client.receive, client.send)
    assert not client.is_ended


def test_a_server_closes_an_idle_connection_after_its_client() -> None:
    """Else a request could arrive while the server closes the connection."""
    assert Server(Starlette()).config.timeout_keep_alive > IDLE_SECONDS_OF_GO
