"""A gRPC client, without gRPC's library: it prints every REPORT_SECONDS (5) which version answered how often.

usage: grpc_client.py HOST:PORT

It sends REQUESTS_PER_SECOND (20) calls of `/Greeter/Greet` over one connection: a proxy that balances connections would send all of
them to one version. Where the environment has an `http_proxy`, it opens a tunnel through it, as gRPC's libraries do.
"""

import collections
import http.client
import os
import signal
import socket
import struct
import sys
import time
import urllib.parse

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8  # types of frames (RFC 9113)
ACK = END_STREAM = 1
END_HEADERS = 4
PAUSE = 1 / float(os.environ.get("REQUESTS_PER_SECOND", "20"))
REPORT_SECONDS = float(os.environ.get("REPORT_SECONDS", "5"))
TIMEOUT_SECONDS = 5
AUTHORITY = sys.argv[1]
PROXY = urllib.parse.urlsplit(os.environ.get("http_proxy", ""))


def text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode()


CALL = (  # literal fields without an index (RFC 7541)
    b"\x83\x86\x04" + text("/Greeter/Greet")  # :method POST, :scheme http, :path
    + b"\x01" + text(AUTHORITY)
    + b"\x0f\x10" + text("application/grpc")
    + b"\x00" + text("te") + text("trailers")
)  # fmt: skip
EMPTY_MESSAGE = bytes(5)


def frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, number) + payload


def connect() -> socket.socket:
    host, _, port = AUTHORITY.rpartition(":")
    if not PROXY.hostname:
        return socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
    tunnel = http.client.HTTPConnection(PROXY.hostname, PROXY.port, timeout=TIMEOUT_SECONDS)
    tunnel.set_tunnel(host, int(port))
    tunnel.connect()
    return tunnel.sock


class Connection:
    """An HTTP/2 connection to a server."""

    def __init__(self) -> None:
        self.socket = connect()
        self.stream = self.socket.makefile("rb")
        self.number = -1
        self.is_ending = False
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def call(self) -> str:
        """Call the method; return the version that answered. Raises OSError."""
        self.number += 2
        self.socket.sendall(
            frame(HEADERS, END_HEADERS, self.number, CALL) + frame(DATA, END_STREAM, self.number, EMPTY_MESSAGE)
        )
        message, has_ended = b"", False
        while not has_ended:
            kind, flags, number, payload = self.read_frame()
            if kind in {SETTINGS, PING} and not flags & ACK:
                self.socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            if kind == DATA and payload:
                self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload))))
            if kind == RST_STREAM and number == self.number:
                raise ConnectionAbortedError
            if kind == GOAWAY:
                self.is_ending = True
                if int.from_bytes(payload[:4], "big") < self.number:
                    raise ConnectionAbortedError
            message += payload if kind == DATA and number == self.number else b""
            has_ended = number == self.number and kind in {DATA, HEADERS} and bool(flags & END_STREAM)
        return message[7:].decode() or "failed"

    def read_frame(self) -> tuple[int, int, int, bytes]:
        head = self.stream.read(9)
        if len(head) < 9:
            raise ConnectionResetError
        length, number = int.from_bytes(head[:3], "big"), int.from_bytes(head[5:], "big")
        return head[3], head[4], number & 0x7FFFFFFF, self.stream.read(length)

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


def connected() -> Connection | None:
    try:
        return Connection()
    except (OSError, http.client.HTTPException):
        return None


def call(connection: Connection | None) -> str:
    """Return the version that answered, or what went wrong."""
    if connection is None:
        return "no connection"
    try:
        return connection.call()
    except OSError as error:
        connection.is_ending = True
        return type(error).__name__


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while call(connection := connected()) in {"no connection", "failed"}:  # the server's start counts no failures
    time.sleep(0.5)
counts: collections.Counter[str] = collections.Counter()
due, report = time.monotonic(), time.monotonic() + REPORT_SECONDS
while True:
    counts[call(connection)] += 1
    if connection is None or connection.is_ending:
        if connection:
            connection.close()
        connection = connected()
    due = max(due + PAUSE, time.monotonic() - 1)  # after a delay, at most a second's calls at once
    time.sleep(max(due - time.monotonic(), 0))
    if time.monotonic() >= report:
        print("  ".join(f"{result}: {count}" for result, count in sorted(counts.items())))
        counts.clear()
        report = time.monotonic() + REPORT_SECONDS
