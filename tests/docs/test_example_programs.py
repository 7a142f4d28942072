"""The programs of examples/programs against gRPC's own library and Python's HTTP client."""

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import IO

import grpc
import pytest
from tests.ports import free_port
from tests.waiting import until

PROGRAMS = Path(__file__).parents[2] / "examples" / "programs"
GREETING = b"\x0a\x02v1"  # the message {1: "v1"}


@contextmanager
def program(name: str, *arguments: str, **variables: str) -> Iterator[IO[str]]:
    """Run a program during the block, end it like a pod, and yield its output."""
    environment = {"PATH": os.environ["PATH"], "HOST": "127.0.0.1", **variables}
    command = [sys.executable, "-u", str(PROGRAMS / name), *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    """Serve HTTP during the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def get(port: int, path: str = "/") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_the_grpc_server_answers_grpcs_own_client() -> None:
    """Calls with more bytes than a window of HTTP/2 (65,535), one by one and in one call: the server gives back what it has read."""
    port = free_port()
    with program("grpc_server.py", VERSION="v1", PORT=str(port)), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        greet = channel.unary_unary("/Greeter/Greet")
        assert greet(b"", wait_for_ready=True, timeout=30) == GREETING
        assert {greet(bytes(size), timeout=30) for size in (*[1000] * 100, 200_000)} == {GREETING}


def test_the_grpc_client_counts_the_versions_of_grpcs_own_server() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(lambda _request, _context: GREETING)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Greeter", {"Greet": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with program("grpc_client.py", f"127.0.0.1:{port}", REPORT_SECONDS="0.2", REQUESTS_PER_SECOND="100") as output:
        version, _, count = output.readline().partition(": ")
        assert (version, int(count) > 0) == ("v1", True)
    server.stop(None).wait(30)


@pytest.mark.parametrize(("percent", "status"), [("0", 200), ("100", 500)])
def test_the_server_answers_with_its_version_and_pod_or_fails_as_often_as_it_should(percent: str, status: int) -> None:
    port = free_port()
    names = {"VERSION": "v2", "POD_NAME": "web-0", "PORT": str(port), "FAILING_PERCENT": percent}
    with program("server.py", **names) as output:
        assert output.readline() == f"listening on 127.0.0.1:{port}\n"
        assert get(port) == (status, "v2 web-0\n")
        assert get(port, "/healthz")[0] == 200


def test_the_client_counts_by_user_and_keeps_the_cookies_of_each() -> None:
    """The server sets a cookie for the user `a` and knows it again; the user `b` never has it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            cookie = self.headers["cookie"] or ""
            body = (b"v2" if cookie == "group=a; seen=yes" else b"v1") + b" pod"
            self.send_response(200)
            if cookie:
                self.send_header("set-cookie", "seen=yes; Path=/")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with served(Handler) as server:
        users = ("--user=a=Cookie: group=a", "--user=b=X: y")
        rates = {"REPORT_SECONDS": "0.2", "REQUESTS_PER_SECOND": "100"}
        with program("client.py", f"http://127.0.0.1:{server.server_port}/", *users, **rates) as output:
            counts = {"a": Counter[str](), "b": Counter[str]()}
            while not counts["a"]["v2"] or not counts["b"]:
                name, _, results = output.readline().strip().partition(": ")
                for result in filter(None, results.split("  ")):
                    version, _, number = result.partition(": ")
                    counts[name][version] += int(number)
            assert counts["a"]["v1"] == 1
            assert counts["b"].keys() == {"v1"}


def test_the_greeter_speaks_first() -> None:
    port = free_port()
    with program("greeter.py", VERSION="v1", PORT=str(port)):

        def greeting() -> bytes:
            try:
                with socket.create_connection(("127.0.0.1", port), 30) as connection:
                    return connection.recv(100)
            except ConnectionRefusedError:  # it has not begun
                return b""

        assert until(greeting) == b"v1\n"
