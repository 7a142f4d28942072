import asyncio
import os
import re
import socket
import ssl
import threading
import time
from typing import Any

import grpc.aio
import pytest
from tests.ports import free_port
from tests.stream_server import stream_server

from headgate.api.certificate import certificate_in
from headgate.resources.core.pod_spec import Container, ContainerPort, Probe
from headgate.resources.decode import read
from headgate.standalone.pods.containers import restarts
from headgate.standalone.pods.probes import HealthTracker, ProbeTarget, listens, run_probe
from headgate.standalone.processes import Launch


def probe(*, patience: int = 60, **fields: Any) -> Probe:
    """Return a probe with a timeout of `patience` seconds. The default is long, for busy machines."""
    return read({**fields, "timeoutSeconds": patience}, Probe)


def target(port: int = 1) -> ProbeTarget:
    container = Container(name="app", ports=(ContainerPort(container_port=port, name="http"),))
    return ProbeTarget(container, "127.0.0.1", Launch(command=("app",), env={"PATH": os.environ["PATH"], "A": "x"}))


@pytest.fixture
async def server():
    """Run an HTTP server; yield its port and the list of received requests.

    The path selects the status and the Location header of the response: `/302/200` is a redirect to `/200`. `/slow` never
    answers, `/odd` answers without HTTP, `/hangs` stops within the body, and `/large` starts a large body that never ends.
    """
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        path, _, place = requests[-1].split()[1].decode().strip("/").partition("/")
        if path == "slow":
            await reader.read()
        elif path == "odd":
            writer.write(b"hello\n")
        elif path in {"hangs", "large"}:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (1 if path == "hangs" else 10 << 10))
            await reader.read()
        else:
            location = f"Location: {place}\r\nX-Large: {'x' * 20_000}\r\n" if place else ""
            writer.write(f"HTTP/1.1 {path} Some Words\r\n{location}Content-Length: 0\r\n\r\n".encode())

    async with stream_server(answer) as listener:
        yield listener.sockets[0].getsockname()[1], requests


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/200", ""),
        ("399", ""),
        ("/404", "HTTP status 404"),
        ("/503", "HTTP status 503"),
        ("/odd", "the response is not HTTP"),
        ("/slow", "timed out after 1 s"),
        ("/hangs", "timed out after 1 s"),
        ("/large", ""),
        ("/302", ""),
        ("/302//404", "HTTP status 404"),
        ("/307//302//503", "HTTP status 503"),
        ("/304//404", ""),
        ("/302/http://127.0.0.2:1/404", ""),
        ("/302//302", ""),
    ],
)
async def test_an_http_probe_fails_by_status_redirect_or_protocol(server, path, fault):
    port, _ = server
    patience = 1 if path in {"/slow", "/hangs"} else 60
    assert await run_probe(probe(httpGet={"path": path, "port": "http"}, patience=patience), target(port)) == fault


async def test_http_headers_of_the_user_override_the_defaults(server):
    port, requests = server
    headers = [{"name": "Host", "value": "website"}, {"name": "X-A", "value": "b"}]
    assert await run_probe(probe(httpGet={"path": "/200", "port": port, "httpHeaders": headers}), target()) == ""
    assert requests[0].count(b"Host:") == 1
    assert b"\r\nHost: website\r\nX-A: b\r\n" in requests[0]


async def test_a_redirect_keeps_the_users_host_header_only_on_the_same_server(server):
    port, requests = server
    headers = [{"name": "Host", "value": "website"}]
    for place in ("/200", f"http://127.0.0.1:{port}/200"):
        get = {"path": f"/302/{place}", "port": port, "httpHeaders": headers}
        assert await run_probe(probe(httpGet=get), target()) == ""
    hosts = [re.findall(rb"Host: (.*)\r", request) for request in requests]
    assert hosts == [[b"website"], [b"website"], [b"website"], [f"127.0.0.1:{port}".encode()]]


async def test_an_http_probe_stops_after_ten_redirects(server):
    port, requests = server
    fault = await run_probe(probe(httpGet={"path": "/302" + "//302" * 20, "port": port}), target())
    assert (fault, len(requests)) == ("stopped after 10 redirects", 10)


async def test_a_connection_error_is_reported_with_the_message_of_the_kernel():
    fault = await run_probe(probe(httpGet={"port": free_port()}), target())
    assert fault == "Connection refused"


