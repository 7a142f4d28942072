"""What stays open when nothing is sent for ten minutes, at every place: the times of docs/tasks/protocols.md.

`test_long_streams.py` has the same in a second, with shorter times. Only real time shows a limit that no option names.
"""

import contextlib
import queue
from collections.abc import Iterator, Sequence

import grpc
import pytest
from tests import hpack
from tests.envoy.http_rig import SERVICES, HttpRig, Place
from tests.envoy.raw_http import RawConnection, answer
from tests.envoy.raw_http2 import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, Http2Server
from tests.wire import DEADLINE_S

from headgate.model.routing import Protocol

SILENT_S = 600.0
LIMIT_S = SILENT_S + 4 * DEADLINE_S
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
CHUNK = b"5\r\nevent\r\n"
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket")


@pytest.fixture
def rig() -> Iterator[HttpRig]:
    """Run servers that are called as the client calls: with HTTP/1.1 and HTTP/2."""
    with HttpRig(Protocol.HTTP_ANY) as rig:
        yield rig


def serve(connection: RawConnection) -> None:
    """Begin each stream, and send back what follows it; answer all other requests at once."""
    connection.wait_at_most(LIMIT_S)
    head = connection.head()
    if head.line.encode() in PREFACE:
        connection.exactly(len(b"SM\r\n\r\n"))
        serve_grpc(Http2Server(connection, after_preface=True))
    elif head.values("upgrade"):
        connection.send(SWITCHING)
        connection.send(connection.exactly(len(CHUNK)))
    elif head.get("transfer-encoding"):
        connection.send(EVENTS)
        connection.send(connection.exactly(len(CHUNK)))
    else:
        connection.send(answer("whole"))


def serve_grpc(server: Http2Server) -> None:
    """Send back the messages of each call, and its end."""
    while True:
        frame = server.receive()
        if frame.kind == HEADERS:
            fields = (":status", "200"), ("content-type", "application/grpc")
            server.send(HEADERS, END_HEADERS, frame.stream, hpack.encoded(fields))
        elif frame.kind == DATA and frame.content:
            server.send(DATA, 0, frame.stream, frame.content)
        if frame.kind in {HEADERS, DATA} and frame.flags & END_STREAM:
            server.send(HEADERS, END_HEADERS | END_STREAM, frame.stream, hpack.encoded([("grpc-status", "0")]))


class Call:
    """An open bidirectional call of gRPC; the client calls the HTTP proxy as gRPC does, by CONNECT."""

    def __init__(self, place: Place) -> None:
        by_proxy = [("grpc.http_proxy", f"http://{place.address}")] if place.base else [("grpc.enable_http_proxy", 0)]
        self._channel = grpc.insecure_channel(place.host if place.base else str(place.address), options=by_proxy)
        self._sent: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._received = self._channel.stream_stream("/Greeter/Echo")(iter(self._sent.get, None), timeout=LIMIT_S)

    def exchange(self, message: bytes) -> bytes:
        """Send a message; return the next one of the server."""
        self._sent.put(message)
        return bytes(next(self._received))

    def end(self) -> Sequence[bytes]:
        """Send no more; return the last messages. Raises RpcError unless the call succeeds."""
        self._sent.put(None)
        with contextlib.closing(self._channel):
            return list(self._received)


def connections(rig: HttpRig, *lines: str) -> Sequence[RawConnection]:
    """Send a request at each place; return the connections."""
    opened = [(place, rig.connect(place)) for name in SERVICES for place in rig.places(name)]
    for place, connection in opened:
        connection.send(place.head("/", *lines, method="POST" if lines and lines != UPGRADE else "GET"))
    return [connection for _, connection in opened]


@pytest.mark.nightly(reason="ten minutes of silence")
@pytest.mark.timeout(LIMIT_S)
def test_streams_and_clients_connections_survive_ten_silent_minutes(rig: HttpRig) -> None:
    """Connections of proxies to the servers are closed after `IDLE_MS`."""
    rig.server.use(serve)
    idle = connections(rig)
    assert [connection.response().body for connection in idle] == [b"whole"] * len(idle)
    rig.server.wait_for_end_of_connections()
    calls = [Call(place) for name in SERVICES for place in rig.places(name)]
    assert [call.exchange(b"first") for call in calls] == [b"first"] * len(calls)
    streams = {101: connections(rig, *UPGRADE), 200: connections(rig, "Transfer-Encoding: chunked")}
    for status, opened in streams.items():
        assert [connection.head().status for connection in opened] == [status] * len(opened)

    assert idle[0].is_silent(SILENT_S)

    assert [call.exchange(b"last") for call in calls] == [b"last"] * len(calls)
    assert [call.end() for call in calls] == [[]] * len(calls)
    for connection in (connection for opened in streams.values() for connection in opened):
        connection.send(CHUNK)
        assert connection.exactly(len(CHUNK)) == CHUNK
    for place, connection in zip((place for name in SERVICES for place in rig.places(name)), idle, strict=True):
        connection.send(place.head())
        assert connection.response().body == b"whole"
