from typing import Any

from tests.make.objects import container, deployment

from headgate.manifests.apply import APPLIED_FROM
from headgate.resources.meta import Key

KEY = Key("apps", "Deployment", "default", "web")


def web_deployment(replicas: int = 2, version: str = "v1", **spec: Any) -> dict[str, Any]:
    """Return a Deployment whose pods run `version`."""
    return deployment("web", container(command=["app", version]), replicas=replicas, **spec)


def condition(obj, type):
    return next(found for found in obj["status"]["conditions"] if found["type"] == type)


def versions(pods):
    return sorted(pod["spec"]["containers"][0]["command"][1] for pod in pods)


async def test_a_deployment_creates_a_replicaset_and_pods(rig):
    await rig.store.create(web_deployment(replicas=3))
    await rig.settle()
    (replicaset,) = await rig.all("apps", "ReplicaSet")
    pods = await rig.pods()
    assert replicaset["metadata"]["name"].startswith("web-")
    assert len(pods) == 3
    for pod in pods:
        assert pod["metadata"]["name"].startswith(replicaset["metadata"]["name"] + "-")
        assert pod["metadata"]["labels"]["pod-template-hash"] in replicaset["metadata"]["name"]
        assert pod["metadata"]["ownerReferences"][0]["uid"] == replicaset["metadata"]["uid"]
    stored = await rig.store.get(KEY)
    assert stored["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    assert stored["status"]["readyReplicas"] == stored["status"]["availableReplicas"] == 3
    assert stored["status"]["observedGeneration"] == stored["metadata"]["generation"]
    assert condition(stored, "Available")["status"] == "True"
    assert condition(stored, "Progressing")["reason"] == "NewReplicaSetAvailable"


async def test_a_replicaset_does_not_inherit_the_annotation_of_applied_objects(rig):
    """With this annotation, the ReplicaSet would be pruned, because no manifest file contains it."""
    annotations = {APPLIED_FROM: "web.yaml", "kubernetes.io/change-cause": "the first one"}
    await rig.store.create({**web_deployment(), "metadata": {"name": "web", "annotations": annotations}})
    await rig.settle()
    (replicaset,) = await rig.all("apps", "ReplicaSet")
    assert APPLIED_FROM not in replicaset["metadata"]["annotations"]
    assert replicaset["metadata"]["annotations"]["kubernetes.io/change-cause"] == "the first one"


async def test_a_reconciled_deployment_causes_no_writes(rig):
    await rig.store.create(web_deployment())
    await rig.settle()
    before = rig.store.revision
    rig.now += 3600
    await rig.controllers.reconcile("default")
    assert rig.store.revision == before


async def test_a_deployment_is_not_available_before_its_pods_are_ready(rig):
    await rig.store.create(web_deployment())
    await rig.settle(ready=lambda _: False)
    stored = await rig.store.get(KEY)
    assert condition(stored, "Available")["reason"] == "MinimumReplicasUnavailable"
    assert stored["status"]["unavailableReplicas"] == 2
    rig.now += 601
    await rig.settle(ready=lambda _: False)
    assert condition(await rig.store.get(KEY), "Progressing")["reason"] == "ProgressDeadlineExceeded"
    await rig.settle()
    assert condition(await rig.store.get(KEY), "Progressing")["reason"] == "NewReplicaSetAvailable"


async def test_a_new_template_replaces_the_pods_and_keeps_the_history(rig):
    await rig.store.create(web_deployment())
    await rig.settle()
    await rig.store.update(web_deployment(version="v2"))
    await rig.settle()
    assert versions(await rig.pods()) == ["v2", "v2"]
    sizes = [found["spec"]["replicas"] for found in await rig.all("apps", "ReplicaSet")]
    assert sorted(sizes) == [0, 2]
    stored = await rig.store.get(KEY)
    assert stored["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


async def test_a_rollout_to_a_broken_template_keeps_the_old_pods(rig):
    await rig.store.create(web_deployment(replicas=4))
    await rig.settle()
    await rig.store.update(web_deployment(replicas=4, version="broken"))
    await rig.settle(ready=lambda pod: "broken" not in pod["spec"]["containers"][0]["command"])
    assert versions(await rig.pods()) == ["broken", "broken", "v1", "v1", "v1"]
    stored = await rig.store.get(KEY)
    assert condition(stored, "Available")["status"] == "True"


async def test_a_rollback_gives_the_old_replicaset_a_new_revision(rig):
    for version in ("v1", "v2", "v1"):
        wanted = web_deployment(version=version)
        await (rig.store.update(wanted) if await rig.all("apps", "Deployment") else rig.store.create(wanted))
        await rig.settle()
    assert versions(await rig.pods()) == ["v1", "v1"]
    assert len(await rig.all("apps", "ReplicaSet")) == 2
    stored = await rig.store.get(KEY)
    assert stored["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"


async def test_old_replicasets_beyond_the_history_limit_are_deleted(rig):
    await rig.store.create(web_deployment(revisionHistoryLimit=1))
    await rig.settle()
    for version in ("v2", "v3", "v4"):
        await rig.store.update(web_deployment(version=version, revisionHistoryLimit=1))
        await rig.settle()
    revisions = {
        found["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
        for found in await rig.all("apps", "ReplicaSet")
    }
    assert revisions == {"3", "4"}


async def test_recreate_starts_new_pods_after_all_old_pods_have_ended(rig):
    recreate = {"strategy": {"type": "Recreate"}}
    await rig.store.create(web_deployment(**recreate))
    await rig.settle()
    for pod in await rig.pods():  # the finalizer represents a process that has not ended yet
        await rig.store.update({**pod, "metadata": {**pod["metadata"], "finalizers": ["headgate.dev/stop-process"]}})
    await rig.store.update(web_deployment(version="v2", **recreate))
    await rig.settle()
    assert versions(await rig.pods()) == ["v1", "v1"]
    for pod in await rig.pods():
        await rig.store.update({**pod, "metadata": {**pod["metadata"], "finalizers": None}})
    await rig.settle()
    assert versions(await rig.pods()) == ["v2", "v2"]


async def test_a_paused_deployment_scales_without_a_rollout(rig):
    await rig.store.create(web_deployment())
    await rig.settle()
    await rig.store.update(web_deployment(version="v2", replicas=3, paused=True))
    await rig.settle()
    assert versions(await rig.pods()) == ["v1", "v1", "v1"]
    assert condition(await rig.store.get(KEY), "Progressing")["reason"] == "DeploymentPaused"
    await rig.store.update(web_deployment(version="v2", replicas=3))
    await rig.settle()
    assert versions(await rig.pods()) == ["v2", "v2", "v2"]


async def test_a_deployment_adopts_replicasets_without_an_owner(rig):
    await rig.store.create(web_deployment())
    await rig.settle()
    before = {pod["metadata"]["uid"] for pod in await rig.pods()}
    await rig.store.delete(KEY, orphan=True)
    await rig.store.create(web_deployment())
    await rig.settle()
    assert {pod["metadata"]["uid"] for pod in await rig.pods()} == before


async def test_min_ready_seconds_delay_availability(rig):
    await rig.store.create(web_deployment(minReadySeconds=30))
    await rig.settle()
    assert "availableReplicas" not in (await rig.store.get(KEY))["status"]
    rig.now += 31
    await rig.settle()
    assert (await rig.store.get(KEY))["status"]["availableReplicas"] == 2


async def test_deleting_a_deployment_deletes_its_replicasets_and_pods(rig):
    await rig.store.create(web_deployment())
    await rig.settle()
    await rig.store.delete(KEY)
    assert await rig.pods() == []
    assert await rig.all("apps", "ReplicaSet") == []


async def test_a_deployment_whose_selector_does_not_match_its_template_is_reported(rig):
    await rig.store.create(web_deployment(selector={"matchLabels": {"app": "other"}}))
    await rig.settle()
    await rig.settle()
    assert await rig.pods() == []
    (event,) = await rig.all("", "Event")
    assert "spec.selector: does not select the labels of spec.template" in event["message"]
    assert event["count"] == 1


async def test_an_invalid_deployment_does_not_affect_other_deployments(rig):
    await rig.store.create(deployment("bad", replicas="two"))
    await rig.store.create(web_deployment())
    await rig.settle()
    assert len(await rig.pods()) == 2
    messages = [event["message"] for event in await rig.all("", "Event") if event["type"] == "Warning"]
    assert messages == ["spec.replicas: must be a whole number, not text"]
