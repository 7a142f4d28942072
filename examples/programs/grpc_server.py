"""A gRPC server, without gRPC's library: it answers every unary call with the message `{1: VERSION}`.

    service Greeter { rpc Greet(Empty) returns (Greeting); }
    message Greeting { string version = 1; }

It ignores what it is asked, so it need not decode headers. Environment: VERSION; PORT and HOST say where it listens, 9000 on all
addresses by default.
"""

import os
import signal
import socketserver
import struct
import sys
from io import BufferedIOBase

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8  # types of frames (RFC 9113)
ACK = END_STREAM = 1
END_HEADERS = 4
VERSION = os.environ["VERSION"].encode()
MESSAGE = struct.pack(">BB", 0x0A, len(VERSION)) + VERSION
CONTENT_TYPE = b"application/grpc"
STATUS_200 = b"\x88\x0f\x10" + bytes([len(CONTENT_TYPE)]) + CONTENT_TYPE  # :status 200, content-type (RFC 7541)
GRPC_OK = b"\x00\x0bgrpc-status\x010"


def read_frame(stream: BufferedIOBase) -> tuple[int, int, int, bytes] | None:
    """Return type, flags, stream and payload of the next frame."""
    head = stream.read(9)
    if len(head) < 9:
        return None
    length, kind, flags, number = int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:], "big")
    return kind, flags, number & 0x7FFFFFFF, stream.read(length)


def frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, number) + payload


def answer(number: int) -> bytes:
    """Return the frames that answer the call of a stream."""
    return (
        frame(HEADERS, END_HEADERS, number, STATUS_200)
        + frame(DATA, 0, number, struct.pack(">BI", 0, len(MESSAGE)) + MESSAGE)
        + frame(HEADERS, END_HEADERS | END_STREAM, number, GRPC_OK)
    )


class Calls(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        if self.rfile.read(len(PREFACE)) != PREFACE:
            return
        self.wfile.write(frame(SETTINGS, 0, 0))
        while received := read_frame(self.rfile):
            self.wfile.write(self.reply(*received))

    def reply(self, kind: int, flags: int, number: int, payload: bytes) -> bytes:
        frames = b""
        if kind in {SETTINGS, PING} and not flags & ACK:
            frames += frame(kind, ACK, 0, payload if kind == PING else b"")
        if kind == DATA and payload:
            window = struct.pack(">I", len(payload))
            frames += frame(WINDOW_UPDATE, 0, 0, window)
            frames += b"" if flags & END_STREAM else frame(WINDOW_UPDATE, 0, number, window)
        if kind in {DATA, HEADERS} and flags & END_STREAM:
            frames += answer(number)
        return frames


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
Server((os.environ.get("HOST", ""), int(os.environ.get("PORT", "9000"))), Calls).serve_forever()
