from typing import Any

import pytest
from tests.make.objects import container, obj, pod, pod_template

from headgate.resources.meta import Key


def replicaset(replicas: int = 3) -> dict[str, Any]:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
    template = pod_template(container(), labels={"app": "web"})
    return obj("ReplicaSet", "web", spec={"replicas": replicas, "selector": selector, "template": template})


async def test_ended_pods_are_replaced(rig):
    await rig.store.create(replicaset())
    await rig.settle()
    first = (await rig.pods())[0]
    await rig.store.delete(Key("", "Pod", "default", first["metadata"]["name"]))
    second = (await rig.pods())[0]
    await rig.store.update({**second, "status": {**second["status"], "phase": "Failed"}}, subresource="status")
    await rig.settle()
    uids = {found["metadata"]["uid"] for found in await rig.pods()}
    assert len(uids) == 3
    assert not uids & {first["metadata"]["uid"], second["metadata"]["uid"]}


async def test_a_pod_without_an_owner_is_adopted_and_counts_as_a_replica(rig):
    await rig.store.create(pod("mine", labels={"app": "web"}))
    await rig.store.create(replicaset())
    await rig.settle()
    owners = {found["metadata"]["ownerReferences"][0]["name"] for found in await rig.pods()}
    assert (len(await rig.pods()), owners) == (3, {"web"})


async def test_a_pod_whose_label_changes_is_released_and_replaced(rig):
    await rig.store.create(replicaset())
    await rig.settle()
    relabeled = (await rig.pods())[0]
    await rig.store.update({**relabeled, "metadata": {**relabeled["metadata"], "labels": {"app": "debug"}}})
    await rig.settle()
    free = [found for found in await rig.pods() if not found["metadata"].get("ownerReferences")]
    assert [found["metadata"]["uid"] for found in free] == [relabeled["metadata"]["uid"]]
    assert len(await rig.pods()) == 4


@pytest.mark.parametrize("left", [2, 1])
async def test_scaling_down_deletes_unready_pods_and_then_pods_with_a_low_deletion_cost(rig, left):
    await rig.store.create(replicaset(4))
    await rig.settle()
    broken, cheap, *kept = [found["metadata"]["name"] for found in await rig.pods()]
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-5"}
    priced = await rig.store.get(Key("", "Pod", "default", cheap))
    await rig.store.update({**priced, "metadata": {**priced["metadata"], "annotations": cost}})
    await rig.start(await rig.store.get(Key("", "Pod", "default", broken)), ready=False)
    await rig.store.update(replicaset(left))
    await rig.controllers.reconcile("default")
    names = {found["metadata"]["name"] for found in await rig.pods()}
    assert len(names) == left
    assert names <= set(kept)


async def test_the_status_counts_ready_and_available_pods(rig):
    await rig.store.create(replicaset())
    await rig.settle()
    stored = await rig.store.get(Key("apps", "ReplicaSet", "default", "web"))
    assert stored["status"] == {
        "replicas": 3,
        "fullyLabeledReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "observedGeneration": 1,
    }
