"""HTTP/1.1 as a client: one exchange after the other on a connection, answers read whole or as they come."""

import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterable

import httptools

READ_BYTES = 1 << 16

Header = tuple[str, str]


class Broken(ConnectionError):
    """The other side closed, or does not speak HTTP."""


class _Events:
    """What the parser has told since it was last asked."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.begun = False
        self.done = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.begun = True

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)

    def on_message_complete(self) -> None:
        self.done = True


class Response:
    """One answer. `headers` have lower-case names; of a repeated one the last counts."""

    def __init__(self, reader: StreamReader, *, bodiless: bool) -> None:
        self._reader = reader
        self._bodiless = bodiless
        self._events = _Events()
        self._parser = httptools.HttpResponseParser(self._events)

    @property
    def status(self) -> int:
        """The status code."""
        return int(self._parser.get_status_code())

    @property
    def headers(self) -> dict[str, str]:
        """The headers."""
        return self._events.headers

    @property
    def reusable(self) -> bool:
        """Whether the connection takes another request after this answer."""
        return self._events.done and not self._bodiless and self._parser.should_keep_alive()

    async def begin(self) -> None:
        """Read the headers. Raises OSError."""
        while not self._events.begun:
            await self._feed()
        if self._bodiless:
            self._events.done = True

    async def read(self) -> bytes:
        """Read the rest of the body. Raises OSError."""
        parts = []
        while part := await self.part():
            parts.append(part)
        return b"".join(parts)

    async def part(self) -> bytes:
        """Return what has come of the body, at least a byte; empty at its end. Raises OSError."""
        while not self._events.parts and not self._events.done:
            await self._feed()
        parts, self._events.parts = self._events.parts, []
        return b"".join(parts)

    async def _feed(self) -> None:
        data = await self._reader.read(READ_BYTES)
        if data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError as error:
                raise Broken(f"the answer is not HTTP: {error}") from error
        elif self._events.begun and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self._events.done = True
        else:
            raise Broken("the connection was closed before the answer was complete")


class Connection:
    """A connection for one exchange at a time."""

    def __init__(self, streams: tuple[StreamReader, StreamWriter]) -> None:
        self._reader, self._writer = streams

    async def ask(self, method: str, target: str, headers: Iterable[Header], body: bytes = b"") -> Response:
        """Send a request and return the answer, its headers read. Raises OSError."""
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        if body:
            lines.append(f"content-length: {len(body)}")
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await self._writer.drain()
        response = Response(self._reader, bodiless=method == "HEAD")
        await response.begin()
        return response

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
