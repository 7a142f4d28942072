"""The embedded store follows the rules of a Kubernetes API server."""

import asyncio
import re

import pytest
from tests.decoding import admitting
from tests.make.objects import config_map, namespace, owner_reference, split
from tests.watching import changes_after

from headgate.errors import AlreadyExists, Cause, Conflict, Gone, Invalid, NotFound, TooLarge, Unavailable
from headgate.resources.meta import Key
from headgate.standalone.store.memory import LARGEST_OBJECT, MemoryStore

SPLITS = "split.smi-spec.io"


def map_with(name, namespace="default", *, data=None, **metadata):
    """Return a ConfigMap with fields of its metadata, also invalid ones."""
    return config_map(name, data, namespace=namespace, metadata=metadata)


def weighted_split(name="birds", weight=1):
    """Return a split that leaves its namespace to the store."""
    return split("birds", {"blue": weight}, name=name, namespace="")


def key(name, namespace="default", kind="ConfigMap", group=""):
    return Key(group, kind, namespace, name)


def owned(by, name="child", **metadata):
    return map_with(name, ownerReferences=[owner_reference(by)], **metadata)


def edited(obj, **metadata):
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


async def names(store, kind="ConfigMap", namespace=""):
    listing = await store.list("", kind, namespace)
    return [(obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) for obj in listing.items]


async def changes_since(store, since):
    return [(change.type, change.key.kind, change.key.name) for change in await changes_after(store, since)]


async def test_a_new_object_gets_the_metadata_of_an_api_server():
    store = MemoryStore()
    before = store.revision
    made = await store.create(weighted_split())
    metadata = made["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert (metadata["generation"], metadata["resourceVersion"]) == (1, str(before + 1))
    assert metadata["namespace"] == "default"
    assert await store.get(key("birds", kind="TrafficSplit", group=SPLITS)) == made


async def test_a_create_does_not_modify_the_callers_object():
    given = weighted_split()
    await MemoryStore().create(given)
    assert given == weighted_split()


async def test_a_new_store_has_the_system_namespaces_and_their_service_accounts():
    store = MemoryStore()
    await store.create(namespace("shop"))
    assert await names(store, "Namespace") == [("", "default"), ("", "kube-system"), ("", "shop")]
    assert await names(store, "ServiceAccount") == [
        ("default", "default"),
        ("kube-system", "default"),
        ("shop", "default"),
    ]
    shop = await store.get(key("shop", "", "Namespace"))
    assert shop["status"] == {"phase": "Active"}


async def test_a_new_object_with_generate_name_gets_a_generated_name():
    made = await MemoryStore().create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "run-"}, "data": {}}
    )
    assert re.fullmatch(r"run-[bcdfghjklmnpqrstvwxz2456789]{5}", made["metadata"]["name"])


async def test_a_create_with_an_existing_name_is_rejected():
    store = MemoryStore()
    await store.create(weighted_split())
    with pytest.raises(AlreadyExists, match=r'trafficsplits\.split\.smi-spec\.io "birds" already exists'):
        await store.create(weighted_split())


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        (map_with("Upper"), "metadata.name"),
        (map_with("a" * 254), "metadata.name"),
        ({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a.b"}}, "metadata.name"),
        (namespace("a.b"), "metadata.name"),
        (map_with(""), "metadata.name"),
        (map_with(7), "metadata.name"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "Upper-"}}, "metadata.name"),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, "metadata"),
        (map_with("x", labels={"a": 1}), "metadata.labels.a"),
        (map_with("x", labels={"-": "v"}), "metadata.labels.-"),
        (map_with("x", labels={"a": "white space"}), "metadata.labels.a"),
        (map_with("x", annotations=["a"]), "metadata.annotations"),
        (map_with("x", annotations={"a": "x" * 300_000}), "metadata.annotations"),
        (map_with("x", finalizers="one"), "metadata.finalizers"),
        (map_with("x", ownerReferences=[{"kind": "Pod"}]), "metadata.ownerReferences[0].apiVersion"),
        ({"apiVersion": "v1", "kind": "Toaster", "metadata": {"name": "x"}}, "kind"),
        (weighted_split() | {"apiVersion": f"{SPLITS}/v1alpha2"}, "apiVersion"),
    ],
)
async def test_invalid_metadata_is_rejected_with_the_field(obj, field):
    with pytest.raises(Invalid) as caught:
        await MemoryStore().create(obj)
    assert caught.value.causes[0].field == field


