"""Streams that are silent for longer than an idle connection may be, over changes to weights: at every place."""

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from tests.envoy.http_rig import SERVICES, HttpRig
from tests.envoy.raw_http import RawConnection, answer
from tests.wire import DEADLINE_S

from headgate.envoy import http_connections

IDLE_MS = 100
SILENT_S = 1.0  # ten times as long as idle connections stay open


@pytest.fixture(scope="module")
def rig() -> Iterator[HttpRig]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_connections, "IDLE_MS", IDLE_MS)
        with HttpRig() as rig:
            yield rig


def test_idle_connections_end_soon(rig: HttpRig) -> None:
    """So the silence of the streams is longer than what proxies allow to idle connections."""
    rig.server.use()
    assert rig.places("plain")[0].ask().head.status == 200
    rig.server.wait_for_end_of_connections()


class Stream(NamedTuple):
    """A request whose head and `sent` bytes the client sends before the silence, and `last` after it.

    The server answers with `begun` before the silence, and with `ended` after it.
    """

    lines: Sequence[str]
    sent: bytes
    last: bytes
    begun: bytes
    ended: bytes


SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n"
STREAMS = {
    "response": Stream((), b"", b"", CHUNKS, b"4\r\nlast\r\n0\r\n\r\n"),
    "websocket": Stream(("Connection: Upgrade", "Upgrade: websocket"), b"", b"12345", SWITCHING, b"last"),
    "upload": Stream(("Content-Length: 10",), b"12345", b"67890", b"", answer("last")),
}
"""Server-sent events and gRPC streams are responses that go on."""


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_a_silent_stream_survives_changes_of_weights(rig: HttpRig, stream: Stream) -> None:
    goes_on = threading.Event()

    def serve(connection: RawConnection) -> None:
        connection.head()
        connection.exactly(len(stream.sent))
        connection.send(stream.begun)
        assert goes_on.wait(2 * DEADLINE_S)
        connection.exactly(len(stream.last))
        connection.send(stream.ended)

    rig.server.use(serve)
    clients = []
    for place in (place for name in SERVICES for place in rig.places(name)):
        clients.append(place.connect())
        clients[-1].send(place.head("/", *stream.lines, method="PUT" if stream.sent else "GET").encode() + stream.sent)
    for client in clients if stream.begun else ():
        assert client.head().status in {101, 200}
        body = stream.begun.partition(b"\r\n\r\n")[2]
        assert client.exactly(len(body)) == body
    for weights in ((1, 1), (1,)):
        assert clients[0].is_silent(SILENT_S / 2)
        rig.set_routes(*weights)
    goes_on.set()
    for client in clients:
        client.send(stream.last)
        if not stream.begun:
            client.head()
        body = stream.ended.rpartition(b"\r\n\r\n")[2] if not stream.begun else stream.ended
        assert client.exactly(len(body)) == body
        client.close()
