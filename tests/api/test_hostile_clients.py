"""Clients without credentials can't fill the memory of a server, keep its connections, or make it write a traceback."""

import contextlib
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from headgate.api.bounded_protocol import HEAD_BYTES
from headgate.api.http_server import MAX_CONNECTIONS, MAX_HANDSHAKES

ROOT = Path(__file__).parents[2]
MB = 1024 * 1024
SECONDS = 30.0
BLOCKED_SECONDS = 1.0  # a server that does not read for this long has stopped reading
READINESS = b"GET /readyz HTTP/1.1\r\nhost: webhooks\r\n\r\n"
CHUNK = b"10000\r\n" + b"[" * 0x10000 + b"\r\n"


class Hostile(NamedTuple):
    """A running server: its process, and its ports for plaintext and TLS."""

    process: subprocess.Popen[str]
    port: int
    tls_port: int

    def connect(self, *, tls: bool = False) -> socket.socket:
        """Open a connection, without a TLS handshake."""
        return socket.create_connection(("127.0.0.1", self.tls_port if tls else self.port), SECONDS)

    def peak(self) -> int:
        """Return the peak of resident memory in bytes since the last call of `forget_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    @contextlib.contextmanager
    def grows_at_most(self, size: int) -> Iterator[None]:
        """Check the growth of memory during the block, and that the server answers a request after it."""
        self.forget_peak()
        before = self.peak()
        yield
        with self.connect() as connection:
            assert answer(connection, READINESS).startswith(b"HTTP/1.1 200")
        assert self.peak() - before <= size


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    command = [sys.executable, "-m", "tests.api.hostile_server", str(tmp_path_factory.mktemp("certificate"))]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdin
        plain, tls = map(int, process.stdout.readline().split())
        yield Hostile(process, plain, tls)
        process.stdin.close()
        assert process.stderr.read() == ""
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def answer(connection: socket.socket, request: bytes) -> bytes:
    """Send a request; return the first bytes of the response, empty if the server closes the connection instead."""
    try:
        connection.sendall(request)
        return connection.recv(4096)
    except ConnectionError:
        return b""


def send_until_refused(connection: socket.socket, content: bytes) -> bytes:
    """Send until the server closes the connection or stops reading; return what it has answered."""
    connection.settimeout(BLOCKED_SECONDS)
    with contextlib.suppress(ConnectionError, TimeoutError):
        connection.sendall(content)
    with contextlib.suppress(ConnectionError, TimeoutError):
        return connection.recv(4096)
    return b""


def test_the_head_of_a_request_is_bounded(hostile: Hostile) -> None:
    fields = b"x-%d: " + b"a" * 1000 + b"\r\n"
    head = b"GET /readyz HTTP/1.1\r\nhost: webhooks\r\n" + b"".join(fields % number for number in range(12 * 1024))
    with hostile.grows_at_most(8 * MB), hostile.connect() as connection:
        assert not send_until_refused(connection, head).startswith(b"HTTP/1.1 200")


def test_a_head_below_the_bound_is_read(hostile: Hostile) -> None:
    head = b"GET /readyz HTTP/1.1\r\nhost: webhooks\r\nx-long: " + b"a" * (HEAD_BYTES - 100) + b"\r\n\r\n"
    with hostile.connect() as connection:
        assert answer(connection, head).startswith(b"HTTP/1.1 200")


def test_pipelined_requests_are_bounded(hostile: Hostile) -> None:
    with hostile.grows_at_most(8 * MB), hostile.connect() as connection:
        send_until_refused(connection, READINESS * (12 * MB // len(READINESS)))


@pytest.mark.parametrize("path", [b"/validate", b"/inject"])
def test_a_body_is_bounded(hostile: Hostile, path: bytes) -> None:
    head = b"POST " + path + b" HTTP/1.1\r\nhost: webhooks\r\ntransfer-encoding: chunked\r\n\r\n"
    with hostile.grows_at_most(40 * MB), hostile.connect() as connection:
        response = send_until_refused(connection, head + CHUNK * (300 * MB // len(CHUNK)))
        assert response.startswith(b"HTTP/1.1 413") or not response


def test_a_declared_body_beyond_the_bound_is_refused_before_it_is_sent(hostile: Hostile) -> None:
    with hostile.grows_at_most(4 * MB), hostile.connect() as connection:
        refusal = answer(connection, b"POST /validate HTTP/1.1\r\nhost: webhooks\r\ncontent-length: 8000000\r\n\r\n")
        assert refusal.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in refusal


def test_deep_and_broken_bodies_are_bad_requests(hostile: Hostile) -> None:
    for body in (b"[" * 100_000, b'{"request":' * 100_000, b"\xff", b"{}", b'{"a":' + b"9" * 5000 + b"}"):
        with hostile.connect() as connection:
            head = b"POST /validate HTTP/1.1\r\nhost: webhooks\r\ncontent-length: %d\r\n\r\n" % len(body)
            assert answer(connection, head + body).startswith(b"HTTP/1.1 400")


def test_a_client_that_leaves_or_breaks_its_body_writes_no_traceback(hostile: Hostile) -> None:
    for rest in (b"", b"5\r\nabc", b"not a chunk\r\n"):
        with hostile.connect() as connection:
            head = b"POST /validate HTTP/1.1\r\nhost: webhooks\r\ntransfer-encoding: chunked\r\n\r\n"
            connection.sendall(head + rest)


def test_idle_connections_are_bounded_and_the_newest_are_kept(hostile: Hostile) -> None:
    with contextlib.ExitStack() as stack, hostile.grows_at_most(40 * MB):
        idle = [stack.enter_context(hostile.connect()) for _ in range(2 * MAX_CONNECTIONS)]
        assert answer(idle[-1], READINESS).startswith(b"HTTP/1.1 200")
        assert answer(idle[0], READINESS) == b""
        assert sum(map(is_open, idle)) <= MAX_CONNECTIONS


def test_connections_without_a_handshake_are_bounded(hostile: Hostile) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.ExitStack() as stack, hostile.grows_at_most(40 * MB):
        idle = [stack.enter_context(hostile.connect(tls=True)) for _ in range(2000)]
        with context.wrap_socket(hostile.connect(tls=True)) as secured:
            assert answer(secured, READINESS).startswith(b"HTTP/1.1 200")
        assert sum(map(is_open, idle)) <= MAX_HANDSHAKES


def test_a_burst_of_clients_waits_for_its_handshakes(hostile: Hostile) -> None:
    """An API server calls webhooks on many new connections at once; none of them is closed to make room."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(hostile.connect(tls=True)) for _ in range(MAX_HANDSHAKES + 100)]
        with ThreadPoolExecutor(8) as threads:
            secured = list(threads.map(context.wrap_socket, waiting))
        for connection in secured:
            stack.enter_context(connection)
            assert answer(connection, READINESS).startswith(b"HTTP/1.1 200")


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
