"""Fixtures of an embedded API with an empty store, called in the test's process or served for a real kubectl."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.applications import Starlette
from tests.decoding import admit
from tests.processes import Ran

from headgate.api.certificate import CertificateFiles, certificate_in
from headgate.api.webhooks import WriteWarnings
from headgate.errors import NotFound
from headgate.resources.meta import Key, Object
from headgate.standalone.apiserver.app import create_app, serve, write_kubeconfig
from headgate.standalone.apiserver.local_pods import LocalPods
from headgate.standalone.pods.logs import LogOptions
from headgate.standalone.pods.runs import Run
from headgate.standalone.store.memory import MemoryStore

TOKEN = "a-token-for-tests"
JSON = "application/json"
UNCOLLECTED = {"GOGC": "off"}
"""A variable for programs in Go: without garbage collection, a call of kubectl takes 30 % less processor time."""


class ApiResponse(NamedTuple):
    """The response of the API."""

    code: int
    headers: list[tuple[str, str]]
    body: Any

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


class AsgiClient:
    """A client that calls the ASGI application in the process, without a network."""

    def __init__(self, app: Starlette, store: MemoryStore) -> None:
        self.app = app
        self.store = store

    async def call(self, method: str, url: str, body: Any = None, **headers: str) -> ApiResponse:
        chunks = [chunk async for chunk in self.stream(method, url, body, **headers)]
        start, content = chunks[0], b"".join(chunks[1:])
        is_json = any(key == "content-type" and value.startswith(JSON) for key, value in start["headers"])
        return ApiResponse(start["status"], start["headers"], json.loads(content) if is_json else content)

    async def stream(self, method: str, url: str, body: Any = None, **headers: str) -> AsyncGenerator[Any]:
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

    async def watch(self, url: str, **headers: str) -> AsyncGenerator[Any]:
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
def client() -> AsgiClient:
    store = MemoryStore(admit=admit)
    return AsgiClient(create_app(store, token=TOKEN), store)


class KubectlPort(NamedTuple):
    """A port for consecutive APIs, and a kubectl with a kubeconfig for it.

    kubectl caches the served kinds by address, so only the first test on a port waits until it has read them all.
    """

    listener: socket.socket
    certificate: CertificateFiles
    directory: Path
    program: str

    @contextlib.asynccontextmanager
    async def serving(self, store: MemoryStore, app: Starlette) -> AsyncIterator["EmbeddedApi"]:
        """Serve an application whose store has the same kinds as those before."""
        task = asyncio.create_task(serve(app, self.listener.dup(), self.certificate))
        yield EmbeddedApi(store, self.directory / "kubeconfig", self.program, self.directory / "cache")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.contextmanager
def kubectl_port(program: str | None, directory: Path, certificate: CertificateFiles) -> Iterator[KubectlPort]:
    """Reserve a port for APIs, and write a kubeconfig. Skip the test if there is no kubectl."""
    if program is None:
        pytest.skip("there is no kubectl: install the packages of the dev group")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        write_kubeconfig(directory / "kubeconfig", url, TOKEN, certificate)
        yield KubectlPort(listener, certificate, directory, program)


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
            env={**os.environ, **UNCOLLECTED, **environment},
        )
        out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    async def ok(self, *arguments: str, stdin: str = "", **environment: str) -> str:
        """Run kubectl, assert success, and return its output."""
        ran = await self.kubectl(*arguments, stdin=stdin, **environment)
        assert ran.code == 0, ran.err
        return ran.out


def kubectls() -> list[str | None]:
    """Return the paths of the virtual environment's kubectl, and of an older kubectl if installed; None if there is none."""
    current = str(Path(sys.executable).parent / "kubectl")
    older = os.environ.get("HEADGATE_KUBECTL_OLD") or shutil.which("kubectl", path="/usr/local/bin:/usr/bin:/bin")
    return [program for program in (current, older) if program and Path(program).exists()] or [None]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return certificate_in(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def embedded_port(tmp_path_factory: pytest.TempPathFactory, certificate: CertificateFiles) -> Iterator[KubectlPort]:
    """A port for tests of what the API does, with the current kubectl."""
    with kubectl_port(kubectls()[0], tmp_path_factory.mktemp("kubectl"), certificate) as port:
        yield port


@pytest.fixture(scope="session", params=kubectls())
def port_of_each_kubectl(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificate: CertificateFiles
) -> Iterator[KubectlPort]:
    """A port for tests of commands whose requests differ between versions of kubectl."""
    with kubectl_port(request.param, tmp_path_factory.mktemp("kubectl"), certificate) as port:
        yield port


def only_logs(logs: Callable[[Key, LogOptions], AsyncGenerator[bytes]]) -> LocalPods:
    """Return pods that have logs and run on no machine."""

    def container(key: Key, name: str) -> Run:
        raise NotFound(f"container {name!r} of pod {key.name} does not run on this machine")

    return LocalPods(logs, container)


@pytest.fixture
async def api(embedded_port: KubectlPort) -> AsyncIterator[EmbeddedApi]:
    """Serve an empty store for one test, which calls the current kubectl."""
    async with empty_api(embedded_port) as served:
        yield served


@pytest.fixture
async def api_of_each_kubectl(port_of_each_kubectl: KubectlPort) -> AsyncIterator[EmbeddedApi]:
    """Serve an empty store for one test, which calls the current kubectl, and once more for the older one."""
    async with empty_api(port_of_each_kubectl) as served:
        yield served


@contextlib.asynccontextmanager
async def empty_api(port: KubectlPort) -> AsyncIterator[EmbeddedApi]:
    """Serve an empty store on a port."""
    store = MemoryStore(admit=admit)

    async def logs(key: Key, options: LogOptions) -> AsyncGenerator[bytes]:
        for line in range(3)[-(options.tail_lines or 3) :]:
            yield f"{key.name} line {line}\n".encode()

    async def write_warnings(
        old: Object | None, new: Object | None, *, dry_run: bool, orphan: bool = False
    ) -> list[str]:
        return ["the Service does not exist yet"] if new and new["kind"] == "TrafficSplit" else []

    async def prepare_warnings(key: Key, old: Object | None) -> WriteWarnings:
        return write_warnings

    app = create_app(store, token=TOKEN, prepare_warnings=prepare_warnings, pods=only_logs(logs))
    async with port.serving(store, app) as served:
        yield served
