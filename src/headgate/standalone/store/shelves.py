"""The objects of the embedded store, with the indexes that its calls need: by kind and name, by namespace, by owner."""

import bisect
from collections import defaultdict
from collections.abc import Iterator

from headgate.resources.meta import Key, Object


def owners(obj: Object) -> set[str]:
    """Return the uids of an object's owners."""
    return {reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()}


class _Shelf:
    """The objects of one kind, ordered by namespace and name."""

    def __init__(self) -> None:
        self._names: list[tuple[str, str]] = []
        self._objects: dict[tuple[str, str], Object] = {}

    def put(self, name: tuple[str, str], obj: Object) -> None:
        if name not in self._objects:
            bisect.insort(self._names, name)
        self._objects[name] = obj

    def pop(self, name: tuple[str, str]) -> None:
        del self._objects[name]
        del self._names[bisect.bisect_left(self._names, name)]

    def get(self, name: tuple[str, str]) -> Object | None:
        return self._objects.get(name)

    def select(self, namespace: str) -> list[Object]:
        names = self._names
        if namespace:
            first = bisect.bisect_left(names, (namespace, ""))
            names = names[first : bisect.bisect_left(names, (namespace + "\0", ""))]
        return [self._objects[name] for name in names]


class Shelves:
    """All objects. `put` and `remove` keep every index; nothing here knows a rule."""

    def __init__(self) -> None:
        self._shelves: defaultdict[tuple[str, str], _Shelf] = defaultdict(_Shelf)
        self._by_namespace: defaultdict[str, dict[Key, None]] = defaultdict(dict)
        self._by_owner: defaultdict[str, dict[Key, None]] = defaultdict(dict)
        self._uids: dict[str, Key] = {}

    def get(self, key: Key) -> Object | None:
        """Return an object, or None."""
        shelf = self._shelves.get((key.group, key.kind))
        return shelf.get((key.namespace, key.name)) if shelf else None

    def select(self, group: str, kind: str, namespace: str) -> list[Object]:
        """Return a kind's objects in order, of one namespace when it is given."""
        shelf = self._shelves.get((group, kind))
        return shelf.select(namespace) if shelf else []

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
        self._unlink(key)
        self._shelves[key.group, key.kind].put((key.namespace, key.name), obj)
        for uid in owners(obj):
            self._by_owner[uid][key] = None
        if key.namespace:
            self._by_namespace[key.namespace][key] = None
        self._uids[obj["metadata"]["uid"]] = key

    def remove(self, key: Key) -> None:
        """Forget an object."""
        self._unlink(key)
        self._shelves[key.group, key.kind].pop((key.namespace, key.name))

    def _unlink(self, key: Key) -> None:
        old = self.get(key)
        if old is None:
            return
        for uid in owners(old):
            _drop(self._by_owner, uid, key)
        if key.namespace:
            _drop(self._by_namespace, key.namespace, key)
        self._uids.pop(old["metadata"]["uid"], None)

    def __iter__(self) -> Iterator[Object]:
        for shelf in self._shelves.values():
            yield from shelf.select("")


def _drop(index: dict[str, dict[Key, None]], value: str, key: Key) -> None:
    del index[value][key]
    if not index[value]:
        del index[value]
