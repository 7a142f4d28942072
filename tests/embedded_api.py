"""Fixtures of an embedded API with an empty store, called in the test's process or served for a real kubectl."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.applications import Starlette
from tests.decoding import admit

from headgate.api.certificate import Certificate, certificate_in
from headgate.standalone.apiserver.app import create_app, serve, write_kubeconfig
from headgate.standalone.store.memory import MemoryStore

TOKEN = "a-token-for-tests"
JSON = "application/json"


class Answer(NamedTuple):
    code: int
    headers: list[tuple[str, str]]
    body: Any

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


class Client:
    """A client that calls the ASGI application in the process, without a network."""

    def __init__(self, app: Starlette, store: MemoryStore) -> None:
        self.app = app
        self.store = store

    async def call(self, method: str, url: str, body: Any = None, **headers: str) -> Answer:
        chunks = [chunk async for chunk in self.stream(method, url, body, **headers)]
        start, content = chunks[0], b"".join(chunks[1:])
        is_json = any(key == "content-type" and value.startswith(JSON) for key, value in start["headers"])
        return Answer(start["status"], start["headers"], json.loads(content) if is_json else content)

    async def stream(self, method: str, url: str, body: Any = None, **headers: str) -> AsyncIterator[Any]:
        """Yield the start of the response, then the parts of its body. Closing the iterator disconnects the client."""
        path, _, query = url.partition("?")
        sent: asyncio.Queue[Any] = asyncio.Queue()
        given = {"host": "127.0.0.1:1", "authorization": f"Bearer {TOKEN}", "content-type": JSON, "accept": JSON}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        requests = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive() -> Any:
            return requests.pop() if requests else await asyncio.Event().wait()

        task = asyncio.create_task(self.app(scope, receive, sent.put))
        try:
            start = await sent.get()
            headers_out = [(key.decode(), value.decode()) for key, value in start["headers"]]
            yield {"status": start["status"], "headers": headers_out}
            while (message := await sent.get()) is not None:
                yield message.get("body", b"")
                if not message.get("more_body"):
                    break
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def watch(self, url: str, **headers: str) -> AsyncIterator[Any]:
        """Yield the events of a watch."""
        first = True
        async with contextlib.aclosing(self.stream("GET", url, **headers)) as parts:
            async for part in parts:
                if first:
                    assert part["status"] == 200
                elif part:
                    yield json.loads(part)
                first = False


@pytest.fixture
def client() -> Client:
    store = MemoryStore(admit=admit)
    return Client(create_app(store, token=TOKEN), store)


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class EmbeddedApi(NamedTuple):
    """A listening API, and a kubectl with its kubeconfig."""

    store: MemoryStore
    kubeconfig: Path
    program: str
    cache: Path

    def command(self, *arguments: str) -> list[str]:
        return [self.program, f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.cache}", *arguments]

    async def kubectl(self, *arguments: str, stdin: str = "", **environment: str) -> Ran:
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    async def ok(self, *arguments: str, stdin: str = "", **environment: str) -> str:
        """Run kubectl, assert success, and return its output."""
        ran = await self.kubectl(*arguments, stdin=stdin, **environment)
        assert ran.code == 0, ran.err
        return ran.out


def kubectls() -> list[str]:
    """Return the paths of the virtual environment's kubectl, and of an older kubectl if installed."""
    current = str(Path(sys.executable).parent / "kubectl")
    older = os.environ.get("HEADGATE_KUBECTL_OLD") or shutil.which("kubectl", path="/usr/local/bin:/usr/bin:/bin")
    return [program for program in (current, older) if program and Path(program).exists()]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate_in(tmp_path_factory.mktemp("state"))


@pytest.fixture(params=kubectls() or [None])
async def api(request: pytest.FixtureRequest, tmp_path: Path, certificate: Certificate) -> AsyncIterator[EmbeddedApi]:
    if request.param is None:
        pytest.skip("there is no kubectl: install the packages of the dev group")
    store = MemoryStore(admit=admit)

    async def logs(key: Any, options: Any) -> AsyncIterator[bytes]:
        for line in range(3)[-(options.tail_lines or 3) :]:
            yield f"{key.name} line {line}\n".encode()

    async def write_warnings(_old: Any, obj: Any, *, dry_run: bool) -> list[str]:
        return ["the Service does not exist yet"] if obj and obj["kind"] == "TrafficSplit" else []

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        write_kubeconfig(tmp_path / "kubeconfig", url, TOKEN, certificate)
        app = create_app(store, token=TOKEN, write_warnings=write_warnings, logs=logs)
        serving = asyncio.create_task(serve(app, listener, certificate))
        yield EmbeddedApi(store, tmp_path / "kubeconfig", request.param, tmp_path / "cache")
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
