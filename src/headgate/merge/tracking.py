"""Writes of whole objects with `metadata.managedFields` kept true: what a field manager of Kubernetes does around them.

An object without managers that is updated stays without: its first apply makes a manager of all that was there before.
"""

import json
from collections.abc import Mapping
from typing import Any

from headgate.errors import DecodeError
from headgate.merge.managers import (
    ApplyConflicts,
    Manager,
    Owners,
    Versions,
    Write,
    applied,
    read_owners,
    updated,
    write_owners,
)
from headgate.merge.shapes import MergeError
from headgate.merge.values import fields_of
from headgate.resources.definitions import catalogue
from headgate.resources.meta import Object
from headgate.resources.registry import Kind, split_api_version
from headgate.resources.versions import from_hub, to_hub

BEFORE_FIRST_APPLY = "before-first-apply"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"  # its applies take over from its client-side applies
_PRESENT: Mapping[
    str, tuple[str, ...]
] = {  # parts that Kubernetes' own kinds always have: to fill them in adds only what is in them
    "Namespace": ("spec", "status"),
    "Service": ("spec", "status.loadBalancer"),
    "Pod": ("spec", "status"),
    "Event": ("involvedObject", "source"),
    "Deployment": ("spec.strategy", "spec.template.metadata", "spec.template.spec", "status"),
    "ReplicaSet": ("spec.template.metadata", "spec.template.spec", "status"),
}


def versions_of(kind: Kind) -> Versions:
    """Return how objects of a kind look in each of its versions."""

    def convert(obj: Object, api_version: str) -> Object | None:
        try:
            return from_hub(to_hub(obj), *split_api_version(api_version))
        except DecodeError:
            return None

    return Versions(convert, lambda api_version: catalogue.schema(*split_api_version(api_version), kind.kind))


def tracked_update(live: Object | None, new: Object, write: Write) -> Object:
    """Return an object that is created or replaced, with its managers.

    Managers that the writer gives are taken as they are, so that a client can move fields between them.
    """
    given = _given(live, new, write)
    if live is not None and not given:
        return _with_owners(new, given)
    before = _bare(live) if live is not None else _blank(new)
    return _with_owners(new, updated(before, _bare(new), given, write))


def _given(live: Object | None, new: Object, write: Write) -> Owners:
    """Return the managers that an update begins with: the object's own, if it has any that can be read, else the live ones."""
    entries = (new.get("metadata") or {}).get("managedFields")
    if entries == [{}]:  # the way to begin again without managers
        return {}
    found = {} if write.manager.subresource else _read(entries)
    return found or (_read_of(live) if live else {})


def _read(entries: Any) -> Owners:
    try:
        return read_owners(entries)
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _read_of(obj: Object) -> Owners:
    return _read(obj["metadata"].get("managedFields"))


def tracked_apply(live: Object | None, config: Object, write: Write) -> Object:
    """Return an object after an apply, with its managers. Raises ApplyConflicts, MergeError."""
    if live is None:
        new, owners = applied(_empty(config), config, {}, write)
        return _with_owners(new, owners)
    owners = _read_of(live) or _before_first_apply(live, write)
    bare = _bare(live)
    try:
        new, after = applied(bare, config, owners, write)
    except ApplyConflicts as error:
        left = _not_of_last_applied(error, live, write)
        if left:
            raise ApplyConflicts(left) from None
        new, after = applied(bare, config, owners, write._replace(force=True))
    if write.manager.name == _KUBECTL and _last_applied(live):
        new = _with_last_applied(new, config)
    return _with_owners(new, after)


def _before_first_apply(live: Object, write: Write) -> Owners:
    manager = Manager(BEFORE_FIRST_APPLY, "Update", write.manager.api_version)
    return updated(_blank(live), _bare(live), {}, write._replace(manager=manager))


def _not_of_last_applied(error: ApplyConflicts, live: Object, write: Write) -> list[Any]:
    """Return the conflicts that are not about what the same user's `kubectl apply` has set before."""
    text = _last_applied(live) if write.manager.name == _KUBECTL else ""
    try:
        config = json.loads(text) if text else None
        hub = write.versions.convert(config, write.manager.api_version) if isinstance(config, Mapping) else None
        set_before = fields_of(hub, write.schema) if hub else frozenset()
    except (ValueError, RecursionError, MergeError, TypeError, AttributeError):
        return list(error.conflicts)
    return [conflict for conflict in error.conflicts if conflict.path not in set_before]


def _last_applied(obj: Object) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(LAST_APPLIED) or "")


def _with_last_applied(obj: Object, config: Object) -> Object:
    """Return the object with what is applied now where `kubectl apply` looks for it."""
    metadata = {"annotations": {}, **config["metadata"]}
    metadata["annotations"] = {
        name: text for name, text in (metadata["annotations"] or {}).items() if name != LAST_APPLIED
    }
    text = json.dumps({**config, "metadata": metadata}, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    annotations = {**(obj["metadata"].get("annotations") or {}), LAST_APPLIED: f"{text}\n"}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _bare(obj: Object) -> Object:
    return {**obj, "metadata": {name: part for name, part in obj["metadata"].items() if name != "managedFields"}}


def _empty(obj: Object) -> Object:
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": {}}


def _blank(obj: Object) -> Object:
    """Return an object of the same kind before anything is written in it."""
    blank = dict(_empty(obj))
    for place in _PRESENT.get(obj["kind"], ()):
        node = blank
        for name in place.split("."):
            node = node.setdefault(name, {})
    return blank


def with_managers(obj: Object, tracked: Object) -> Object:
    """Return an object with the managers of another."""
    return {**obj, "metadata": {**obj["metadata"], "managedFields": tracked["metadata"]["managedFields"]}}


def _with_owners(obj: Object, owners: Owners) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "managedFields": write_owners(owners)}}
