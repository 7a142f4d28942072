"""Backends that identify themselves in responses (HTTP/1.1 and HTTP/2), and their client, all on one event loop.

A member (one backend) answers with its number in the header `x-backend`, also to HEAD, and counts its requests. Over
HTTP/1.1 it stores the request heads, and its responses have the headers `ANSWERED` and the trailers of the request. It
accepts a WebSocket if the request has a key. To a request with `HINTS` it sends early hints first, and after its response to
a request with `CLOSES` it closes the connection, which the response does not announce. As an authorization server, for paths
below `DECISIONS`, it counts nothing, and refuses requests whose header `DECISIVE` has `REFUSED`.
"""

import asyncio
import base64
import contextlib
import hashlib
import ssl
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Self, TypeAlias, cast

from tests.wire import H2_PREFACE, H2_SETTINGS, H2_SETTINGS_ACK, Address

LINE_END, HEAD_END = b"\r\n", b"\r\n\r\n"
SETTINGS, HEADERS, ACK, END_STREAM, END_HEADERS = 4, 1, 1, 1, 4
INDEXED_STATUS_200 = b"\x88"  # `:status: 200` in HPACK (RFC 7541, appendix A)
TLS_HANDSHAKE = b"\x16"
LARGEST_READ = 1 << 16
DEADLINE_S = 60
CLOSED = "closed"
FIRST_FINAL = OPEN = 200  # the status of a CONNECT that opens a tunnel
SWITCHED = 101
WEBSOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 4.2.2
ANSWERED = (("x-r", "1"), ("x-s", "2"))
HINTS, CLOSES = "x-hints", "x-closes"
DECISIONS = "/decide"
DECISIVE, REFUSED = "x-a", "a"
PERMIT = "x-permit"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n"  # RFC 8297
Responder: TypeAlias = str | int
"""What answers: a member by its name, a proxy by the status, or CLOSED."""


class Head(NamedTuple):
    """The first line of a message, its headers and its trailers, with lower-case names; `secure` messages came over TLS."""

    line: str
    headers: tuple[tuple[str, str], ...]
    trailers: tuple[tuple[str, str], ...] = ()
    secure: bool = False

    def get(self, name: str) -> str:
        """Return the first value of a header, or an empty string."""
        return next((value for key, value in self.headers if key == name), "")


def head_of(data: bytes) -> Head:
    """Parse a head."""
    line, *fields = data.removesuffix(HEAD_END).decode("utf-8", "surrogateescape").split("\r\n")
    pairs = (field.partition(":") for field in fields)
    return Head(line, tuple((name.lower(), value.strip()) for name, _, value in pairs))


class Tally(NamedTuple):
    """The number of responses by responder (a member's name, a status, or CLOSED), and the last head of each."""

    counted: Counter[Responder]
    heads: dict[Responder, Head | None]


class Member:
    """One backend that listens on `port`; `requests` is the number of requests since the last call of `take`.

    `connections` counts the connections that began since then, `handshakes` those that began with TLS: a member without `tls`
    closes them.
    """

    port: int

    def __init__(self, number: int, tls: ssl.SSLContext | None = None) -> None:
        self.number = number
        self.tls = tls
        self.name = f"member {number}"
        self.requests = self.connections = self.handshakes = 0
        self.heads: list[Head] = []
        self.transports: set[asyncio.Transport] = set()

    async def start(self, host: str = "127.0.0.1") -> Self:
        """Listen on a port that is free for TCP and UDP."""
        loop = asyncio.get_running_loop()
        while True:
            server = await loop.create_server(lambda: _Replayed(self), host, 0)
            self.port = server.sockets[0].getsockname()[1]
            try:
                datagrams = await loop.create_datagram_endpoint(lambda: _Named(self.name), local_addr=(host, self.port))
            except OSError:  # only the TCP port of this number is free
                server.close()
                continue
            self._server, self._datagrams = server, datagrams[0]
            return self

    def take(self) -> None:
        """Forget the requests."""
        self.requests = self.connections = self.handshakes = 0
        self.heads = []

    def close(self) -> None:
        """Close the listener and all connections."""
        self._server.close()
        self._datagrams.close()
        for transport in tuple(self.transports):
            transport.close()


class _Named(asyncio.DatagramProtocol):
    """Answers datagrams with the name of a member."""

    _transport: asyncio.DatagramTransport

    def __init__(self, name: str) -> None:
        self._name = name.encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, _data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(self._name, addr)


