"""Run headgate commands: in this process for files, or as a program against a served API."""

import asyncio
import contextlib
import gc
import os
import shutil
import socket
import subprocess
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests import headgate_program
from tests.decoding import admit
from tests.embedded_api import only_logs
from tests.identity.fakes import FakeIssuer, Time
from tests.processes import Ran
from typer.testing import CliRunner

from headgate.admission.injection import explicit_sidecars
from headgate.api.certificate import CertificateFiles, certificate_in
from headgate.cli.app import app
from headgate.cli.output import EXIT_TIMED_OUT
from headgate.compiler.report import Finding
from headgate.envoy.view import Node
from headgate.identity.credentials import Credentials
from headgate.latest import Latest, until
from headgate.options import InjectionMode
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import Feed
from headgate.plane.inspector import Inspector, TrafficAnswers
from headgate.plane.live_state import LiveState, Recorded
from headgate.plane.loop import Loop
from headgate.plane.mesh_state import HostState
from headgate.plane.predictions import PredictedControllers
from headgate.plane.traffic_graphs import TrafficGraphs
from headgate.resources.inspect import ProxyProcess
from headgate.resources.meta import Key, Object
from headgate.resources.versions import kind_written
from headgate.rollout.expected import expected_objects
from headgate.settings import Settings
from headgate.standalone.apiserver.app import ComputedGroups, create_app, serve, write_kubeconfig
from headgate.standalone.pods.logs import LogOptions
from headgate.standalone.runtime_directory import runtime_directory
from headgate.standalone.runtime_info import RuntimeInfo, write_runtime_info
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow, Reading
from headgate.xds.fleet import Fleet

TOKEN = "a-token-for-tests"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run each test in an empty directory, the home directory, without KUBECONFIG."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)


@pytest.fixture
def run() -> Callable[..., Ran]:
    return invoke


def invoke(*arguments: str) -> Ran:
    """Run a command in this process: starting a program takes a second of processor time."""
    result = CliRunner().invoke(app, list(arguments), prog_name="headgate")
    if result.exit_code == EXIT_TIMED_OUT:  # it may have canceled a request, whose connection ends with the program
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return Ran(result.exit_code, result.stdout, result.stderr)


def make_status(generation: int = 1, *, reasons: Mapping[str, str] | None = None, **conditions: str) -> dict[str, Any]:
    """Return a status with conditions such as `Programmed="False"`; `reasons` are `REASON: MESSAGE` by condition type."""
    words = reasons or {}
    return {
        "observedGeneration": generation,
        "conditions": [
            {
                "type": type,
                "status": status,
                "reason": words.get(type, type).partition(":")[0],
                "message": words.get(type, "").partition(": ")[2],
                "observedGeneration": generation,
            }
            for type, status in ({"Accepted": "True", "Programmed": "True"} | conditions).items()
        ],
    }


class ServedMesh:
    """A served API, its store, the host's findings, the traffic `flows`, and the state directory in which commands find the API."""

    live_state: LiveState

    def __init__(self, store: MemoryStore, state: Path, mode: InjectionMode = "labelled") -> None:
        self.store = store
        self.of_host: Latest[tuple[Finding, ...]] = Latest(())
        self.host = NoHost()
        self.flows: dict[Flow, Counts] = {}
        self.controllers = PredictedControllers(expected_objects, explicit_sidecars(mode))
        self.state = state
        self.probe = runtime_directory(state, os.environ) / "probe.sock"

    async def run(self, *arguments: str) -> Ran:
        """Run a command to its end, in a thread of this process, which also serves the API."""
        return await asyncio.to_thread(invoke, *arguments)

    async def read(self, seconds: float, end: float | None = None) -> Reading:
        """Return the counts of `flows`, whatever the time."""
        return Reading(end=end or 0.0, window=seconds, flows=self.flows)

    def start(self, *arguments: str) -> Any:
        """Start a command as a program; return the awaitable process."""
        return asyncio.create_subprocess_exec(
            *headgate_program.command(), *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    async def status(self, obj: Any, status: Mapping[str, Any]) -> None:
        key = kind_written(obj).key("default", obj["metadata"]["name"])
        await self.store.update({**await self.store.get(key), "status": status}, subresource="status")


async def ended(process: Any) -> Ran:
    out, err = await process.communicate()
    return Ran(process.returncode, out.decode(), err.decode())


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return certificate_in(tmp_path_factory.mktemp("certificate"))


class NoHost:
    """A host that runs no proxies. Its state is `observed`, and its Events about failed probes are `events`."""

    def __init__(self) -> None:
        self.observed = HostState()
        self.events: Sequence[Object] = ()

    def processes(self) -> Mapping[str, ProxyProcess]:
        return {}

    async def state(self) -> HostState:
        return self.observed

    async def pods(self, _namespace: str) -> Sequence[Object]:
        return ()

    async def probe_events(self) -> Sequence[Object]:
        return self.events


def plane(store: MemoryStore, settings: Settings = Settings()) -> tuple[Feed, Loop, Fleet]:  # noqa: B008 - it is immutable
    """Return the parts that compile the objects of a store, without proxies."""
    feed, fleet = Feed(store), Fleet()
    credentials = Credentials(FakeIssuer(Time()), Time().schedule())
    return feed, Loop(feed.snapshot, fleet, HostProxies([Node(id="gateway")]), settings, credentials), fleet


@pytest.fixture
def settings() -> Settings:
    """Return the settings of the served control plane; a test gives it other ones by parametrization."""
    return Settings()


@pytest.fixture
async def served(tmp_path: Path, certificate: CertificateFiles, settings: Settings) -> AsyncIterator[ServedMesh]:
    """Serve a mesh; commands run in the parent of its state directory."""
    state = tmp_path / ".headgate"
    state.mkdir()
    async with serving(ServedMesh(MemoryStore(admit=admit), state), certificate, settings) as mesh:
        yield mesh


@contextlib.asynccontextmanager
async def serving(served: ServedMesh, certificate: CertificateFiles, settings: Settings) -> AsyncIterator[ServedMesh]:
    """Compile the objects of a mesh, and serve its API."""
    store, state = served.store, served.state

    async def logs(key: Key, options: LogOptions) -> AsyncGenerator[bytes]:
        for line in range(3)[-(options.tail_lines or 3) :]:
            yield f"{key.name} line {line}\n".encode()
        if options.follow:
            await asyncio.Event().wait()

    live_state = LiveState(
        store, *plane(store, settings), Recorded(findings=[served.of_host], controllers=served.controllers)
    )
    served.live_state = live_state
    traffic = TrafficAnswers(TrafficGraphs(live_state, store, served, Latest({})))
    working = [asyncio.create_task(part.run()) for part in (live_state.feed, live_state.loop)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        write_kubeconfig(state / "kubeconfig", url, TOKEN, certificate)
        api = asyncio.create_task(
            serve(
                create_app(
                    store,
                    token=TOKEN,
                    pods=only_logs(logs),
                    computed=ComputedGroups(inspector=Inspector(live_state, served.host, traffic=traffic)),
                ),
                listener,
                certificate,
            )
        )
        instance = RuntimeInfo(
            api=url,
            kubeconfig=str(state / "kubeconfig"),
            proxy="127.0.0.1:1",
            probe=str(served.probe),
            admin=str(state / "admin.sock"),
            pid=os.getpid(),
        )
        write_runtime_info(state, instance)
        await until(lambda: bool(live_state.fleet.proxies), live_state.loop.compiled)
        yield served
        for task in (api, *working):
            task.cancel()
        await asyncio.gather(api, *working, return_exceptions=True)
        shutil.rmtree(served.probe.parent)
