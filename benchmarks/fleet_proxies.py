"""Simulated proxies for `benchmarks/fleet.py`: each has one connection and speaks delta ADS over HTTP/2 as Envoy does.

They must use less CPU than the measured control plane, so this module parses HTTP/2 and protobuf. A proxy reads only
the names, versions and nonce of a response. It subscribes in Envoy's order: all clusters, then their endpoints and
secrets by name, then listeners, then routes. It acknowledges clusters when all have endpoints. After a lost connection
it reconnects and reports the resource versions of its configuration.
"""

import asyncio
import random
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

from headgate.envoy.bootstrap import FIRST_RECONNECT_MS, LAST_RECONNECT_S
from headgate.envoy.config import CHAIN, CLUSTER, ENDPOINTS, LISTENER, ROUTES, RUNTIME, SCOPES, SECRET, TypeUrl
from headgate.xds.authentication import LocalTokens
from headgate.xds.versions import ById

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GO_AWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
WINDOW = 2**28  # Envoy's HTTP/2 flow-control window in bytes
INITIAL_WINDOW = 65535
LARGEST_FRAME = 16384
PATH = b"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
SAMPLE = 2048  # bytes at the start and at the end of a response by which it is recognized
VARIANTS = 8  # number of different orders in which proxies report versions, as protobuf's maps have no order
Named = Mapping[TypeUrl, Sequence[str]]


class Read(NamedTuple):
    """The content of a response, and the position of its nonce."""

    type_url: TypeUrl
    versions: Mapping[str, str]
    removed: tuple[str, ...]
    nonce: slice


class Proxies:
    """All proxies, and what they share: the address of the xDS server, the resource names to subscribe to, and the counts."""

    def __init__(self, _tasks: asyncio.TaskGroup, address: str, secret: bytes) -> None:
        self.address = address
        self.tokens = LocalTokens(secret)
        self.named: Mapping[TypeUrl, frozenset[str]] = {}
        self._responses: dict[tuple[int, bytes, bytes], Read] = {}
        self._proxies: Sequence[Proxy] = ()  # they live as long as this object
        self.begin()

    async def connect(self, named: Named, nodes: Sequence[str]) -> None:
        """Connect a proxy for each node ID."""
        self.named = {type_url: frozenset(names) for type_url, names in named.items()}
        self._proxies = [Proxy(self, node) for node in nodes]
        await asyncio.gather(*(proxy.connect() for proxy in self._proxies))

    def begin(self) -> float:
        """Reset the counts; return the processor time so far."""
        self.counts: Counter[str] = Counter()
        self.sent: Counter[TypeUrl] = Counter()
        self.last_bytes = self.last_ack = 0.0
        return time.process_time()

    def report(self) -> Mapping[str, Any]:
        """Return the counts, the times of the last response and of the last ACK, and the processor time."""
        return {
            "counts": dict(self.counts),
            "sent": dict(self.sent),
            "last bytes": self.last_bytes,
            "last ack": self.last_ack,
            "processor": time.process_time(),
        }

    def read(self, message: bytes) -> Read:
        """Return the content of a response; a response that another proxy received before is not parsed again."""
        key = len(message), message[64:SAMPLE], message[-SAMPLE:]
        if key not in self._responses:
            self._responses[key] = scan(message)
        return self._responses[key]