class _Layer:
    """The server's side of TLS, inside a connection or inside another layer."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def decrypted(self, records: bytes) -> bytes:
        """Return the content of TLS records."""
        self._incoming.write(records)
        content = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
            while part := self._tls.read(LARGEST_READ):
                content += part
        return content

    def encrypted(self, content: bytes) -> bytes:
        """Return the records of some content, after those of the handshake that were not sent yet."""
        if content:
            self._tls.write(content)
        return self._outgoing.read()


class _Replayed(asyncio.Protocol):
    _transport: asyncio.Transport

    def __init__(self, member: Member) -> None:
        self._member = member
        self._read = b""
        self._http2 = False
        self._layers: list[_Layer] = []
        self._streams: set[int] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._member.transports.add(self._transport)
        self._member.connections += 1

    def connection_lost(self, _exc: Exception | None) -> None:
        self._member.transports.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        """Answer what has arrived. A client's TLS may be inside that of a proxy, which calls this member over TLS."""
        content = data
        try:
            for layer in self._layers:
                content = layer.decrypted(content)
            while not self._read and content.startswith(TLS_HANDSHAKE):
                self._member.handshakes += not self._layers
                if not self._member.tls:
                    self._transport.close()
                    return
                self._layers.append(_Layer(self._member.tls))
                content = self._layers[-1].decrypted(content)
        except ssl.SSLError:
            self._transport.close()
            return
        self._read += content
        self._send(b"")
        self._answer()

    def _send(self, data: bytes) -> None:
        """Send some content, or without content only the records of handshakes."""
        for layer in reversed(self._layers):
            data = layer.encrypted(data)
        self._transport.write(data)

    def _answer(self) -> None:
        if not self._http2 and self._read.startswith(H2_PREFACE):
            self._http2, self._read = True, self._read[len(H2_PREFACE) :]
            self._send(H2_SETTINGS)
        if self._http2:
            self._answer_frames()
        elif not H2_PREFACE.startswith(self._read):
            self._answer_heads()

    def _answer_heads(self) -> None:
        while HEAD_END in self._read:
            head, _, rest = self._read.partition(HEAD_END)
            received = head_of(head)._replace(secure=bool(self._layers))
            if received.get("transfer-encoding") == "chunked":
                size, _, ending = rest.partition(LINE_END)
                if not ending.startswith(LINE_END) and HEAD_END not in ending:
                    return  # until all trailers have arrived
                assert size == b"0", "the body is not empty"
                trailers, _, rest = ending.partition(LINE_END if ending.startswith(LINE_END) else HEAD_END)
                received = received._replace(trailers=head_of(LINE_END + trailers).headers if trailers else ())
            self._read = rest
            if received.line.partition(" ")[2].startswith(f"{DECISIONS}/"):
                self._send(_decision(received))
                continue
            self._member.requests += 1
            self._member.heads.append(received)
            self._send((EARLY_HINTS if received.get(HINTS) else b"") + self._response(received))
            if received.get(CLOSES):
                self._transport.close()

    def _response(self, received: Head) -> bytes:
        status, body = "200 OK", [""]
        fields: tuple[tuple[str, str], ...] = (("content-length", "0"),)
        key = received.get("sec-websocket-key")
        if received.get("upgrade").lower() == "websocket" and key:
            accepted = base64.b64encode(hashlib.sha1(f"{key}{WEBSOCKET_GUID}".encode(), usedforsecurity=False).digest())
            status = f"{SWITCHED} Switching Protocols"
            fields = (
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-accept", accepted.decode()),
            )
        elif received.trailers and not received.line.startswith("HEAD "):
            fields, body = (("transfer-encoding", "chunked"),), ["0", *header_lines(received.trailers), "", ""]
        head = [f"HTTP/1.1 {status}", *header_lines((*fields, ("x-backend", str(self._member.number)), *ANSWERED)), ""]
        return "\r\n".join([*head, *body]).encode()

    def _answer_frames(self) -> None:
        while len(self._read) >= 9 and len(self._read) >= (size := 9 + int.from_bytes(self._read[:3], "big")):
            kind, flags, stream = self._read[3], self._read[4], int.from_bytes(self._read[5:9], "big")
            self._read = self._read[size:]
            if kind == SETTINGS and not flags & ACK:
                self._send(H2_SETTINGS_ACK)
            elif kind == HEADERS and stream not in self._streams:  # the second ones are trailers
                self._streams.add(stream)
                self._member.requests += 1
                fields = (("x-backend", str(self._member.number)), *ANSWERED)
                block = INDEXED_STATUS_200 + b"".join(literal(name, value) for name, value in fields)
                self._send(frame(HEADERS, END_STREAM | END_HEADERS, stream, block))


