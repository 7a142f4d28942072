"""Server-side apply: merge a manager's configuration into an object.

The manager owns the fields that it applies. A field of the manager's last apply that the new configuration lacks is
removed, unless another manager owns the field. A change to another manager's field is a conflict.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headgate.merge.managed_fields import (
    Changes,
    ManagedFields,
    Manager,
    ManagerKey,
    Managers,
    Versions,
    Write,
    changes,
    empty_object,
    managers_of,
    remaining,
    updated,
    without_managers,
    write_managed_fields,
)
from headgate.merge.structured_merge import MergeError, Path, fields_of, merged, text_of, with_named_members, without
from headgate.resources.meta import Object, annotations_of
from headgate.resources.schema.builders import Schema

BEFORE_FIRST_APPLY = "before-first-apply"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"  # server-side `kubectl apply` takes over the fields of earlier client-side applies


class FieldConflict(NamedTuple):
    """A field that an apply would change, although another manager owns it."""

    owner: ManagedFields
    path: Path

    @property
    def owner_name(self) -> str:
        """The owner's name, as in Kubernetes' messages."""
        manager = self.owner.manager
        if manager.operation == "Apply":
            return str(manager)
        return f"{manager} using {manager.api_version}" + (f" at {self.owner.time}" if self.owner.time else "")

    @property
    def field(self) -> str:
        """The path of the field as text."""
        return text_of(self.path)


class ApplyConflicts(Exception):
    """An apply without force would change fields that other managers own."""

    def __init__(self, conflicts: Sequence[FieldConflict]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = conflicts


def tracked_apply(live: Object | None, config: Object, write: Write) -> Object:
    """Return the object after an apply, with its `managedFields`. Raises ApplyConflicts, MergeError."""
    if live is None:
        empty = {"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": {}}
        return _with_owners(*applied(empty, config, {}, write))
    managers = managers_of(live) or _before_first_apply(live, write)
    try:
        new, after = applied(without_managers(live), config, managers, write)
    except ApplyConflicts as error:
        left = _not_of_last_applied(error, live, write)
        if left:
            raise ApplyConflicts(left) from None
        new, after = applied(without_managers(live), config, managers, write._replace(force=True))
    if write.manager.name == _KUBECTL and _last_applied(live):
        annotations = {**annotations_of(new), LAST_APPLIED: written_configuration(config)}
        new = {**new, "metadata": {**new["metadata"], "annotations": annotations}}
    return _with_owners(new, after)


def _with_owners(obj: Object, managers: Managers) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "managedFields": write_managed_fields(managers)}}


def _before_first_apply(live: Object, write: Write) -> Managers:
    manager = Manager(BEFORE_FIRST_APPLY, "Update", write.manager.api_version)
    return updated(empty_object(live), without_managers(live), {}, write._replace(manager=manager))


def _not_of_last_applied(error: ApplyConflicts, live: Object, write: Write) -> list[Any]:
    """Return the conflicts of `error`, except those on fields that an earlier client-side `kubectl apply` has set."""
    text = _last_applied(live) if write.manager.name == _KUBECTL else ""
    try:
        config = json.loads(text) if text else None
        hub = write.versions.convert(config, write.manager.api_version) if isinstance(config, Mapping) else None
        set_before = fields_of(hub, write.schema) if hub else frozenset()
    except (ValueError, RecursionError, MergeError, TypeError, AttributeError):
        return list(error.conflicts)
    return [conflict for conflict in error.conflicts if conflict.path not in set_before]


def _last_applied(obj: Object) -> str:
    return str(annotations_of(obj).get(LAST_APPLIED) or "")


def written_configuration(config: Object) -> str:
    """Return a configuration as `kubectl apply` writes it into its annotation."""
    metadata = {"annotations": {}, **config["metadata"]}
    metadata["annotations"] = {
        name: text for name, text in (metadata["annotations"] or {}).items() if name != LAST_APPLIED
    }
    text = json.dumps({**config, "metadata": metadata}, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return f"{text}\n"


def applied(live: Object, config: Object, managers: Managers, write: Write) -> tuple[Object, Managers]:
    """Return the object and its managers after an apply.

    `live` is the stored object without its managers. If it does not exist yet, `live` has only apiVersion and kind.

    Raises ApplyConflicts, MergeError.
    """
    fields = fields_of(config, write.schema)
    fields -= write.unowned(fields)
    own, last = write.manager.key, managers.get(write.manager.key)
    after = {**managers, own: ManagedFields(write.manager, fields, last.time if last else write.time)}
    new = merged(live, config, write.schema)
    if last and last.paths:
        pruned = _pruned(new, last, {**after, **_as_before(config, last, write)}, write)
        new = merged(pruned, config, write.schema)  # restores empty lists and maps of the configuration
    changed = changes(live, new, write)
    if not write.force:
        _check(managers, own, changed)
    left = remaining(after, own, changed)
    if not last or (last.paths, last.manager) != (fields, write.manager) or changed(write.manager.api_version).paths:
        left[own] = left[own]._replace(time=write.time)
    if not fields:
        del left[own]
    return new, left


def _check(managers: Managers, own: ManagerKey, changed: Changes) -> None:
    conflicts = [
        FieldConflict(owned, path)
        for identity, owned in managers.items()
        if identity != own
        for path in owned.paths & changed(owned.manager.api_version).touched
    ]
    if conflicts:
        raise ApplyConflicts(sorted(conflicts, key=lambda conflict: (conflict.owner_name, conflict.path)))


def _as_before(config: Object, last: ManagedFields, write: Write) -> Managers:
    """Return a temporary manager that owns the fields of this apply.

    The fields are in the API version of the applier's previous apply (`last`), because pruning runs in that version.
    Pruning must keep them, or the conversion back may fail.
    """
    version = last.manager.api_version
    old = write.versions.at(config, write.manager.api_version, version)
    if old is None:
        return {}
    return {
        ("", version): ManagedFields(last.manager, fields_of(old, write.versions.schema(version), distinct=False), "")
    }


def _pruned(new: Object, last: ManagedFields, managers: Managers, write: Write) -> Object:
    """Return the object without the fields of the last apply that no manager owns any more."""
    version, versions, by = last.manager.api_version, write.versions, write.manager
    whole = versions.at(new, by.api_version, version)
    if whole is None:
        return new
    schema = versions.schema(version)
    lasting = with_named_members(last.paths, schema)
    pruned = without(whole, lasting, schema)
    for other in dict.fromkeys((version, *(owned.manager.api_version for owned in managers.values()))):
        pruned = _with_owned(whole, pruned, managers, (version, other), versions)
    rest = _members(pruned, schema)
    result = without(whole, (_members(whole, schema) - rest) & lasting, schema)
    back = versions.at(result, version, by.api_version)
    return new if back is None else back


def _with_owned(
    whole: Object, pruned: Object, managers: Managers, between: tuple[str, str], versions: Versions
) -> Object:
    """Return `pruned` with the fields of `whole` that are owned by managers with another API version.

    `between` has two API versions: that of `whole` and `pruned`, and that of the managers.
    """
    version, other = between
    all_of_it, part = (versions.at(obj, version, other) for obj in (whole, pruned))
    if all_of_it is None or part is None:
        return pruned
    schema = versions.schema(other)
    owned = {path for managed in managers.values() if managed.manager.api_version == other for path in managed.paths}
    gone = _members(all_of_it, schema) - _members(part, schema) - with_named_members(owned, schema)
    back = versions.at(without(all_of_it, gone, schema), other, version)
    return pruned if back is None else back


def _members(obj: Object, schema: Schema) -> frozenset[Path]:
    return with_named_members(fields_of(obj, schema, distinct=False), schema)
