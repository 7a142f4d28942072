"""Tests of the order of containers in real pods: native sidecars, and the deadline of a pod."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.processes import runs
from tests.standalone.pods.machine import ProcessMachine, key, process_pod, running

from headgate.resources.meta import Object


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[ProcessMachine]:
    async with running(tmp_path / "state") as started:
        yield started


def init(name: str, script: str, *, sidecar: bool = False, **more: Any) -> dict[str, Any]:
    policy = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": name, "image": "x", "command": ["sh", "-c", script], **policy, **more}


def stays(name: str, log: Path) -> str:
    """Return a script that notes its start and its end in a file."""
    return f"trap 'echo {name} ended >> {log}; exit 0' TERM; echo {name} began >> {log}; while :; do sleep 0.05; done"


async def in_phase(machine: ProcessMachine, phase: str) -> Object:
    async def holds() -> Object | None:
        pod = await machine.get()
        return pod if (pod.get("status") or {}).get("phase") == phase else None

    return await machine.until(holds)


async def test_native_sidecars_start_in_order_before_the_containers_and_end_after_them(machine, tmp_path):
    log = tmp_path / "log"
    began = {"exec": {"command": ["grep", "-q", "one began", str(log)]}, "periodSeconds": 1, "timeoutSeconds": 60}
    inits = [
        init("one", stays("one", log), sidecar=True, startupProbe=began),
        init("setup", f"echo setup >> {log}"),
        init("two", stays("two", log), sidecar=True),
    ]
    spec = {"initContainers": inits, "restartPolicy": "Never", "terminationGracePeriodSeconds": 60}
    script = f"until grep -q 'two began' {log}; do sleep 0.05; done; echo main >> {log}"
    await machine.store.create(process_pod(command=["sh", "-c", script], spec=spec))
    await in_phase(machine, "Succeeded")

    async def ended() -> bool:
        statuses = (await machine.get())["status"]["initContainerStatuses"]
        return not any("running" in status["state"] for status in statuses)

    await machine.until(ended)
    assert log.read_text().split("\n")[:-1] == [
        *("one began", "setup", "two began", "main", "two ended", "one ended"),
    ]


async def test_a_native_sidecar_is_restarted_and_its_readiness_is_that_of_the_pod(machine, tmp_path):
    mark = tmp_path / "mark"
    ready = {"exec": {"command": ["test", "-f", str(mark)]}, "periodSeconds": 1, "timeoutSeconds": 60}
    sidecar = init("helper", "test -f $0 && exec sleep 600; exit 1".replace("$0", str(mark)), sidecar=True)
    await machine.store.create(
        process_pod(command=["sleep", "600"], spec={"initContainers": [{**sidecar, "readinessProbe": ready}]})
    )

    async def restarted() -> bool:
        statuses = ((await machine.get()).get("status") or {}).get("initContainerStatuses", ())
        return any(status["restartCount"] for status in statuses)

    await machine.until(restarted)
    mark.touch()
    pod = await machine.ready()
    assert pod["status"]["initContainerStatuses"][0]["ready"]


async def test_a_native_sidecar_is_adopted_and_ends_with_its_pod(machine, tmp_path):
    log = tmp_path / "log"
    spec = {"initContainers": [init("helper", stays("helper", log), sidecar=True)]}
    await machine.store.create(process_pod(command=["sleep", "600"], spec=spec))
    pod = await machine.ready()
    pid = int(pod["status"]["initContainerStatuses"][0]["containerID"].removeprefix("process://"))
    await machine.abandon()
    machine.start()
    await machine.store.delete(key())
    await machine.gone()
    assert not runs(pid)
    assert log.read_text() == "helper began\nhelper ended\n"


async def test_a_pod_fails_at_its_deadline_and_its_processes_end(machine):
    await machine.store.create(process_pod(command=["sleep", "600"], spec={"activeDeadlineSeconds": 1}))
    pod = await in_phase(machine, "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    await machine.event("DeadlineExceeded")

    async def ended() -> bool:
        (status,) = (await machine.get())["status"]["containerStatuses"]
        return "running" not in status["state"]

    await machine.until(ended)
    await machine.abandon()
    machine.start()
    await asyncio.sleep(0)
    assert (await in_phase(machine, "Failed"))["status"]["reason"] == "DeadlineExceeded"