async def test_a_header_with_a_line_break_is_rejected(server):
    port, requests = server
    headers = [{"name": "X", "value": "a\r\n\r\nGET /x HTTP/1.1"}]
    fault = await run_probe(probe(httpGet={"path": "/200", "port": port, "httpHeaders": headers}), target())
    assert "must be single lines" in fault
    assert requests == []


async def test_a_timely_answer_counts_when_headgate_has_no_processor_time_to_read_it():
    """The server answers while the event loop is blocked for longer than the probe's limit."""
    blocked = threading.Event()
    requests = 0

    def serve():
        nonlocal requests
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                requests += 1
                loop.call_soon_threadsafe(block)
                assert blocked.wait(60)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def block():
        if not blocked.is_set():
            blocked.set()
            time.sleep(1.6)

    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = asyncio.create_task(asyncio.to_thread(serve))
        assert await run_probe(probe(httpGet={"path": "/", "port": port}, patience=1), target()) == ""
        await server
    assert requests == 2


async def test_a_tcp_probe_fails_on_a_closed_port(server):
    port, _ = server
    assert await run_probe(probe(tcpSocket={"port": port}), target()) == ""
    assert await run_probe(probe(tcpSocket={"port": "http"}), target(1)) == "nothing accepts connections on 127.0.0.1:1"
    assert (
        await run_probe(probe(tcpSocket={"port": "none"}), target())
        == "container app has no port named 'none'; add it to ports"
    )
    assert await listens("127.0.0.1", port)


async def test_an_exec_probe_fails_by_exit_code():
    assert await run_probe(probe(exec={"command": ["sh", "-c", 'test "$A" = x']}), target()) == ""
    assert await run_probe(probe(exec={"command": ["sh", "-c", "exit 4"]}), target()) == "sh ended with exit code 4"
    assert "program 'no-such-program' not found" in await run_probe(
        probe(exec={"command": ["no-such-program"]}), target()
    )
    assert await run_probe(probe(exec={"command": ["sleep", "600"]}, patience=1), target()) == "timed out after 1 s"


async def test_a_probe_without_an_action_is_reported():
    assert "set httpGet, tcpSocket, grpc or exec" in await run_probe(probe(), target())


@pytest.fixture
async def health_service():
    """Run a gRPC health service; yield its port and the encoded responses by service."""
    responses = {"": b"\x08\x01"}

    async def check(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        name = request[2:].decode()  # after the tag and the length of the field
        if name == "slow":
            await asyncio.Event().wait()
        if name not in responses:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return responses[name]

    server = grpc.aio.server()
    methods = {"Check": grpc.unary_unary_rpc_method_handler(check)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield port, responses
    await server.stop(None)


async def test_a_grpc_probe_succeeds_while_the_health_service_says_serving(health_service, monkeypatch):
    port, responses = health_service
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # headgate's own proxy does not see probes
    responses |= {"a": b"\x08\x02", "empty": b"", "broken": b"\xff"}
    assert await run_probe(probe(grpc={"port": port}), target()) == ""
    faults = {
        name: await run_probe(probe(grpc={"port": port, "service": name}), target()) for name in (*responses, "b")
    }
    assert faults == {
        "": "",
        "a": "the health of service 'a' is NOT_SERVING",
        "empty": "the health of service 'empty' is UNKNOWN",
        "broken": "the response is no message of grpc.health.v1",
        "b": "gRPC status NOT_FOUND: unknown service",
    }


async def test_a_grpc_probe_fails_without_a_listener_and_without_an_answer(health_service):
    port, _ = health_service
    closed = free_port()
    fault = f"nothing accepts connections on {target().address}:{closed}"
    assert await run_probe(probe(grpc={"port": closed}), target()) == fault
    assert await run_probe(probe(grpc={"port": port, "service": "slow"}, patience=1), target()) == "timed out after 1 s"


async def test_an_https_probe_accepts_any_certificate(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = certificate_in(tmp_path)
    context.load_cert_chain(certificate.path, certificate.key_path)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with stream_server(serve, ssl=context) as listener:
        port = listener.sockets[0].getsockname()[1]
        assert await run_probe(probe(httpGet={"port": port, "scheme": "HTTPS"}), target()) == ""


def test_health_changes_when_consecutive_results_reach_the_threshold():
    thresholds = HealthTracker(probe(successThreshold=2, failureThreshold=3), healthy=False)
    results = [True, False, True, True, False, False, True, False, False, False]
    assert [thresholds.add(healthy=well) for well in results] == [
        False,
        False,
        False,
        True,
        True,
        True,
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [("Always", 0, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_containers_are_restarted_according_to_the_restart_policy(policy, code, expected):
    assert restarts(policy, code) is expected
