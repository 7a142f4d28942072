"""Send one HTTP/1.1 or HTTP/2 request over a new connection, with or without TLS, and wait for the response's end.

Members count what they receive. The response only shows that the members will receive no more of the request.
"""

import asyncio
import ssl
from typing import Literal, NamedTuple, TypeAlias

from tests import hpack
from tests.differential.backends import (
    DEADLINE_S,
    END_HEADERS,
    END_STREAM,
    HEAD_END,
    HEADERS,
    frame,
)
from tests.wire import H2_PREFACE, H2_SETTINGS, Address, send

from headgate.envoy.upstream_tls import AUDITED, DENIED_HEADER

HttpVersion: TypeAlias = Literal["1.0", "1.1", "2"]
CONTINUATION, RST_STREAM, GOAWAY = 9, 3, 7
LARGEST_FRAME = 1 << 14
FRAME_HEAD = 9
STREAM = 1
CONTINUE = 100
AUDIT_MARK = f"\r\n{DENIED_HEADER}: {AUDITED}\r\n".encode()


class Message(NamedTuple):
    """A request as it is sent; over HTTP/1.1, `target` may be a full URL."""

    version: HttpVersion
    method: str
    target: str
    authority: str
    headers: tuple[tuple[str, str], ...]

    def encoded(self) -> bytes:
        """Return the request as bytes."""
        return self._frames() if self.version == "2" else self._head()

    def _head(self) -> bytes:
        fields = [("host", self.authority), *self.headers]
        lines = [f"{self.method} {self.target} HTTP/{self.version}", *(f"{n}: {v}" for n, v in fields), "", ""]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")

    def _frames(self) -> bytes:
        fields = [
            (":method", self.method),
            (":scheme", "http"),
            (":path", self.target),
            (":authority", self.authority),
            *((name.lower(), value) for name, value in self.headers),
        ]
        block = hpack.encoded(fields)
        parts = [block[start : start + LARGEST_FRAME] for start in range(0, len(block), LARGEST_FRAME)]
        kinds = [HEADERS] + [CONTINUATION] * (len(parts) - 1)
        flags = [END_STREAM] + [0] * (len(parts) - 1)
        flags[-1] |= END_HEADERS
        frames = (frame(kind, flag, STREAM, part) for kind, flag, part in zip(kinds, flags, parts, strict=True))
        return H2_PREFACE + H2_SETTINGS + b"".join(frames)


class Reply(NamedTuple):
    """The status of an HTTP/1 response, and whether it has the mark of an audit. HTTP/2 responses are not decoded."""

    status: int = 0
    audited: bool = False


async def exchange(
    where: Address, message: Message, tls: ssl.SSLContext | None = None, name: str | None = None
) -> Reply:
    """Send one message and wait for its end; return the reply."""
    async with asyncio.timeout(DEADLINE_S):
        try:
            reader, writer = await asyncio.open_connection(*where, ssl=tls, server_hostname=name if tls else None)
        except OSError:  # the connection or the handshake was refused
            return Reply()
        try:
            send(writer, message.encoded())
            return await _over(reader, http2=message.version == "2")
        except (EOFError, OSError):
            return Reply()
        finally:
            writer.transport.abort()


async def _over(reader: asyncio.StreamReader, *, http2: bool) -> Reply:
    if not http2:
        head = await reader.readuntil(HEAD_END)
        while (status := int(head.split(maxsplit=2)[1])) == CONTINUE:
            head = await reader.readuntil(HEAD_END)
        return Reply(status, AUDIT_MARK in head)
    while True:
        head = await reader.readexactly(FRAME_HEAD)
        await reader.readexactly(int.from_bytes(head[:3], "big"))
        kind, stream = head[3], int.from_bytes(head[5:], "big")
        if kind == GOAWAY or (kind in {HEADERS, RST_STREAM} and stream == STREAM):
            return Reply()
