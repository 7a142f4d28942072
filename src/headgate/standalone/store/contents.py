"""What the embedded store holds in memory: the objects with the indexes that its calls need, and the newest changes.

Objects are found by kind and name, by namespace, and by owner. The newest changes of each kind are kept once for all watchers:
a watcher is a cursor into them, never a queue of its own.
"""

import asyncio
import bisect
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence

from headgate.errors import Gone
from headgate.objects.ports import Change
from headgate.resources.meta import Key, Object


def owners(obj: Object) -> set[str]:
    """Return the uids of an object's owners."""
    return {reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()}


class Contents:
    """All objects. `put` and `remove` keep every index; nothing here knows a rule."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._keys: defaultdict[tuple[str, str], list[Key]] = defaultdict(list)  # of a kind, by namespace and name
        self._by_namespace: defaultdict[str, dict[Key, None]] = defaultdict(dict)
        self._by_owner: defaultdict[str, dict[Key, None]] = defaultdict(dict)
        self._uids: dict[str, Key] = {}

    def get(self, key: Key) -> Object | None:
        """Return an object, or None."""
        return self._objects.get(key)

    def select(self, group: str, kind: str, namespace: str) -> list[Object]:
        """Return a kind's objects in order, of one namespace when it is given."""
        keys = self._keys.get((group, kind), [])
        if namespace:
            first = bisect.bisect_left(keys, Key(group, kind, namespace, ""))
            keys = keys[first : bisect.bisect_left(keys, Key(group, kind, namespace + "\0", ""))]
        return [self._objects[key] for key in keys]

    def in_namespace(self, namespace: str) -> list[Key]:
        """Point at all objects in a namespace."""
        return list(self._by_namespace.get(namespace, ()))

    def owned_by(self, uid: str) -> list[Key]:
        """Point at the objects that name `uid` as an owner."""
        return list(self._by_owner.get(uid, ()))

    def may_own(self, uid: str, namespace: str) -> bool:
        """Whether an object with this uid exists where it can own one in `namespace`."""
        key = self._uids.get(uid)
        return key is not None and key.namespace in ("", namespace)

    def put(self, key: Key, obj: Object) -> None:
        """Store an object, new or in place of the one there."""
        if key in self._objects:
            self._unlink(key)
        else:
            bisect.insort(self._keys[key.group, key.kind], key)
        self._objects[key] = obj
        for uid in owners(obj):
            self._by_owner[uid][key] = None
        if key.namespace:
            self._by_namespace[key.namespace][key] = None
        self._uids[obj["metadata"]["uid"]] = key

    def remove(self, key: Key) -> None:
        """Forget an object."""
        self._unlink(key)
        del self._objects[key]
        keys = self._keys[key.group, key.kind]
        del keys[bisect.bisect_left(keys, key)]

    def _unlink(self, key: Key) -> None:
        old = self._objects[key]
        for uid in owners(old):
            _drop(self._by_owner, uid, key)
        if key.namespace:
            _drop(self._by_namespace, key.namespace, key)
        self._uids.pop(old["metadata"]["uid"], None)


def _drop(index: dict[str, dict[Key, None]], value: str, key: Key) -> None:
    del index[value][key]
    if not index[value]:
        del index[value]


class History:
    """The last `size` changes of each kind. Revisions number the changes of all kinds, and are resource versions as text."""

    def __init__(self, revision: int, size: int) -> None:
        self.revision = revision
        self._kinds: defaultdict[tuple[str, str], _Kind] = defaultdict(lambda: _Kind(revision, size))

    def append(self, changes: Sequence[Change]) -> None:
        """Make changes visible to the watchers, in order."""
        kinds = {(change.key.group, change.key.kind): None for change in changes}
        for change in changes:
            self._kinds[change.key.group, change.key.kind].append(change)
            self.revision = int(change.version)
        for kind in kinds:
            self._kinds[kind].wake()

    async def after(self, since: str, group: str, kind: str) -> AsyncIterator[Change]:
        """Yield every change of a kind after revision `since`, for ever. Raises Gone when one of them is no longer kept."""
        revision = int(since) if since.isdecimal() else self.revision + 1
        if revision > self.revision:
            raise Gone(
                f"revision {since} is from another store (this one is at {self.revision}): list again and watch from there"
            )
        async for change in self._kinds[group, kind].after(revision):
            yield change


class _Kind:
    """The last changes of one kind, numbered from the first that ever was."""

    def __init__(self, floor: int, size: int) -> None:
        self._floor = floor  # changes after this revision are kept
        self._changes: deque[Change] = deque(maxlen=size)
        self._dropped = 0  # how many came before those that are kept
        self._grown = asyncio.Event()

    def append(self, change: Change) -> None:
        if len(self._changes) == self._changes.maxlen:
            self._floor = int(self._changes[0].version)
            self._dropped += 1
        self._changes.append(change)

    def wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    async def after(self, revision: int) -> AsyncIterator[Change]:
        if revision < self._floor:
            raise self._gone(revision)
        number = self._dropped + bisect.bisect_right(self._changes, revision, key=lambda change: int(change.version))
        while True:
            while number < self._dropped + len(self._changes):
                if number < self._dropped:
                    raise self._gone(revision)
                change = self._changes[number - self._dropped]
                number, revision = number + 1, int(change.version)
                yield change
            await self._grown.wait()

    def _gone(self, revision: int) -> Gone:
        return Gone(f"the changes after revision {revision} are no longer kept: list again and watch from there")