async def test_a_create_in_a_missing_namespace_names_the_command_to_create_it():
    with pytest.raises(NotFound, match=r'namespaces "shop" not found: create it first .*kubectl create namespace shop'):
        await MemoryStore().create(map_with("x", "shop"))


async def test_only_an_update_of_the_spec_increments_the_generation():
    store = MemoryStore()
    made = await store.create(weighted_split(weight=1))
    labelled = await store.update(edited(made, labels={"a": "b"}))
    heavier = await store.update(edited(weighted_split(weight=2)))
    assert labelled["metadata"]["generation"] == 1
    assert heavier["metadata"]["generation"] == 2
    assert heavier["metadata"]["uid"] == made["metadata"]["uid"]
    assert "labels" not in heavier["metadata"]


async def test_an_update_with_equal_content_changes_nothing():
    store = MemoryStore()
    made = await store.create(weighted_split())
    revision = store.revision
    assert await store.update(weighted_split()) == made
    assert store.revision == revision


async def test_an_update_of_an_older_version_conflicts():
    store = MemoryStore()
    first = await store.create(weighted_split())
    await store.update(weighted_split(weight=2))
    with pytest.raises(Conflict, match="the object has been modified"):
        await store.update({**weighted_split(weight=3), "metadata": first["metadata"]})


async def test_an_update_with_the_uid_of_an_earlier_object_conflicts():
    store = MemoryStore()
    await store.create(weighted_split())
    with pytest.raises(Conflict, match="uid"):
        await store.update(edited(weighted_split(), uid="b7c4"))
    with pytest.raises(NotFound, match='"other" not found'):
        await store.update(weighted_split("other"))


async def test_only_the_status_subresource_writes_the_status():
    store = MemoryStore()
    made = await store.create({**weighted_split(), "status": {"from": "user"}})
    assert "status" not in made
    reported = await store.update({**weighted_split(weight=5), "status": {"conditions": []}}, subresource="status")
    assert reported["status"] == {"conditions": []}
    assert reported["spec"] == made["spec"]
    assert reported["metadata"]["generation"] == 1
    heavier = await store.update({**weighted_split(weight=5), "status": {"from": "user"}})
    assert heavier["status"] == {"conditions": []}
    assert heavier["spec"]["backends"][0]["weight"] == 5


async def test_a_status_update_of_a_kind_without_status_is_rejected():
    store = MemoryStore()
    await store.create(map_with("x"))
    with pytest.raises(NotFound, match="configmaps have no status"):
        await store.update({**map_with("x"), "status": {}}, subresource="status")


async def test_a_dry_run_returns_the_result_and_stores_nothing():
    store = MemoryStore()
    revision = store.revision
    made = await store.create(weighted_split(), dry_run=True)
    assert made["metadata"]["generation"] == 1
    stored = await store.create(weighted_split())
    tried = await store.update(weighted_split(weight=9), dry_run=True)
    assert tried["spec"]["backends"][0]["weight"] == 9
    await store.delete(key("birds", kind="TrafficSplit", group=SPLITS), dry_run=True)
    assert await store.get(key("birds", kind="TrafficSplit", group=SPLITS)) == stored
    assert store.revision == revision + 1


async def test_admission_can_change_and_reject_objects():
    def admit(new, old, _view):
        if new["data"].get("bad"):
            raise Invalid(Cause("data.bad", "is not allowed"))
        return {**new, "data": {**new["data"], "seen": "update" if old else "create"}}

    store = MemoryStore(admit=admitting(admit))
    made = await store.create(map_with("x"))
    assert made["data"] == {"seen": "create"}
    changed = await store.update(map_with("x"))
    assert changed["data"] == {"seen": "update"}
    with pytest.raises(Invalid, match=r"data\.bad: is not allowed"):
        await store.update(map_with("x", data={"bad": "1"}))
    assert await store.get(key("x")) == changed


