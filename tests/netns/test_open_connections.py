"""Which changes to objects end open connections: one of each kind is held over each change (docs/tasks/protocols.md)."""

import asyncio
import queue
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from tests.make.objects import (
    Object,
    http_route_group,
    http_rule,
    port,
    service,
    smi_tcp_route,
    split,
    tcp_rule,
    traffic_target,
)
from tests.netns.namespaced_mesh import MeshPod, NamespacedMesh
from tests.netns.objects import ALL_STRICT, ECHO_ONE, GREETING, GRPC, served
from tests.netns.traffic import PATIENCE_S, Application, Relay, Stream, connect
from tests.wire import Address, send

from headgate.resources.audit_mode import MODE

STREAMS = Address("10.96.0.40", 80)
PORT, NEW_PORT = 8081, 8082
WORDS = b"words"
CHUNK = b"5\r\nwords\r\n"
HTTP, TCP = frozenset({"websocket", "stream", "grpc"}), frozenset({"tcp", "server first"})
NONE: frozenset[str] = frozenset()
RULES = (
    http_route_group("any", {"any": {"methods": ["*"], "pathRegex": "/.*"}}),
    smi_tcp_route("any"),
)
ANY = (http_rule("any"), tcp_rule("any"))
CLIENT, BOTH, STRANGER = (
    (*RULES, traffic_target("callers", "web", sources, ANY))
    for sources in (["client"], ["client", "stranger"], ["stranger"])
)


def shared(weight: int) -> Sequence[Object]:
    """Return a split of TCP connections that needs a cluster for each backend, because they share an endpoint."""
    return (split("echo-one", {"echo": 1, "echo-two": weight}),)


NEW = service("new", port(NEW_PORT, "main", app="tcp"), selector={"app": "one"})


class Change(NamedTuple):
    """A change to the objects beside the Services, and the kinds of connections of `client` that it `ends`.

    `protocols` has the new protocols of Services. With `renews`, all proxies get new certificates of a new root.
    """

    name: str
    before: Iterable[Object]
    after: Iterable[Object]
    ends: frozenset[str] = NONE
    protocols: Mapping[str, str] = {}
    renews: bool = False


CHANGES = [
    Change("one more source", CLIENT, BOTH),
    Change("one source less", BOTH, CLIENT),
    Change("a second TrafficTarget", CLIENT, (*CLIENT, traffic_target("more", "web", ["client"], ANY))),
    Change("the source is removed", CLIENT, STRANGER, TCP),
    Change("all sources are removed", CLIENT, (*RULES, traffic_target("callers", "web", [], ANY)), TCP),
    Change(
        "rules for connections are removed",
        CLIENT,
        (*RULES, traffic_target("callers", "web", ["client"], ANY[:1])),
        TCP,
    ),
    Change("rules for requests are removed", CLIENT, (*RULES, traffic_target("callers", "web", ["client"], ANY[1:]))),
    Change("the first TrafficTarget", (), CLIENT, TCP),
    Change("the last TrafficTarget is removed", CLIENT, (), TCP),
    Change("an audit begins", (), (*RULES, traffic_target("callers", "web", [], ANY, annotations={MODE: "audit"}))),
    Change("permissive to strict", (), ALL_STRICT),
    Change("strict to permissive", ALL_STRICT, ()),
    Change("a split begins", (), (split("echo-one", {"echo-two": 1}), split("streams", {"two": 1}))),
    Change("other weights", (split("echo-one", {"echo-1": 1, "echo-two": 1}),), (split("echo-one", {"echo-two": 1}),)),
    Change("a split ends", (split("echo-one", {"echo-1": 1}),), ()),
    Change("weights of backends that share endpoints", shared(1), shared(2), frozenset({"tcp"})),
    Change("new certificates", (), (), renews=True),
    Change("another Service with a port of the pods", (), (NEW,)),
    Change("another protocol of TCP ports", (), (), TCP, {"echo-one": "http", "greeting": "http"}),
    Change("another protocol of HTTP ports", (), (), HTTP, {"streams": "tcp", "grpc": "tcp"}),
]


