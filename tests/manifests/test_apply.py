"""Applying a directory creates, updates and deletes its objects, and leaves all other objects alone."""

import json

import pytest
from tests.decoding import admit

from headgate.errors import NotFound
from headgate.manifests.apply import APPLIED_FROM, LAST_APPLIED, apply
from headgate.manifests.drift import drift
from headgate.manifests.files import read
from headgate.resources.meta import Key
from headgate.standalone.store.memory import MemoryStore
from headgate.standalone.store.sqlite import SqliteJournal

SPLIT = """\
apiVersion: split.smi-spec.io/{version}
kind: TrafficSplit
metadata:
  name: {name}
  labels: {labels}
spec:
  service: birds
  backends:
  - service: blue
    weight: {blue}
  - service: green
    weight: {green}
"""
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\ndata: {data}\n"


def split(name="birds", *, blue=90, green=10, version="v1alpha4", labels="{}"):
    return SPLIT.format(name=name, blue=blue, green=green, version=version, labels=labels)


def config_map(name, namespace="default", data="{}"):
    return CONFIG_MAP.format(name=name, namespace=namespace, data=data)


def key(name="birds", kind="TrafficSplit", group="split.smi-spec.io"):
    return Key(group, kind, "default", name)


def weights(obj):
    return [backend["weight"] for backend in obj["spec"]["backends"]]


class World:
    """A directory and a store; `settle` reads the files and applies them."""

    def __init__(self, path):
        self.path = path
        self.store = MemoryStore(admit=admit)

    def write(self, name, text):
        (self.path / name).write_text(text)

    async def settle(self):
        return await apply(self.store, read([self.path]))

    async def split(self, name="birds"):
        return await self.store.get(key(name))

    async def edit(self, *weights, name="birds"):
        obj = await self.split(name)
        backends = [{**row, "weight": weight} for row, weight in zip(obj["spec"]["backends"], weights, strict=True)]
        return await self.store.update({**obj, "spec": {**obj["spec"], "backends": backends}})


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def test_objects_are_created_updated_and_deleted_with_their_file(world):
    world.write("a.yaml", split())
    assert (await world.settle()).created == (key(),)
    assert weights(await world.split()) == [90, 10]
    revision = world.store.revision
    assert await world.settle() == ((), (), (), ())
    assert world.store.revision == revision
    world.write("a.yaml", split(green=20))
    assert (await world.settle()).changed == (key(),)
    assert weights(await world.split()) == [90, 20]
    (world.path / "a.yaml").unlink()
    assert (await world.settle()).removed == (key(),)
    with pytest.raises(NotFound):
        await world.split()


async def test_objects_of_a_file_deleted_while_headgate_was_down_are_pruned_at_start(tmp_path):
    directory, state = tmp_path / "manifests", tmp_path / "state" / "store.db"
    directory.mkdir()
    (directory / "a.yaml").write_text(split())
    journal = SqliteJournal.open(state)
    await apply(MemoryStore(journal=journal), read([directory]))
    journal.close()
    (directory / "a.yaml").unlink()
    journal = SqliteJournal.open(state)
    assert (await apply(MemoryStore(journal=journal), read([directory]))).removed == (key(),)
    journal.close()


async def test_objects_created_by_other_clients_are_never_pruned(world):
    world.write("a.yaml", split())
    (manifest,) = read([world.path]).objects
    await world.store.create(manifest.object)
    await world.store.create({**manifest.object, "metadata": {"name": "other"}})
    world.write("a.yaml", split(blue=50))
    assert (await world.settle()).changed == (key(),)
    assert weights(await world.split()) == [50, 10]
    (world.path / "a.yaml").unlink()
    assert (await world.settle()).removed == ()
    assert weights(await world.split("other")) == [90, 10]


async def test_another_directory_on_the_same_store_prunes_only_its_own_objects(tmp_path):
    first, second = World(tmp_path / "first"), World(tmp_path / "second")
    second.store = first.store
    for world, name in ((first, "one"), (second, "two")):
        world.path.mkdir()
        world.write("a.yaml", split(name))
        await world.settle()
    (second.path / "a.yaml").unlink()
    assert (await second.settle()).removed == (key("two"),)
    assert weights(await first.split("one")) == [90, 10]


