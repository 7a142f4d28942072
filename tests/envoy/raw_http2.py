"""HTTP/2 as frames that a test chooses: a server that refuses streams and ends connections, and a client (RFC 9113).

A server answers with `:status: 200`, whose compressed form is one byte. It does not decompress requests.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests import hpack
from tests.envoy.raw_http import RawConnection

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
NO_ERROR, REFUSED_STREAM = 0, 7
ACK = END_STREAM = 1
END_HEADERS = 4
_STATUS_200 = b"\x88"  # an index of the static table (RFC 7541, appendix A)


class Frame(NamedTuple):
    """A frame of a connection; stream 0 is the connection itself."""

    kind: int
    flags: int
    stream: int
    content: bytes


class _Peer:
    """One side of a connection."""

    def __init__(self, connection: RawConnection) -> None:
        self.connection = connection

    def send(self, kind: int, flags: int, stream: int, content: bytes = b"") -> None:
        """Send a frame."""
        self.connection.send(len(content).to_bytes(3) + struct.pack("!BBI", kind, flags, stream) + content)

    def receive(self) -> Frame:
        """Return the next frame; acknowledge settings and pings."""
        head = self.connection.exactly(9)
        (stream,) = struct.unpack("!I", head[5:])
        frame = Frame(head[3], head[4], stream, self.connection.exactly(int.from_bytes(head[:3])))
        if frame.kind in {SETTINGS, PING} and not frame.flags & ACK:
            self.send(frame.kind, ACK, 0, frame.content if frame.kind == PING else b"")
        return frame

    def reset(self, stream: int, error: int) -> None:
        """Reset a stream; REFUSED_STREAM means that the server has not processed it."""
        self.send(RST_STREAM, 0, stream, struct.pack("!I", error))


class Http2Server(_Peer):
    """The server's side of one connection, which begins with the preface, unless it was read `after_preface`."""

    def __init__(self, connection: RawConnection, *, after_preface: bool = False) -> None:
        super().__init__(connection)
        assert after_preface or connection.exactly(len(PREFACE)) == PREFACE
        self.send(SETTINGS, 0, 0)

    def requests(self) -> Iterator[int]:
        """Yield the stream of each request, once it is complete."""
        while True:
            frame = self.receive()
            if frame.kind in {HEADERS, DATA} and frame.flags & END_STREAM:
                yield frame.stream

    def answer(self, stream: int) -> None:
        """Answer a request with 200 and no body."""
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, _STATUS_200)

    def goaway(self, last: int) -> None:
        """Announce the end of the connection; the server has not processed streams after `last`."""
        self.send(GOAWAY, 0, 0, struct.pack("!II", last, NO_ERROR))


class Http2Client(_Peer):
    """The client's side of one connection, whose first frame may have other `settings`."""

    def __init__(self, connection: RawConnection, settings: bytes = b"") -> None:
        super().__init__(connection)
        connection.send(PREFACE)
        self.send(SETTINGS, 0, 0, settings)

    def request(self, stream: int, fields: Iterable[tuple[str, str]], flags: int = END_HEADERS | END_STREAM) -> None:
        """Send the head of a request; by default it has no body."""
        self.send(HEADERS, flags, stream, hpack.encoded(fields))

    def next(self, *kinds: int, stream: int = 0) -> Frame:
        """Return the next frame of some kinds on a stream, or on the whole connection."""
        while True:
            frame = self.receive()
            if frame.kind in kinds and frame.stream == stream:
                return frame