class Proxy(asyncio.Protocol):
    """One proxy, across its connections."""

    def __init__(self, proxies: Proxies, node: str) -> None:
        self._shared = proxies
        self._node = node
        self._held: dict[TypeUrl, Mapping[str, str]] = {}
        self._failures = 0
        self._random = random.Random(node)
        self._transport: asyncio.WriteTransport | None = None

    async def connect(self) -> None:
        """Connect, and retry until a connection succeeds."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.create_unix_connection(lambda: self, self._shared.address)
            except OSError:
                self._failures += 1
                longest = min(FIRST_RECONNECT_MS / 1000 * 2**self._failures, LAST_RECONNECT_S)
                await asyncio.sleep(self._random.uniform(0, longest))
            else:
                self._failures = 0
                return

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the stream, and subscribe with the versions of the resources that the proxy has."""
        self._transport = transport = cast("asyncio.WriteTransport", transport)  # uvloop's inherit from no class
        self._rest, self._parts = b"", bytearray()
        self._windows = [INITIAL_WINDOW, INITIAL_WINDOW]  # send windows of the connection and of the stream, in bytes
        self._stream_window = INITIAL_WINDOW
        self._out = bytearray()
        # number of clusters without endpoints, and the ACKs to send when all have endpoints
        self._waits, self._unsent = 0, list[bytes]()
        self._opened: set[TypeUrl] = set()
        settings = struct.pack("!HIHI", 4, WINDOW, 2, 0)
        token = b"Bearer " + self._shared.tokens.issue(self._node).encode()
        transport.write(
            PREFACE
            + _frame(SETTINGS, 0, 0, settings)
            + _frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", WINDOW - INITIAL_WINDOW))
            + _frame(HEADERS, END_HEADERS, 1, _headers(token))
        )
        self._node_field = _field(1, _field(1, self._node.encode()))
        if names := self._shared.named.get(RUNTIME):
            self._open(RUNTIME, names)
        self._open(CLUSTER)
        if self._held.get(CLUSTER):
            self._open(ENDPOINTS, self._held[ENDPOINTS])
            self._open(SECRET, self._shared.named[SECRET])
            self._open(LISTENER)
            self._open(ROUTES, self._held[ROUTES])
            self._open(CHAIN, self._held[CHAIN])
            self._open(SCOPES)

    def connection_lost(self, _error: Exception | None) -> None:
        """Reconnect after a while."""
        self._transport = None
        self._shared.counts["lost"] += 1
        self._task = asyncio.get_running_loop().create_task(self._return())

    async def _return(self) -> None:
        await asyncio.sleep(self._random.uniform(0, FIRST_RECONNECT_MS / 1000))
        await self.connect()

    def data_received(self, data: bytes) -> None:
        """Split the data into HTTP/2 frames, and handle each frame."""
        data, at = self._rest + data if self._rest else data, 0
        while len(data) - at >= 9:
            size, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
            if len(data) - at < 9 + size:
                break
            if kind == DATA:
                self._parts += memoryview(data)[at + 9 : at + 9 + size]
            else:
                self._control(kind, flags, data[at + 5 : at + 9], data[at + 9 : at + 9 + size])
            at += 9 + size
        self._rest = data[at:]
        self._take_messages()

    def _take_messages(self) -> None:
        while len(self._parts) >= 5 and len(self._parts) - 5 >= (size := int.from_bytes(self._parts[1:5], "big")):
            message = bytes(memoryview(self._parts)[5 : 5 + size])
            del self._parts[: 5 + size]
            self._respond(message)

    def _control(self, kind: int, flags: int, stream: bytes, payload: bytes) -> None:
        assert self._transport
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack_from("!HI", payload, at)
                if key == 4:
                    self._windows[1] += value - self._stream_window
                    self._stream_window = value
            self._transport.write(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self._transport.write(_frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            self._windows[1 if stream[3] else 0] += int.from_bytes(payload, "big")
        elif kind == RESET or (kind == HEADERS and flags & END_STREAM):
            self._shared.counts["ended"] += 1
            self._transport.close()
        self._flush()

    def _respond(self, message: bytes) -> None:
        """Handle a response as Envoy does: store versions, acknowledge, subscribe."""
        shared = self._shared
        found = shared.read(message)
        shared.last_bytes = time.monotonic()
        shared.counts["responses"] += 1
        shared.counts["bytes"] += len(message)
        shared.sent[found.type_url] += len(found.versions)
        self._hold(found)
        ack = _field(2, found.type_url.encode()) + _field(6, message[found.nonce])
        if found.type_url == CLUSTER:
            new = [name for name in found.versions if name in shared.named[ENDPOINTS]]
            self._waits += len(new)
            self._open(ENDPOINTS, new)
            self._open(SECRET, shared.named[SECRET])
            self._unsent.append(ack)
        else:
            self._write(ack)
            shared.last_ack = time.monotonic()
        if found.type_url == LISTENER:
            self._open(ROUTES, shared.named[ROUTES])
            self._open(CHAIN, shared.named[CHAIN])
        if found.type_url == CHAIN:
            self._open(SCOPES)
        if found.type_url == ENDPOINTS and self._waits:
            self._waits = max(0, self._waits - len(found.versions))
        if not self._waits and CLUSTER in self._held:
            self._warmed()

    def _warmed(self) -> None:
        """Acknowledge the clusters, and subscribe to listeners."""
        for ack in self._unsent:
            self._write(ack)
            self._shared.last_ack = time.monotonic()
        self._unsent.clear()
        self._open(LISTENER)

    def _hold(self, found: Read) -> None:
        """Store the versions; proxies that received the same response share the same object."""
        self._held[found.type_url] = _merged(ById(self._held.get(found.type_url, {})), ById(found))

    def _open(self, type_url: TypeUrl, names: Any = ()) -> None:
        """Subscribe to a type, or to more resources of it; a type's first request reports the proxy's versions."""
        if type_url in self._opened and type_url != ENDPOINTS:
            return
        first = type_url not in self._opened
        self._opened.add(type_url)
        held = self._held.get(type_url, {}) if first else {}
        new = frozenset(names) if first else frozenset(names) - self._held.get(type_url, {}).keys()
        if first or new:
            variant = hash(self._node) % VARIANTS
            self._write(_opening(type_url, new, ById(held), variant))

    def _write(self, request: bytes) -> None:
        """Send a request; the first one has the node ID."""
        request, self._node_field = self._node_field + request, b""
        self._out += b"\0" + len(request).to_bytes(4, "big") + request
        self._flush()

    def _flush(self) -> None:
        while self._out and (size := min(len(self._out), LARGEST_FRAME, *self._windows)) > 0 and self._transport:
            self._transport.write(_frame(DATA, 0, 1, bytes(self._out[:size])))
            del self._out[:size]
            self._windows = [window - size for window in self._windows]


@lru_cache(256)
def _merged(held: ById[Mapping[str, str]], found: ById[Read]) -> Mapping[str, str]:
    gone = set(found.value.removed)
    return {name: version for name, version in {**held.value, **found.value.versions}.items() if name not in gone}


@cache
def _opening(type_url: TypeUrl, names: frozenset[str], held: ById[Mapping[str, str]], variant: int) -> bytes:
    versions = list(held.value.items())
    random.Random(variant).shuffle(versions)
    return (
        _field(2, type_url.encode())
        + b"".join(_field(3, name.encode()) for name in sorted(names))
        + b"".join(_field(5, _field(1, name.encode()) + _field(2, version.encode())) for name, version in versions)
    )


def scan(message: bytes) -> Read:
    """Return the content of a DeltaDiscoveryResponse without the bodies of its resources."""
    type_url, nonce, removed = "", slice(0), []
    versions: dict[str, str] = {}
    for number, start, end in _fields(message, 0, len(message)):
        if number == 2:
            inner = {number: message[first:last] for number, first, last in _fields(message, start, end) if number != 2}
            versions[inner[3].decode()] = inner[1].decode()
        elif number == 4:
            type_url = message[start:end].decode()
        elif number == 5:
            nonce = slice(start, end)
        elif number == 6:
            removed.append(message[start:end].decode())
    return Read(type_url, versions, tuple(removed), nonce)


def _fields(message: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of each field; these messages have only length-delimited fields."""
    while at < end:
        number, size, shift = message[at] >> 3, 0, 0
        at += 1
        while True:
            byte = message[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield number, at, at + size
        at += size


def _field(number: int, content: bytes) -> bytes:
    size, out = len(content), bytearray([number << 3 | 2])
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out) + content


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def _headers(token: bytes) -> bytes:
    """Return the headers of a stream in HPACK as literals, without the dynamic table."""
    named = [(b"\x04", PATH), (b"\x01", b"xds"), (b"\x0f\x10", b"application/grpc"), (b"\x0f\x08", token)]
    texts = [name + _text(value) for name, value in named]
    return b"\x83\x86" + b"".join(texts) + b"\x00" + _text(b"te") + _text(b"trailers")


def _text(value: bytes) -> bytes:
    if len(value) < 0x7F:
        return bytes([len(value)]) + value
    size, out = len(value) - 0x7F, bytearray([0x7F])
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size]) + value
