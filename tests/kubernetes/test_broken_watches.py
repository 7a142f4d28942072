"""An API server whose watches and responses stop without an end."""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web
from tests import virtual_time
from tests.kubernetes.http_server import Credentials, serving
from tests.wire import DEADLINE_S

from headgate.api.certificate import self_signed
from headgate.errors import Unavailable
from headgate.kubernetes import revisions
from headgate.kubernetes.client import Client
from headgate.kubernetes.connection import ApiRequest, Connection
from headgate.kubernetes.revisions import RevisionCalls
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import BOOKMARK_S, ClusterStore
from headgate.kubernetes.transport import exchange, open_session
from headgate.latest import Latest
from headgate.model.identities import Credential, PrivateText
from headgate.resources.kind import ServedKind
from headgate.resources.registry import SERVICE

BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}


async def stop_after(request: web.Request, body: bytes) -> web.Response:
    """Send a part of a body, and then nothing."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(body)
    await asyncio.Event().wait()
    raise AssertionError("unreachable: the client closes the connection")


def test_a_watch_without_events_after_a_bookmark_is_repeated() -> None:
    async def scenario() -> None:
        requests: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def answer(request: web.Request) -> web.Response:
            requests.put_nowait((request.query["resourceVersion"], clock()))
            return await stop_after(request, json.dumps(BOOKMARK).encode() + b"\n")

        async with serving(answer) as credentials, Client(credentials) as client:
            versions = ServedVersions(client)
            served = ServedKind(kind=SERVICE, group="", version="v1")
            versions.current.set({("", SERVICE.kind): served})
            watch = ClusterStore(client, versions).watch("", SERVICE.kind, since="3")
            waiting = asyncio.ensure_future(anext(watch))
            found = [await requests.get() for _ in range(3)]
            assert [version for version, _ in found] == ["3", "7", "7"]
            assert all(later - time >= BOOKMARK_S for (_, time), (_, later) in pairwise(found))
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting

    virtual_time.run(scenario())


async def test_a_response_that_stops_is_a_failure() -> None:
    async def answer(request: web.Request) -> web.Response:
        return await stop_after(request, b"{")

    async with serving(answer) as credentials:
        connection = await credentials.connect()
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable):
                async with exchange(connection, ApiRequest("GET", "/api", idle_s=0.05)) as response:
                    await response.read()


async def test_a_response_whose_connection_ends_is_named() -> None:
    async def answer(request: web.Request) -> web.Response:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport
        request.transport.abort()
        return web.Response()

    async with serving(answer) as credentials:
        connection = await credentials.connect()
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable, match=r"\(the connection ended before the whole answer\)"):
                async with exchange(connection, ApiRequest("GET", "/api")) as response:
                    await response.read()


def read_without_an_answer(listener: socket.socket, trust: ssl.SSLContext, requested: Callable[[], object]) -> None:
    """Read a request over TLS, and call `requested`; then answer nothing, and wait until the TCP connection ends."""
    accepted, _ = listener.accept()
    with trust.wrap_socket(accepted, server_side=True) as secure:
        secure.recv(1 << 16)
        below = socket.socket(fileno=secure.detach())
    with below, contextlib.suppress(ConnectionResetError):
        below.settimeout(DEADLINE_S)
        requested()
        while below.recv(1 << 16):
            pass


class SilentServer(NamedTuple):
    """A server that answers nothing. `requested` is set by a request, and `ended` is done when its connection ends."""

    host_port: str
    certificate: bytes
    requested: asyncio.Event
    ended: asyncio.Task[None]


@contextlib.asynccontextmanager
async def silent_server(directory: Path) -> AsyncIterator[SilentServer]:
    files = directory / "server.crt", directory / "server.key"
    certificate, key = self_signed()
    for file, content in zip(files, (certificate, key), strict=True):
        file.write_bytes(content)
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(*files)
    requested, loop = asyncio.Event(), asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reading = asyncio.to_thread(
            read_without_an_answer, listener, trust, lambda: loop.call_soon_threadsafe(requested.set)
        )
        host_port = f"127.0.0.1:{listener.getsockname()[1]}"
        yield SilentServer(host_port, certificate, requested, asyncio.create_task(reading))


async def request_api(server: SilentServer) -> None:
    """Send a request of a session with other requests to an API server."""
    connection = Connection()
    connection.host, connection.verify_ssl = f"https://{server.host_port}", False
    connection.read_certificates()
    async with open_session(connection) as connection.session:
        with contextlib.suppress(asyncio.CancelledError):
            async with exchange(connection, ApiRequest("GET", "/api")):
                raise AssertionError("unreachable: the server does not answer")
        await server.ended


async def call_revision(server: SilentServer) -> None:
    """Call a revision of headgate."""
    trusted = Credential(chain="", key=PrivateText(""), roots=server.certificate.decode())
    calls = RevisionCalls(Credentials(""), Latest(trusted), lambda _: server.host_port)
    with contextlib.suppress(asyncio.CancelledError):
        await calls("next", "/render", b"")
    await server.ended


@pytest.mark.parametrize("request_of", [request_api, call_revision])
async def test_a_canceled_request_ends_its_connection_although_the_server_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_of: Callable[[SilentServer], Awaitable[None]]
) -> None:
    """A TLS shutdown would wait for the server, by default for up to 30 s."""
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", 2 * DEADLINE_S)
    monkeypatch.setattr(revisions, "revision_server", lambda _: "localhost")  # the name in the certificate
    async with silent_server(tmp_path) as server:
        requesting = asyncio.ensure_future(request_of(server))
        await server.requested.wait()
        requesting.cancel()
        await requesting
