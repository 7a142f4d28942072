import asyncio
from typing import Any

import pytest
from tests.make.objects import container, obj, pod_template
from tests.watching import until

from headgate.resources.meta import Key, Object

SET = Key("apps", "StatefulSet", "default", "web")
LABELS = {"app": "web"}
FIRST_CLAIM = Key("", "PersistentVolumeClaim", "default", "data-web-0")
CLAIM = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}


def stateful_set(replicas: int = 3, command: str = "one", **spec: Any) -> Object:
    template = pod_template(container(command=[command]), labels=LABELS)
    written = {"serviceName": "web", "selector": {"matchLabels": LABELS}, "template": template}
    return obj("StatefulSet", "web", version="apps/v1", spec={**written, "replicas": replicas, **spec})


async def apply(rig: Any, written: Object) -> None:
    """Create or update the StatefulSet, without waiting for the controllers."""
    hub = rig.store.checked(written).hub
    if await rig.all("apps", "StatefulSet"):
        stored = await rig.store.get(SET)
        await rig.store.update({**stored, "spec": hub["spec"]})
    else:
        await rig.store.create(hub)


async def names(rig: Any) -> list[str]:
    return [pod["metadata"]["name"] for pod in await rig.pods()]


async def commands(rig: Any) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["command"][0] for pod in await rig.pods()}


async def claim_names(rig: Any) -> list[str]:
    return [claim["metadata"]["name"] for claim in await rig.all("", "PersistentVolumeClaim")]


async def test_pods_have_stable_names_and_start_one_after_the_other(rig):
    await apply(rig, stateful_set())
    await rig.settle(ready=lambda _: False)
    assert await names(rig) == ["web-0"]
    await rig.settle(ready=lambda pod: pod["metadata"]["name"] == "web-0")
    assert await names(rig) == ["web-0", "web-1"]
    await rig.settle()
    first, *_, last = await rig.pods()
    assert last["metadata"]["name"] == "web-2"
    assert last["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "2"
    assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("web-0", "web")
    status = (await rig.latest(await rig.store.get(SET)))["status"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (3, 3, 3)
    assert status["currentRevision"] == status["updateRevision"]


async def test_with_parallel_all_pods_start_at_once(rig):
    await apply(rig, stateful_set(podManagementPolicy="Parallel", ordinals={"start": 5}))
    await rig.settle(ready=lambda _: False)
    assert await names(rig) == ["web-5", "web-6", "web-7"]


async def test_scaling_down_ends_the_highest_ordinals_first_and_one_at_a_time(rig):
    await apply(rig, stateful_set())
    await rig.settle()
    await apply(rig, stateful_set(1))
    await rig.controllers.reconcile("default")
    assert await names(rig) == ["web-0", "web-1"]
    await rig.settle()
    assert await names(rig) == ["web-0"]


async def test_a_new_template_replaces_pods_from_the_highest_ordinal_on(rig):
    await apply(rig, stateful_set())
    await rig.settle()
    await apply(rig, stateful_set(command="two"))
    await rig.settle(ready=lambda pod: pod["spec"]["containers"][0]["command"] == ["one"])
    assert await commands(rig) == {"web-0": "one", "web-1": "one", "web-2": "two"}
    status = (await rig.store.get(SET))["status"]
    assert status["currentRevision"] != status["updateRevision"]
    await rig.settle()
    assert set((await commands(rig)).values()) == {"two"}
    status = (await rig.store.get(SET))["status"]
    assert status["currentRevision"] == status["updateRevision"]


async def test_pods_below_the_partition_keep_their_template_even_when_they_are_deleted(rig):
    await apply(rig, stateful_set())
    await rig.settle()
    canary = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await apply(rig, stateful_set(command="two", updateStrategy=canary))
    await rig.settle()
    await rig.store.delete(Key("", "Pod", "default", "web-0"))
    await rig.settle()
    assert await commands(rig) == {"web-0": "one", "web-1": "one", "web-2": "two"}


async def test_with_on_delete_a_pod_gets_the_new_template_when_it_is_deleted(rig):
    await apply(rig, stateful_set(2))
    await rig.settle()
    await apply(rig, stateful_set(2, command="two", updateStrategy={"type": "OnDelete"}))
    await rig.settle()
    assert await commands(rig) == {"web-0": "one", "web-1": "one"}
    await rig.store.delete(Key("", "Pod", "default", "web-0"))
    await rig.settle()
    assert await commands(rig) == {"web-0": "two", "web-1": "one"}


async def test_each_pod_has_its_own_claims_which_outlive_it(rig):
    await apply(rig, stateful_set(2, volumeClaimTemplates=[CLAIM]))
    await rig.settle()
    pod = (await rig.pods())[1]
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}]
    await apply(rig, stateful_set(1, volumeClaimTemplates=[CLAIM]))
    await rig.settle()
    await rig.store.delete(SET)
    assert await claim_names(rig) == ["data-web-0", "data-web-1"]
    assert await rig.pods() == []


