"""Tests of pods that end by themselves, with real processes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.make.objects import container, obj, pod, pod_template
from tests.standalone.pods.machine import ProcessMachine, key, pid_of, process_pod, python, running

from headgate.resources.meta import Key, Object
from headgate.standalone.processes import identity_of, until_gone

JOB = Key("batch", "Job", "default", "sums")
FAILS_ONCE = """
import pathlib, sys
mark = pathlib.Path(sys.argv[1])
if not mark.exists():
    mark.touch()
    sys.exit(3)
print("done", flush=True)
"""


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[ProcessMachine]:
    async with running(tmp_path / "state") as started:
        yield started


def job(command: list[str], *, restart: str = "Never", **spec: Any) -> Object:
    template = pod_template(container(command=command), labels={"app": "sums"}, restartPolicy=restart)
    return obj("Job", "sums", version="batch/v1", spec={"template": template, **spec})


async def create(machine: ProcessMachine, written: Object) -> None:
    await machine.store.create(machine.store.checked(written).hub)


async def finished(machine: ProcessMachine, condition: str) -> Any:
    """Wait until the Job has a condition; return its status."""

    async def holds() -> Any:
        status = (await machine.store.get(JOB)).get("status", {})
        return status if any(fact["type"] == condition for fact in status.get("conditions", ())) else None

    return await machine.until(holds)


async def test_a_job_runs_its_command_and_completes(machine):
    await create(
        machine,
        job(
            python("import os; print('index', os.environ['JOB_COMPLETION_INDEX'])"),
            completions=2,
            completionMode="Indexed",
        ),
    )
    status = await finished(machine, "Complete")
    assert (status["succeeded"], status["completedIndexes"]) == (2, "0,1")
    names = [pod["metadata"]["name"] for pod in (await machine.store.list("", "Pod")).items]
    assert sorted([await machine.output(name) for name in names]) == ["index 0\n", "index 1\n"]


async def test_a_container_of_a_job_restarts_after_a_failure(machine, tmp_path):
    await create(machine, job([*python(FAILS_ONCE), str(tmp_path / "mark")], restart="OnFailure"))
    status = await finished(machine, "Complete")
    assert "failed" not in status
    (pod,) = (await machine.store.list("", "Pod")).items
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


async def test_a_job_without_retries_fails_with_its_first_pod(machine):
    await create(machine, job(python("raise SystemExit(3)"), backoffLimit=0))
    status = await finished(machine, "Failed")
    assert status["failed"] == 1


async def test_a_deadline_ends_the_processes_of_a_job(machine):
    await create(machine, job(python("import signal; signal.pause()"), activeDeadlineSeconds=1))
    await finished(machine, "Failed")
    assert machine.runtime.running() == []


async def test_a_pod_that_has_succeeded_keeps_its_status_after_a_restart_of_headgate(machine):
    await machine.store.create(process_pod(command=python("pass"), spec={"restartPolicy": "Never"}))

    async def ended() -> Object | None:
        pod = await machine.get()
        return pod if pod.get("status", {}).get("phase") == "Succeeded" else None

    before = await machine.until(ended)
    await machine.abandon()
    machine.start()
    await machine.store.create(process_pod("next", command=python("pass"), spec={"restartPolicy": "Never"}))
    await machine.state_of("Completed", "next")
    assert (await machine.get())["status"] == before["status"]


async def test_a_pod_that_has_succeeded_keeps_its_status_when_headgate_stops(machine):
    """Otherwise the next headgate would run it again."""
    await machine.store.create(process_pod(command=python("pass"), spec={"restartPolicy": "Never"}))
    await machine.state_of("Completed")
    assert await machine.runtime.stop() == []
    await machine.abandon()
    before = await machine.get()
    machine.start()
    await machine.store.create(process_pod("next", command=python("pass"), spec={"restartPolicy": "Never"}))
    await machine.state_of("Completed", "next")
    assert await machine.runtime.stop() == []
    assert (await machine.get())["status"] == before["status"]


async def test_the_processes_that_a_killed_headgate_left_to_a_failed_pod_are_ended(machine):
    await machine.store.create(process_pod(command=["sleep", "600"]))
    pod = await machine.ready()
    await machine.abandon()
    await machine.store.update({**pod, "status": {**pod["status"], "phase": "Failed"}}, subresource="status")
    left = identity_of(pid_of(pod))
    machine.start()
    async with asyncio.timeout(60):
        await until_gone(left)


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_container_that_has_ended_does_not_run_again_after_a_restart_of_headgate(machine, tmp_path, is_killed):
    runs = tmp_path / "runs"
    ends = container("ends", command=python(f"open({str(runs)!r}, 'a').write('run ')"))
    stays = container("stays", command=python("import signal; signal.pause()"))
    await machine.store.create(pod("web", containers=[ends, stays], restartPolicy="Never"))
    await machine.state_of("Completed")
    if is_killed:
        await machine.abandon()
    else:
        assert await machine.runtime.stop() == []
        await machine.abandon()
    machine.start()

    async def runs_again() -> bool:
        states = [status["state"] for status in (await machine.get())["status"]["containerStatuses"]]
        return [*states[0], *states[1]] == ["terminated", "running"]

    await machine.until(runs_again)
    await machine.store.delete(key())
    await machine.gone()
    assert runs.read_text() == "run "
