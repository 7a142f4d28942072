"""How a proxy repeats requests that an HTTP/2 server refuses, or whose connection ends: at every place (D30).

A server that refuses a stream, or does not name it in its last message of a connection, has not processed the request
(RFC 9113, 6.8 and 8.7). So every request is repeated then, a POST too.
"""

import threading

import pytest
from tests import hpack
from tests.envoy.http_rig import SERVICES, HttpRig, Place
from tests.envoy.raw_http import RawConnection
from tests.envoy.raw_http2 import END_HEADERS, END_STREAM, HEADERS, REFUSED_STREAM, Http2Server
from tests.wire import DEADLINE_S

from headgate.model.routing import Protocol

METHODS = ["GET", "POST"]
PROTOCOL = Protocol.HTTP2


@pytest.fixture
def rig(http_rig: HttpRig) -> HttpRig:
    return http_rig


@pytest.fixture(params=[*SERVICES])
def place(rig: HttpRig, where: str, request: pytest.FixtureRequest) -> Place:
    return next(place for place in rig.places(str(request.param)) if place.name == where)


def ask(place: Place, method: str) -> int:
    return place.ask("/", "Content-Length: 3", method=method, body=b"abc").head.status


@pytest.mark.parametrize("method", METHODS)
def test_a_refused_request_is_repeated(rig: HttpRig, place: Place, method: str) -> None:
    seen: list[bool] = []

    def serve(connection: RawConnection) -> None:
        server = Http2Server(connection)
        for stream in server.requests():
            seen.append(len(seen) % 2 == 0)
            if seen[-1]:
                server.reset(stream, REFUSED_STREAM)
            else:
                server.answer(stream)

    rig.server.use(serve)
    assert [ask(place, method) for _ in range(5)] == [200] * 5
    assert seen == [True, False] * 5


@pytest.mark.parametrize("method", METHODS)
def test_a_request_that_the_server_did_not_process_is_repeated(rig: HttpRig, place: Place, method: str) -> None:
    """The server ends each connection at its second request, and names the first one as the last that it processed."""
    ends = 0

    def serve(connection: RawConnection) -> None:
        nonlocal ends
        server, answered = Http2Server(connection), 0
        for stream in server.requests():
            if answered:
                ends += 1
                server.goaway(answered)
                connection.close()
                return
            server.answer(stream)
            answered = stream

    rig.server.use(serve)
    assert [ask(place, method) for _ in range(6)] == [200] * 6
    assert ends


def test_requests_in_flight_get_their_responses_after_the_server_announced_the_end(rig: HttpRig, place: Place) -> None:
    def serve(connection: RawConnection) -> None:
        server = Http2Server(connection)
        for stream in server.requests():
            server.goaway(stream)
            server.answer(stream)

    rig.server.use(serve)
    assert [ask(place, "POST") for _ in range(5)] == [200] * 5


@pytest.mark.parametrize(("method", "statuses", "count"), [("GET", {200}, 2), ("POST", {502, 503}, 1)])
def test_only_an_idempotent_request_is_repeated_when_the_connection_ends(
    rig: HttpRig, place: Place, method: str, statuses: set[int], count: int
) -> None:
    """The server may have processed the request."""
    requests = 0

    def serve(connection: RawConnection) -> None:
        nonlocal requests
        server = Http2Server(connection)
        for stream in server.requests():
            requests += 1
            if requests == 1:
                connection.close()
                return
            server.answer(stream)

    rig.server.use(serve)
    assert ask(place, method) in statuses
    assert requests == count


def test_a_malformed_response_ends_no_other_request_of_the_connection(rig: HttpRig, place: Place) -> None:
    """RFC 9113, 8.1.1: it is an error of its stream. Names of headers have no capitals in HTTP/2."""

    def serve(connection: RawConnection) -> None:
        server = Http2Server(connection)
        requests = server.requests()
        first = next(requests)
        received.set()
        server.send(HEADERS, END_HEADERS | END_STREAM, next(requests), b"\x88" + hpack.encoded([("X-A", "1")]))
        server.answer(first)

    received = threading.Event()
    rig.server.use(serve)
    first = rig.connect(place)
    first.send(place.head("/", "Content-Length: 0", method="POST"))
    assert received.wait(DEADLINE_S)
    assert ask(place, "POST") == 502
    assert first.head().status == 200
    first.close()