async def test_claims_are_deleted_with_their_pod_or_their_set_on_request(rig):
    retention = {"whenScaled": "Delete", "whenDeleted": "Delete"}
    more = {"volumeClaimTemplates": [CLAIM], "persistentVolumeClaimRetentionPolicy": retention}
    await apply(rig, stateful_set(2, **more))
    await rig.settle()
    await apply(rig, stateful_set(1, **more))
    await rig.settle()
    assert await claim_names(rig) == ["data-web-0"]
    await rig.store.delete(SET)
    assert await claim_names(rig) == []


@pytest.mark.parametrize(("before", "after"), [("Delete", "Retain"), ("Retain", "Delete")])
async def test_a_changed_policy_decides_whether_claims_are_deleted_with_their_set(rig, before, after):
    for policy in (before, after):
        retention = {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": policy}}
        await apply(rig, stateful_set(2, volumeClaimTemplates=[CLAIM], **retention))
        await rig.settle()
    await rig.store.delete(SET)
    assert await claim_names(rig) == ([] if after == "Delete" else ["data-web-0", "data-web-1"])


async def test_claims_that_were_kept_on_purpose_stay_when_the_policy_for_scaling_changes(rig):
    for replicas in (3, 1):
        await apply(rig, stateful_set(replicas, volumeClaimTemplates=[CLAIM]))
        await rig.settle()
    more = {"volumeClaimTemplates": [CLAIM], "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}
    await apply(rig, stateful_set(1, **more))
    await rig.settle()
    assert await claim_names(rig) == ["data-web-0", "data-web-1", "data-web-2"]
    for replicas in (2, 1):
        await apply(rig, stateful_set(replicas, **more))
        await rig.settle()
    assert await claim_names(rig) == ["data-web-0", "data-web-2"]


async def mark_claim(rig: Any) -> Object:
    """Delete the claim of the first pod, which a finalizer keeps; return it."""
    claim = await rig.store.get(FIRST_CLAIM)
    protected = {**claim, "metadata": {**claim["metadata"], "finalizers": ["kubernetes.io/pvc-protection"]}}
    await rig.store.update(protected)
    return await rig.store.delete(FIRST_CLAIM)


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
async def test_a_pod_waits_until_its_deleted_claim_is_gone_and_gets_a_new_one(rig, policy):
    await apply(rig, stateful_set(1, volumeClaimTemplates=[CLAIM], podManagementPolicy=policy))
    await rig.settle()
    before = await mark_claim(rig)
    await rig.store.delete(Key("", "Pod", "default", "web-0"))
    await rig.settle()
    assert await names(rig) == []
    await rig.store.update({**before, "metadata": {**before["metadata"], "finalizers": []}})
    await rig.settle()
    assert await names(rig) == ["web-0"]
    assert (await rig.store.get(FIRST_CLAIM))["metadata"]["uid"] != before["metadata"]["uid"]


async def test_a_pod_without_its_claim_gets_a_new_one(rig):
    await apply(rig, stateful_set(1, volumeClaimTemplates=[CLAIM]))
    await rig.settle()
    await rig.store.delete(FIRST_CLAIM)
    await rig.settle(ready=lambda _: False)
    assert await claim_names(rig) == ["data-web-0"]


async def test_a_removed_claim_makes_the_controllers_decide_again(rig):
    running = asyncio.create_task(rig.controllers.run())
    await apply(rig, stateful_set(1, volumeClaimTemplates=[CLAIM]))

    async def pods_and_claims() -> bool:
        return bool(await rig.pods() and await claim_names(rig))

    await until(rig.store, pods_and_claims, 60)
    await rig.store.delete(FIRST_CLAIM)
    await until(rig.store, pods_and_claims, 60)
    running.cancel()


async def test_with_parallel_a_new_template_replaces_pods_that_never_become_ready(rig):
    await apply(rig, stateful_set(2, podManagementPolicy="Parallel"))
    await rig.settle(ready=lambda _: False)
    await apply(rig, stateful_set(2, command="two", podManagementPolicy="Parallel"))
    await rig.settle(ready=lambda _: False)
    assert await commands(rig) == {"web-0": "one", "web-1": "two"}
    await rig.settle(ready=lambda pod: pod["metadata"]["name"] == "web-1")
    assert await commands(rig) == {"web-0": "two", "web-1": "two"}


async def test_a_pod_that_has_failed_is_replaced_under_its_name(rig):
    await apply(rig, stateful_set(1))
    await rig.settle()
    (pod,) = await rig.pods()
    await rig.store.update({**pod, "status": {**pod["status"], "phase": "Failed"}}, subresource="status")
    await rig.settle()
    (replacement,) = await rig.pods()
    assert replacement["metadata"]["name"] == "web-0"
    assert replacement["metadata"]["uid"] != pod["metadata"]["uid"]


async def test_only_the_revisions_of_the_history_limit_are_kept(rig):
    for command in ("one", "two", "three", "four"):
        await apply(rig, stateful_set(1, command=command, revisionHistoryLimit=1))
        await rig.settle()
    revisions = await rig.all("apps", "ControllerRevision")
    assert sorted(revision["revision"] for revision in revisions) == [3, 4]


async def test_an_earlier_template_gets_the_newest_revision_again(rig):
    for command in ("one", "two", "one"):
        await apply(rig, stateful_set(1, command=command))
        await rig.settle()
    revisions = {revision["revision"]: revision for revision in await rig.all("apps", "ControllerRevision")}
    assert sorted(revisions) == [2, 3]
    template = revisions[3]["data"]["spec"]["template"]
    assert template["spec"]["containers"][0]["command"] == ["one"]


@pytest.mark.parametrize("orphan", [False, True])
async def test_pods_of_a_deleted_set_are_deleted_unless_they_are_orphaned_and_a_new_set_adopts_them(rig, orphan):
    await apply(rig, stateful_set(1))
    await rig.settle()
    before = [pod["metadata"]["uid"] for pod in await rig.pods()]
    await rig.store.delete(SET, orphan=orphan)
    await rig.settle()
    assert len(await rig.pods()) == orphan
    await apply(rig, stateful_set(1))
    await rig.settle()
    assert ([pod["metadata"]["uid"] for pod in await rig.pods()] == before) == orphan


async def test_a_new_set_adopts_the_revisions_of_an_orphaned_one(rig):
    for command in ("one", "two"):
        await apply(rig, stateful_set(1, command=command))
        await rig.settle()
    await rig.store.delete(SET, orphan=True)
    other = {"metadata": {"name": "web-other-1"}, "revision": 1}
    await rig.store.create({"apiVersion": "apps/v1", "kind": "ControllerRevision", **other})
    await apply(rig, stateful_set(1, command="one"))
    await rig.settle()
    uid = (await rig.store.get(SET))["metadata"]["uid"]
    owned = {
        revision["revision"]: [owner["uid"] for owner in revision["metadata"].get("ownerReferences") or ()]
        for revision in await rig.all("apps", "ControllerRevision")
    }
    assert owned == {1: [], 2: [uid], 3: [uid]}
