"""An HTTP/2 client that begins gRPC calls, sends a part of their requests, and leaves them open."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK, END_HEADERS, END_STREAM = 0x1, 0x4, 0x1
INITIAL_WINDOW = 4  # the number of a setting
FRAME = 16_384
DEADLINE_SECONDS = 60.0


class HalfCalls:
    """One connection with calls of a method; each sends up to `size` bytes of a request that is announced to be longer."""

    def __init__(self, path: Path, method: str, calls: int, size: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(DEADLINE_SECONDS)
        self._socket.connect(str(path))
        self._method, self._size = method, size
        self._read = b""
        self._window, self._initial = 65_535, 65_535
        self._windows: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self.ended: set[int] = set()
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
        self._streams = range(1, 2 * calls, 2)

    def send(self) -> None:
        """Send until the server ends every call, or for the deadline does not read or send anything."""
        for stream in self._streams:
            self._windows[stream], self._left[stream] = self._initial, self._size
            self._socket.sendall(frame(HEADERS, END_HEADERS, stream, head(self._method)))
            self._data(stream, b"\x00" + struct.pack(">I", 2 * self._size))
        try:
            while self._left:
                self._fill_windows()
                for frame_type, flags, stream, payload in self._frames():
                    self._handle(frame_type, flags, stream, payload)
        except (TimeoutError, ConnectionError):
            return

    def await_end(self) -> None:
        """Read until the server ends the connection."""
        while self._socket.recv(1 << 16):
            pass

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _fill_windows(self) -> None:
        for stream in self._left:
            while (count := min(self._left[stream], FRAME, self._windows[stream], self._window)) > 0:
                self._data(stream, b"x" * count)
                self._left[stream] -= count
        self._left = {stream: left for stream, left in self._left.items() if left}

    def _data(self, stream: int, content: bytes) -> None:
        self._socket.sendall(frame(DATA, 0, stream, content))
        self._windows[stream] -= len(content)
        self._window -= len(content)

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Wait for bytes; yield the complete frames."""
        received = self._socket.recv(1 << 16)
        if not received:
            raise ConnectionError("the server closed the connection")
        self._read += received
        while len(self._read) >= 9 and len(self._read) >= 9 + (length := int.from_bytes(self._read[:3], "big")):
            frame_type, flags, stream = self._read[3], self._read[4], int.from_bytes(self._read[5:9], "big")
            yield frame_type, flags, stream, self._read[9 : 9 + length]
            self._read = self._read[9 + length :]

    def _handle(self, frame_type: int, flags: int, stream: int, payload: bytes) -> None:
        if frame_type == SETTINGS and not flags & ACK:
            for number, value in struct.iter_unpack(">HI", payload):
                if number == INITIAL_WINDOW:
                    for known in self._windows:
                        self._windows[known] += value - self._initial
                    self._initial = value
            self._socket.sendall(frame(SETTINGS, ACK, 0))
        elif frame_type == PING and not flags & ACK:
            self._socket.sendall(frame(PING, ACK, 0, payload))
        elif frame_type == WINDOW_UPDATE and stream:
            self._windows[stream] += int.from_bytes(payload, "big")
        elif frame_type == WINDOW_UPDATE:
            self._window += int.from_bytes(payload, "big")
        elif frame_type == RST_STREAM or (frame_type == HEADERS and flags & END_STREAM):
            self.ended.add(stream)
            self._left.pop(stream, None)
        elif frame_type == GOAWAY:
            raise ConnectionError("the server ends the connection")


def frame(frame_type: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return an HTTP/2 frame."""
    return len(payload).to_bytes(3, "big") + bytes([frame_type, flags]) + stream.to_bytes(4, "big") + payload


def head(method: str) -> bytes:
    """Return the header fields of a gRPC call without credentials, as literals of HPACK."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "headgate",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(b"\x00" + literal(name) + literal(value) for name, value in fields.items())


def literal(text: str) -> bytes:
    """Return a string of fewer than 127 characters for HPACK, without Huffman's code."""
    return bytes([len(text)]) + text.encode()
