"""Backends that identify themselves in responses (HTTP/1.1 and HTTP/2), and their client, all on one event loop.

A member (one backend) answers with its number in the header `x-backend`, also to HEAD, and counts its requests. Over
HTTP/1.1 it stores the request heads, and its responses have the headers `ANSWERED`.
"""

import asyncio
import ssl
from collections import Counter
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_END = b"\r\n\r\n"
SETTINGS, HEADERS, ACK, END_STREAM, END_HEADERS = 4, 1, 1, 1, 4
INDEXED_STATUS_200 = b"\x88"  # `:status: 200` in HPACK (RFC 7541, appendix A)
TLS_HANDSHAKE = b"\x16"
DEADLINE_S = 60
CLOSED = "closed"
FIRST_FINAL = 200
ANSWERED = (("x-r", "1"), ("x-s", "2"))


class Head(NamedTuple):
    """The first line of a message, and its headers with lower-case names."""

    line: str
    headers: tuple[tuple[str, str], ...]

    def get(self, name):
        return next((value for key, value in self.headers if key == name), "")


def head_of(data):
    """Parse a head."""
    line, *fields = data.removesuffix(HEAD_END).decode("utf-8", "surrogateescape").split("\r\n")
    pairs = (field.partition(":") for field in fields)
    return Head(line, tuple((name.lower(), value.strip()) for name, _, value in pairs))


class Tally(NamedTuple):
    """The number of responses by responder (a member's name, a status, or CLOSED), and the last head of each."""

    counted: Counter
    heads: dict


class Member:
    """One backend that listens on `port`; `requests` is the number of requests since the last call of `take`.

    `connections` counts the connections that began since then, `handshakes` those that began with TLS.
    """

    def __init__(self, number):
        self.number = number
        self.transports = set()
        self.take()

    async def start(self, host="127.0.0.1"):
        server = await asyncio.get_running_loop().create_server(lambda: _Served(self), host, 0)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        return self

    def take(self):
        self.requests = self.connections = self.handshakes = 0
        self.heads = []

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
        for head in heads:
            self._member.requests += 1
            self._member.heads.append(head_of(head))
            fields = (("content-length", 0), ("x-backend", self._member.number), *ANSWERED)
            lines = ("HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in fields), "", "")
            self._transport.write("\r\n".join(lines).encode())

    def _answer_frames(self):
        while len(self._read) >= 9 and len(self._read) >= (size := 9 + int.from_bytes(self._read[:3], "big")):
            kind, flags, stream = self._read[3], self._read[4], int.from_bytes(self._read[5:9], "big")
            self._read = self._read[size:]
            if kind == SETTINGS and not flags & ACK:
                self._transport.write(frame(SETTINGS, ACK, 0))
            elif kind == HEADERS:
                self._member.requests += 1
                fields = (("x-backend", str(self._member.number)), *ANSWERED)
                block = INDEXED_STATUS_200 + b"".join(literal(name, value) for name, value in fields)
                self._transport.write(frame(HEADERS, END_STREAM | END_HEADERS, stream, block))


def literal(name, value):
    """Return a short header in HPACK's simplest form: never indexed, not compressed (RFC 7541, 6.2.2)."""
    texts = (name.encode(), value.encode())
    return b"\x00" + b"".join(bytes((len(text),)) + text for text in texts)


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


async def ask(where, head, count, *, each_connects=False, tls=None, last=b""):
    """Send a request `count` times to `where` (host, port); `tls` is (context, server name) or None. Return a Tally.

    If a connection is open at the end, send the request `last` over it, and wait for its response.
    """
    found = Tally(Counter(), {})
    context, name = tls or (None, None)
    reader = writer = None
    try:
        for _ in range(count):
            if writer is None:
                reader, writer = await asyncio.open_connection(*where, ssl=context, server_hostname=name)
            responder, answer, goes_on = await _once(reader, writer, head)
            found.counted[responder] += 1
            found.heads[responder] = answer
            if each_connects or not goes_on:
                writer.transport.abort()
                reader = writer = None
        if writer and last:
            await _once(reader, writer, last)
    except (ConnectionError, ssl.SSLError):
        found.counted[CLOSED] += count - found.counted.total()
    finally:
        if writer:
            writer.transport.abort()
    return found


async def _once(reader, writer, head):
    """Send a request once; return the responder, the response head, and whether the connection can be reused."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            writer.write(head)
            answer = await _final(reader)
            size = int(answer.get("content-length") or 0)
            if size and not head.startswith(b"HEAD "):
                await reader.readexactly(size)
    except (EOFError, ConnectionError):
        return CLOSED, None, False
    goes_on = answer.get("connection") != "close" and not answer.get("transfer-encoding")
    responder = answer.get("x-backend")
    return f"member {responder}" if responder else _status(answer), answer, goes_on


async def _final(reader):
    """Return the head of the final response; skip responses with a status of 1xx."""
    while _status(answer := head_of(await reader.readuntil(HEAD_END))) < FIRST_FINAL:
        pass
    return answer


def _status(answer):
    return int(answer.line.split(maxsplit=2)[1])
