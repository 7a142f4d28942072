"""Tests of the lifecycle hooks of real containers."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.make.objects import config_map
from tests.standalone.pods.machine import ProcessMachine, key, pid_of, process_pod, running
from tests.stream_server import stream_server

from headgate.resources.core.pod_spec import Container, LifecycleHandler
from headgate.resources.decode import read
from headgate.resources.meta import Key
from headgate.standalone.isolation import MountSupport
from headgate.standalone.pods import leftovers
from headgate.standalone.pods.hooks import run_hook
from headgate.standalone.pods.probes import ProbeTarget
from headgate.standalone.processes import Launch, spawn
from headgate.standalone.supervisor import ProgramRecord

USER = 54321 if os.geteuid() == 0 else os.geteuid()
AS_ANOTHER = {"securityContext": {"runAsUser": USER}} if os.geteuid() == 0 else {}


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[ProcessMachine]:
    async with running(tmp_path / "state") as started:
        yield started


def command(script: str) -> dict[str, Any]:
    return {"exec": {"command": ["sh", "-c", script]}}


async def test_a_container_is_ready_after_its_start_hook_and_stops_after_its_stop_hook(machine, tmp_path):
    log = tmp_path / "log"
    hooks = {
        "postStart": command(f"until test -f {tmp_path}/go; do sleep 0.05; done; echo started $POD_NAME >> {log}"),
        "preStop": command(f"echo stopping >> {log}"),
    }
    script = f"trap 'echo SIGTERM >> {log}; exit 0' TERM; while :; do sleep 0.05; done"
    spec = {"terminationGracePeriodSeconds": 60}
    await machine.store.create(process_pod(command=["sh", "-c", script], lifecycle=hooks, spec=spec))
    await machine.event("Started")
    assert not (await machine.get())["status"]["containerStatuses"][0]["ready"]
    (tmp_path / "go").touch()
    await machine.ready()
    await machine.store.delete(key())
    await machine.gone()
    assert log.read_text() == "started web\nstopping\nSIGTERM\n"


async def test_a_failed_start_hook_restarts_the_container(machine):
    hooks = {"postStart": command("exit 3")}
    await machine.store.create(process_pod(command=["sleep", "600"], lifecycle=hooks))
    event = await machine.event("FailedPostStartHook")
    assert event["message"] == "postStart hook of container app failed: sh ended with exit code 3"
    await machine.state_of("CrashLoopBackOff")


async def test_a_stop_hook_that_does_not_end_delays_the_stop_only_by_the_grace_period(machine):
    hooks = {"preStop": {"sleep": {"seconds": 3600}}}
    spec = {"terminationGracePeriodSeconds": 1}
    await machine.store.create(process_pod(command=["sleep", "600"], lifecycle=hooks, spec=spec))
    await machine.ready()
    await machine.store.delete(key())
    await machine.gone()
    await machine.event("FailedPreStopHook")


async def test_a_hook_can_be_an_http_request(machine):
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with stream_server(serve) as listener:
        port = listener.sockets[0].getsockname()[1]
        hooks = {"preStop": {"httpGet": {"host": "127.0.0.1", "port": port, "path": "/drain"}}}
        spec = {"terminationGracePeriodSeconds": 60}
        await machine.store.create(process_pod(command=["sleep", "600"], lifecycle=hooks, spec=spec))
        await machine.ready()
        await machine.store.delete(key())
        await machine.gone()
    assert [request.split()[1] for request in requests] == [b"/drain"]


async def test_a_hook_that_a_killed_headgate_left_behind_ends_with_the_next_one(machine, tmp_path):
    """The command of the hook has the record that a killed headgate leaves."""
    await machine.store.create(process_pod(command=["sleep", "600"]))
    pod = await machine.ready()
    await machine.abandon()
    hook = spawn(Launch(command=("sleep", "600"), env={"PATH": os.environ["PATH"]}), tmp_path / "log")
    (directory,) = (machine.state / "pods").iterdir()
    (directory / "app.preStop").mkdir()
    record = ProgramRecord(identity=hook.identity)
    (directory / "app.preStop" / "run.json").write_bytes(msgspec.json.encode(record))
    left = list(leftovers.containers_of(directory))
    assert [leftover.process.identity.pid for leftover in left] == [pid_of(pod), hook.identity.pid]
    for leftover in left:
        leftover.process.detach()
    machine.start()
    async with asyncio.timeout(60):
        await hook.exited()


@pytest.fixture
def shared_directory() -> Iterator[Path]:
    """A directory in which all users may read: those of pytest are private."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


async def test_a_hook_runs_in_its_container_when_a_config_map_of_it_is_gone(machine, shared_directory):
    if fault := await MountSupport().fault():
        pytest.skip(fault)
    await machine.store.create(config_map("settings", {"color": "blue"}))
    log = shared_directory / "log"
    made = process_pod(
        command=["sleep", "600"],
        env=[{"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}}],
        volumeMounts=[{"name": "scratch", "mountPath": "/headgate-test"}],
        lifecycle={"preStop": command(f"id -u >> {log}; touch /headgate-test/x && echo $COLOR >> {log}")},
        spec={"terminationGracePeriodSeconds": 60, "volumes": [{"name": "scratch", "emptyDir": {}}], **AS_ANOTHER},
    )
    log.touch()
    log.chmod(0o666)
    await machine.store.create(made)
    await machine.ready()
    await machine.store.delete(Key("", "ConfigMap", "default", "settings"))
    await machine.store.delete(key())
    await machine.gone()
    assert log.read_text() == f"{USER}\nblue\n"


async def test_faults_of_hooks_are_described(tmp_path):
    target = ProbeTarget(Container(name="app"), "127.0.0.1", Launch(command=("app",), env={"PATH": "/usr/bin:/bin"}))

    async def fault(**handler: Any) -> str:
        return await asyncio.wait_for(run_hook(read(handler, LifecycleHandler), target, tmp_path / "run.json"), 60)

    assert await fault(exec={"command": ["true"]}) == ""
    assert await fault(exec={"command": ["sh", "-c", "exit 3"]}) == "sh ended with exit code 3"
    assert await fault(exec={}) == "exec: command is empty"
    assert await fault(sleep={"seconds": 0}) == ""
    assert await fault(tcpSocket={"port": 1}) == ""
    assert "Connection refused" in await fault(httpGet={"port": 1})
    assert "program 'none' not found" in await fault(exec={"command": ["none"]})
    assert "has no port named 'web'" in await fault(httpGet={"port": "web"})
