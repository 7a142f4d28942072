"""The supervisor of one Envoy, with the real binary: start, restart, adoption, replacement and error messages."""

import asyncio
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from aiohttp import ClientSession, UnixConnector
from tests import virtual_time
from tests.processes import runs

from headgate.backoff import FIRST_S
from headgate.errors import ProxyError
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.keys import FileKeyStore
from headgate.plane.trust import Trust
from headgate.settings import Settings
from headgate.standalone.gateway import serving
from headgate.standalone.proxies.admin import Admin
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.proxies.envoy_flags import EnvoyFlags
from headgate.standalone.proxies.envoy_process import (
    DEFAULT_FLAGS,
    EnvoyProcess,
    EnvoyState,
    MeshEnvoy,
    MeshEnvoySettings,
)
from headgate.standalone.runtime_directory import runtime_directory
from headgate.xds.authentication import LocalTokens

BINARY = find_envoy(os.environ)
DEADLINE_S = 60

Start = Callable[..., EnvoyProcess]


def bootstrap(admin: Path, node: str = "gateway") -> bytes:
    return msgspec.json.encode(
        {"node": {"id": node, "cluster": "test"}, "admin": {"address": {"pipe": {"path": str(admin), "mode": 0o600}}}}
    )


@pytest.fixture
async def envoy(tmp_path: Path) -> AsyncIterator[Start]:
    """Yield a function that creates supervisors with one state directory; stop their Envoys after the test."""
    admin = runtime_directory(tmp_path, os.environ) / "admin.sock"
    made: list[EnvoyProcess] = []

    def make(node: str = "gateway", flags: EnvoyFlags = DEFAULT_FLAGS) -> EnvoyProcess:
        process = EnvoyProcess(BINARY, bootstrap(admin, node), directory=tmp_path / "envoy", admin=admin, flags=flags)
        made.append(process)
        return process

    yield make
    for process in reversed(made):
        await process.stop()
    admin.unlink(missing_ok=True)
    admin.parent.rmdir()


async def until(process: EnvoyProcess, wanted: Callable[[EnvoyState], bool]) -> EnvoyState:
    async with asyncio.timeout(DEADLINE_S):
        async for state in process.state.changes():
            if wanted(state):
                return state
    raise AssertionError


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_an_envoy_starts_becomes_ready_and_stops(envoy: Start, tmp_path: Path) -> None:
    process = envoy()
    await process.start()
    await process.ready()
    pid = process.state.get().pid
    assert os.getsid(pid) == pid != os.getsid(0)
    assert (await process.admin.get_json("/server_info"))["state"] == "LIVE"
    assert {"name": "server.live", "value": 1} in (
        await process.admin.get_json("/stats?format=json&filter=server.live")
    )["stats"]
    await process.stop()
    assert not alive(pid)
    assert process.state.get().pid == 0
    with pytest.raises(ProxyError, match="does not answer"):
        await process.admin.get("/ready")


async def test_the_files_of_an_envoy_are_private(envoy: Start, tmp_path: Path) -> None:
    process = envoy()
    await process.start()
    await process.ready()
    admin = runtime_directory(tmp_path, os.environ) / "admin.sock"
    files = [*(tmp_path / "envoy").iterdir(), admin]
    assert {path.name for path in files} == {"envoy.json", "envoy.log", "bootstrap.json", "admin.sock"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "envoy").stat().st_mode) == 0o700


async def test_an_envoy_that_dies_is_restarted(envoy: Start) -> None:
    process = envoy()
    await process.start()
    await process.ready()
    first = process.state.get().pid
    os.kill(first, signal.SIGKILL)
    state = await until(process, lambda state: bool(state.pid) and state.pid != first)
    assert state.restarts == 1
    assert state.failure == f"Envoy ended with signal 9, SIGKILL (its log is {process.log})"
    await process.ready()


async def test_a_failed_start_reports_the_error_line_of_envoys_log(envoy: Start) -> None:
    process = envoy(flags=EnvoyFlags(log_level="no-such-level"))
    await process.start()
    with pytest.raises(ProxyError) as raised:
        await process.ready()
    expected = r"Envoy ended with exit code 1: [^\n]*no-such-level[^\n]* \(its log is [^\n]*envoy\.log\)"
    assert re.fullmatch(expected, str(raised.value))


