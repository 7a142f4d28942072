"""The proxies that send the requests of `headgate try`, and the program in a sidecar's container."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any, cast

import msgspec
import pytest
from msgspec import structs
from tests.make import objects
from tests.make.objects import Object, meshed_pod
from tests.stream_server import stream_server

from headgate.admission.injection import TRANSPARENT
from headgate.cli import senders
from headgate.cli.inspect_client import InspectClient
from headgate.cli.probe import Batch, ProbeProgress, ProbeRequest, Tally
from headgate.cli.senders import Sender, any_sidecar, send, sidecar
from headgate.cli.try_target import TryPort, TryService, parse_url, port_of
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client
from headgate.kubernetes.pod_programs import PodContainer, ProgramFailed
from headgate.resources.core.pod_metadata import SIDECAR
from headgate.resources.core.service import ServicePort, ServiceSpec
from headgate.resources.inspect import ObjectName, Proxy, ProxyCertificate, ProxyProcess, ProxyStatus
from headgate.resources.request_spec import CallerKind
from headgate.resources.request_spec import RequestOrigin as Caller

WHERE = TryPort("shop/website", 8080, "10.96.0.7")
BATCH = Batch(request=ProbeRequest(method="GET", url="http://website/"), number=3, concurrency=1)
POD = Sender(name="Pod shop/client-1", namespace="shop", pod="client-1", by_address=True)
PROGRAM = """
import asyncio, sys
from pathlib import Path
from headgate.cli.sidecar_try import send_batch
asyncio.run(send_batch(Path(sys.argv[1])))
"""


def proxy(name: str, *, connected: str = "2026-01-01T00:00:00Z", workloads: tuple[str, ...] = ()) -> Proxy:
    status = ProxyStatus(
        state="InSync" if connected else "Disconnected",
        message="" if connected else "it has no stream",
        connection_time=connected or None,
        certificate=ProxyCertificate(identity=f"spiffe://mesh/{name}"),
    )
    metadata = ObjectName(name=name, namespace="shop")
    return Proxy(metadata=metadata, node=f"sidecar/shop/{name}", status=status, workloads=workloads)


class Inspected:
    """An inspect API with some proxies. Its API server answers each request with a pod that has a transparent sidecar."""

    def __init__(self, *proxies: Proxy) -> None:
        self._proxies = proxies
        self.client = self

    async def get(self, _path: str) -> Object:
        return objects.pod("web", annotations={SIDECAR: TRANSPARENT})

    async def proxies(self, namespace: str) -> Sequence[Proxy]:
        assert namespace == "shop"
        return self._proxies


def inspected(*proxies: Proxy) -> InspectClient:
    return cast("InspectClient", Inspected(*proxies))


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
async def test_the_first_connected_sidecar_of_a_client_sends(kind: CallerKind) -> None:
    workloads = ("ReplicaSet/b", "Deployment/b")
    proxies = inspected(
        proxy("b-2", workloads=workloads),
        proxy("b-1", workloads=workloads),
        proxy("b-0", connected="", workloads=workloads),
        proxy("a"),
    )
    sender = await sidecar(proxies, Caller(kind=kind, namespace="shop", name="b"))
    identity = "spiffe://mesh/b-1"
    assert sender == Sender(name="Pod shop/b-1", identity=identity, namespace="shop", pod="b-1", by_address=True)
    assert (await any_sidecar(proxies, "shop")).pod == "a"


async def test_a_transparent_sidecar_on_this_machine_sends_to_the_address_of_the_service(tmp_path: Path) -> None:
    """With `--network pod`, sidecars have no routes by host, with and without --from."""
    (tmp_path / "probe").touch()
    process = ProxyProcess(pid=1, probe=str(tmp_path / "probe"))
    here = inspected(structs.replace(proxy("a"), status=structs.replace(proxy("a").status, process=process)))
    caller = Caller(kind="Pod", namespace="shop", name="a")
    for sender in (await any_sidecar(here, "shop"), await sidecar(here, caller)):
        assert (sender.socket, sender.by_address) == (tmp_path / "probe", True)


async def test_a_client_without_a_connected_sidecar_is_an_error_with_the_reason() -> None:
    caller = Caller(kind="Pod", namespace="shop", name="b-0")
    with pytest.raises(HeadgateError, match="sidecar of Pod shop/b-0: b-0: it has no stream"):
        await sidecar(inspected(proxy("b-0", connected="")), caller)
    with pytest.raises(NotFound, match=r"no pod of the namespace shop has a sidecar.*--from KIND/NAME"):
        await any_sidecar(inspected(), "shop")


class StoredPod:
    """A client of an API server with one pod, whose sidecar has a mode."""

    def __init__(self, mode: str) -> None:
        self._pod = meshed_pod("client-1", "10.1.0.2", mode=mode)

    async def get(self, path: str) -> Object:
        assert path == "/api/v1/namespaces/shop/pods/client-1"
        return self._pod


@pytest.mark.parametrize(
    ("mode", "url", "expected"),
    [
        (
            "transparent",
            "http://website/",
            "Service shop/website has no port 80; its ports are 8080 (http), 9090 (http)",
        ),
        ("transparent", "http://website:9090/", 9090),
        ("explicit", "http://website/", 8080),
        ("explicit", "http://website:9090/", 9090),
    ],
)
async def test_any_sidecar_of_this_machine_sends_to_the_port_that_its_mode_calls(
    tmp_path: Path, mode: str, url: str, expected: int | str
) -> None:
    """A transparent sidecar finds routes by address and port. So the port of a URL without one is 80."""
    (tmp_path / "probe.sock").touch()
    sending = proxy("client-1")
    process = ProxyProcess(pid=1, probe=str(tmp_path / "probe.sock"))
    sending = structs.replace(sending, status=structs.replace(sending.status, process=process))
    clients = inspected(sending)
    clients.client = cast("Client", StoredPod(mode))
    sender = await any_sidecar(clients, "shop")
    assert (sender.socket, sender.by_address) == (tmp_path / "probe.sock", mode == "transparent")
    spec = ServiceSpec(ports=(ServicePort(port=8080), ServicePort(port=9090)))
    tried = TryService("shop/website", spec)
    if isinstance(expected, int):
        assert port_of(tried, parse_url(url), by_address=sender.by_address).port == expected
        return
    with pytest.raises(HeadgateError) as failure:
        port_of(tried, parse_url(url), by_address=sender.by_address)
    assert str(failure.value) == f"{expected}: did you mean http://website:8080/?"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bytes | Exception]:
    """The output of the program in the sidecar, in the order in which it is yielded; an exception is raised."""
    outputs: list[bytes | Exception] = []

    async def run_program(_client: Any, container: PodContainer, _words: Any, *, stdin: bytes) -> AsyncGenerator[bytes]:
        assert container.pod == "client-1"
        headers = msgspec.json.decode(stdin, type=Batch).request.headers
        assert headers == (("x-headgate-address", "10.96.0.7:8080"),)
        for output in outputs:
            if isinstance(output, Exception):
                raise output
            yield output

    monkeypatch.setattr(senders, "run_program", run_program)
    return outputs


async def sent(progress: list[int]) -> Tally:
    return await send(cast("Client", None), POD, BATCH, WHERE, progress.append)


async def test_a_sidecar_on_a_cluster_reports_progress_and_the_tally(answers: list[bytes | Exception]) -> None:
    tally = Tally()
    for _ in range(3):
        tally.add(503, {}, b"no healthy upstream")
    lines = b"".join(
        msgspec.json.encode(one) + b"\n"
        for one in (ProbeProgress(finished=1), ProbeProgress(finished=3, counts=tally.counts))
    )
    answers.extend((lines[:10], lines[10:]))
    progress: list[int] = []
    found = await sent(progress)
    assert progress == [1, 3]
    assert (found.requests, found.failures, found.proxy_answers) == (3, tally.failures, {503: 3})


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (
            ProgramFailed("Usage: headgate sidecar", 2),
            "its image is of an older headgate; create the pod again",
        ),
        (
            ProgramFailed("error: the probe socket is missing", 3),
            "sidecar of Pod shop/client-1: the probe socket is missing",
        ),
    ],
)
async def test_a_program_that_fails_is_an_error(
    answers: list[bytes | Exception], failure: Exception, words: str
) -> None:
    answers.append(failure)
    with pytest.raises(HeadgateError, match=words):
        await sent([])


async def test_a_service_without_a_cluster_ip_is_an_error_before_any_request() -> None:
    with pytest.raises(HeadgateError, match=r"Service shop/website has no cluster IP.*kubectl exec"):
        await send(cast("Client", None), POD, BATCH, WHERE._replace(address=""), print)


# --- the program


@contextlib.asynccontextmanager
async def program(socket: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the program with its standard input, output and error as pipes; kill it at the end if it still runs."""
    command = (sys.executable, "-c", PROGRAM, str(socket))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def envoy(socket: Path, response: bytes, received: asyncio.Event) -> AsyncIterator[None]:
    """Serve a response for each request on a socket."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            received.set()
            writer.write(response)

    async with stream_server(respond, socket):
        yield


async def test_the_program_prints_the_tally_after_the_last_request(tmp_path: Path) -> None:
    socket, ok = tmp_path / "s", b"HTTP/1.1 200 OK\r\nx-headgate-backend: shop/v1\r\ncontent-length: 0\r\n\r\n"
    async with envoy(socket, ok, asyncio.Event()), program(socket) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(msgspec.json.encode(BATCH) + b"\n")
        *_, last = (await process.stdout.read()).splitlines()
    progress = msgspec.json.decode(last, type=ProbeProgress)
    assert progress.counts
    assert (progress.finished, progress.counts.backends, progress.counts.statuses) == (3, {"shop/v1": 3}, {200: 3})


async def test_the_program_ends_when_its_standard_input_is_closed(tmp_path: Path) -> None:
    """Then `headgate try` has ended. Without this, the program would wait for the response."""
    received = asyncio.Event()
    async with envoy(tmp_path / "s", b"", received), program(tmp_path / "s") as process:
        assert process.stdin
        process.stdin.write(msgspec.json.encode(BATCH) + b"\n")
        await received.wait()
        process.stdin.close()
        assert await process.wait() == 0


async def test_the_program_names_the_cause_without_a_listener(tmp_path: Path) -> None:
    async with program(tmp_path / "missing") as process:
        _, errors = await process.communicate(msgspec.json.encode(BATCH) + b"\n")
    assert b"ProxyError: the probe socket" in errors
    assert b"the control plane is of an older headgate" in errors
