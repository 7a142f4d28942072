"""A reset is a reset at the other end: on TCP ports both ways, and in tunnels as far as Envoy can (docs/tasks/protocols.md)."""

import threading

import pytest
from tests import hpack
from tests.envoy.http_rig import SERVICES, HttpRig, Place
from tests.envoy.raw_http import RawConnection
from tests.envoy.raw_http2 import DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, Http2Client
from tests.wire import DEADLINE_S

from headgate.model.routing import Protocol

PROTOCOL = Protocol.TCP


@pytest.fixture
def rig(http_rig: HttpRig) -> HttpRig:
    return http_rig


@pytest.fixture(params=[*SERVICES])
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def open_tunnel(rig: HttpRig, place: Place) -> RawConnection:
    """Open a connection to the server: at the HTTP proxy through a tunnel."""
    connection = rig.connect(place)
    if place.name == "proxy":
        connection.send(f"CONNECT {place.host} HTTP/1.1\r\nhost: {place.host}\r\n\r\n")
        assert connection.head().status == 200
    return connection


def end(connection: RawConnection) -> str:
    """Wait for the end of a connection; return `reset` or `closed`."""
    try:
        connection.wait_for_bytes()
    except ConnectionResetError:
        return "reset"
    except ConnectionError:
        return "closed"
    return "bytes"


def serve_and_reset(rig: HttpRig) -> None:
    """Let the server answer five bytes with as many, and reset the connection at the next byte."""

    def serve(connection: RawConnection) -> None:
        connection.send(connection.exactly(5))
        connection.exactly(1)
        connection.reset()

    rig.server.use(serve)


@pytest.mark.parametrize(("where", "seen"), [(0, "reset"), (1, "closed")])
def test_a_reset_by_the_server_reaches_the_client_except_in_a_tunnel_over_http_1(
    rig: HttpRig, service: str, where: int, seen: str
) -> None:
    """At the end of a response, Envoy's HTTP/1.1 only closes connections."""
    serve_and_reset(rig)
    connection = open_tunnel(rig, rig.places(service)[where])
    connection.send("hello")
    assert connection.exactly(5) == b"hello"
    connection.send("x")
    assert end(connection) == seen


@pytest.mark.parametrize(("how", "frame"), [("reset", RST_STREAM), ("close", DATA)])
def test_a_reset_by_the_server_resets_the_stream_of_a_tunnel_over_http2(
    rig: HttpRig, service: str, how: str, frame: int
) -> None:
    """RFC 9113, 8.5. The end of the server's connection is the end of the stream."""

    def serve(connection: RawConnection) -> None:
        connection.send(connection.exactly(5))
        connection.exactly(1)
        getattr(connection, how)()

    rig.server.use(serve)
    place = rig.places(service)[1]
    client = Http2Client(rig.connect(place))
    client.request(1, [(":method", "CONNECT"), (":authority", place.host)], END_HEADERS)
    assert hpack.status(client.next(HEADERS, stream=1).content) == 200
    client.send(DATA, 0, 1, b"hello")
    assert client.next(DATA, stream=1).content == b"hello"
    client.send(DATA, 0, 1, b"x")
    last = client.next(DATA, RST_STREAM, stream=1)
    assert last.kind == frame, last
    assert frame == RST_STREAM or last.flags & END_STREAM


@pytest.mark.parametrize(("where", "seen"), [(0, "reset"), (1, "closed")])
def test_a_reset_by_the_client_reaches_the_server_except_in_a_tunnel(
    rig: HttpRig, service: str, where: int, seen: str
) -> None:
    ends: list[str] = []
    ended = threading.Event()

    def serve(connection: RawConnection) -> None:
        connection.send(connection.exactly(5))
        ends.append(end(connection))
        ended.set()

    rig.server.use(serve)
    connection = open_tunnel(rig, rig.places(service)[where])
    connection.send("hello")
    assert connection.exactly(5) == b"hello"
    connection.reset()
    assert ended.wait(DEADLINE_S)
    assert ends == [seen]
