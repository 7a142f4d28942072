from typing import Any

import pytest

from headgate.resources.meta import Key


def replicaset(replicas: int = 3) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app"}]}},
        },
    }


async def test_ended_pods_are_replaced(world):
    await world.store.create(replicaset())
    await world.settle()
    first = (await world.pods())[0]
    await world.store.delete(Key("", "Pod", "default", first["metadata"]["name"]))
    second = (await world.pods())[0]
    await world.store.update({**second, "status": {**second["status"], "phase": "Failed"}}, subresource="status")
    await world.settle()
    uids = {pod["metadata"]["uid"] for pod in await world.pods()}
    assert len(uids) == 3
    assert not uids & {first["metadata"]["uid"], second["metadata"]["uid"]}


async def test_a_pod_without_an_owner_is_adopted_and_counts_as_a_replica(world):
    labels = {"app": "web"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mine", "labels": labels},
        "spec": {"containers": []},
    }
    await world.store.create(pod)
    await world.store.create(replicaset())
    await world.settle()
    owners = {pod["metadata"]["ownerReferences"][0]["name"] for pod in await world.pods()}
    assert (len(await world.pods()), owners) == (3, {"web"})


async def test_a_pod_whose_label_changes_is_released_and_replaced(world):
    await world.store.create(replicaset())
    await world.settle()
    pod = (await world.pods())[0]
    await world.store.update({**pod, "metadata": {**pod["metadata"], "labels": {"app": "debug"}}})
    await world.settle()
    free = [pod for pod in await world.pods() if not pod["metadata"].get("ownerReferences")]
    assert [found["metadata"]["uid"] for found in free] == [pod["metadata"]["uid"]]
    assert len(await world.pods()) == 4


@pytest.mark.parametrize("left", [2, 1])
async def test_scaling_down_deletes_unready_pods_and_then_pods_with_a_low_deletion_cost(world, left):
    await world.store.create(replicaset(4))
    await world.settle()
    broken, cheap, *kept = [pod["metadata"]["name"] for pod in await world.pods()]
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-5"}
    pod = await world.store.get(Key("", "Pod", "default", cheap))
    await world.store.update({**pod, "metadata": {**pod["metadata"], "annotations": cost}})
    await world.start(await world.store.get(Key("", "Pod", "default", broken)), ready=False)
    await world.store.update(replicaset(left))
    await world.controllers.reconcile("default")
    names = {pod["metadata"]["name"] for pod in await world.pods()}
    assert len(names) == left
    assert names <= set(kept)


async def test_the_status_counts_ready_and_available_pods(world):
    await world.store.create(replicaset())
    await world.settle()
    stored = await world.store.get(Key("apps", "ReplicaSet", "default", "web"))
    assert stored["status"] == {
        "replicas": 3,
        "fullyLabeledReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "observedGeneration": 1,
    }
