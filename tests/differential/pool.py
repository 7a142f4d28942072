"""Backends that say who they are, over HTTP/1.1 and HTTP/2, and clients that ask; all on one loop.

A member answers with its number in the header `x-who`, so that answers to HEAD say it too, and counts what it is asked.
"""

import asyncio
from collections import Counter

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_END = b"\r\n\r\n"
SETTINGS, HEADERS, ACK, END_STREAM, END_HEADERS = 4, 1, 1, 1, 4
INDEXED_STATUS_200 = b"\x88"  # RFC 7541, appendix A
TLS_HANDSHAKE = b"\x16"
DEADLINE_S = 10
CLOSED = "closed"


class Member:
    """One backend; `port` is where it listens, `requests` what it was asked since the last `take`.

    `connections` is how many began since then, `handshakes` how many of them with TLS, of which a member knows nothing.
    """

    def __init__(self, number):
        self.number = number
        self.requests = self.connections = self.handshakes = 0
        self.transports = set()

    async def start(self, host="127.0.0.1"):
        server = await asyncio.get_running_loop().create_server(lambda: _Served(self), host, 0)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        return self

    def take(self):
        self.requests = self.connections = self.handshakes = 0

    def close(self):
        self._server.close()
        for transport in tuple(self.transports):
            transport.close()


class _Served(asyncio.Protocol):
    def __init__(self, member):
        self._member = member
        self._read = b""
        self._http2 = False

    def connection_made(self, transport):
        self._transport = transport
        self._member.transports.add(transport)
        self._member.connections += 1

    def connection_lost(self, _exc):
        self._member.transports.discard(self._transport)

    def data_received(self, data):
        self._read += data
        if self._read.startswith(TLS_HANDSHAKE):
            self._member.handshakes += 1
            self._transport.close()
            return
        if not self._http2 and self._read.startswith(PREFACE):
            self._http2, self._read = True, self._read[len(PREFACE) :]
            self._transport.write(frame(SETTINGS, 0, 0))
        if self._http2:
            self._answer_frames()
        elif not PREFACE.startswith(self._read):
            self._answer_heads()

    def _answer_heads(self):
        *heads, self._read = self._read.split(HEAD_END)
        for _ in heads:
            self._member.requests += 1
            answer = f"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-who: {self._member.number}\r\n\r\n"
            self._transport.write(answer.encode())

    def _answer_frames(self):
        while len(self._read) >= 9 and len(self._read) >= (size := 9 + int.from_bytes(self._read[:3], "big")):
            kind, flags, stream = self._read[3], self._read[4], int.from_bytes(self._read[5:9], "big")
            self._read = self._read[size:]
            if kind == SETTINGS and not flags & ACK:
                self._transport.write(frame(SETTINGS, ACK, 0))
            elif kind == HEADERS:
                self._member.requests += 1
                block = INDEXED_STATUS_200 + b"\x00\x05x-who\x01" + str(self._member.number).encode()
                self._transport.write(frame(HEADERS, END_STREAM | END_HEADERS, stream, block))


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


async def ask(where, head, count, *, each_connects=False):
    """Send a request `count` times to (host, port); return who answered: a member's number, a status, or CLOSED."""
    found = Counter()
    reader = writer = None
    try:
        for _ in range(count):
            if writer is None:
                reader, writer = await asyncio.open_connection(*where)
            who, goes_on = await _once(reader, writer, head)
            found[who] += 1
            if each_connects or not goes_on:
                writer.close()
                reader = writer = None
    except ConnectionRefusedError:
        found[CLOSED] += count - found.total()
    finally:
        if writer:
            writer.close()
    return found


async def _once(reader, writer, head):
    """Return who answered, and whether the connection can be used again."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            writer.write(head)
            answer = await reader.readuntil(HEAD_END)
            status, fields = int(answer.split(maxsplit=2)[1]), _fields(answer)
            if not head.startswith(b"HEAD ") and (size := int(fields.get("content-length", 0))):
                await reader.readexactly(size)
    except (EOFError, ConnectionError):
        return CLOSED, False
    goes_on = fields.get("connection") != "close" and "transfer-encoding" not in fields
    return f"member {fields['x-who']}" if "x-who" in fields else status, goes_on


def _fields(head):
    pairs = (line.partition(":") for line in head.decode().split("\r\n")[1:] if line)
    return {name.lower(): value.strip() for name, _, value in pairs}