async def test_a_list_is_sorted_and_can_be_limited_to_a_namespace():
    store = MemoryStore()
    await store.create(namespace("a"))
    await store.create(namespace("a-b"))
    for name, space in (("z", "a"), ("b", "default"), ("a", "default"), ("x", "a-b"), ("y", "a")):
        await store.create(map_with(name, space))
    assert await names(store) == [("a", "y"), ("a", "z"), ("a-b", "x"), ("default", "a"), ("default", "b")]
    assert await names(store, namespace="a") == [("a", "y"), ("a", "z")]
    assert (await store.list("", "ConfigMap")).version == str(store.revision)


async def test_the_deletion_of_an_owner_deletes_its_dependents():
    store = MemoryStore()
    parent = await store.create(map_with("parent"))
    child = await store.create(owned(parent))
    await store.create(owned(child, "grandchild"))
    since = store.revision
    await store.delete(key("parent"))
    assert await names(store) == []
    assert await changes_since(store, since) == [
        ("DELETED", "ConfigMap", "parent"),
        ("DELETED", "ConfigMap", "child"),
        ("DELETED", "ConfigMap", "grandchild"),
    ]


async def test_an_object_whose_owner_is_of_an_unknown_kind_stays():
    """As in Kubernetes: the store can't know whether such an owner exists."""
    store = MemoryStore()
    rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "demo", "uid": "0-1-2"}
    obj = map_with("x")
    await store.create({**obj, "metadata": {**obj["metadata"], "ownerReferences": [rollout]}})
    assert await names(store) == [("default", "x")]


async def test_the_deletion_of_an_owner_deletes_a_long_chain_of_dependents():
    store = MemoryStore()
    obj = await store.create(map_with("c0"))
    for index in range(1, 2000):
        obj = await store.create(owned(obj, f"c{index}"))
    await store.delete(key("c0"))
    assert await names(store) == []