async def upgraded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve HTTP/1.1: accept the upgrade to WebSocket, and send back the chunks of other requests."""
    head = await reader.readuntil(b"\r\n\r\n")
    if b"upgrade: websocket" in head.lower():
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
    else:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    while data := await reader.read(4096):
        writer.write(data)


def echo(received: Iterator[bytes], _context: object) -> Iterator[bytes]:
    yield from received


class Held:
    """An open connection, on which the server sends back what the client sends."""

    def __init__(self, lab: NamespacedMesh, opened: Stream, words: bytes = WORDS) -> None:
        self._lab = lab
        self._reader, self._writer = opened
        self._words = words

    def passes(self) -> bool:
        """Return whether bytes pass the connection in both directions; False if it was closed."""
        return self._lab.run(self._exchange())

    async def _exchange(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):
                send(self._writer, self._words)
                return await self._reader.readexactly(len(self._words)) == self._words
        except (EOFError, ConnectionError):
            return False

    def close(self) -> None:
        """Close the connection."""
        self._lab.run(self._end())

    async def _end(self) -> None:
        self._writer.close()


class HeldCall:
    """An open stream of gRPC."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._sent: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._channel = channel
        self._received = channel.stream_stream("/Greeter/Echo")(iter(self._sent.get, None), timeout=2 * PATIENCE_S)

    def passes(self) -> bool:
        """Return whether a message passes the stream in both directions; False if it has ended."""
        self._sent.put(WORDS)
        try:
            return next(self._received) == WORDS
        except (grpc.RpcError, StopIteration):
            return False

    def close(self) -> None:
        """Close the channel."""
        self._sent.put(None)
        self._channel.close()


async def held_stream(client: MeshPod, where: Address, head: str = "", first: bytes = b"") -> Stream:
    """Open a connection: send the head of a request and read that of its response, or read the server's `first` bytes."""
    reader, writer = await connect(client, where)
    if head:
        writer.write(f"{head}\r\nhost: any\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).split()[1] in {b"101", b"200"}
    assert await reader.readexactly(len(first)) == first
    return reader, writer


@pytest.fixture(scope="module", autouse=True)
def _servers(lab: NamespacedMesh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    one = lab.members["one"]
    app = lab.run(Application("streams").listen(one.listening(PORT), upgraded))
    path = tmp_path_factory.mktemp("grpc") / "server"
    server = grpc.server(ThreadPoolExecutor(8))
    handlers = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Greeter", handlers),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    relay = lab.run(Relay("grpc").forward_to_socket(one, GRPC.port, str(path)))
    yield
    server.stop(None).wait(PATIENCE_S)
    lab.run(relay.close())
    lab.run(app.close())


@contextmanager
def held(lab: NamespacedMesh, directory: Path) -> Iterator[Mapping[str, Held | HeldCall]]:
    """Hold one connection of each kind."""
    client = lab.members["client"]
    upgrade = "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket"
    chunked = "POST / HTTP/1.1\r\ntransfer-encoding: chunked"
    path = str(directory / "grpc")
    relay = lab.run(Relay("client").forward_from_socket(path, client, GRPC))
    kinds: dict[str, Held | HeldCall] = {
        "tcp": Held(lab, lab.run(held_stream(client, ECHO_ONE))),
        "server first": Held(lab, lab.run(held_stream(client, GREETING, first=b"one\n"))),
        "websocket": Held(lab, lab.run(held_stream(client, STREAMS, upgrade))),
        "stream": Held(lab, lab.run(held_stream(client, STREAMS, chunked)), CHUNK),
        "grpc": HeldCall(grpc.insecure_channel(f"unix:{path}")),
    }
    try:
        yield kinds
    finally:
        for kind in kinds.values():
            kind.close()
        lab.run(relay.close())


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_change_ends_only_the_connections_that_the_docs_name(lab, services, tmp_path, change):
    one = lab.members["one"]
    more = [
        *served("streams", STREAMS, [one], PORT),
        *served("echo-1", Address("10.96.0.41", 7000), [one], 7000, "tcp"),
    ]
    all_services = [*services, *more]
    lab.serve(*all_services, *change.before)
    with held(lab, tmp_path) as kinds:
        assert {name for name, kind in kinds.items() if kind.passes()} == {*HTTP, *TCP}
        if change.renews:
            lab.renew()
        lab.serve(*(with_protocol(item, change.protocols) for item in all_services), *change.after)
        lab.run(lab.drained())
        assert {name for name, kind in kinds.items() if not kind.passes()} == change.ends


def with_protocol(written: Object, protocols: Mapping[str, str]) -> Object:
    """Return a Service with its new protocol; all other objects unchanged."""
    app = protocols.get(written["metadata"]["name"], "") if written["kind"] == "Service" else ""
    if not app:
        return written
    spec = written["spec"]
    return {**written, "spec": {**spec, "ports": [{**port, "appProtocol": app} for port in spec["ports"]]}}
