"""Applying a directory creates, updates and deletes its objects, and leaves all other objects alone."""

import json

import pytest
from tests.decoding import admit
from tests.make.objects import config_map, namespace

from headgate.errors import NotFound
from headgate.manifests.apply import APPLIED_FROM, LAST_APPLIED, ApplyResult, apply
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


def split_text(name="birds", *, blue=90, green=10, version="v1alpha4", labels="{}"):
    return SPLIT.format(name=name, blue=blue, green=green, version=version, labels=labels)


def config_map_text(name, namespace="default", data="{}"):
    return CONFIG_MAP.format(name=name, namespace=namespace, data=data)


def key(name="birds", kind="TrafficSplit", group="split.smi-spec.io"):
    return Key(group, kind, "default", name)


def weights(obj):
    return [backend["weight"] for backend in obj["spec"]["backends"]]


class AppliedDirectory:
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
def applied(tmp_path):
    return AppliedDirectory(tmp_path)


async def test_objects_are_created_updated_and_deleted_with_their_file(applied):
    applied.write("a.yaml", split_text())
    assert (await applied.settle()).created == (key(),)
    assert weights(await applied.split()) == [90, 10]
    revision = applied.store.revision
    assert await applied.settle() == ApplyResult()
    assert applied.store.revision == revision
    applied.write("a.yaml", split_text(green=20))
    assert (await applied.settle()).changed == (key(),)
    assert weights(await applied.split()) == [90, 20]
    (applied.path / "a.yaml").unlink()
    assert (await applied.settle()).removed == (key(),)
    with pytest.raises(NotFound):
        await applied.split()


async def test_objects_of_a_file_deleted_while_headgate_was_down_are_pruned_at_start(tmp_path):
    directory, state = tmp_path / "manifests", tmp_path / "state" / "store.db"
    directory.mkdir()
    (directory / "a.yaml").write_text(split_text())
    journal = SqliteJournal.open(state)
    await apply(MemoryStore(journal=journal), read([directory]))
    journal.close()
    (directory / "a.yaml").unlink()
    journal = SqliteJournal.open(state)
    assert (await apply(MemoryStore(journal=journal), read([directory]))).removed == (key(),)
    journal.close()


async def test_objects_created_by_other_clients_are_never_pruned(applied):
    applied.write("a.yaml", split_text())
    (manifest,) = read([applied.path]).objects
    await applied.store.create(manifest.object)
    await applied.store.create({**manifest.object, "metadata": {"name": "other"}})
    applied.write("a.yaml", split_text(blue=50))
    assert (await applied.settle()).changed == (key(),)
    assert weights(await applied.split()) == [50, 10]
    (applied.path / "a.yaml").unlink()
    assert (await applied.settle()).removed == ()
    assert weights(await applied.split("other")) == [90, 10]


async def test_another_directory_on_the_same_store_prunes_only_its_own_objects(tmp_path):
    first, second = AppliedDirectory(tmp_path / "first"), AppliedDirectory(tmp_path / "second")
    second.store = first.store
    for applied, name in ((first, "one"), (second, "two")):
        applied.path.mkdir()
        applied.write("a.yaml", split_text(name))
        await applied.settle()
    (second.path / "a.yaml").unlink()
    assert (await second.settle()).removed == (key("two"),)
    assert weights(await first.split("one")) == [90, 10]


@pytest.mark.parametrize("text", ["half: [", "", split_text(blue=-1), split_text() + "---\n" + split_text()])
async def test_a_broken_file_keeps_its_objects_and_other_files_are_applied(applied, text):
    applied.write("a.yaml", split_text())
    applied.write("b.yaml", split_text("b"))
    applied.write("c.yaml", split_text("c"))
    await applied.settle()
    applied.write("a.yaml", text)
    applied.write("b.yaml", split_text("b", blue=1))
    (applied.path / "c.yaml").unlink()
    settled = await applied.settle()
    assert key("b") in settled.changed
    assert key("c") in settled.removed
    assert weights(await applied.split()) == [90, 10]


async def test_a_missing_directory_prunes_nothing(applied):
    applied.write("a.yaml", split_text())
    await applied.settle()
    applied.path.rename(applied.path.with_name("moved"))
    assert (await applied.settle()).removed == ()
    assert weights(await applied.split()) == [90, 10]


async def test_an_object_that_moves_to_another_file_stays(applied):
    applied.write("a.yaml", split_text())
    await applied.settle()
    made = await applied.split()
    (applied.path / "a.yaml").rename(applied.path / "b.yaml")
    await applied.settle()
    moved = await applied.split()
    assert moved["metadata"]["uid"] == made["metadata"]["uid"]
    assert moved["metadata"]["annotations"][APPLIED_FROM] == str(applied.path / "b.yaml")
    (applied.path / "b.yaml").unlink()
    assert (await applied.settle()).removed == (key(),)


