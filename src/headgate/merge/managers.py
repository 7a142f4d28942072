"""The managers of an object's fields, and what becomes of them when it is written (`metadata.managedFields`).

An update owns the fields that it changes. An apply owns the fields that it sets: A field that it no longer sets
is removed when no other manager owns it. A field of another manager that it would change is a conflict.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from headgate.merge.paths import Path, Paths, read, text_of, written
from headgate.merge.values import Comparison, compare, fields_of, merged, with_named_members, without
from headgate.resources.definitions.parts import Schema
from headgate.resources.meta import Object

Identity: TypeAlias = tuple[str, ...]
Operation: TypeAlias = Literal["Apply", "Update"]

_MOST_UPDATERS = 10
_ANCIENT = "ancient-changes"
_METADATA_OF_SERVER = (
    "name",
    "namespace",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "uid",
    "generation",
    "managedFields",
    "resourceVersion",
)
_UNOWNED = frozenset(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in _METADATA_OF_SERVER)]
)


class Manager(NamedTuple):
    """The author of a write: its name, its operation, the version that it writes, and its subresource."""

    name: str
    operation: Operation
    api_version: str
    subresource: str = ""

    @property
    def identity(self) -> Identity:
        """What identifies the manager: one that applies is the same in every version."""
        version = self.api_version if self.operation == "Update" else ""
        return self.name, self.operation, version, self.subresource

    def __str__(self) -> str:
        part = f' with subresource "{self.subresource}"' if self.subresource else ""
        return f'"{self.name}"{part}'


class Owned(NamedTuple):
    """What one manager owns, and when it last took a field (RFC 3339)."""

    manager: Manager
    paths: Paths
    time: str


Owners: TypeAlias = Mapping[Identity, Owned]


class Conflict(NamedTuple):
    """A field that an apply would change, although another manager owns it."""

    owner: Owned
    path: Path

    @property
    def owner_name(self) -> str:
        """Name the owner as Kubernetes does."""
        manager = self.owner.manager
        if manager.operation == "Apply":
            return str(manager)
        return f"{manager} using {manager.api_version}" + (f" at {self.owner.time}" if self.owner.time else "")

    @property
    def field(self) -> str:
        """Return the path as text."""
        return text_of(self.path)


class ApplyConflicts(Exception):
    """An apply was not forced, and would change fields of other managers."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = conflicts


class Versions(NamedTuple):
    """How an object looks in each version of its kind; `convert` returns None for a version that does not exist."""

    convert: Callable[[Object, str], Object | None]
    schema: Callable[[str], Schema]


def read_owners(entries: Any) -> Owners:
    """Read `metadata.managedFields`. Raises ValueError, KeyError, TypeError when it is not of that form."""
    found: dict[Identity, Owned] = {}
    for entry in entries or ():
        operation = entry["operation"]
        if operation not in ("Apply", "Update"):
            raise ValueError(f"operation must be Apply or Update, not {operation!r}")
        if entry.get("fieldsType", "FieldsV1") != "FieldsV1":
            raise ValueError("fieldsType must be FieldsV1")
        name = str(entry.get("manager") or "unknown")
        manager = Manager(name, operation, str(entry["apiVersion"]), str(entry.get("subresource") or ""))
        found[manager.identity] = Owned(manager, read(entry.get("fieldsV1") or {}), str(entry.get("time") or ""))
    return found


def write_owners(owners: Owners) -> list[dict[str, Any]]:
    """Write `metadata.managedFields`, in the order that Kubernetes has."""

    def order(owned: Owned) -> tuple[str, ...]:
        manager = owned.manager
        return manager.operation, owned.time, manager.name, manager.api_version, manager.subresource

    return [_entry(owned) for owned in sorted(owners.values(), key=order)]


def _entry(owned: Owned) -> dict[str, Any]:
    manager = owned.manager
    entry = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": owned.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": written(owned.paths),
        "subresource": manager.subresource,
    }
    return {name: value for name, value in entry.items() if value or name == "fieldsV1"}


class Write(NamedTuple):
    """A write: its manager, its time (RFC 3339), and how the kind's versions look. `force` takes what conflicts."""

    manager: Manager
    time: str
    versions: Versions
    has_status: bool = True
    force: bool = False

    @property
    def schema(self) -> Schema:
        """Return the schema of the version that is written."""
        return self.versions.schema(self.manager.api_version)

    def unowned(self, paths: Paths) -> frozenset[Path]:
        """Return the paths that the writer can't own: the server's, and the part that its path does not write."""
        inside = self.manager.subresource == "status"
        return frozenset(
            path for path in paths if path in _UNOWNED or (self.has_status and (path[0] == "f:status") != inside)
        )


def updated(live: Object, new: Object, owners: Owners, write: Write) -> Owners:
    """Return the owners after an update."""
    seen = _Seen(live, new, write)
    left = _left(owners, None, seen)
    taken = seen.difference().touched
    if not taken:
        return left
    before = left.get(write.manager.identity)
    mine = Owned(write.manager, taken | (before.paths if before else frozenset()), write.time)
    return _capped({**left, write.manager.identity: mine})