def refuses(headers: Iterable[tuple[str, str]]) -> bool:
    """Return whether a member refuses a request as its authorization server."""
    return any(REFUSED in value for name, value in headers if name == DECISIVE)


def _decision(received: Head) -> bytes:
    status = "403 Forbidden" if refuses(received.headers) else "200 OK"
    return f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n{PERMIT}: {status[:3]}\r\n\r\n".encode()


def header_lines(fields: Iterable[tuple[str, str]]) -> list[str]:
    """Return headers or trailers as HTTP/1 has them, without line ends."""
    return [f"{name}: {value}" for name, value in fields]


def literal(name: str, value: str) -> bytes:
    """Return a short header in HPACK's simplest form: never indexed, not compressed (RFC 7541, 6.2.2)."""
    texts = (name.encode(), value.encode())
    return b"\x00" + b"".join(bytes((len(text),)) + text for text in texts)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return an HTTP/2 frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


async def ask(
    where: Address,
    head: bytes,
    count: int,
    *,
    each_connects: bool = False,
    tls: tuple[ssl.SSLContext, str] | None = None,
    last: bytes = b"",
    tunnel: str = "",
) -> Tally:
    """Send a request `count` times; `tls` is (context, server name), `tunnel` the target of a CONNECT, which TLS is inside of.

    If a connection is open at the end, send the request `last` over it, and wait for its response.
    """
    tally = Tally(Counter(), {})
    context, name = tls or (None, None)
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None
    opening = b""
    for _ in range(count):
        responder: Responder = OPEN
        answer, goes_on = None, False
        try:
            if reader is None or writer is None:
                outer, shown = (None, None) if tunnel else (context, name)
                reader, writer = await asyncio.open_connection(*where, ssl=outer, server_hostname=shown)
                opening = f"CONNECT {tunnel} HTTP/1.1\r\nhost: {tunnel}\r\n\r\n".encode() if tunnel else b""
            if opening:
                responder, answer, goes_on = await _once(reader, writer, opening)
                if responder == OPEN and context:
                    await writer.start_tls(context, server_hostname=name)
            if responder == OPEN:
                opening = b""
                responder, answer, goes_on = await _once(reader, writer, head)
        except (ConnectionError, ssl.SSLError):  # the proxy refuses the connection, or closes it in the handshake
            responder, goes_on = CLOSED, False
        tally.counted[responder] += 1
        tally.heads[responder] = answer
        if writer and (each_connects or not goes_on):
            writer.transport.abort()
            reader = writer = None
    if reader and writer:
        if last:
            await _once(reader, writer, last)
        writer.transport.abort()
    return tally


async def _once(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes
) -> tuple[Responder, Head | None, bool]:
    """Send a request once; return the responder, the response head, and whether the connection can be reused."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            writer.write(head)
            answer = await _final(reader)
            if not head.startswith(b"HEAD "):  # its response has no body, whatever its headers announce
                answer = await _whole(reader, answer)
    except (EOFError, ConnectionError):
        return CLOSED, None, False
    goes_on = (
        _status(answer) != SWITCHED and answer.get("connection") != "close" and not answer.get("transfer-encoding")
    )
    responder = answer.get("x-backend")
    return f"member {responder}" if responder else _status(answer), answer, goes_on


async def _whole(reader: asyncio.StreamReader, answer: Head) -> Head:
    """Read the body of a response; return its head with the trailers. Only members send an empty body in chunks."""
    if size := int(answer.get("content-length") or 0):
        await reader.readexactly(size)
    elif answer.get("x-backend") and answer.get("transfer-encoding") == "chunked":
        return answer._replace(trailers=await _trailers(reader))
    return answer


async def _trailers(reader: asyncio.StreamReader) -> tuple[tuple[str, str], ...]:
    """Read an empty body in chunks; return its trailers."""
    size = await reader.readuntil(LINE_END)
    assert size.strip() == b"0", "the body is not empty"
    ending = b""
    while not ending.endswith(LINE_END + LINE_END) and ending != LINE_END:
        ending += await reader.readuntil(LINE_END)
    return head_of(LINE_END + ending).headers if ending != LINE_END else ()


async def _final(reader: asyncio.StreamReader) -> Head:
    """Return the head of the final response; skip other responses with a status of 1xx."""
    while True:
        answer = head_of(await reader.readuntil(HEAD_END))
        if _status(answer) >= FIRST_FINAL or _status(answer) == SWITCHED:
            return answer


def _status(answer: Head) -> int:
    return int(answer.line.split(maxsplit=2)[1])
