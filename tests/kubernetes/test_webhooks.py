"""The webhooks of a replica that ends: the API server repeats no request whose connection was closed."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.api.request_header_ca import credential_of
from tests.ports import free_port

from headgate.admission.sidecar_containers import transparent_sidecars
from headgate.api.certificate import CertificateFiles, certificate_in
from headgate.api.http_server import Server
from headgate.kubernetes import webhooks
from headgate.kubernetes.options import Options, sidecar_options
from headgate.latest import Latest, until

SPLIT = {
    "apiVersion": "split.smi-spec.io/v1alpha4",
    "kind": "TrafficSplit",
    "metadata": {"name": "canary", "namespace": "shop"},
    "spec": {"service": "website", "backends": [{"service": "website-v1", "weight": 1}]},
}


class Replica:
    """The webhooks of a replica. It answers reviews of splits while `answers` is set; `asked` counts them."""

    def __init__(self, certificate: CertificateFiles, port: int) -> None:
        self.answers, self.draining = asyncio.Event(), asyncio.Event()
        self.asked = Latest(0)
        self._certificate, self._port = certificate, port
        options = Options(pod="p", image="i")
        mesh = SimpleNamespace(
            loop=SimpleNamespace(compiled=Latest(object())),
            feed=SimpleNamespace(snapshot=Latest(None)),
            warn=self._warn,
        )
        sidecars = transparent_sidecars("labelled", sidecar_options(options.image, options.mesh, native=False))
        serving = webhooks.serve_webhooks(options, sidecars, mesh, Latest(credential_of(certificate)), self.draining)  # type: ignore[arg-type]
        self.answers.set()
        self.serving = asyncio.create_task(serving)

    def end(self) -> None:
        """End the webhooks, as the end of the replica does. A second cancellation would end them before their connections."""
        self.draining.set()
        if not self.serving.cancelling():
            self.serving.cancel()

    async def _warn(self) -> tuple[str, ...]:
        self.asked.set(self.asked.get() + 1)
        await self.answers.wait()
        return ()

    async def connect(self) -> "Connection":
        """Open a connection as the API server does, once the replica listens."""
        context = ssl.create_default_context(cafile=self._certificate.path)
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                return Connection(*await asyncio.open_connection("127.0.0.1", self._port, ssl=context))
            await asyncio.sleep(0)


class Connection:
    """A kept-alive connection to the webhooks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self) -> None:
        """Send the review of a split."""
        body = msgspec.json.encode(
            {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "operation": "CREATE", "object": SPLIT}}
        )
        head = f"POST /validate HTTP/1.1\r\nhost: h\r\ncontent-length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)

    async def receive(self) -> bool:
        """Read a response, which must allow the split; return whether the connection can serve further requests.

        Raises IncompleteReadError if the server closes the connection.
        """
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        headers = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
        answer = msgspec.json.decode(await self._reader.readexactly(int(headers["content-length"])))
        assert answer["response"]["allowed"], answer
        if headers.get("connection") != "close":
            return True
        assert await self._reader.read() == b""
        return False

    async def ask(self) -> bool:
        """Send a review and read the response."""
        self.send()
        return await self.receive()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    """The certificate of the webhooks."""
    return certificate_in(Path(tmp_path_factory.mktemp("webhooks")))


@pytest.fixture
async def replica(certificate: CertificateFiles, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replica]:
    """A replica, which is ended after the test."""
    port = free_port()
    monkeypatch.setattr(webhooks, "WEBHOOK_PORT", port)
    monkeypatch.setattr(webhooks, "warnings_before_write", lambda mesh, *_, dry_run: mesh.warn())  # noqa: ARG005
    found = Replica(certificate, port)
    yield found
    found.end()
    await asyncio.gather(found.serving, return_exceptions=True)


async def test_a_replica_that_ends_answers_open_requests(replica: Replica) -> None:
    """D28."""
    connection = await replica.connect()
    replica.answers.clear()
    connection.send()
    await until(lambda: replica.asked.get() > 0, replica.asked)
    replica.end()
    await asyncio.sleep(0)
    replica.answers.set()
    assert not await connection.receive()


async def test_a_replica_that_ends_answers_requests_that_it_has_not_read_yet(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D28. The requests arrive immediately before the server closes its connections."""
    connections = [await replica.connect() for _ in range(8)]
    assert all([await connection.ask() for connection in connections])
    close = Server.shutdown

    async def shutdown(server: Server, sockets: list[socket.socket] | None = None) -> None:
        for connection in connections:
            connection.send()
        await close(server, sockets)

    monkeypatch.setattr(Server, "shutdown", shutdown)
    replica.end()
    assert not any([await connection.receive() for connection in connections])


async def test_a_replica_that_will_end_closes_each_connection_after_a_response_that_says_so(replica: Replica) -> None:
    """D28."""
    connections = [await replica.connect() for _ in range(3)]
    assert all([await connection.ask() for connection in connections])
    replica.draining.set()
    assert not any([await connection.ask() for connection in connections])
    assert not await (await replica.connect()).ask()