async def test_a_users_edit_stays_until_the_manifest_changes(applied):
    applied.write("a.yaml", split_text())
    await applied.settle()
    await applied.edit(50, 50)
    applied.write("b.yaml", split_text("unrelated"))
    await applied.settle()
    assert weights(await applied.split()) == [50, 50]
    applied.write("a.yaml", split_text(blue=80, green=20))
    await applied.settle()
    assert weights(await applied.split()) == [80, 20]


async def test_a_change_of_the_manifest_keeps_fields_that_other_clients_added(applied):
    applied.write("a.yaml", split_text(labels="{mine: a, old: b}"))
    await applied.settle()
    obj = await applied.split()
    labels = {**obj["metadata"]["labels"], "theirs": "c"}
    await applied.store.update({**obj, "metadata": {**obj["metadata"], "labels": labels}})
    applied.write("a.yaml", split_text(labels="{mine: z}"))
    await applied.settle()
    assert (await applied.split())["metadata"]["labels"] == {"mine": "z", "theirs": "c"}


async def test_kubectl_apply_and_files_can_manage_the_same_object(applied):
    """Both use kubectl's annotation, so each finds what the other one applied last."""
    applied.write("a.yaml", split_text(labels="{old: b}"))
    await applied.settle()
    obj = await applied.split()
    recorded = json.loads(obj["metadata"]["annotations"][LAST_APPLIED])
    assert recorded["metadata"] == {"annotations": {}, "labels": {"old": "b"}, "name": "birds", "namespace": "default"}
    assert recorded["spec"]["backends"][1] == {"service": "green", "weight": 10}
    recorded["metadata"]["labels"] = {"new": "c"}
    annotations = {**obj["metadata"]["annotations"], LAST_APPLIED: json.dumps(recorded)}
    await applied.store.update(
        {**obj, "metadata": {**obj["metadata"], "annotations": annotations, "labels": {"new": "c"}}}
    )
    await applied.settle()
    assert (await applied.split())["metadata"]["labels"] == {"new": "c"}
    applied.write("a.yaml", split_text(blue=1))
    await applied.settle()
    assert (await applied.split())["metadata"]["labels"] == {}


@pytest.mark.parametrize("damaged", ["{", "[]", '{"kind": "TrafficSplit"}', '{"metadata": 5}'])
async def test_a_damaged_last_applied_annotation_removes_no_field(applied, damaged):
    applied.write("a.yaml", split_text(labels="{old: b}"))
    await applied.settle()
    obj = await applied.split()
    annotations = {**obj["metadata"]["annotations"], LAST_APPLIED: damaged}
    await applied.store.update({**obj, "metadata": {**obj["metadata"], "annotations": annotations}})
    applied.write("a.yaml", split_text(blue=1))
    assert (await applied.settle()).changed == (key(),)
    assert (await applied.split())["metadata"]["labels"] == {"old": "b"}


async def test_a_manifest_in_an_older_version_is_applied_and_updated(applied):  # R9, D24
    applied.write("a.yaml", split_text(version="v1alpha1", blue=1, green="500m"))
    await applied.settle()
    assert weights(await applied.split()) == [2, 1]
    applied.write("a.yaml", split_text(version="v1alpha1", blue=1, green="250m"))
    await applied.settle()
    assert weights(await applied.split()) == [4, 1]


async def test_an_exported_object_can_be_applied(applied):
    exported = split_text() + "status: {conditions: []}\n"
    applied.write(
        "a.yaml", exported.replace("metadata:", 'metadata:\n  uid: "1"\n  resourceVersion: "5"\n  generation: 7')
    )
    assert (await applied.settle()).problems == ()
    applied.write("a.yaml", exported.replace("metadata:", 'metadata:\n  uid: "1"\n  resourceVersion: "6"'))
    assert (await applied.settle()).problems == ()
    assert (await applied.split())["metadata"]["generation"] == 1


