"""Apply manifests to the store: create and update objects, and delete objects that are no longer in the files.

Annotations of the objects persist the state across restarts:

- `headgate.dev/applied-from`: the file of an object that headgate created from it. Only such objects are deleted.
- `headgate.dev/applied-position`: the file and the line of the manifest when it was applied, for the history.
- `headgate.dev/applied-digest`: the digest of the manifest. While the digest is the same, changes by other clients stay.
- `kubectl.kubernetes.io/last-applied-configuration`: the manifest. A changed manifest is applied by a three-way merge, as
  `kubectl apply` does: the manifest's fields win, fields removed from the manifest are removed, all other fields stay.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headgate.errors import AlreadyExists, Conflict, DecodeError, Invalid, NotFound
from headgate.manifests.files import FileProblem, Manifest, Manifests
from headgate.merge.managed_fields import Manager, Write, tracked_update, versions_of
from headgate.merge.server_side_apply import LAST_APPLIED, written_configuration
from headgate.objects import lifecycle
from headgate.objects.lifecycle import with_metadata
from headgate.objects.ports import Store
from headgate.resources.kind import Kind
from headgate.resources.kind_set import KindSet
from headgate.resources.mesh_keys import APPLIED_POSITION, FILES_MANAGER
from headgate.resources.meta import Key, Object, annotations_of
from headgate.resources.pod_templates import TEMPLATED_KINDS
from headgate.resources.registry import DEFINITION, key_of
from headgate.resources.versions import hub_of, to_hub

APPLIED_FROM = "headgate.dev/applied-from"
APPLIED_DIGEST = "headgate.dev/applied-digest"
_SET_BY_STORE = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
    "selfLink",
)
_ATTEMPTS = 5
_MAKE_PODS = frozenset({"Pod", *(templated.kind for templated in TEMPLATED_KINDS)})


class ApplyResult(NamedTuple):
    """The objects that an apply changed, the manifests that the store rejected, and the problems with these."""

    created: tuple[Key, ...] = ()
    changed: tuple[Key, ...] = ()
    removed: tuple[Key, ...] = ()
    problems: tuple[FileProblem, ...] = ()
    rejected: tuple[Manifest, ...] = ()


async def apply(store: Store, manifests: Manifests) -> ApplyResult:
    """Apply all manifests to the store. Objects of files with problems are not changed.

    Raises Unavailable if the store can't be reached. A retry with the same manifests applies the remaining objects.
    """
    applied = await apply_objects(
        store, [manifest for manifest in manifests.objects if manifest.file not in manifests.broken]
    )
    return applied._replace(removed=tuple(await _prune(store, manifests)))


async def apply_objects(store: Store, manifests: Iterable[Manifest]) -> ApplyResult:
    """Create or update the objects of some manifests, and delete nothing. Raises Unavailable as `apply` does."""
    in_order = sorted(manifests, key=_order)
    created = await _create_namespaces(store, in_order)
    changed: list[Key] = []
    problems: list[FileProblem] = []
    rejected: list[Manifest] = []
    for manifest in in_order:
        try:
            before, after = await _apply_one(store, manifest)
        except (AlreadyExists, Conflict, Invalid, NotFound) as error:
            problems += _refusals(manifest, error)
            rejected.append(manifest)
            continue
        if before is None:
            created.append(manifest.key)
        elif before != after:
            changed.append(manifest.key)
    return ApplyResult(tuple(created), tuple(changed), (), tuple(problems), tuple(rejected))


async def _create_namespaces(store: Store, manifests: Iterable[Manifest]) -> list[Key]:
    """Create the missing namespaces of manifests that no manifest declares; return their keys. Nothing deletes them again."""
    manifests = tuple(manifests)
    declared = {manifest.key for manifest in manifests}
    created: list[Key] = []
    for name in dict.fromkeys(manifest.key.namespace for manifest in manifests if manifest.key.namespace):
        key = lifecycle.namespace_key(name)
        if key in declared:
            continue
        try:
            await store.get(key)
        except NotFound:
            await store.create(lifecycle.namespace(name))
            created.append(key)
    return created


def _order(manifest: Manifest) -> int:
    """Return the sort key of a manifest: Namespaces and CustomResourceDefinitions come first, workloads last.

    Services, TLSConfigs and Sidecars must exist before a pod is created, because they decide what is injected.
    """
    return (
        0
        if manifest.key.kind == "Namespace" or manifest.kind is DEFINITION
        else 2
        if manifest.key.kind in _MAKE_PODS
        else 1
    )


def _refusals(manifest: Manifest, error: Exception) -> list[FileProblem]:
    if isinstance(error, Invalid):
        return [manifest.problem(cause.field, cause.message) for cause in error.causes]
    return [manifest.problem("", str(error))]


async def _apply_one(store: Store, manifest: Manifest) -> tuple[Object | None, Object]:
    """Create or update one object. Return the object before the write (None if it is new) and after the write."""
    for attempt in range(_ATTEMPTS):
        try:
            before = await store.get(manifest.key)
        except NotFound:
            owned = {APPLIED_FROM: _absolute(manifest.file)}
            return None, await store.create(
                _tracked(None, _recorded(without_server_fields(manifest.object), manifest, owned), manifest.kind)
            )
        if is_applied(before, manifest):
            return before, await _moved(store, before, manifest)
        try:
            return before, await store.update(_tracked(before, _merged(before, manifest), manifest.kind))
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _moved(store: Store, before: Object, manifest: Manifest) -> Object:
    """Update the annotation `applied-from` if the object moved to another file; return the object."""
    file = annotations_of(before).get(APPLIED_FROM)
    if file in (None, _absolute(manifest.file)):
        return before
    return await store.update(_annotated(before, {APPLIED_FROM: _absolute(manifest.file)}))


def _tracked(before: Object | None, after: Object, kind: Kind) -> Object:
    """Return the object with the manager `headgate-files` for the fields that the manifest sets or changes.

    The manager does not own this module's annotations: kubectl's next server-side apply would take over all fields of a manager
    that owns `last-applied-configuration`.
    """
    manager = Manager(FILES_MANAGER, "Update", kind.hub)
    write = Write(manager, lifecycle.now(), versions_of(kind), has_status=kind.status)
    managers = tracked_update(_unmarked(before) if before else None, _unmarked(after), write)
    return with_metadata(after, managedFields=managers)


def _unmarked(obj: Object) -> Object:
    """Return an object without headgate's and kubectl's annotations about its manifest."""
    marks = (APPLIED_FROM, APPLIED_DIGEST, APPLIED_POSITION, LAST_APPLIED)
    rest = {name: text for name, text in annotations_of(obj).items() if name not in marks}
    return with_metadata(obj, annotations=rest or None)


def _merged(before: Object, manifest: Manifest) -> Object:
    owned = {APPLIED_FROM: _absolute(manifest.file)} if APPLIED_FROM in annotations_of(before) else {}
    modified = _recorded(without_server_fields(manifest.object), manifest, owned)
    return dict(merge(last_applied(before, manifest.kind), modified, before))


def merge(original: Mapping[str, Any], modified: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return the three-way merge: `modified` wins, fields that only `original` has are removed, other fields of `current` stay.

    Lists are replaced as a whole.
    """
    result = {name: value for name, value in current.items() if name in modified or name not in original}
    for name, value in modified.items():
        old, now = original.get(name), result.get(name)
        if isinstance(value, Mapping) and isinstance(now, Mapping):
            result[name] = merge(old if isinstance(old, Mapping) else {}, value, now)
        else:
            result[name] = value
    return result


