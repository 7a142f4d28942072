"""Follows the stored objects of all kinds that the compiler reads, and publishes each change as a new snapshot."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TypeAlias, TypeVar

from headgate.backoff import until_done
from headgate.compiler.fail_closed import restrictive_part
from headgate.compiler.snapshot import Snapshot
from headgate.errors import Cause, NotFound, Unavailable
from headgate.history.records import Record, is_recorded, record_of
from headgate.latest import Latest, until
from headgate.objects.ports import Reader, Relist, follow, version_of
from headgate.resources.decode import Checked, check_stored
from headgate.resources.kind import Kind
from headgate.resources.meta import Key, Object, Resource
from headgate.resources.registry import KINDS, key_of
from headgate.shared_map import SharedMap

T = TypeVar("T")
Parts: TypeAlias = tuple[SharedMap[Key, Resource], SharedMap[Key, tuple[Cause, ...]], SharedMap[Key, Resource]]
"""The objects, the mistakes and the parts of invalid objects that stay active, as in `Snapshot`."""
COMPILED = tuple(kind for kind in KINDS if kind.shape is not None)
GROUP_KINDS = {(kind.group, kind.kind) for kind in COMPILED}
RECENT = 256
"""The number of objects that the feed keeps as they were written: those that changed last."""


class Feed:
    """Lists and watches the objects of each kind. `snapshot` is None until each kind has been listed.

    Each new snapshot has the next revision number. `seen` counts batches of watched changes, including batches that
    leave the snapshot unchanged. `records` has the objects of the last batch for the history. `rewritten` has the kinds (group
    and name) whose statuses the reader of the feed writes: only their objects are kept as they were written.
    """

    def __init__(self, objects: Reader, rewritten: Collection[tuple[str, str]] = ()) -> None:
        self.snapshot: Latest[Snapshot | None] = Latest(None)
        self.seen: Latest[int] = Latest(0)
        self.records: SharedMap[Key, Record] = SharedMap()
        self._source = objects
        self._unlisted = {(kind.group, kind.kind) for kind in COMPILED}
        self._parts: Parts = (SharedMap(), SharedMap(), SharedMap())
        self._records = self.records
        self._versions: dict[tuple[str, str], SharedMap[Key, str]] = dict.fromkeys(self._unlisted, SharedMap())
        self._differs = True
        self._publishing: asyncio.Handle | None = None
        self._rewritten = rewritten
        self._recent: dict[Key, Object] = {}

    async def run(self) -> None:
        """Follow each kind until canceled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in COMPILED:
                tasks.create_task(self._follow(kind), name=f"feed of {kind.kind}")

    async def read(self, key: Key) -> Object:
        """Return an object from the last changes, without a request, or else the stored one. Raises NotFound.

        A write of the returned object can fail with a Conflict, if the feed has not read its last change yet. Call
        `forget` before the next try.
        """
        return self._recent.get(key) or await self._source.get(key)

    def record_write(self, before: Object, written: Object) -> None:
        """Let `read` return the result of a write to the object `before`, whose watch event may come later."""
        key = key_of(written)
        if self._recent.get(key) is before:
            self._recent[key] = written

    def forget(self, key: Key) -> None:
        """Let `read` return the stored object until the feed reads its next change."""
        self._recent.pop(key, None)

    async def wait_for_object(self, written: Object) -> None:
        """Wait until the feed has read an object in the version of `written`, or in a later version."""
        key, version = key_of(written), version_of(written)
        while not self.has_read(key, version):
            next_batch = self.seen.next_change()
            try:
                current = version_of(await self._source.get(key))  # the stored object may already have a newer version
            except NotFound:
                current = ""
            if self.has_read(key, current):
                return
            await next_batch.wait()

    async def wait_until_current(self, *kinds: Kind) -> None:
        """Wait until the feed has read all objects in the versions that are stored now, or in later versions.

        With `kinds`, only the objects of these kinds. Also waits while the objects can't be read.
        """
        for group, kind in [(chosen.group, chosen.kind) for chosen in kinds] or self._versions:
            while True:
                next_batch = self.seen.next_change()
                list_kind = partial(self._source.list, group, kind)
                listing = await until_done(list_kind, "", on=Unavailable)  # `follow` logs it
                # Each change to an object has a version of its own, so equal versions mean equal objects. Comparing
                # 3,000 versions takes 0.7 ms, and comparing them by the keys of their objects 3 ms.
                if set(self.versions(group, kind).values()) == {version_of(obj) for obj in listing.items}:
                    break
                await next_batch.wait()
        await until(lambda: self._publishing is None and self.snapshot.get() is not None, self.seen)

    def version(self, key: Key) -> str:
        """Return the version in which the feed has read an object; empty if the object does not exist."""
        version: str = self.versions(key.group, key.kind).get(key, "")
        return version

    def versions(self, group: str, kind: str) -> SharedMap[Key, str]:
        """Return the versions in which the feed has read the objects of a kind."""
        return self._versions[group, kind]

    def has_read(self, key: Key, version: str) -> bool:
        """Return whether the snapshot has this version of an object; an empty version means a deleted object."""
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
        kind, before = (key.group, key.kind), self._parts
        gone = [key] if obj is None else []
        self._recent.pop(key, None)
        if obj and kind in self._rewritten:
            self._recent[key] = obj
            if len(self._recent) > RECENT:
                del self._recent[next(iter(self._recent))]
        self._versions[kind] = self._versions[kind].edited({key: version_of(obj)} if obj else {}, gone)
        self._parts = _edited(before, key, obj)
        if is_recorded(key):
            self._records = _with_value(self._records, key, record_of(obj) if obj else None)
        self._differs |= self._parts != before

    def _publish(self) -> None:
        self._publishing = None
        self.records = self._records
        if self._differs and not self._unlisted:
            last = self.snapshot.get()
            objects, mistakes, left = self._parts
            new = Snapshot(last.revision + 1 if last else 1, objects, mistakes, fail_closed=left)
            # without the indexes of `last`, each reader of the snapshot would go through all objects
            self.snapshot.set(new.following(last) if last else new)
            self._differs = False
        self.seen.set(self.seen.get() + 1)