ORPHAN = """
import asyncio, os, signal, sys
from pathlib import Path
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.proxies.envoy_process import EnvoyProcess

async def main():
    directory, admin, bootstrap = map(Path, sys.argv[1:])
    process = EnvoyProcess(find_envoy(os.environ), bootstrap.read_bytes(), directory=directory, admin=admin)
    await process.start()
    await process.ready()
    print(process.state.get().pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def orphan(tmp_path: Path) -> int:
    """Start an Envoy from a headgate that is then killed; return the Envoy's pid."""
    admin = runtime_directory(tmp_path, os.environ) / "admin.sock"
    wanted = tmp_path / "wanted.json"
    wanted.write_bytes(bootstrap(admin))
    command = [sys.executable, "-c", ORPHAN, str(tmp_path / "envoy"), str(admin), str(wanted)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return int(done.stdout)


async def test_an_envoy_survives_a_killed_headgate_and_is_adopted(envoy: Start, tmp_path: Path) -> None:
    pid = await orphan(tmp_path)
    process = envoy()
    with process.log.open("a") as log:
        log.write("[2026-01-31 12:00:00.125][7][error][config] an error of the first headgate's end\n")
    await process.start()
    assert process.state.get() == EnvoyState(pid=pid, adopted=True)
    await process.ready()
    os.kill(pid, signal.SIGKILL)
    state = await until(process, lambda state: bool(state.pid) and state.pid != pid)
    assert not state.adopted
    assert state.failure == f"Envoy ended (its log is {process.log})"  # not an error of the time before the adoption


async def test_an_envoy_with_other_inherited_file_descriptors_is_adopted(envoy: Start, tmp_path: Path) -> None:
    pid = await orphan(tmp_path)
    with (tmp_path / "guard").open("w") as guard:
        process = envoy(flags=EnvoyFlags(pass_fds=(guard.fileno(),)))
        await process.start()
        assert process.state.get() == EnvoyState(pid=pid, adopted=True)
        await process.stop()


async def test_an_envoy_that_is_too_busy_to_answer_is_adopted(
    envoy: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replaced Envoy would lose the requests on its connections."""
    monkeypatch.setattr("headgate.standalone.proxies.admin.TIMEOUT_S", 0.2)
    pid = await orphan(tmp_path)
    process = envoy()
    os.kill(pid, signal.SIGSTOP)
    try:
        await process.start()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert process.state.get() == EnvoyState(pid=pid, adopted=True)


async def test_a_gateway_that_is_too_busy_to_answer_does_not_end_headgate(
    envoy: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """headgate would end with its gateway and all pods, which serve. An Envoy of its own must become ready."""
    monkeypatch.setattr("headgate.standalone.gateway.START_S", 0.5)
    monkeypatch.setattr("headgate.standalone.proxies.admin.TIMEOUT_S", 0.2)
    trust = Trust(EmbeddedIssuer(FileKeyStore(tmp_path / "keys"), "cluster.local", clock=time.time), Settings())
    pid = await orphan(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    try:
        process = envoy()
        await process.start()
        await serving(process, trust)
        assert "serves with its last configuration: Envoy is not ready after 0.5 s" in caplog.text
        assert process.state.get() == EnvoyState(pid=pid, adopted=True)
    finally:
        os.kill(pid, signal.SIGCONT)
    await process.stop()
    await process.start()
    pid = process.state.get().pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(ProxyError, match=r"Envoy is not ready after 0.5 s"):
        await serving(process, trust)
    os.kill(pid, signal.SIGCONT)


async def test_an_envoy_whose_admin_socket_was_removed_is_replaced(envoy: Start, tmp_path: Path) -> None:
    pid = await orphan(tmp_path)
    process = envoy()
    process.admin.socket.unlink()
    await process.start()
    await process.ready()
    assert process.state.get().pid != pid


async def test_an_adopted_envoy_can_be_stopped(envoy: Start, tmp_path: Path) -> None:
    pid = await orphan(tmp_path)
    process = envoy()
    await process.start()
    await process.stop()
    with pytest.raises(ProxyError):
        await process.admin.get("/ready")
    assert not runs(pid)


async def test_an_envoy_with_another_bootstrap_is_replaced(envoy: Start, tmp_path: Path) -> None:
    pid = await orphan(tmp_path)
    process = envoy("another")
    await process.start()
    await process.ready()
    assert process.state.get().pid != pid
    assert not process.state.get().adopted
    assert (await process.admin.get_json("/server_info"))["node"]["id"] == "another"


async def test_a_reused_pid_of_another_process_is_not_adopted(envoy: Start, tmp_path: Path) -> None:
    pid = await orphan(tmp_path)
    record_path = tmp_path / "envoy" / "envoy.json"
    record = msgspec.json.decode(record_path.read_bytes())
    other = await asyncio.create_subprocess_exec("sleep", "60")
    record["identity"]["pid"] = other.pid
    record_path.write_bytes(msgspec.json.encode(record))
    os.kill(pid, signal.SIGKILL)
    try:
        process = envoy()
        await process.start()
        await process.ready()
        assert process.state.get().pid not in (pid, other.pid)
        assert other.returncode is None
    finally:
        other.kill()
        await other.wait()


async def test_an_error_names_a_missing_envoy_binary(tmp_path: Path) -> None:
    with pytest.raises(ProxyError, match="correct HEADGATE_ENVOY"):
        find_envoy({"HEADGATE_ENVOY": str(tmp_path / "nothing")})
    program = tmp_path / "not-a-program"
    program.write_text("hello")
    program.chmod(0o755)
    assert find_envoy({"HEADGATE_ENVOY": str(program)}) == program
    process = EnvoyProcess(program, b"{}", directory=tmp_path / "envoy", admin=tmp_path / "admin.sock")
    with pytest.raises(ProxyError, match="can't start Envoy"):
        await process.start()


async def test_a_failed_admin_request_raises_an_error_with_the_reason(envoy: Start) -> None:
    process = envoy()
    await process.start()
    await process.ready()
    with pytest.raises(ProxyError, match="404"):
        await process.admin.get("/nonsense")
    with pytest.raises(ProxyError, match="invalid JSON"):
        await process.admin.get_json("/ready")


async def test_a_missing_admin_socket_raises_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ProxyError, match="does not answer"):
        await Admin(tmp_path / "none.sock").get("/ready")


async def test_a_mesh_envoy_that_logs_at_level_debug_is_not_woken_by_its_log(tmp_path: Path) -> None:
    """It watches the directory of its token. With the log there, one line caused the next: 20 GB in 11 minutes."""
    admin = runtime_directory(tmp_path, os.environ) / "admin.sock"
    settings = MeshEnvoySettings(BINARY, tmp_path / "xds.sock", LocalTokens(os.urandom(32)))
    envoy = MeshEnvoy(settings, "gateway", tmp_path / "envoy", admin)
    await envoy.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not await envoy._answers("/server_info"):
                await asyncio.sleep(0.02)  # there is no event to wait for
        async with asyncio.timeout(DEADLINE_S), ClientSession(connector=UnixConnector(str(admin))) as session:
            for level in ("debug", "warning"):
                async with session.post(f"http://envoy/logging?level={level}") as response:
                    assert response.status == 200
        logged = envoy.log.read_text()
        assert "debug" in logged
        assert logged.count("token") < 10
    finally:
        await envoy.stop()
        admin.unlink()
        admin.parent.rmdir()


def test_a_token_that_can_not_be_written_is_renewed_after_growing_pauses(tmp_path: Path) -> None:
    """The disk may be full; Envoy can't reconnect with an expired token."""
    tokens = LocalTokens(os.urandom(32))
    settings = MeshEnvoySettings(BINARY, tmp_path / "xds.sock", tokens)
    directory = tmp_path / "envoy"

    async def scenario() -> list[float]:
        envoy, pauses = MeshEnvoy(settings, "gateway", directory, tmp_path), list[float]()
        async for error, pause in envoy.renewals():
            assert str(directory) in str(error)
            pauses.append(pause)
            if len(pauses) == 3:  # the next attempt succeeds, and the one after it does not
                (directory / "credentials").mkdir(parents=True)
                asyncio.get_running_loop().call_later(pause + 1.0, shutil.rmtree, directory)
            if len(pauses) == 4:
                break
        return pauses

    for pause, longest in zip(virtual_time.run(scenario()), (1, 2, 4, 1), strict=True):
        assert longest * FIRST_S / 2 <= pause <= longest * FIRST_S
