"""The objects of the embedded store in memory, indexed by kind and name, by namespace, and by owner."""

import bisect
from collections import defaultdict

from headgate.objects import lifecycle
from headgate.resources.custom.definition import definition_key
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Key, Object


def owners(obj: Object) -> set[str]:
    """Return the UIDs in an object's owner references."""
    return {reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()}


def known_owners(obj: Object, kinds: KindSet) -> set[str]:
    """Return the UIDs in an object's owner references to kinds that the embedded API serves."""
    references = obj["metadata"].get("ownerReferences") or ()
    return {owner["uid"] for owner in references if kinds.find(owner["apiVersion"].rpartition("/")[0], owner["kind"])}


class ObjectIndex:
    """All objects of the store, with indexes by kind, namespace, owner and UID. It does not validate objects."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._keys: defaultdict[tuple[str, str], list[Key]] = defaultdict(list)  # sorted keys of a kind
        self._by_namespace: defaultdict[str, dict[Key, None]] = defaultdict(dict)
        self._by_owner: defaultdict[str, dict[Key, None]] = defaultdict(dict)
        self._uids: dict[str, Key] = {}

    def get(self, key: Key) -> Object | None:
        """Return an object, or None when it does not exist."""
        return self._objects.get(key)

    def select(self, group: str, kind: str, namespace: str) -> list[Object]:
        """Return the objects of a kind, sorted by namespace and name; an empty `namespace` selects all."""
        keys = self._keys.get((group, kind), [])
        if namespace:
            first = bisect.bisect_left(keys, Key(group, kind, namespace, ""))
            keys = keys[first : bisect.bisect_left(keys, Key(group, kind, namespace + "\0", ""))]
        return [self._objects[key] for key in keys]

    def in_namespace(self, namespace: str) -> list[Key]:
        """Return the keys of all objects in a namespace."""
        return list(self._by_namespace.get(namespace, ()))

    def content(self, key: Key, kinds: KindSet) -> list[Key]:
        """Return the keys of the objects in a namespace, or with a kind that a CustomResourceDefinition defines."""
        if key == lifecycle.namespace_key(key.name):
            return self.in_namespace(key.name)
        kind = kinds.defined_by(key.name) if key == definition_key(key.name) else None
        return list(self._keys.get((kind.group, kind.kind), ())) if kind else []

    def owned_by(self, uid: str) -> list[Key]:
        """Return the keys of the objects whose owner references contain `uid`."""
        return list(self._by_owner.get(uid, ()))

    def can_own(self, uid: str, namespace: str) -> bool:
        """Return whether an object with this UID exists in `namespace` or is cluster-scoped."""
        key = self._uids.get(uid)
        return key is not None and key.namespace in ("", namespace)

    def key_of(self, uid: str) -> Key | None:
        """Return the key of the object with a UID; None when it does not exist."""
        return self._uids.get(uid)

    def put(self, key: Key, obj: Object) -> None:
        """Add or replace an object."""
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
        """Remove an object, which must exist."""
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