def last_applied(obj: Object, kind: Kind | None = None) -> Object:
    """Return the last applied manifest in hub version; an empty object if it is unknown. `kind` is needed for a defined kind."""
    text = annotations_of(obj).get(LAST_APPLIED, "{}")
    try:
        written = json.loads(text)
        hub = hub_of(written, kind) if kind else to_hub(written)
        return without_server_fields(hub)
    except (ValueError, RecursionError, DecodeError, KeyError, AttributeError, TypeError):
        return {}  # an invalid annotation, or one from another tool: treat no field as removed


def without_server_fields(obj: Object) -> Object:
    """Return an object without `status` and the metadata that the store sets, which exported manifests contain."""
    return with_metadata(
        {name: value for name, value in obj.items() if name != "status"}, **dict.fromkeys(_SET_BY_STORE)
    )


def _recorded(obj: Object, manifest: Manifest, owned: Mapping[str, str]) -> Object:
    position = f"{_absolute(manifest.file)}:{manifest.document.position.line}"
    record = {LAST_APPLIED: _configuration(manifest), APPLIED_DIGEST: _digest(manifest), APPLIED_POSITION: position}
    return _annotated(obj, {**record, **owned})


def _configuration(manifest: Manifest) -> str:
    """Return the manifest as kubectl writes it into its annotation."""
    namespace = {"namespace": manifest.key.namespace} if manifest.key.namespace else {}
    return written_configuration({**manifest.written, "metadata": {**manifest.written["metadata"], **namespace}})


def _digest(manifest: Manifest) -> str:
    return hashlib.sha256(_configuration(manifest).encode()).hexdigest()[:16]


def _annotated(obj: Object, more: Mapping[str, str]) -> Object:
    return with_metadata(obj, annotations={**annotations_of(obj), **more})


def _absolute(file: str) -> str:
    return str(Path(file).absolute())


async def _prune(store: Store, manifests: Manifests) -> list[Key]:
    """Delete objects that were created from the files but are no longer in them; return their keys."""
    roots, kept = _paths(manifests.roots), _paths(manifests.broken)
    present = {manifest.key for manifest in manifests.objects}
    removed: list[Key] = []
    for obj in await applied_objects(store, manifests.kinds):
        key, file = key_of(obj), Path(annotations_of(obj)[APPLIED_FROM])
        if key in present or not _within(file, roots) or _within(file, kept):
            continue
        try:
            await store.delete(key)
        except NotFound:  # deleted with its owner or its namespace
            continue
        removed.append(key)
    return removed


async def applied_objects(store: Store, kinds: KindSet) -> list[Object]:
    """Return all objects that were created from files; CustomResourceDefinitions and Namespaces come last."""
    in_order = sorted(kinds.kinds, key=lambda kind: (kind.kind == "Namespace", kind is DEFINITION))
    listings = [(await store.list(kind.group, kind.kind)).items for kind in in_order]
    return [obj for items in listings for obj in items if APPLIED_FROM in annotations_of(obj)]


def is_applied(obj: Object, manifest: Manifest) -> bool:
    """Return whether the manifest in its current form was applied to the object."""
    return annotations_of(obj).get(APPLIED_DIGEST) == _digest(manifest)


def _paths(names: Iterable[str]) -> list[Path]:
    return [Path(_absolute(name)) for name in names]


def _within(file: Path, roots: Sequence[Path]) -> bool:
    return any(file.is_relative_to(root) for root in roots)


def is_covered(file: str, manifests: Manifests) -> bool:
    """Return whether a file, possibly a deleted one, is one of the read files or in one of the read directories."""
    return _within(Path(file), _paths(manifests.roots))
