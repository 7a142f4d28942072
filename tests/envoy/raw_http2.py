"""The frames of HTTP/2 that a server needs to refuse streams, and to end connections, as it chooses (RFC 9113).

A server answers with `:status: 200`, whose compressed form is one byte. It does not decompress requests.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tests.envoy.raw_http import RawConnection

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
NO_ERROR, REFUSED_STREAM = 0, 7
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_STATUS_200 = b"\x88"  # an index of the static table (RFC 7541, appendix A)


class Frame(NamedTuple):
    """A frame of a connection; stream 0 is the connection itself."""

    kind: int
    flags: int
    stream: int
    content: bytes


class Http2Server:
    """The server's side of one connection."""

    def __init__(self, connection: RawConnection) -> None:
        self.connection = connection
        assert connection.exactly(len(PREFACE)) == PREFACE
        self._send(SETTINGS, 0, 0)

    def requests(self) -> Iterator[int]:
        """Yield the stream of each request, once it is complete; acknowledge settings and pings meanwhile."""
        while True:
            frame = self._receive()
            if frame.kind in {SETTINGS, PING} and not frame.flags & _ACK:
                self._send(frame.kind, _ACK, 0, frame.content if frame.kind == PING else b"")
            if frame.kind in {HEADERS, DATA} and frame.flags & _END_STREAM:
                yield frame.stream

    def answer(self, stream: int) -> None:
        """Answer a request with 200 and no body."""
        self._send(HEADERS, _END_HEADERS | _END_STREAM, stream, _STATUS_200)

    def reset(self, stream: int, error: int) -> None:
        """Reset a stream; REFUSED_STREAM means that the server has not processed it."""
        self._send(RST_STREAM, 0, stream, struct.pack("!I", error))

    def goaway(self, last: int) -> None:
        """Announce the end of the connection; the server has not processed streams after `last`."""
        self._send(GOAWAY, 0, 0, struct.pack("!II", last, NO_ERROR))

    def _receive(self) -> Frame:
        head = self.connection.exactly(9)
        (stream,) = struct.unpack("!I", head[5:])
        return Frame(head[3], head[4], stream, self.connection.exactly(int.from_bytes(head[:3])))

    def _send(self, kind: int, flags: int, stream: int, content: bytes = b"") -> None:
        self.connection.send(len(content).to_bytes(3) + struct.pack("!BBI", kind, flags, stream) + content)