async def test_an_object_with_two_owners_is_deleted_with_the_last_owner():
    store = MemoryStore()
    first, second = [await store.create(map_with(name)) for name in ("first", "second")]
    references = [*owned(first)["metadata"]["ownerReferences"], *owned(second)["metadata"]["ownerReferences"]]
    await store.create(map_with("child", ownerReferences=references))
    await store.delete(key("first"))
    child = await store.get(key("child"))
    assert [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["second"]
    await store.delete(key("second"))
    assert await names(store) == []


async def test_orphaned_dependents_stay_and_lose_their_owner_reference():
    store = MemoryStore()
    parent = await store.create(map_with("parent"))
    await store.create(owned(parent))
    await store.delete(key("parent"), orphan=True)
    assert "ownerReferences" not in (await store.get(key("child")))["metadata"]


async def test_a_new_object_whose_owner_does_not_exist_is_deleted():
    store = MemoryStore()
    parent = await store.create(map_with("parent"))
    await store.delete(key("parent"))
    made = await store.create(owned(parent))
    assert made["metadata"]["name"] == "child"
    assert await names(store) == []


async def test_an_object_is_deleted_when_its_last_finalizer_is_removed():
    store = MemoryStore()
    parent = await store.create(map_with("parent", finalizers=["example.com/wait"]))
    await store.create(owned(parent))
    marked = await store.delete(key("parent"))
    assert marked["metadata"]["deletionTimestamp"]
    assert await store.delete(key("parent")) == marked
    assert await names(store) == [("default", "child"), ("default", "parent")]
    with pytest.raises(Invalid, match="being deleted"):
        await store.update(edited(marked, finalizers=["example.com/wait", "example.com/more"]))
    await store.update(edited(marked, finalizers=[]))
    assert await names(store) == []


async def test_a_deletion_with_a_failed_precondition_conflicts():
    store = MemoryStore()
    made = await store.create(map_with("x"))
    with pytest.raises(Conflict, match="uid"):
        await store.delete(key("x"), uid="other")
    with pytest.raises(Conflict, match="modified"):
        await store.delete(key("x"), resource_version="1")
    metadata = made["metadata"]
    await store.delete(key("x"), uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    with pytest.raises(NotFound, match='configmaps "x" not found'):
        await store.delete(key("x"))


async def test_deleting_a_namespace_deletes_its_contents():
    store = MemoryStore()
    await store.create(namespace("shop"))
    await store.create(map_with("x", "shop"))
    await store.create(map_with("x"))
    await store.delete(key("shop", "", "Namespace"))
    assert await names(store) == [("default", "x")]
    assert ("shop", "default") not in await names(store, "ServiceAccount")
    assert ("", "shop") not in await names(store, "Namespace")


async def test_a_namespace_terminates_until_the_finalizers_of_its_contents_are_removed():
    store = MemoryStore()
    await store.create(namespace("shop"))
    held = await store.create(map_with("x", "shop", finalizers=["example.com/wait"]))
    terminating = await store.delete(key("shop", "", "Namespace"))
    assert terminating["status"] == {"phase": "Terminating"}
    with pytest.raises(Invalid, match="because it is being terminated"):
        await store.create(map_with("y", "shop"))
    await store.update(edited(map_with("x", "shop"), uid=held["metadata"]["uid"]))
    assert ("", "shop") not in await names(store, "Namespace")


@pytest.mark.parametrize("name", ["default", "kube-system"])
async def test_deleting_a_system_namespace_is_rejected(name):
    with pytest.raises(Invalid, match="is a system namespace"):
        await MemoryStore().delete(key(name, "", "Namespace"))


async def test_a_watch_yields_past_changes_after_its_revision_and_new_changes():
    store = MemoryStore()
    since = store.revision
    await store.create(map_with("a"))
    watch = store.watch("", "ConfigMap", since=str(since))
    assert (await anext(watch)).key.name == "a"
    waiting = asyncio.ensure_future(anext(watch))
    await store.create(weighted_split())
    await store.delete(key("a"))
    change = await waiting
    assert (change.type, change.key.name, change.version) == ("DELETED", "a", str(store.revision))
    assert change.object["metadata"]["resourceVersion"] == str(store.revision)
    await watch.aclose()


async def test_a_watch_can_be_limited_to_a_namespace():
    store = MemoryStore()
    await store.create(namespace("shop"))
    since = store.revision
    await store.create(map_with("a"))
    await store.create(weighted_split())
    await store.create(map_with("b", "shop"))
    assert await changes_since(store, since) == [
        ("ADDED", "ConfigMap", "a"),
        ("ADDED", "TrafficSplit", "birds"),
        ("ADDED", "ConfigMap", "b"),
    ]
    watch = store.watch("", "ConfigMap", "shop", since=str(since))
    assert (await anext(watch)).key == key("b", "shop")
    await watch.aclose()


async def test_a_watch_from_a_discarded_revision_raises_gone():
    store = MemoryStore(history=5)
    since = store.revision
    slow = store.watch("", "ConfigMap", since=str(since))
    await store.create(map_with("a"))
    assert (await anext(slow)).key.name == "a"
    for name in "bcdefgh":
        await store.create(map_with(name))
    for watch in (
        slow,
        *(store.watch("", "ConfigMap", since=version) for version in (str(since), str(store.revision + 1), "x")),
    ):
        with pytest.raises(Gone, match="list again"):
            await anext(watch)
    kept = store.watch("", "ConfigMap", since=str(store.revision - 5))
    assert [(await anext(kept)).key.name for _ in range(5)] == list("defgh")
    await kept.aclose()


class FullDisk:
    """A journal whose writes fail while `full` is set."""

    def __init__(self):
        self.full = False

    def load(self):
        return 0, ()

    def append(self, _changes):
        if self.full:
            raise Unavailable("the disk is full")


async def test_a_change_that_the_journal_rejects_is_rolled_back():
    journal = FullDisk()
    store = MemoryStore(journal=journal)
    parent = await store.create(map_with("parent"))
    child = await store.create(owned(parent))
    revision = store.revision
    journal.full = True
    for call in (
        store.create(weighted_split()),
        store.update(map_with("parent", data={"a": "b"})),
        store.delete(key("parent")),
        store.create(namespace("shop")),
    ):
        with pytest.raises(Unavailable, match="disk is full"):
            await call
    assert store.revision == revision
    assert list((await store.list("", "ConfigMap")).items) == [child, parent]
    journal.full = False
    await store.delete(key("parent"))
    assert await changes_since(store, revision) == [
        ("DELETED", "ConfigMap", "parent"),
        ("DELETED", "ConfigMap", "child"),
    ]


# --- apply: headgate writes its own fields of objects that other managers write as well


async def test_an_apply_creates_an_object_and_later_keeps_fields_of_other_managers():
    store = MemoryStore()
    await store.apply(map_with("roots", data={"a": "1", "b": "1"}), manager="headgate")
    await store.update(edited(await store.get(key("roots")), labels={"team": "shop"}))
    found = await store.apply(map_with("roots", data={"a": "2"}), manager="headgate")
    assert found == await store.get(key("roots"))
    assert (found["data"], found["metadata"]["labels"]) == ({"a": "2"}, {"team": "shop"})
    assert [entry["manager"] for entry in found["metadata"]["managedFields"]] == ["headgate"]


async def test_an_apply_takes_over_only_the_fields_that_it_sets():
    store = MemoryStore()
    await store.apply(map_with("roots", data={"a": "1", "b": "1"}), manager="user")
    found = await store.apply(map_with("roots", data={"a": "2"}), manager="headgate")
    assert found["data"] == {"a": "2", "b": "1"}
    again = await store.apply(map_with("roots", data={"a": "2"}), manager="headgate")
    assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def test_an_apply_of_status_fields_changes_no_other_field():
    store = MemoryStore()
    await store.create(weighted_split())
    stored = await store.get(key("birds", kind="TrafficSplit", group=SPLITS))
    await store.update({**stored, "status": {"conditions": []}}, subresource="status")
    part = {**weighted_split(weight=9), "status": {"observedGeneration": 1}}
    found = await store.apply(part, manager="headgate", subresource="status")
    assert found["status"] == {"conditions": [], "observedGeneration": 1}
    assert found["spec"]["backends"][0]["weight"] == 1


async def test_an_apply_raises_not_found_for_a_missing_namespace_or_the_status_of_a_missing_object():
    store = MemoryStore()
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        await store.apply(map_with("roots", "nowhere"), manager="headgate")
    with pytest.raises(NotFound, match="birds"):
        await store.apply({**weighted_split(), "status": {}}, manager="headgate", subresource="status")


async def test_the_size_of_an_object_is_limited_after_each_kind_of_write():
    store = MemoryStore()
    half, whole = "a" * (LARGEST_OBJECT // 2), "a" * LARGEST_OBJECT
    with pytest.raises(TooLarge):
        await store.create(map_with("large", data={"a": whole}))
    stored = await store.create(map_with("map", data={"a": half}))
    revision = store.revision
    for write in (
        store.update({**stored, "data": {"a": whole}}),
        store.update({**stored, "data": {"a": half, "b": half}}, dry_run=True),
        store.apply({**map_with("map", data={"b": half}), "apiVersion": "v1"}, manager="m"),
    ):
        with pytest.raises(TooLarge, match="the limit is 1572864"):
            await write
    assert (await store.get(key("map")), store.revision) == (stored, revision)
    await store.delete(key("map"))


async def test_the_size_of_a_status_is_limited():
    store = MemoryStore()
    stored = await store.create(weighted_split())
    with pytest.raises(TooLarge):
        await store.update({**stored, "status": {"note": "a" * LARGEST_OBJECT}}, subresource="status")
