"""After any sequence of calls, the watch, the list and the journal of the store agree."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.make.objects import config_map, namespace
from tests.watching import changes_after

from headgate.errors import StoreError
from headgate.resources.meta import Key
from headgate.resources.registry import key_of
from headgate.standalone.store.memory import MemoryStore

NAMES = st.sampled_from("abcd")
SPACES = st.sampled_from(["default", "shop"])
KINDS = [("", "Namespace"), ("", "ServiceAccount"), ("", "ConfigMap")]


class Tape:
    """A journal in memory that asserts consecutive revisions."""

    def __init__(self, revision=0, objects=()):
        self.revision = revision
        self.objects = {key_of(obj): obj for obj in objects}

    def load(self):
        return self.revision, list(self.objects.values())

    def append(self, changes):
        assert [int(change.version) for change in changes] == list(
            range(self.revision + 1, self.revision + 1 + len(changes))
        )
        for change in changes:
            assert (change.key in self.objects) == (change.type != "ADDED")
            if change.type == "DELETED":
                del self.objects[change.key]
            else:
                self.objects[change.key] = change.object
        self.revision = int(changes[-1].version)


def owned_map(name, namespace, owners, finalizers, number):
    references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid} for uid in owners]
    metadata = {"finalizers": list(finalizers), "ownerReferences": references}
    return config_map(name, {"n": str(number)}, namespace=namespace, metadata=metadata)


@st.composite
def calls(draw):
    what = draw(st.sampled_from(["create", "create", "update", "delete", "namespace", "drop"]))
    return (
        what,
        draw(NAMES),
        draw(SPACES),
        draw(st.lists(NAMES, max_size=2)),  # names of the owners
        draw(st.sampled_from([(), (), ("example.com/wait",)])),
        draw(st.integers(0, 2)),
        draw(st.booleans()),  # for a deletion: orphan the dependents; for a write: a dry run
    )


async def call(store, step):
    what, name, space, owners, finalizers, number, flag = step
    present = {obj["metadata"]["name"]: obj for obj in (await store.list("", "ConfigMap", space)).items}
    uids = [present[owner]["metadata"]["uid"] if owner in present else f"gone-{owner}" for owner in owners]
    if what == "create":
        await store.create(owned_map(name, space, uids, finalizers, number), dry_run=flag and number == 0)
    elif what == "update":
        await store.update(owned_map(name, space, uids, finalizers, number), dry_run=flag and number == 0)
    elif what == "delete":
        await store.delete(Key("", "ConfigMap", space, name), orphan=flag, dry_run=number == 0)
    elif what == "namespace":
        await store.create(namespace("shop"))
    else:
        await store.delete(Key("", "Namespace", "", "shop"))


async def everything(store):
    return {key_of(obj): obj for kind in KINDS for obj in (await store.list(*kind)).items}


async def watched(store, before):
    """Apply all events of a watch to a copy of the objects `before`; return the copy."""
    found = dict(before)
    for change in await changes_after(store, 0):
        if change.type == "DELETED":
            del found[change.key]
        else:
            found[change.key] = change.object
    return found


async def run(steps):
    tape = Tape()
    store = MemoryStore(journal=tape)
    for step in steps:
        try:
            await call(store, step)
        except StoreError:
            assert tape.revision == store.revision
    objects = await everything(store)
    assert objects == tape.objects == await watched(store, {})
    assert await everything(MemoryStore(journal=Tape(*tape.load()))) == objects
    return objects


@settings(deadline=None, max_examples=300)
@given(st.lists(calls(), max_size=25))
def test_list_watch_and_journal_agree_after_any_sequence_of_calls(steps):
    objects = asyncio.run(run(steps))
    uids = {obj["metadata"]["uid"]: key for key, obj in objects.items()}
    assert len(uids) == len(objects)
    for key, obj in objects.items():
        assert not key.namespace or Key("", "Namespace", "", key.namespace) in objects
        owners = [owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()]
        held = bool(obj["metadata"].get("finalizers"))
        assert held or all(uid in uids for uid in owners)
        assert held or key.kind == "Namespace" or "deletionTimestamp" not in obj["metadata"]
