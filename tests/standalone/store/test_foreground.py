import pytest
from tests.make.objects import config_map, owner_reference

from headgate.errors import NotFound
from headgate.resources.meta import Key
from headgate.standalone.store.foreground import requested
from headgate.standalone.store.memory import MemoryStore


def key(name: str) -> Key:
    return Key("", "ConfigMap", "default", name)


async def test_an_object_that_is_deleted_in_the_foreground_stays_until_its_dependents_are_gone():
    store = MemoryStore()
    parent = await store.create(config_map("parent"))
    reference = owner_reference(parent, blockOwnerDeletion=True)
    child = await store.create(config_map("child", metadata={"ownerReferences": [reference], "finalizers": ["a/b"]}))
    below = owner_reference(child, blockOwnerDeletion=True)
    await store.create(config_map("grandchild", metadata={"ownerReferences": [below], "finalizers": ["a/b"]}))
    await store.update(requested(parent))
    await store.delete(key("parent"))
    for name in ("grandchild", "child"):
        assert (await store.get(key("parent")))["metadata"]["deletionTimestamp"]
        left = await store.get(key(name))
        assert left["metadata"]["deletionTimestamp"]
        finalizers = [finalizer for finalizer in left["metadata"]["finalizers"] if finalizer != "a/b"]
        await store.update({**left, "metadata": {**left["metadata"], "finalizers": finalizers}})
    for name in ("parent", "child", "grandchild"):
        with pytest.raises(NotFound):
            await store.get(key(name))


async def test_an_object_is_gone_with_dependents_that_nothing_keeps():
    store = MemoryStore()
    parent = await store.create(config_map("parent"))
    reference = owner_reference(parent, blockOwnerDeletion=True)
    await store.create(config_map("child", metadata={"ownerReferences": [reference]}))
    await store.update(requested(parent))
    await store.delete(key("parent"))
    assert (await store.list("", "ConfigMap", "default")).items == []


async def test_an_object_without_dependents_is_deleted_at_once_in_the_foreground():
    store = MemoryStore()
    await store.update(requested(await store.create(config_map("parent"))))
    await store.delete(key("parent"))
    with pytest.raises(NotFound):
        await store.get(key("parent"))


async def test_owners_of_each_other_are_deleted_in_the_foreground():
    store = MemoryStore()
    first = await store.create(config_map("first"))
    second = await store.create(
        config_map("second", metadata={"ownerReferences": [owner_reference(first, blockOwnerDeletion=True)]})
    )
    cycle = {"ownerReferences": [owner_reference(second, blockOwnerDeletion=True)]}
    await store.update(requested({**first, "metadata": {**first["metadata"], **cycle}}))
    await store.delete(key("first"))
    assert [obj["metadata"]["name"] for obj in (await store.list("", "ConfigMap", "default")).items] == []


async def test_a_dependent_with_another_owner_stays_and_loses_its_deleted_owner():
    store = MemoryStore()
    parents = [await store.create(config_map(name)) for name in ("parent", "other")]
    references = [owner_reference(parent, blockOwnerDeletion=True) for parent in parents]
    await store.create(config_map("child", metadata={"ownerReferences": references}))
    await store.update(requested(parents[0]))
    await store.delete(key("parent"))
    with pytest.raises(NotFound):
        await store.get(key("parent"))
    child = await store.get(key("child"))
    assert "deletionTimestamp" not in child["metadata"]
    assert [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["other"]