@pytest.mark.parametrize("text", ["half: [", "", split(blue=-1), split() + "---\n" + split()])
async def test_a_broken_file_keeps_its_objects_and_other_files_are_applied(world, text):
    world.write("a.yaml", split())
    world.write("b.yaml", split("b"))
    world.write("c.yaml", split("c"))
    await world.settle()
    world.write("a.yaml", text)
    world.write("b.yaml", split("b", blue=1))
    (world.path / "c.yaml").unlink()
    settled = await world.settle()
    assert key("b") in settled.changed
    assert key("c") in settled.removed
    assert weights(await world.split()) == [90, 10]


async def test_a_missing_directory_prunes_nothing(world):
    world.write("a.yaml", split())
    await world.settle()
    world.path.rename(world.path.with_name("moved"))
    assert (await world.settle()).removed == ()
    assert weights(await world.split()) == [90, 10]


async def test_an_object_that_moves_to_another_file_stays(world):
    world.write("a.yaml", split())
    await world.settle()
    made = await world.split()
    (world.path / "a.yaml").rename(world.path / "b.yaml")
    await world.settle()
    moved = await world.split()
    assert moved["metadata"]["uid"] == made["metadata"]["uid"]
    assert moved["metadata"]["annotations"][APPLIED_FROM] == str(world.path / "b.yaml")
    (world.path / "b.yaml").unlink()
    assert (await world.settle()).removed == (key(),)


async def test_a_users_edit_stays_until_the_manifest_changes(world):
    world.write("a.yaml", split())
    await world.settle()
    await world.edit(50, 50)
    world.write("b.yaml", split("unrelated"))
    await world.settle()
    assert weights(await world.split()) == [50, 50]
    world.write("a.yaml", split(blue=80, green=20))
    await world.settle()
    assert weights(await world.split()) == [80, 20]


async def test_a_change_of_the_manifest_keeps_fields_that_other_clients_added(world):
    world.write("a.yaml", split(labels="{mine: a, old: b}"))
    await world.settle()
    obj = await world.split()
    labels = {**obj["metadata"]["labels"], "theirs": "c"}
    await world.store.update({**obj, "metadata": {**obj["metadata"], "labels": labels}})
    world.write("a.yaml", split(labels="{mine: z}"))
    await world.settle()
    assert (await world.split())["metadata"]["labels"] == {"mine": "z", "theirs": "c"}


async def test_kubectl_apply_and_files_can_manage_the_same_object(world):
    """Both use kubectl's annotation, so each finds what the other one applied last."""
    world.write("a.yaml", split(labels="{old: b}"))
    await world.settle()
    obj = await world.split()
    recorded = json.loads(obj["metadata"]["annotations"][LAST_APPLIED])
    assert recorded["metadata"] == {"annotations": {}, "labels": {"old": "b"}, "name": "birds", "namespace": "default"}
    assert recorded["spec"]["backends"][1] == {"service": "green", "weight": 10}
    recorded["metadata"]["labels"] = {"new": "c"}
    annotations = {**obj["metadata"]["annotations"], LAST_APPLIED: json.dumps(recorded)}
    await world.store.update(
        {**obj, "metadata": {**obj["metadata"], "annotations": annotations, "labels": {"new": "c"}}}
    )
    await world.settle()
    assert (await world.split())["metadata"]["labels"] == {"new": "c"}
    world.write("a.yaml", split(blue=1))
    await world.settle()
    assert (await world.split())["metadata"]["labels"] == {}


@pytest.mark.parametrize("damaged", ["{", "[]", '{"kind": "TrafficSplit"}', '{"metadata": 5}'])
async def test_a_damaged_last_applied_annotation_removes_no_field(world, damaged):
    world.write("a.yaml", split(labels="{old: b}"))
    await world.settle()
    obj = await world.split()
    annotations = {**obj["metadata"]["annotations"], LAST_APPLIED: damaged}
    await world.store.update({**obj, "metadata": {**obj["metadata"], "annotations": annotations}})
    world.write("a.yaml", split(blue=1))
    assert (await world.settle()).changed == (key(),)
    assert (await world.split())["metadata"]["labels"] == {"old": "b"}


async def test_a_manifest_in_an_older_version_is_applied_and_updated(world):  # R9, D24
    world.write("a.yaml", split(version="v1alpha1", blue=1, green="500m"))
    await world.settle()
    assert weights(await world.split()) == [2, 1]
    world.write("a.yaml", split(version="v1alpha1", blue=1, green="250m"))
    await world.settle()
    assert weights(await world.split()) == [4, 1]


