from headgate.manifests.apply import APPLIED_FROM
from headgate.resources.meta import Key

KEY = Key("apps", "Deployment", "default", "web")


def condition(obj, type):
    return next(found for found in obj["status"]["conditions"] if found["type"] == type)


def versions(pods):
    return sorted(pod["spec"]["containers"][0]["command"][1] for pod in pods)


async def test_a_deployment_creates_a_replicaset_and_pods(world, deployment):
    await world.store.create(deployment(replicas=3))
    await world.settle()
    (replicaset,) = await world.all("apps", "ReplicaSet")
    pods = await world.pods()
    assert replicaset["metadata"]["name"].startswith("web-")
    assert len(pods) == 3
    for pod in pods:
        assert pod["metadata"]["name"].startswith(replicaset["metadata"]["name"] + "-")
        assert pod["metadata"]["labels"]["pod-template-hash"] in replicaset["metadata"]["name"]
        assert pod["metadata"]["ownerReferences"][0]["uid"] == replicaset["metadata"]["uid"]
    stored = await world.store.get(KEY)
    assert stored["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    assert stored["status"]["readyReplicas"] == stored["status"]["availableReplicas"] == 3
    assert stored["status"]["observedGeneration"] == stored["metadata"]["generation"]
    assert condition(stored, "Available")["status"] == "True"
    assert condition(stored, "Progressing")["reason"] == "NewReplicaSetAvailable"


async def test_a_replicaset_does_not_inherit_the_annotation_of_applied_objects(world, deployment):
    """With this annotation, the ReplicaSet would be pruned, because no manifest file contains it."""
    annotations = {APPLIED_FROM: "web.yaml", "kubernetes.io/change-cause": "the first one"}
    await world.store.create({**deployment(), "metadata": {"name": "web", "annotations": annotations}})
    await world.settle()
    (replicaset,) = await world.all("apps", "ReplicaSet")
    assert APPLIED_FROM not in replicaset["metadata"]["annotations"]
    assert replicaset["metadata"]["annotations"]["kubernetes.io/change-cause"] == "the first one"


async def test_a_reconciled_deployment_causes_no_writes(world, deployment):
    await world.store.create(deployment())
    await world.settle()
    before = world.store.revision
    world.now += 3600
    await world.controllers.reconcile("default")
    assert world.store.revision == before


async def test_a_deployment_is_not_available_before_its_pods_are_ready(world, deployment):
    await world.store.create(deployment())
    await world.settle(ready=lambda _: False)
    stored = await world.store.get(KEY)
    assert condition(stored, "Available")["reason"] == "MinimumReplicasUnavailable"
    assert stored["status"]["unavailableReplicas"] == 2
    world.now += 601
    await world.settle(ready=lambda _: False)
    assert condition(await world.store.get(KEY), "Progressing")["reason"] == "ProgressDeadlineExceeded"
    await world.settle()
    assert condition(await world.store.get(KEY), "Progressing")["reason"] == "NewReplicaSetAvailable"


async def test_a_new_template_replaces_the_pods_and_keeps_the_history(world, deployment):
    await world.store.create(deployment())
    await world.settle()
    await world.store.update(deployment(version="v2"))
    await world.settle()
    assert versions(await world.pods()) == ["v2", "v2"]
    sizes = [found["spec"]["replicas"] for found in await world.all("apps", "ReplicaSet")]
    assert sorted(sizes) == [0, 2]
    stored = await world.store.get(KEY)
    assert stored["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


async def test_a_rollout_to_a_broken_template_keeps_the_old_pods(world, deployment):
    await world.store.create(deployment(replicas=4))
    await world.settle()
    await world.store.update(deployment(replicas=4, version="broken"))
    await world.settle(ready=lambda pod: "broken" not in pod["spec"]["containers"][0]["command"])
    assert versions(await world.pods()) == ["broken", "broken", "v1", "v1", "v1"]
    stored = await world.store.get(KEY)
    assert condition(stored, "Available")["status"] == "True"


async def test_a_rollback_gives_the_old_replicaset_a_new_revision(world, deployment):
    for version in ("v1", "v2", "v1"):
        wanted = deployment(version=version)
        await (world.store.update(wanted) if await world.all("apps", "Deployment") else world.store.create(wanted))
        await world.settle()
    assert versions(await world.pods()) == ["v1", "v1"]
    assert len(await world.all("apps", "ReplicaSet")) == 2
    stored = await world.store.get(KEY)
    assert stored["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"


async def test_old_replicasets_beyond_the_history_limit_are_deleted(world, deployment):
    await world.store.create(deployment(revisionHistoryLimit=1))
    await world.settle()
    for version in ("v2", "v3", "v4"):
        await world.store.update(deployment(version=version, revisionHistoryLimit=1))
        await world.settle()
    revisions = {
        found["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
        for found in await world.all("apps", "ReplicaSet")
    }
    assert revisions == {"3", "4"}


async def test_recreate_starts_new_pods_after_all_old_pods_have_ended(world, deployment):
    recreate = {"strategy": {"type": "Recreate"}}
    await world.store.create(deployment(**recreate))
    await world.settle()
    for pod in await world.pods():  # the finalizer represents a process that has not ended yet
        await world.store.update({**pod, "metadata": {**pod["metadata"], "finalizers": ["headgate.dev/process"]}})
    await world.store.update(deployment(version="v2", **recreate))
    await world.settle()
    assert versions(await world.pods()) == ["v1", "v1"]
    for pod in await world.pods():
        await world.store.update({**pod, "metadata": {**pod["metadata"], "finalizers": None}})
    await world.settle()
    assert versions(await world.pods()) == ["v2", "v2"]


async def test_a_paused_deployment_scales_without_a_rollout(world, deployment):
    await world.store.create(deployment())
    await world.settle()
    await world.store.update(deployment(version="v2", replicas=3, paused=True))
    await world.settle()
    assert versions(await world.pods()) == ["v1", "v1", "v1"]
    assert condition(await world.store.get(KEY), "Progressing")["reason"] == "DeploymentPaused"
    await world.store.update(deployment(version="v2", replicas=3))
    await world.settle()
    assert versions(await world.pods()) == ["v2", "v2", "v2"]


async def test_a_deployment_adopts_replicasets_without_an_owner(world, deployment):
    await world.store.create(deployment())
    await world.settle()
    before = {pod["metadata"]["uid"] for pod in await world.pods()}
    await world.store.delete(KEY, orphan=True)
    await world.store.create(deployment())
    await world.settle()
    assert {pod["metadata"]["uid"] for pod in await world.pods()} == before


async def test_min_ready_seconds_delay_availability(world, deployment):
    await world.store.create(deployment(minReadySeconds=30))
    await world.settle()
    assert "availableReplicas" not in (await world.store.get(KEY))["status"]
    world.now += 31
    await world.settle()
    assert (await world.store.get(KEY))["status"]["availableReplicas"] == 2


async def test_deleting_a_deployment_deletes_its_replicasets_and_pods(world, deployment):
    await world.store.create(deployment())
    await world.settle()
    await world.store.delete(KEY)
    assert await world.pods() == []
    assert await world.all("apps", "ReplicaSet") == []


async def test_a_deployment_whose_selector_does_not_match_its_template_is_reported(world, deployment):
    await world.store.create(deployment(selector={"matchLabels": {"app": "other"}}))
    await world.settle()
    await world.settle()
    assert await world.pods() == []
    (event,) = await world.all("", "Event")
    assert "spec.selector: does not select the labels of spec.template" in event["message"]
    assert event["count"] == 1


async def test_an_invalid_deployment_does_not_affect_other_deployments(world, deployment):
    await world.store.create(deployment("bad", replicas="two"))
    await world.store.create(deployment())
    await world.settle()
    assert len(await world.pods()) == 2
    messages = [event["message"] for event in await world.all("", "Event")]
    assert messages == ["spec.replicas: must be a whole number, not text"]