def with_objects(snapshot: Snapshot, changes: Mapping[Key, Object | None]) -> Snapshot:
    """Return a copy of a snapshot in which objects are replaced, added, or removed if they are None.

    If none of them differs, return the snapshot itself.
    """
    before = parts = snapshot.objects, SharedMap(snapshot.mistakes), SharedMap(snapshot.fail_closed)
    for key, obj in changes.items():
        parts = _edited(parts, key, obj)
    if all(part is other for part, other in zip(before, parts, strict=True)):
        return snapshot
    objects, mistakes, left = parts
    return Snapshot(snapshot.revision, objects, mistakes, fail_closed=left)


def _edited(parts: Parts, key: Key, obj: Object | None) -> Parts:
    """Return the parts of a snapshot with an object added or replaced, or removed if `obj` is None."""
    checked = check_stored(obj) if obj else Checked(())
    left = restrictive_part(obj) if obj and not checked.value else None
    objects, mistakes, fail_closed = parts
    return (
        _with_value(objects, key, checked.value),
        _with_value(mistakes, key, checked.causes or None),
        _with_value(fail_closed, key, left),
    )


def _with_value(items: SharedMap[Key, T], key: Key, value: T | None) -> SharedMap[Key, T]:
    if items.get(key) == value:
        return items
    return items.edited({}, [key]) if value is None else items.edited({key: value})


def snapshot_of(objects: Mapping[Key, Object], revision: int = 0) -> Snapshot:
    """Return a snapshot of the objects whose kinds the compiler reads; `objects` may come from files."""
    read = {key: check_stored(obj) for key, obj in objects.items() if (key.group, key.kind) in GROUP_KINDS}
    left = {key: restrictive_part(objects[key]) for key, checked in read.items() if not checked.value}
    return Snapshot(
        revision,
        {key: checked.value for key, checked in read.items() if checked.value},
        {key: checked.causes for key, checked in read.items() if checked.causes},
        fail_closed={key: resource for key, resource in left.items() if resource},
    )
