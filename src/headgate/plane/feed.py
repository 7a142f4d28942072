"""From the store to snapshots: every change of a kind that the compiler reads makes a new one."""

from collections.abc import Mapping
from typing import Any, TypeVar

from headgate.compiler.remains import remains
from headgate.compiler.snapshot import Snapshot
from headgate.errors import Cause, Gone
from headgate.latest import Latest
from headgate.objects.ports import Change, Store
from headgate.resources.decode import check
from headgate.resources.meta import Key, Object, Resource
from headgate.resources.registry import KINDS, key_of

T = TypeVar("T")
COMPILED = tuple(kind for kind in KINDS if kind.shape is not None)
_GROUP_KINDS = {(kind.group, kind.kind) for kind in COMPILED}


class Feed:
    """Follows a store. `snapshot` is the newest picture, nothing until the first listing is complete.

    `read` is the store's revision up to which everything is in the picture; it grows with changes of other kinds too.
    """

    def __init__(self, store: Store) -> None:
        self.snapshot: Latest[Snapshot | None] = Latest(None)
        self.read: Latest[int] = Latest(-1)
        self._store = store
        self._objects: dict[Key, Resource] = {}
        self._undecodable: dict[Key, tuple[Cause, ...]] = {}
        self._remains: dict[Key, Resource] = {}

    async def run(self) -> None:
        """List, then watch, for ever; when the watch fell behind, list again."""
        while True:
            revision = await self._relist()
            try:
                async for change in self._store.watch(revision):
                    if (change.key.group, change.key.kind) in _GROUP_KINDS and self._take(change):
                        self._publish(change.revision)
                    self.read.set(change.revision)
            except Gone:
                continue

    async def _relist(self) -> int:
        revision = self._store.revision
        self._objects, self._undecodable, self._remains = {}, {}, {}
        for kind in COMPILED:
            for obj in (await self._store.list(kind.group, kind.kind)).items:
                self._put(key_of(obj), obj)
        self._publish(revision)
        self.read.set(revision)
        return revision

    def _take(self, change: Change) -> bool:
        """Apply a change; say whether the compiler could notice it."""
        known: tuple[dict[Key, Any], ...] = (self._objects, self._undecodable, self._remains)
        before = [part.pop(change.key, None) for part in known]
        if change.type != "DELETED":
            self._put(change.key, change.object)
        return before != [part.get(change.key) for part in known]

    def _put(self, key: Key, obj: Object) -> None:
        decoded = read_object(obj)
        if isinstance(decoded, Resource):
            self._objects[key] = decoded
        else:
            self._undecodable[key] = decoded
            if (left := remains(obj)) is not None:
                self._remains[key] = left

    def _publish(self, revision: int) -> None:
        self.snapshot.set(Snapshot(revision, dict(self._objects), dict(self._undecodable), remains=dict(self._remains)))


def read_object(obj: Object) -> Resource | tuple[Cause, ...]:
    """Return an object as the compiler reads it, or every reason why it can't."""
    checked = check(obj)
    return checked.value or checked.causes


def changed(snapshot: Snapshot, obj: Object) -> Snapshot:
    """Return a snapshot in which one object is another, or new."""
    key = key_of(obj)
    new = snapshot_of({key: obj})
    return Snapshot(
        snapshot.revision,
        _without(snapshot.objects, key) | dict(new.objects),
        _without(snapshot.undecodable, key) | dict(new.undecodable),
        remains=_without(snapshot.remains, key) | dict(new.remains),
    )


def _without(part: Mapping[Key, T], key: Key) -> dict[Key, T]:
    return {other: item for other, item in part.items() if other != key}


def snapshot_of(objects: Mapping[Key, Object], revision: int = 0) -> Snapshot:
    """Return the snapshot of objects that are at hand, files for example; kinds that are not compiled are left out."""
    read = {key: read_object(obj) for key, obj in objects.items() if (key.group, key.kind) in _GROUP_KINDS}
    undecodable = {key: item for key, item in read.items() if not isinstance(item, Resource)}
    return Snapshot(
        revision,
        {key: item for key, item in read.items() if isinstance(item, Resource)},
        undecodable,
        remains={key: left for key in undecodable if (left := remains(objects[key])) is not None},
    )
