from typing import Any

import pytest
from tests.make.objects import container, obj, pod_template

from headgate.resources.meta import Key, Object

SET = Key("apps", "DaemonSet", "default", "agent")
NODE = Key("", "Node", "", "local")
LABELS = {"app": "agent"}


def daemon_set(command: str = "one", node: dict[str, str] | None = None, **spec: Any) -> Object:
    template = pod_template(container(command=[command]), labels=LABELS, nodeSelector=node or {})
    written = {"selector": {"matchLabels": LABELS}, "template": template}
    return obj("DaemonSet", "agent", version="apps/v1", spec={**written, **spec})


@pytest.fixture
async def machine(rig):
    await rig.store.create(obj("Node", "local", namespace="", labels={"kubernetes.io/os": "linux"}))
    return rig


async def apply(machine: Any, written: Object) -> None:
    hub = machine.store.checked(written).hub
    if await machine.all("apps", "DaemonSet"):
        stored = await machine.store.get(SET)
        await machine.store.update({**stored, "spec": hub["spec"]})
    else:
        await machine.store.create(hub)


async def commands(machine: Any) -> list[str]:
    return [pod["spec"]["containers"][0]["command"][0] for pod in await machine.pods()]


async def test_the_node_has_one_pod_of_a_daemon_set(machine):
    await apply(machine, daemon_set(node={"kubernetes.io/os": "linux"}))
    await machine.settle()
    (pod,) = await machine.pods()
    assert pod["spec"]["nodeName"] == "local"  # so that it also runs while the node is cordoned
    status = (await machine.store.get(SET))["status"]
    assert status == {
        "currentNumberScheduled": 1,
        "desiredNumberScheduled": 1,
        "numberAvailable": 1,
        "numberMisscheduled": 0,
        "numberReady": 1,
        "observedGeneration": 1,
        "updatedNumberScheduled": 1,
    }


async def test_a_daemon_set_for_other_nodes_has_no_pod_until_the_node_has_its_labels(machine):
    await apply(machine, daemon_set(node={"disk": "fast"}))
    await machine.settle()
    assert await machine.pods() == []
    assert (await machine.store.get(SET))["status"]["desiredNumberScheduled"] == 0
    node = await machine.store.get(NODE)
    await machine.store.update({**node, "metadata": {**node["metadata"], "labels": {"disk": "fast"}}})
    await machine.settle()
    assert len(await machine.pods()) == 1


async def test_a_new_template_ends_the_old_pod_first(machine):
    await apply(machine, daemon_set())
    await machine.settle()
    await apply(machine, daemon_set("two"))
    await machine.controllers.reconcile("default")
    assert await machine.pods() == []
    await machine.settle()
    assert await commands(machine) == ["two"]


async def test_with_max_surge_the_old_pod_ends_when_the_new_one_is_available(machine):
    surge = {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}
    await apply(machine, daemon_set(**surge))
    await machine.settle()
    await apply(machine, daemon_set("two", **surge))
    await machine.settle(ready=lambda pod: pod["spec"]["containers"][0]["command"] == ["one"])
    assert sorted(await commands(machine)) == ["one", "two"]
    await machine.settle()
    assert await commands(machine) == ["two"]


async def test_with_on_delete_the_pod_keeps_its_template_until_it_is_deleted(machine):
    on_delete = {"updateStrategy": {"type": "OnDelete"}}
    await apply(machine, daemon_set(**on_delete))
    await machine.settle()
    await apply(machine, daemon_set("two", **on_delete))
    await machine.settle()
    assert await commands(machine) == ["one"]
    (pod,) = await machine.pods()
    await machine.store.delete(Key("", "Pod", "default", pod["metadata"]["name"]))
    await machine.settle()
    assert await commands(machine) == ["two"]


async def test_a_pod_that_has_failed_is_replaced(machine):
    await apply(machine, daemon_set())
    await machine.settle()
    (pod,) = await machine.pods()
    await machine.store.update({**pod, "status": {**pod["status"], "phase": "Failed"}}, subresource="status")
    await machine.settle()
    (replacement,) = await machine.pods()
    assert replacement["metadata"]["uid"] != pod["metadata"]["uid"]
