"""Read, write and update the managers of an object's fields (`metadata.managedFields`).

The manager of an update owns the fields that the update changes. An update of an object without managers adds none. The
first apply to such an object adds a manager `before-first-apply`, which owns all earlier fields (`server_side_apply`).
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from headgate.errors import DecodeError
from headgate.merge.structured_merge import ChangedPaths, Path, Paths, compare, read_field_set, write_field_set
from headgate.resources.kind import Kind, split_api_version
from headgate.resources.meta import Object
from headgate.resources.registry import find_written
from headgate.resources.schema.builders import Schema
from headgate.resources.schema.catalog import schema_of
from headgate.resources.versions import as_version, hub_of

ManagerKey: TypeAlias = tuple[str, ...]
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
    """A field manager: its name, its operation, the version that it writes, and its subresource."""

    name: str
    operation: Operation
    api_version: str
    subresource: str = ""

    @property
    def key(self) -> ManagerKey:
        """The identity of the manager: name, operation, version and subresource. For Apply, the version is empty."""
        version = self.api_version if self.operation == "Update" else ""
        return self.name, self.operation, version, self.subresource

    def __str__(self) -> str:
        part = f' with subresource "{self.subresource}"' if self.subresource else ""
        return f'"{self.name}"{part}'


class ManagedFields(NamedTuple):
    """The fields that a manager owns, and the time (RFC 3339) at which it last got a field."""

    manager: Manager
    paths: Paths
    time: str


Managers: TypeAlias = Mapping[ManagerKey, ManagedFields]


class Versions(NamedTuple):
    """The conversion function and the schemas of a kind's versions.

    `convert` converts an object to an apiVersion, or returns None if the conversion fails. `schema` returns the schema
    of an apiVersion.
    """

    convert: Callable[[Object, str], Object | None]
    schema: Callable[[str], Schema]

    def at(self, obj: Object, version: str, other: str) -> Object | None:
        """Return an object of `version`, converted to the version `other`; None if the conversion fails."""
        return obj if version == other else self.convert(obj, other)


def versions_of(kind: Kind) -> Versions:
    """Return the conversion and the schemas of a kind's versions."""

    def convert(obj: Object, api_version: str) -> Object | None:
        try:
            return as_version(hub_of(obj, kind), kind, *split_api_version(api_version))
        except DecodeError:
            return None

    def schema(api_version: str) -> Schema:
        served = split_api_version(api_version)
        return schema_of(kind, *served) if served in kind.served_versions else {}

    return Versions(convert, schema)


