"""Frames and requests that RFC 9113 forbids, or demands to ignore, from a client: at every place.

No conformance client is in PyPI, npm or Debian (h2spec is a Go program), so these are its cases of sections 4 to 6 and 8.
"""

import struct
from collections.abc import Callable, Iterator

import pytest
from tests import hpack
from tests.envoy.http_rig import SERVICES, HttpRig, Place
from tests.envoy.raw_http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Http2Client,
)

PADDED, ACK = 8, 1
UNKNOWN_FRAME = 0x42
LARGEST_FRAME = 1 << 14
LARGEST_WINDOW = (1 << 31) - 1
ENABLE_PUSH, INITIAL_WINDOW, FRAME_SIZE, UNKNOWN_SETTING = 2, 4, 5, 0x42
Send = Callable[[Http2Client, Place], object]


@pytest.fixture(scope="module")
def rig() -> Iterator[HttpRig]:
    with HttpRig() as rig:
        yield rig


@pytest.fixture(params=["service", "proxy", "gateway"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[*SERVICES])
def place(rig: HttpRig, where: str, request: pytest.FixtureRequest) -> Place:
    rig.server.use()
    return next(place for place in rig.places(str(request.param)) if place.name == where)


def fields(place: Place, *more: tuple[str, str], **changed: str) -> list[tuple[str, str]]:
    """Return the headers of a request. `changed` are pseudo headers; an empty value omits one."""
    pseudo = {"method": "GET", "scheme": "http", "authority": place.host, "path": place.path} | changed
    return [*((f":{name}", value) for name, value in pseudo.items() if value), *more]


def settings(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("!HI", *pair) for pair in pairs)


def frame(kind: int, stream: int, content: bytes = b"", flags: int = 0) -> Send:
    """Return a case that sends one frame."""
    return lambda client, _: client.send(kind, flags, stream, content)


def on_stream(kind: int, content: bytes = b"", flags: int = 0, *, is_open: bool = True) -> Send:
    """Return a case that sends a frame on a stream whose request is not complete, or is."""

    def send(client: Http2Client, place: Place) -> None:
        client.request(1, fields(place, method="POST"), END_HEADERS if is_open else END_HEADERS | END_STREAM)
        client.send(kind, flags, 1, content)

    return send


def request(*more: tuple[str, str], **changed: str) -> Send:
    """Return a case that sends a request."""
    return lambda client, place: client.request(1, fields(place, *more, **changed))


def in_turn(*cases: Send) -> Send:
    """Return a case that sends several ones."""

    def send(client: Http2Client, place: Place) -> None:
        for case in cases:
            case(client, place)

    return send


def interleaved(client: Http2Client, place: Place) -> None:
    client.request(1, fields(place), END_STREAM)
    client.send(PING, 0, 0, bytes(8))


def numbered(*streams: int) -> Send:
    """Return a case that sends requests on streams."""
    return in_turn(
        *((lambda client, place, stream=stream: client.request(stream, fields(place))) for stream in streams)
    )


CONNECTION_ERRORS: dict[str, Send] = {
    "4.2 a frame that is too large": on_stream(DATA, bytes(LARGEST_FRAME + 1)),
    "4.3 headers that can't be decompressed": frame(HEADERS, 1, b"\xff\xff\xff\xff\xff\xff", END_HEADERS | END_STREAM),
    "5.1 DATA on an idle stream": frame(DATA, 1, b"a"),
    "5.1 RST_STREAM on an idle stream": frame(RST_STREAM, 1, bytes(4)),
    "5.1 WINDOW_UPDATE on an idle stream": frame(WINDOW_UPDATE, 1, struct.pack("!I", 1)),
    "5.1.1 an even stream": numbered(2),
    "6.1 DATA on stream 0": frame(DATA, 0, b"a"),
    "6.1 DATA with too much padding": on_stream(DATA, b"\x06abcde", PADDED),
    "6.2 HEADERS on stream 0": lambda client, place: client.request(0, fields(place)),
    "6.4 RST_STREAM on stream 0": frame(RST_STREAM, 0, bytes(4)),
    "6.4 RST_STREAM of another length": on_stream(RST_STREAM, bytes(3)),
    "6.5 an ACK of SETTINGS with content": frame(SETTINGS, 0, settings((FRAME_SIZE, LARGEST_FRAME)), ACK),
    "6.5 SETTINGS on a stream": frame(SETTINGS, 1),
    "6.5 SETTINGS of another length": frame(SETTINGS, 0, bytes(3)),
    "6.5.2 ENABLE_PUSH": frame(SETTINGS, 0, settings((ENABLE_PUSH, 2))),
    "6.5.2 INITIAL_WINDOW_SIZE": frame(SETTINGS, 0, settings((INITIAL_WINDOW, LARGEST_WINDOW + 1))),
    "6.5.2 MAX_FRAME_SIZE too small": frame(SETTINGS, 0, settings((FRAME_SIZE, LARGEST_FRAME - 1))),
    "6.5.2 MAX_FRAME_SIZE too large": frame(SETTINGS, 0, settings((FRAME_SIZE, 1 << 24))),
    "6.6 PUSH_PROMISE of a client": on_stream(PUSH_PROMISE, struct.pack("!I", 2), END_HEADERS),
    "6.7 PING on a stream": frame(PING, 1, bytes(8)),
    "6.7 PING of another length": frame(PING, 0, bytes(6)),
    "6.8 GOAWAY on a stream": frame(GOAWAY, 1, bytes(8)),
    "6.9 WINDOW_UPDATE by 0": frame(WINDOW_UPDATE, 0, bytes(4)),
    "6.9 WINDOW_UPDATE of another length": frame(WINDOW_UPDATE, 0, bytes(3)),
    "6.9.1 a window that is too large": frame(WINDOW_UPDATE, 0, struct.pack("!I", LARGEST_WINDOW)),
    "6.10 CONTINUATION without HEADERS": frame(CONTINUATION, 1, b"", END_HEADERS),
    "6.10 a frame between HEADERS and CONTINUATION": interleaved,
}
STREAM_ERRORS: dict[str, Send] = {
    "5.1 DATA after the end": on_stream(DATA, b"a", END_STREAM, is_open=False),
    "5.1 HEADERS after the end": on_stream(HEADERS, b"", END_HEADERS | END_STREAM, is_open=False),
    "6.3 PRIORITY of another length": on_stream(PRIORITY, bytes(4)),
    "6.9 WINDOW_UPDATE by 0": on_stream(WINDOW_UPDATE, bytes(4)),
    "6.9.1 a window that is too large": on_stream(WINDOW_UPDATE, struct.pack("!I", LARGEST_WINDOW)),
    "8.1 a trailer without END_STREAM": on_stream(HEADERS, hpack.encoded([("x-a", "1")]), END_HEADERS),
    "8.1.1 a body that is shorter than announced": request(("content-length", "1"), method="POST"),
    "8.1.1 a body that is longer than announced": in_turn(
        lambda client, place: client.request(1, fields(place, ("content-length", "1"), method="POST"), END_HEADERS),
        frame(DATA, 1, b"ab", END_STREAM),
    ),
    "8.2.1 a name in capitals": request(("X-A", "1")),
    "8.2.1 a name with a space": request(("x a", "1")),
    "8.2.1 a value with a line feed": request(("x-a", "1\n2")),
    "8.2.2 Connection": request(("connection", "keep-alive")),
    "8.2.2 TE": request(("te", "gzip")),
    "8.3 an unknown pseudo header": request(test="1"),
    "8.3 a pseudo header of responses": request(status="200"),
    "8.3 a pseudo header after a header": lambda client, place: client.request(
        1, fields(place, ("x-a", "1"), (":path", place.path), path="")
    ),
    "8.3 a pseudo header in trailers": on_stream(HEADERS, hpack.encoded([(":path", "/")]), END_HEADERS | END_STREAM),
    "8.3.1 no :method": request(method=""),
    "8.3.1 no :scheme": request(scheme=""),
    "8.3.1 no :path": request(path=""),
    "8.3.1 two of :path": lambda client, place: client.request(1, [*fields(place), (":path", "/")]),
}
IGNORED: dict[str, Send] = {
    # RFC 9113 demands a connection error, but Envoy ignores the stream, as if it had been reset.
    "5.1.1 a stream with a lower number": numbered(3, 1),
    "4.1 an unknown frame": frame(UNKNOWN_FRAME, 0, b"abc", 0xFF),
    "5.1 PRIORITY on an idle stream": frame(PRIORITY, 3, struct.pack("!IB", 0, 1)),
    "6.5.2 an unknown setting": frame(SETTINGS, 0, settings((UNKNOWN_SETTING, 1))),
    "6.9 WINDOW_UPDATE of the connection": frame(WINDOW_UPDATE, 0, struct.pack("!I", 1)),
}


def outcome(client: Http2Client, stream: int = 1) -> str:
    """Return how the proxy answers on a stream: `connection`, `stream` (both are errors), or the status."""
    try:
        while True:
            frame = client.receive()
            if frame.kind == GOAWAY:
                return "connection"
            if frame.stream == stream and frame.kind == RST_STREAM:
                return "stream"
            if frame.stream == stream and frame.kind == HEADERS:
                return str(hpack.status(frame.content))
    except ConnectionError:
        return "connection"


@pytest.mark.parametrize("case", CONNECTION_ERRORS)
def test_a_connection_error_ends_the_connection(place: Place, case: str) -> None:
    client = Http2Client(place.connect())
    CONNECTION_ERRORS[case](client, place)
    streams = [outcome(client) for _ in range(2)]  # a stream may have its response before
    assert "connection" in streams
    client.connection.close()


@pytest.mark.parametrize("case", STREAM_ERRORS)
def test_a_stream_error_ends_the_stream(rig: HttpRig, place: Place, case: str) -> None:
    """It may end the connection too (RFC 9113, 5.4.2), and a response of the proxy may come before (8.1.1)."""
    if case.startswith("5.1"):
        rig.server.use(lambda connection: connection.message() and None)  # a response would end the stream before
    # A path of its own: Envoy forwards a request before it knows the length of its body (8.1.1), which can come late.
    path = f"/{place.name}/{[*STREAM_ERRORS].index(case)}"
    client = Http2Client(place.connect())
    STREAM_ERRORS[case](client, place._replace(path=path))
    assert outcome(client) in {"stream", "connection", "400"}
    client.connection.close()
    if not case.startswith("8.1.1"):
        assert f" {path} " not in str(rig.server.seen)


@pytest.mark.parametrize("case", IGNORED)
def test_what_a_client_may_send_changes_nothing(place: Place, case: str) -> None:
    client = Http2Client(place.connect())
    IGNORED[case](client, place)
    client.request(5, fields(place))
    assert outcome(client, stream=5) == "200"
    client.connection.close()


def test_a_ping_is_answered(place: Place) -> None:
    client = Http2Client(place.connect())
    client.send(PING, 0, 0, b"12345678")
    assert client.next(PING).content == b"12345678"
    client.connection.close()


def test_streams_of_a_connection_go_on_after_the_error_of_one(place: Place) -> None:
    client = Http2Client(place.connect())
    client.request(1, fields(place, method="POST"), END_HEADERS)
    client.request(3, fields(place, ("te", "gzip")))
    assert outcome(client, stream=3) in {"stream", "400"}
    client.send(DATA, END_STREAM, 1, b"a")
    assert outcome(client) == "200"
    client.connection.close()