async def test_a_namespace_is_created_before_its_objects_and_deleted_after_them(applied):
    applied.write("a.yaml", config_map_text("x", "shop"))
    applied.write("b.yaml", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n")
    created = (await applied.settle()).created
    assert [made.kind for made in created] == ["Namespace", "ConfigMap"]
    for file in ("a.yaml", "b.yaml"):
        (applied.path / file).unlink()
    assert [gone.kind for gone in (await applied.settle()).removed] == ["ConfigMap", "Namespace"]


async def test_services_and_tls_configs_are_created_before_pods(applied):
    """D26, R77. The order of the files has no effect."""
    applied.write("a.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n")
    applied.write("b.yaml", "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec: {ports: [{port: 80}]}\n")
    applied.write(
        "c.yaml",
        "apiVersion: headgate.dev/v1beta1\nkind: TLSConfig\nmetadata:\n  name: web\nspec: {selector: {matchLabels: {}}}\n",
    )
    created = (await applied.settle()).created
    assert [made.kind for made in created] == ["Service", "TLSConfig", "Deployment"]


async def test_an_object_that_the_store_rejects_is_reported_with_file_and_line(applied):
    await applied.store.create(namespace("shop"))
    await applied.store.create(config_map("held", namespace="shop", metadata={"finalizers": ["example.com/a"]}))
    await applied.store.delete(Key("", "Namespace", "", "shop"))
    applied.write("a.yaml", config_map_text("x", "shop"))
    applied.write("b.yaml", split_text())
    settled = await applied.settle()
    assert settled.created == (key(),)
    (problem,) = settled.problems
    assert str(problem).startswith(f"{applied.path / 'a.yaml'}:5:")
    assert "because it is being terminated" in problem.message


async def test_a_namespace_that_no_file_declares_is_created_and_stays(applied):
    applied.write("a.yaml", config_map_text("x", "shop"))
    assert (await applied.settle()).created == (Key("", "Namespace", "", "shop"), Key("", "ConfigMap", "shop", "x"))
    (applied.path / "a.yaml").unlink()
    assert (await applied.settle()).removed == (Key("", "ConfigMap", "shop", "x"),)
    assert await applied.store.get(Key("", "Namespace", "", "shop"))


async def test_a_deleted_object_is_created_again_by_the_next_apply(applied):
    applied.write("a.yaml", split_text())
    await applied.settle()
    await applied.store.delete(key())
    assert (await applied.settle()).created == (key(),)


async def test_files_own_the_fields_that_they_set_and_change(applied):
    applied.write("a.yaml", split_text(labels="{team: web}"))
    await applied.settle()
    (entry,) = (await applied.store.get(key()))["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("headgate-files", "Update")
    assert 'k:{"service":"blue"}' in entry["fieldsV1"]["f:spec"]["f:backends"]
    assert entry["fieldsV1"]["f:metadata"] == {"f:labels": {".": {}, "f:team": {}}}
    applied.write("a.yaml", split_text())
    await applied.settle()
    (entry,) = (await applied.store.get(key()))["metadata"]["managedFields"]
    assert "f:team" not in str(entry["fieldsV1"])


async def test_drift_names_a_field_edited_in_the_store_and_the_store_wins(applied):
    applied.write("a.yaml", split_text())
    await applied.settle()
    assert await drift(applied.store, read([applied.path])) == []
    obj = await applied.store.get(key())
    await applied.store.update({**obj, "spec": {**obj["spec"], "service": "fish"}})
    (said,) = await drift(applied.store, read([applied.path]))
    assert said.startswith(f"{applied.path}/a.yaml:7:")
    assert "spec.service: " in said
    assert 'the file says "birds", the API "fish"; the API\'s value stays' in said
    await applied.settle()
    assert (await applied.store.get(key()))["spec"]["service"] == "fish"


async def test_drift_says_that_the_file_wins_if_the_file_also_changed(applied):
    applied.write("a.yaml", split_text())
    await applied.settle()
    obj = await applied.store.get(key())
    await applied.store.update({**obj, "spec": {**obj["spec"], "service": "fish"}})
    applied.write("a.yaml", split_text().replace("service: birds", "service: cats"))
    (said,) = await drift(applied.store, read([applied.path]))
    assert 'the file says "cats", the API "fish"; the file has changed, so its value wins' in said
    await applied.settle()
    assert (await applied.store.get(key()))["spec"]["service"] == "cats"


async def test_an_edit_of_the_file_alone_is_no_drift(applied):
    applied.write("a.yaml", split_text())
    await applied.settle()
    applied.write("a.yaml", split_text(blue=50, green=50))
    assert await drift(applied.store, read([applied.path])) == []


async def test_drift_counts_objects_of_directories_that_are_not_read(applied, tmp_path):
    applied.write("a.yaml", split_text())
    await applied.settle()
    (said,) = await drift(applied.store, read([tmp_path / "other"]))
    assert said.startswith(f"headgate does not read {applied.path} now, so it will not delete 1 object from files")