def read_managed_fields(entries: Any) -> Managers:
    """Parse `metadata.managedFields`. If an entry is malformed, all entries are ignored."""
    managers: dict[ManagerKey, ManagedFields] = {}
    try:
        for entry in entries or ():
            if entry["operation"] not in ("Apply", "Update") or entry.get("fieldsType", "FieldsV1") != "FieldsV1":
                return {}
            names = str(entry.get("manager") or "unknown"), entry["operation"], str(entry["apiVersion"])
            manager = Manager(*names, str(entry.get("subresource") or ""))
            paths = read_field_set(entry.get("fieldsV1") or {})
            managers[manager.key] = ManagedFields(manager, paths, str(entry.get("time") or ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return managers


def write_managed_fields(managers: Managers) -> list[dict[str, Any]]:
    """Return `metadata.managedFields` as JSON, in Kubernetes' order."""

    def order(owned: ManagedFields) -> tuple[str, ...]:
        manager = owned.manager
        return manager.operation, owned.time, manager.name, manager.api_version, manager.subresource

    return [_entry(owned) for owned in sorted(managers.values(), key=order)]


def _entry(owned: ManagedFields) -> dict[str, Any]:
    manager = owned.manager
    entry = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": owned.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": write_field_set(owned.paths),
        "subresource": manager.subresource,
    }
    return {name: value for name, value in entry.items() if value or name == "fieldsV1"}


class Write(NamedTuple):
    """A write: its manager, its time (RFC 3339), and the kind's versions.

    `has_status` means that the kind has a subresource `status`. With `force`, an apply overrides conflicts.
    """

    manager: Manager
    time: str
    versions: Versions
    has_status: bool = True
    force: bool = False

    @property
    def schema(self) -> Schema:
        """The schema of the version that is written."""
        return self.versions.schema(self.manager.api_version)

    def unowned(self, paths: Paths) -> frozenset[Path]:
        """Return the paths that no manager owns in this write.

        They are fields that the server sets, and fields that belong to another subresource than the written one.
        """
        inside = self.manager.subresource == "status"
        return frozenset(
            path for path in paths if path in _UNOWNED or (self.has_status and (path[0] == "f:status") != inside)
        )


def tracked_update(live: Object | None, new: Object, write: Write) -> list[dict[str, Any]]:
    """Return `metadata.managedFields` of an object that is created or updated.

    If the written object has managers, they first replace the stored managers. So a client can move fields between
    managers.
    """
    given = _given(live, new, write)
    if live is None:
        given = updated(empty_object(new), without_managers(new), given, write)
    elif given:
        given = updated(without_managers(live), without_managers(new), given, write)
    return write_managed_fields(given)


def _given(live: Object | None, new: Object, write: Write) -> Managers:
    """Return the managers before an update: those of the written object if it has valid ones, else the stored ones."""
    entries = (new.get("metadata") or {}).get("managedFields")
    if entries == [{}]:  # in Kubernetes, this removes all managers
        return {}
    written = {} if write.manager.subresource else read_managed_fields(entries)
    return written or (managers_of(live) if live else {})


def managers_of(obj: Object) -> Managers:
    """Return the managers of an object's fields."""
    return read_managed_fields(obj["metadata"].get("managedFields"))


def updated(live: Object, new: Object, managers: Managers, write: Write) -> Managers:
    """Return the managers after an update of `live` to `new`: the updater owns each field that it changed or added."""
    changed = changes(live, new, write)
    left = remaining(managers, None, changed)
    taken = changed(write.manager.api_version).touched
    if not taken:
        return left
    before = left.get(write.manager.key)
    mine = ManagedFields(write.manager, taken | (before.paths if before else frozenset()), write.time)
    return _capped({**left, write.manager.key: mine})


Changes: TypeAlias = Callable[[str], ChangedPaths]
"""Returns a write's changes in one version of the kind; no changes if the objects can't be converted to it."""


def changes(live: Object, new: Object, write: Write) -> Changes:
    """Return a function that compares `live` and `new` in a given version. It caches the result for each version."""

    @functools.cache
    def in_version(version: str) -> ChangedPaths:
        before, after = (write.versions.at(obj, write.manager.api_version, version) for obj in (live, new))
        if before is None or after is None:
            return ChangedPaths(frozenset(), frozenset(), frozenset())
        changed = compare(before, after, write.versions.schema(version))
        return changed.limited(write.unowned(changed.paths))

    return in_version


def remaining(managers: Managers, own: ManagerKey | None, changed: Changes) -> dict[ManagerKey, ManagedFields]:
    """Return the managers without the fields that a write changes or removes. The manager `own` keeps all its fields."""
    left: dict[ManagerKey, ManagedFields] = {}
    for identity, owned in managers.items():
        paths = owned.paths if identity == own else owned.paths - changed(owned.manager.api_version).paths
        if paths or identity == own:
            left[identity] = owned._replace(paths=paths)
    return left


def _capped(managers: dict[ManagerKey, ManagedFields]) -> Managers:
    """Merge the managers of the oldest updates into one if there are more than ten, to limit the size of the object."""
    updates = sorted(
        (managed for managed in managers.values() if managed.manager.operation == "Update"),
        key=lambda managed: managed.time,
    )
    for old in updates[: max(len(updates) - _MOST_UPDATERS, 0)]:
        ancient = old.manager._replace(name=_ANCIENT)
        before = managers.get(ancient.key)
        del managers[old.manager.key]
        managers[ancient.key] = ManagedFields(ancient, old.paths | (before.paths if before else frozenset()), old.time)
    return managers


def without_managers(obj: Object) -> Object:
    """Return an object without its managers."""
    return {**obj, "metadata": {name: part for name, part in obj["metadata"].items() if name != "managedFields"}}


def empty_object(obj: Object) -> Object:
    """Return an object of the same kind without content, but with the fields that always exist."""
    empty: dict[str, Any] = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": {}}
    kind = find_written(obj["apiVersion"], obj["kind"])
    for place in kind.always_present if kind else ():
        node = empty
        for name in place.split("."):
            node = node.setdefault(name, {})
    return empty
