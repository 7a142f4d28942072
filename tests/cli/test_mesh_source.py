"""The objects that `headgate render --watch` follows, while the API is away, and after a failure (R32)."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from tests.cli.conftest import TOKEN
from tests.cli.printed import Printed
from tests.decoding import admit
from tests.kubernetes.http_server import serving
from tests.make import objects
from tests.ports import free_port

from headgate.api.certificate import CertificateFiles
from headgate.cli.mesh_source import followed_objects
from headgate.compiler.snapshot import Snapshot
from headgate.kubernetes.client import Client
from headgate.kubernetes.credentials import Kubeconfig
from headgate.latest import until
from headgate.standalone.apiserver.app import create_app, serve, write_kubeconfig
from headgate.standalone.store.memory import MemoryStore


@contextlib.asynccontextmanager
async def served(store: MemoryStore, certificate: CertificateFiles, port: int) -> AsyncIterator[None]:
    """Serve an API."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        task = asyncio.create_task(serve(create_app(store, token=TOKEN), listener, certificate))
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_command_prints_one_message_when_the_api_is_away_and_one_when_it_is_back(
    tmp_path: Path, certificate: CertificateFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", printed := Printed())
    store, kubeconfig = MemoryStore(admit=admit), tmp_path / "kubeconfig"
    async with asyncio.timeout(60), contextlib.AsyncExitStack() as stack:
        port = free_port()
        async with served(store, certificate, port):
            write_kubeconfig(kubeconfig, f"https://127.0.0.1:{port}", TOKEN, certificate)
            snapshots = await stack.enter_async_context(followed_objects(Client(Kubeconfig([kubeconfig]))))
            await until(lambda: snapshots.get() is not None, snapshots)
        assert (
            f"objects can't be read, so the files stay as they are until they can: no API answers at https://127.0.0.1:{port}"
            in await printed.messages.get()
        )
        await stack.enter_async_context(served(store, certificate, port))
        assert await printed.messages.get() == "all objects can be read again, and the files follow them\n"
        await store.create(objects.service("website", 80))
        await until(lambda: bool((snapshots.get() or Snapshot()).services), snapshots)
        assert printed.messages.empty()
    assert len({record.getMessage() for record in caplog.records}) > 1, "the API was away for one kind only"


async def answer(request: web.Request) -> web.Response:
    """Answer as an API server with Services, one of which has no name."""
    if request.path == "/apis":
        return web.json_response({"groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1"}]}]})
    if request.path == "/apis/apps/v1":
        return web.json_response({"resources": []})
    if request.path == "/api/v1":
        return web.json_response({"resources": [{"name": "services"}]})
    return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]})


async def test_a_failure_of_a_followed_kind_ends_the_context_and_is_raised() -> None:
    async with serving(answer) as credentials, asyncio.timeout(60):
        with pytest.raises(msgspec.ValidationError, match="missing required field `name`"):
            async with followed_objects(Client(credentials)):
                await asyncio.Event().wait()