async def test_an_exported_object_can_be_applied(world):
    exported = split() + "status: {conditions: []}\n"
    world.write(
        "a.yaml", exported.replace("metadata:", 'metadata:\n  uid: "1"\n  resourceVersion: "5"\n  generation: 7')
    )
    assert (await world.settle()).problems == ()
    world.write("a.yaml", exported.replace("metadata:", 'metadata:\n  uid: "1"\n  resourceVersion: "6"'))
    assert (await world.settle()).problems == ()
    assert (await world.split())["metadata"]["generation"] == 1


async def test_a_namespace_is_created_before_its_objects_and_deleted_after_them(world):
    world.write("a.yaml", config_map("x", "shop"))
    world.write("b.yaml", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n")
    created = (await world.settle()).created
    assert [made.kind for made in created] == ["Namespace", "ConfigMap"]
    for file in ("a.yaml", "b.yaml"):
        (world.path / file).unlink()
    assert [gone.kind for gone in (await world.settle()).removed] == ["ConfigMap", "Namespace"]


async def test_services_and_tls_configs_are_created_before_pods(world):
    """D26, R77. The order of the files has no effect."""
    world.write("a.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n")
    world.write("b.yaml", "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec: {ports: [{port: 80}]}\n")
    world.write(
        "c.yaml",
        "apiVersion: headgate.dev/v1beta1\nkind: TLSConfig\nmetadata:\n  name: web\nspec: {selector: {matchLabels: {}}}\n",
    )
    created = (await world.settle()).created
    assert [made.kind for made in created] == ["Service", "TLSConfig", "Deployment"]


async def test_an_object_that_the_store_rejects_is_reported_with_file_and_line(world):
    world.write("a.yaml", config_map("x", "shop"))
    world.write("b.yaml", split())
    settled = await world.settle()
    assert settled.created == (key(),)
    (problem,) = settled.problems
    assert str(problem) == (
        f'{world.path / "a.yaml"}:1:1: namespaces "shop" not found: create it first (kubectl create namespace shop)'
    )


async def test_a_deleted_object_is_created_again_by_the_next_apply(world):
    world.write("a.yaml", split())
    await world.settle()
    await world.store.delete(key())
    assert (await world.settle()).created == (key(),)


async def test_files_own_the_fields_that_they_set_and_change(world):
    world.write("a.yaml", split(labels="{team: web}"))
    await world.settle()
    (entry,) = (await world.store.get(key()))["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("headgate-files", "Update")
    assert 'k:{"service":"blue"}' in entry["fieldsV1"]["f:spec"]["f:backends"]
    assert entry["fieldsV1"]["f:metadata"] == {"f:labels": {".": {}, "f:team": {}}}
    world.write("a.yaml", split())
    await world.settle()
    (entry,) = (await world.store.get(key()))["metadata"]["managedFields"]
    assert "f:team" not in str(entry["fieldsV1"])


async def test_drift_names_a_field_edited_in_the_store_and_the_store_wins(world):
    world.write("a.yaml", split())
    await world.settle()
    assert await drift(world.store, read([world.path])) == []
    obj = await world.store.get(key())
    await world.store.update({**obj, "spec": {**obj["spec"], "service": "fish"}})
    (said,) = await drift(world.store, read([world.path]))
    assert said.startswith(f"{world.path}/a.yaml:7:")
    assert "spec.service: " in said
    assert 'the file says "birds", the API "fish"; the API\'s value stays' in said
    await world.settle()
    assert (await world.store.get(key()))["spec"]["service"] == "fish"


async def test_drift_says_that_the_file_wins_if_the_file_also_changed(world):
    world.write("a.yaml", split())
    await world.settle()
    obj = await world.store.get(key())
    await world.store.update({**obj, "spec": {**obj["spec"], "service": "fish"}})
    world.write("a.yaml", split().replace("service: birds", "service: cats"))
    (said,) = await drift(world.store, read([world.path]))
    assert 'the file says "cats", the API "fish"; the file has changed, so its value wins' in said
    await world.settle()
    assert (await world.store.get(key()))["spec"]["service"] == "cats"


async def test_an_edit_of_the_file_alone_is_no_drift(world):
    world.write("a.yaml", split())
    await world.settle()
    world.write("a.yaml", split(blue=50, green=50))
    assert await drift(world.store, read([world.path])) == []


async def test_drift_counts_objects_of_directories_that_are_not_read(world, tmp_path):
    world.write("a.yaml", split())
    await world.settle()
    (said,) = await drift(world.store, read([tmp_path / "other"]))
    assert said.startswith(f"headgate does not read {world.path} now, so it will not delete 1 object from files")
