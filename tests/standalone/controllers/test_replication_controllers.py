from tests.make.objects import container, obj, pod_template

from headgate.resources.meta import Key

KEY = Key("", "ReplicationController", "default", "web")


async def test_a_replication_controller_keeps_its_number_of_pods_running(rig):
    spec = {"replicas": 2, "template": pod_template(container(), labels={"app": "web"})}
    await rig.store.create(rig.store.checked(obj("ReplicationController", "web", version="v1", spec=spec)).hub)
    await rig.settle()
    first, _ = await rig.pods()
    assert first["metadata"]["ownerReferences"][0]["kind"] == "ReplicationController"
    await rig.store.delete(Key("", "Pod", "default", first["metadata"]["name"]))
    await rig.settle()
    assert len(await rig.pods()) == 2
    stored = await rig.store.get(KEY)
    assert stored["spec"]["selector"] == {"app": "web"}
    assert (stored["status"]["replicas"], stored["status"]["readyReplicas"]) == (2, 2)
    await rig.store.update({**stored, "spec": {**stored["spec"], "replicas": 0}})
    await rig.settle()
    assert await rig.pods() == []
