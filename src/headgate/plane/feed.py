"""Follows the stored objects of all kinds that the compiler reads, and publishes each change as a new snapshot."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from headgate.compiler.fail_closed import restrictive_part
from headgate.compiler.snapshot import Snapshot
from headgate.errors import Cause, NotFound, Unavailable
from headgate.latest import Latest, until
from headgate.objects.ports import RETRY_SECONDS, Reader, Relist, follow, version_of
from headgate.resources.decode import check_stored
from headgate.resources.meta import Key, Object, Resource
from headgate.resources.registry import KINDS, Kind, key_of

COMPILED = tuple(kind for kind in KINDS if kind.shape is not None)
GROUP_KINDS = {(kind.group, kind.kind) for kind in COMPILED}


class Feed:
    """Lists and watches the objects of each kind. `snapshot` is None until each kind has been listed.

    Each new snapshot has the next revision number. `seen` counts batches of watched changes, including batches that
    leave the snapshot unchanged.
    """

    def __init__(self, objects: Reader) -> None:
        self.snapshot: Latest[Snapshot | None] = Latest(None)
        self.seen: Latest[int] = Latest(0)
        self._source = objects
        self._unlisted = {(kind.group, kind.kind) for kind in COMPILED}
        self._objects: dict[Key, Resource] = {}
        self._mistakes: dict[Key, tuple[Cause, ...]] = {}
        self._remains: dict[Key, Resource] = {}
        self._versions: dict[tuple[str, str], dict[Key, str]] = {name: {} for name in self._unlisted}
        self._differs = True
        self._publishing: asyncio.Handle | None = None

    async def run(self) -> None:
        """Follow each kind until canceled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in COMPILED:
                tasks.create_task(self._follow(kind), name=f"feed of {kind.kind}")

    async def wait_for_object(self, written: Object) -> None:
        """Wait until the feed has read an object in the version of `written`, or in a later version."""
        key, wanted = key_of(written), version_of(written)
        while not self._has(key, wanted):
            next_batch = self.seen.next_change()
            try:
                current = version_of(await self._source.get(key))  # the stored object may already have a newer version
            except NotFound:
                current = ""
            if self._has(key, current):
                return
            await next_batch.wait()

    async def wait_until_current(self) -> None:
        """Wait until the feed has read all objects in the versions that are stored now, or in later versions.

        Also waits while the objects can't be read.
        """
        for (group, kind), known in self._versions.items():
            while True:
                next_batch = self.seen.next_change()
                try:
                    listing = await self._source.list(group, kind)
                except Unavailable:  # `follow` logs it
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                # Each change of an object has a version of its own, so equal versions mean equal objects. Comparing
                # 3,000 versions takes 0.7 ms, and comparing them by the keys of their objects 3 ms.
                if set(known.values()) == {version_of(obj) for obj in listing.items}:
                    break
                await next_batch.wait()
        await until(lambda: self._publishing is None and self.snapshot.get() is not None, self.seen)

    def version(self, key: Key) -> str:
        """Return the version in which the feed has read an object; empty if the object does not exist."""
        return self._versions[key.group, key.kind].get(key, "")

    def _has(self, key: Key, version: str) -> bool:
        """Return whether the feed has read this version of an object; an empty version means a deleted object."""
        return self._publishing is None and self.version(key) == version

    async def _follow(self, kind: Kind) -> None:
        async for step in follow(self._source, kind.group, kind.kind):
            if isinstance(step, Relist):
                self._replace(kind, step.items)
                self._unlisted.discard((kind.group, kind.kind))
            else:
                self._take(step.key, None if step.type == "DELETED" else step.object)
            del step  # frees memory: a step may contain all objects of the kind, and the next step may come late
            if self._publishing is None:  # one snapshot for all changes that have arrived
                self._publishing = asyncio.get_running_loop().call_soon(self._publish)

    def _replace(self, kind: Kind, items: Iterable[Object]) -> None:
        missing = set(self._versions[kind.group, kind.kind])
        for obj in items:
            key = key_of(obj)
            missing.discard(key)
            self._take(key, obj)
        for key in missing:
            self._take(key, None)

    def _take(self, key: Key, obj: Object | None) -> None:
        """Add or replace an object in the feed; remove the object if `obj` is None."""
        versions = self._versions[key.group, key.kind]
        parts: tuple[dict[Key, Any], ...] = (self._objects, self._mistakes, self._remains)
        before = [part.pop(key, None) for part in parts]
        versions.pop(key, None)
        if obj is not None:
            versions[key] = version_of(obj)
            self._put(key, obj)
        self._differs |= before != [part.get(key) for part in parts]

    def _put(self, key: Key, obj: Object) -> None:
        checked = check_stored(obj)
        if checked.value:
            self._objects[key] = checked.value
        elif (left := restrictive_part(obj)) is not None:
            self._remains[key] = left
        if checked.causes:
            self._mistakes[key] = checked.causes

    def _publish(self) -> None:
        self._publishing = None
        if self._differs and not self._unlisted:
            self._differs = False
            last = self.snapshot.get()
            parts = dict(self._objects), dict(self._mistakes)
            self.snapshot.set(Snapshot(last.revision + 1 if last else 1, *parts, fail_closed=dict(self._remains)))
        self.seen.set(self.seen.get() + 1)


def changed(snapshot: Snapshot, obj: Object) -> Snapshot:
    """Return a copy of a snapshot in which one object is replaced or added."""
    key = key_of(obj)
    new = snapshot_of({key: obj})
    parts = (snapshot.objects, new.objects), (snapshot.mistakes, new.mistakes), (snapshot.fail_closed, new.fail_closed)
    objects, mistakes, left = (_replaced(before, after, key) for before, after in parts)
    return Snapshot(snapshot.revision, objects, mistakes, fail_closed=left)


def _replaced(before: Mapping[Key, Any], after: Mapping[Key, Any], key: Key) -> Mapping[Key, Any]:
    found = {**before, **after}
    if key not in after:
        found.pop(key, None)
    return found


def snapshot_of(objects: Mapping[Key, Object], revision: int = 0) -> Snapshot:
    """Return a snapshot of the objects whose kinds the compiler reads; `objects` may come from files."""
    read = {key: check_stored(obj) for key, obj in objects.items() if (key.group, key.kind) in GROUP_KINDS}
    left = {key: restrictive_part(objects[key]) for key, item in read.items() if not item.value}
    return Snapshot(
        revision,
        {key: item.value for key, item in read.items() if item.value},
        {key: item.causes for key, item in read.items() if item.causes},
        fail_closed={key: item for key, item in left.items() if item},
    )
