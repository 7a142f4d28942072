"""The readiness of a gateway with nginx, at a port that every pod can reach."""

import http.client
import socket
from collections.abc import Iterator

import pytest

from headgate.api.bounded_protocol import HEAD_BYTES
from headgate.cli.nginx_gateway import serve_readiness

SECONDS = 60.0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    found: int = listener.getsockname()[1]
    serve_readiness(listener)  # the thread ends with the process, as in a pod
    yield found
    listener.close()


@pytest.mark.parametrize(("path", "status"), [("/ready", 200), ("/ready?now", 200), ("/", 404), ("/readyz", 404)])
def test_only_the_path_of_the_health_check_is_answered(port: int, path: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    for _ in range(2):
        connection.request("GET", path)
        response = connection.getresponse()
        assert (response.status, response.read()) == (status, b"")
    connection.close()


def test_a_head_of_any_length_is_not_kept(port: int) -> None:
    """An unknown client can't fill the memory of the pod."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        connection.sendall(b"GET /ready HTTP/1.1\r\nhost: web\r\n")
        field = b"a" * 60_000
        try:
            for number in range(2 * HEAD_BYTES // len(field) + 1):
                connection.sendall(b"x-%d: %s\r\n" % (number, field))
            connection.sendall(b"\r\n")
            answer = connection.recv(4096)
        except ConnectionError:
            answer = b""
    assert not answer.startswith(b"HTTP/1.1 200")
