"""The embedded store serves the kinds that its CustomResourceDefinitions define."""

import pytest
from tests.make.definitions import cron_tab, definition, version
from tests.make.objects import config_map, namespace, owner_reference

from headgate.admission.chain import object_check
from headgate.errors import Invalid, NotFound
from headgate.resources.custom.definition import definition_key
from headgate.resources.meta import Key
from headgate.settings import DEFAULTS
from headgate.standalone.store.memory import MemoryStore
from headgate.standalone.store.sqlite import SqliteJournal

NAME = "crontabs.stable.example.com"
GROUP = "stable.example.com"


def tab_key(name: str = "nightly", space: str = "default") -> Key:
    return Key(GROUP, "CronTab", space, name)


async def store_with_definition(journal: SqliteJournal | None = None) -> MemoryStore:
    store = MemoryStore(check=object_check(DEFAULTS), journal=journal)
    await store.create(definition())
    return store


async def test_a_kind_is_served_as_soon_as_it_is_defined() -> None:
    store = MemoryStore(check=object_check(DEFAULTS))
    with pytest.raises(Invalid, match="CronTab"):
        await store.create(cron_tab())
    stored = await store.create(definition())
    assert {row["type"] for row in stored["status"]["conditions"]} == {"NamesAccepted", "Established"}
    made = await store.create(cron_tab())
    assert made["spec"]["replicas"] == 1
    assert [obj["metadata"]["name"] for obj in (await store.list(GROUP, "CronTab")).items] == ["nightly"]


async def test_a_definition_that_is_not_stored_defines_nothing() -> None:
    store = MemoryStore(check=object_check(DEFAULTS))
    await store.create(definition(), dry_run=True)
    with pytest.raises(Invalid):
        await store.create(definition(scope="Everywhere"))
    assert store.kinds.find(GROUP, "CronTab") is None


async def test_a_deleted_definition_takes_its_objects_along() -> None:
    store = await store_with_definition()
    owner = await store.create(cron_tab())
    await store.create(config_map("child", metadata={"ownerReferences": [owner_reference(owner)]}))
    await store.delete(definition_key(NAME))
    assert store.kinds.find(GROUP, "CronTab") is None
    for key in (definition_key(NAME), Key("", "ConfigMap", "default", "child")):
        with pytest.raises(NotFound):
            await store.get(key)


async def test_a_deleted_definition_waits_for_finalizers_of_its_objects() -> None:
    store = await store_with_definition()
    held = await store.create(cron_tab(metadata={"finalizers": ["example.com/wait"]}))
    waiting = await store.delete(definition_key(NAME))
    assert "deletionTimestamp" in waiting["metadata"]
    held = await store.get(tab_key())
    await store.update({**held, "metadata": {**held["metadata"], "finalizers": []}})
    assert store.kinds.find(GROUP, "CronTab") is None
    with pytest.raises(NotFound):
        await store.get(definition_key(NAME))


async def test_a_deleted_namespace_takes_objects_of_defined_kinds_along() -> None:
    store = await store_with_definition()
    await store.create(namespace("jobs"))
    await store.create(cron_tab(metadata={"namespace": "jobs"}))
    await store.delete(Key("", "Namespace", "", "jobs"))
    assert (await store.list(GROUP, "CronTab")).items == []


async def test_an_object_whose_owner_has_a_defined_kind_is_deleted_with_it() -> None:
    store = await store_with_definition()
    owner = await store.create(cron_tab())
    await store.create(config_map("child", metadata={"ownerReferences": [owner_reference(owner)]}))
    await store.delete(tab_key())
    with pytest.raises(NotFound):
        await store.get(Key("", "ConfigMap", "default", "child"))


async def test_objects_follow_the_preferred_version_of_their_definition() -> None:
    store = await store_with_definition()
    await store.create(cron_tab())
    stored = await store.get(definition_key(NAME))
    versions = definition(version("v1", storage=False), version("v2"))["spec"]["versions"]
    await store.update({**stored, "spec": {**stored["spec"], "versions": versions}})
    assert (await store.get(tab_key()))["apiVersion"] == f"{GROUP}/v2"


async def test_defined_kinds_survive_a_restart(tmp_path) -> None:
    journal = SqliteJournal.open(tmp_path / "objects.db")
    store = await store_with_definition(journal)
    await store.create(cron_tab())
    journal.close()
    journal = SqliteJournal.open(tmp_path / "objects.db")
    again = MemoryStore(check=object_check(DEFAULTS), journal=journal)
    assert (await again.get(tab_key()))["spec"]["cronSpec"] == "* * * * *"
    await again.create(cron_tab("second"))
    journal.close()
