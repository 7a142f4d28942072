"""The Node of the machine: its status, and pods that wait while it is cordoned."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.standalone.pods.machine import ProcessMachine, process_pod, python, running

from headgate.errors import Invalid
from headgate.resources.meta import Key, Object
from headgate.standalone.machine_node import NODE_KEY, admit_nodes

SLEEPS = python("import time; time.sleep(1000)")


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[ProcessMachine]:
    (tmp_path / "state").mkdir()
    async with running(tmp_path / "state") as started:
        yield started


async def node(machine: ProcessMachine) -> Object:
    async def holds() -> Object | None:
        found = (await machine.store.list("", "Node")).items
        return found[0] if found and "status" in found[0] else None

    return await machine.until(holds)


async def cordon(machine: ProcessMachine, *, unschedulable: bool) -> None:
    found = await node(machine)
    await machine.store.update({**found, "spec": {"unschedulable": unschedulable}})


async def waiting(machine: ProcessMachine, name: str = "web") -> Any:
    async def holds() -> Any:
        conditions = ((await machine.get(name)).get("status") or {}).get("conditions", ())
        return next((one for one in conditions if one["status"] == "False" and one["type"] == "PodScheduled"), None)

    return await machine.until(holds)


async def test_the_node_is_ready_and_shows_the_resources_of_the_machine(machine: ProcessMachine) -> None:
    found = await node(machine)
    assert found["metadata"]["name"] == "local"
    status = found["status"]
    assert int(status["capacity"]["cpu"]) >= 1
    assert int(status["capacity"]["memory"].removesuffix("Ki")) > 100_000
    assert status["allocatable"] == status["capacity"]
    assert {"type": "InternalIP", "address": "127.0.0.1"} in status["addresses"]
    assert status["nodeInfo"]["kubeletVersion"].startswith("v1.")
    assert [(one["type"], one["status"]) for one in status["conditions"]] == [("Ready", "True")]


async def test_a_new_pod_is_unschedulable_while_the_node_is_cordoned(machine: ProcessMachine) -> None:
    await machine.store.create(process_pod("before", command=SLEEPS))
    await machine.ready("before")
    await cordon(machine, unschedulable=True)
    await machine.store.create(process_pod(command=SLEEPS))
    assert "kubectl uncordon local" in (await waiting(machine))["message"]
    assert "nodeName" not in (await machine.get())["spec"]
    assert "unschedulable" in (await machine.event("FailedScheduling"))["message"]
    await machine.ready("before")
    await cordon(machine, unschedulable=False)
    assert (await machine.ready())["spec"]["nodeName"] == "local"


async def test_an_unschedulable_pod_waits_after_a_restart_and_can_be_deleted(machine: ProcessMachine) -> None:
    await cordon(machine, unschedulable=True)
    await machine.store.create(process_pod("deleted", command=SLEEPS))
    await machine.store.create(process_pod(command=SLEEPS))
    await waiting(machine, "deleted")
    await waiting(machine)
    gone = await machine.get("deleted")
    await machine.store.delete(Key("", "Pod", "default", "deleted"), uid=gone["metadata"]["uid"])
    await machine.gone("deleted")
    await machine.abandon()
    machine.start()
    await waiting(machine)
    await cordon(machine, unschedulable=False)
    await machine.ready()


async def test_a_deleted_node_is_created_again(machine: ProcessMachine) -> None:
    first = await node(machine)
    await machine.store.delete(NODE_KEY)

    async def back() -> bool:
        found = (await machine.store.list("", "Node")).items
        return bool(found) and found[0]["metadata"]["uid"] != first["metadata"]["uid"] and "status" in found[0]

    await machine.until(back)


def test_a_second_node_is_rejected() -> None:
    other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}
    with pytest.raises(Invalid, match="must be local, the name of this machine"):
        admit_nodes(other, None)