class _Seen:
    """What a write changes, in each version that a manager has written."""

    def __init__(self, live: Object, new: Object, write: Write) -> None:
        self._objects = live, new
        self._write = write
        self._found: dict[str, Comparison | None] = {}

    def difference(self) -> Comparison:
        """Return what differs in the version that is written."""
        return self._difference(*self._objects, self._write.schema)

    def by(self, version: str) -> Comparison | None:
        """Return what differs in a version; None when the objects can't be had in it."""
        if version not in self._found:
            self._found[version] = self._in_version(version)
        return self._found[version]

    def _in_version(self, version: str) -> Comparison | None:
        if version == self._write.manager.api_version:
            return self.difference()
        live, new = (self._write.versions.convert(obj, version) for obj in self._objects)
        return (
            None if live is None or new is None else self._difference(live, new, self._write.versions.schema(version))
        )

    def _difference(self, live: Object, new: Object, schema: Schema) -> Comparison:
        found = compare(live, new, schema)
        return found.limited(self._write.unowned(found.paths))


def _left(owners: Owners, own: Identity | None, seen: _Seen) -> dict[Identity, Owned]:
    """Return the owners without what a write changes or removes; `own` is left as it is."""
    left: dict[Identity, Owned] = {}
    for identity, owned in owners.items():
        lost = None if identity == own else seen.by(owned.manager.api_version)
        paths = owned.paths - lost.paths if lost else owned.paths
        if paths or identity == own:
            left[identity] = owned._replace(paths=paths)
    return left


def applied(live: Object, config: Object, owners: Owners, write: Write) -> tuple[Object, Owners]:
    """Return the object and its owners after an apply; `live` has no fields when there is no object yet.

    Raises ApplyConflicts, MergeError.
    """
    fields = fields_of(config, write.schema)
    fields -= write.unowned(fields)
    own, last = write.manager.identity, owners.get(write.manager.identity)
    after = {**owners, own: Owned(write.manager, fields, last.time if last else write.time)}
    new = merged(live, config, write.schema)
    if last and last.paths:
        pruned = _pruned(new, last, {**after, **_as_before(config, last, write)}, write)
        new = merged(pruned, config, write.schema)  # a list or map that is empty now stays, as it is given
    seen = _Seen(live, new, write)
    if not write.force:
        _check(owners, own, seen)
    left = _left(after, own, seen)
    if not last or (last.paths, last.manager) != (fields, write.manager) or seen.difference().paths:
        left[own] = left[own]._replace(time=write.time)
    if not fields:
        del left[own]
    return new, left


def _check(owners: Owners, own: Identity, seen: _Seen) -> None:
    conflicts: list[Conflict] = []
    for identity, owned in owners.items():
        found = seen.by(owned.manager.api_version)
        if identity != own and found is not None:
            conflicts += [Conflict(owned, path) for path in sorted(owned.paths & found.touched)]
    if conflicts:
        raise ApplyConflicts(sorted(conflicts, key=lambda conflict: (conflict.owner_name, conflict.path)))


def _as_before(config: Object, last: Owned, write: Write) -> Owners:
    """Return what is applied as one more owner, in the version of the last apply when that was another one.

    What is left after pruning there can only be converted back with all that is applied now.
    """
    version = last.manager.api_version
    old = _at(config, write.manager.api_version, version, write.versions)
    if old is None:
        return {}
    return {("", version): Owned(last.manager, fields_of(old, write.versions.schema(version), distinct=False), "")}


def _pruned(new: Object, last: Owned, owners: Owners, write: Write) -> Object:
    """Return the object without what the last apply set, this one does not, and no other manager owns."""
    version, versions, by = last.manager.api_version, write.versions, write.manager
    whole = _at(new, by.api_version, version, versions)
    if whole is None:
        return new
    schema = versions.schema(version)
    lasting = with_named_members(last.paths, schema)
    pruned = without(whole, lasting, schema)
    for other in dict.fromkeys((version, *(owned.manager.api_version for owned in owners.values()))):
        pruned = _with_owned(whole, pruned, owners, (version, other), versions)
    rest = _members(pruned, schema)
    result = without(whole, (_members(whole, schema) - rest) & lasting, schema)
    back = _at(result, version, by.api_version, versions)
    return new if back is None else back


def _with_owned(whole: Object, pruned: Object, owners: Owners, between: tuple[str, str], versions: Versions) -> Object:
    """Return what was pruned in one version, with all that is owned by managers of another version."""
    version, other = between
    all_of_it, part = (_at(obj, version, other, versions) for obj in (whole, pruned))
    if all_of_it is None or part is None:
        return pruned
    schema = versions.schema(other)
    owned = {path for one in owners.values() if one.manager.api_version == other for path in one.paths}
    gone = _members(all_of_it, schema) - _members(part, schema) - with_named_members(owned, schema)
    back = _at(without(all_of_it, gone, schema), other, version, versions)
    return pruned if back is None else back


def _members(obj: Object, schema: Schema) -> frozenset[Path]:
    return with_named_members(fields_of(obj, schema, distinct=False), schema)


def _at(obj: Object, version: str, other: str, versions: Versions) -> Object | None:
    return obj if version == other else versions.convert(obj, other)


def _capped(owners: dict[Identity, Owned]) -> Owners:
    """Join the oldest updates of one version into one manager, so that ever new names do not fill an object."""
    updates = sorted((one for one in owners.values() if one.manager.operation == "Update"), key=lambda one: one.time)
    for old in updates[: max(len(updates) - _MOST_UPDATERS, 0)]:
        ancient = old.manager._replace(name=_ANCIENT)
        before = owners.get(ancient.identity)
        del owners[old.manager.identity]
        owners[ancient.identity] = Owned(ancient, old.paths | (before.paths if before else frozenset()), old.time)
    return owners
