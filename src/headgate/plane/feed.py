"""From objects to snapshots: every change of a kind that the compiler reads makes a new one."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from headgate.compiler.remains import remains
from headgate.compiler.snapshot import Snapshot
from headgate.errors import Cause, NotFound
from headgate.latest import Latest, until
from headgate.objects.ports import Listed, Reader, follow, version_of
from headgate.resources.decode import check_stored
from headgate.resources.meta import Key, Object, Resource
from headgate.resources.registry import KINDS, Kind, key_of

T = TypeVar("T")
COMPILED = tuple(kind for kind in KINDS if kind.shape is not None)
GROUP_KINDS = {(kind.group, kind.kind) for kind in COMPILED}


class Feed:
    """Follows the objects of each kind. `snapshot` is the newest picture, nothing until each kind was listed once.

    A snapshot's revision is its number. `seen` counts the pictures that were looked for, also when nothing in them differs.
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
        """Follow each kind, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for kind in COMPILED:
                tasks.create_task(self._follow(kind), name=f"feed of {kind.kind}")

    async def wait_for_object(self, written: Object) -> None:
        """Wait until the picture has an object as it was written, or a later version of it."""
        key, wanted = key_of(written), version_of(written)
        while not self._has(key, wanted):
            next_picture = self.seen.next_change()
            try:
                current = version_of(await self._source.get(key))  # it may be another version since
            except NotFound:
                current = ""
            if self._has(key, current):
                return
            await next_picture.wait()

    async def wait_until_current(self) -> None:
        """Wait until the picture has everything that is stored now, or later versions of it."""
        for (group, kind), known in self._versions.items():
            while True:
                next_picture = self.seen.next_change()
                listing = await self._source.list(group, kind)
                if known == {key_of(obj): version_of(obj) for obj in listing.items}:
                    break
                await next_picture.wait()
        await until(lambda: self._publishing is None and self.snapshot.get() is not None, self.seen)

    def _has(self, key: Key, version: str) -> bool:
        """Say whether the picture has a version of an object; an empty one is of an object that does not exist."""
        return self._publishing is None and self._versions[key.group, key.kind].get(key, "") == version

    async def _follow(self, kind: Kind) -> None:
        async for step in follow(self._source, kind.group, kind.kind):
            if isinstance(step, Listed):
                self._replace(kind, step.items)
                self._unlisted.discard((kind.group, kind.kind))
            else:
                self._take(step.key, None if step.type == "DELETED" else step.object)
            if self._publishing is None:  # once for all that is there to read now
                self._publishing = asyncio.get_running_loop().call_soon(self._publish)

    def _replace(self, kind: Kind, items: Iterable[Object]) -> None:
        present = {key_of(obj): obj for obj in items}
        for key in self._versions[kind.group, kind.kind].keys() - present.keys():
            self._take(key, None)
        for key, obj in present.items():
            self._take(key, obj)

    def _take(self, key: Key, obj: Object | None) -> None:
        """Take an object as it is now, none when it is gone, and note whether the compiler could see a difference."""
        versions = self._versions[key.group, key.kind]
        known: tuple[dict[Key, Any], ...] = (self._objects, self._mistakes, self._remains)
        before = [part.pop(key, None) for part in known]
        versions.pop(key, None)
        if obj is not None:
            versions[key] = version_of(obj)
            self._put(key, obj)
        self._differs |= before != [part.get(key) for part in known]

    def _put(self, key: Key, obj: Object) -> None:
        checked = check_stored(obj)
        if checked.value:
            self._objects[key] = checked.value
        elif (left := remains(obj)) is not None:
            self._remains[key] = left
        if checked.causes:
            self._mistakes[key] = checked.causes

    def _publish(self) -> None:
        self._publishing = None
        if self._differs and not self._unlisted:
            self._differs = False
            last = self.snapshot.get()
            parts = dict(self._objects), dict(self._mistakes)
            self.snapshot.set(Snapshot(last.revision + 1 if last else 1, *parts, remains=dict(self._remains)))
        self.seen.set(self.seen.get() + 1)


def changed(snapshot: Snapshot, obj: Object) -> Snapshot:
    """Return a snapshot in which one object is another, or new."""
    key = key_of(obj)
    new = snapshot_of({key: obj})
    return Snapshot(
        snapshot.revision,
        _without(snapshot.objects, key) | dict(new.objects),
        _without(snapshot.mistakes, key) | dict(new.mistakes),
        remains=_without(snapshot.remains, key) | dict(new.remains),
    )


def _without(part: Mapping[Key, T], key: Key) -> dict[Key, T]:
    return {other: item for other, item in part.items() if other != key}


def snapshot_of(objects: Mapping[Key, Object], revision: int = 0) -> Snapshot:
    """Return the snapshot of objects that are at hand, files for example; kinds that are not compiled are left out."""
    read = {key: check_stored(obj) for key, obj in objects.items() if (key.group, key.kind) in GROUP_KINDS}
    left = {key: remains(objects[key]) for key, item in read.items() if not item.value}
    return Snapshot(
        revision,
        {key: item.value for key, item in read.items() if item.value},
        {key: item.causes for key, item in read.items() if item.causes},
        remains={key: item for key, item in left.items() if item},
    )
