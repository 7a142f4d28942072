"""From a reading of manifests to the store: create, update, and remove what an earlier reading has put there.

An object that a reading creates says so in its annotations, so that this outlives a restart:

- `headgate.dev/applied-from`: the file. Gone from the files, the object is removed; objects of others never are.
- `headgate.dev/applied-digest`: of the manifest. While it is the same, what users changed by other means is left alone.
- `kubectl.kubernetes.io/last-applied-configuration`: the manifest. When it changes, the change is merged in three ways,
  as `kubectl apply` does: its fields win, fields that left it go, all others stay. So both can be used on one object.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headgate.errors import AlreadyExists, Conflict, DecodeError, Invalid, NotFound
from headgate.manifests.files import Manifest, Manifests, Problem
from headgate.merge.managed_fields import Manager, Write, tracked_update, versions_of
from headgate.merge.server_side_apply import LAST_APPLIED, written_configuration
from headgate.objects import lifecycle
from headgate.objects.lifecycle import with_metadata
from headgate.objects.ports import Store
from headgate.resources.meta import Key, Object
from headgate.resources.registry import KINDS, key_of
from headgate.resources.versions import to_hub

APPLIED_FROM = "headgate.dev/applied-from"
APPLIED_DIGEST = "headgate.dev/applied-digest"
MANAGER = "headgate-files"
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
_MAKE_PODS = ("Pod", "ReplicaSet", "Deployment")


class ApplyResult(NamedTuple):
    """What a reading has changed, and what the store has refused of it."""

    created: tuple[Key, ...] = ()
    changed: tuple[Key, ...] = ()
    removed: tuple[Key, ...] = ()
    problems: tuple[Problem, ...] = ()


async def apply(store: Store, manifests: Manifests) -> ApplyResult:
    """Make the store hold what a reading says; objects of broken files stay as they are, the others go on.

    Raises Unavailable when the store can't be reached; applying the same reading again goes on from there.
    """
    created: list[Key] = []
    changed: list[Key] = []
    problems: list[Problem] = []
    wanted = [manifest for manifest in manifests.objects if manifest.file not in manifests.broken]
    for manifest in sorted(wanted, key=_order):
        try:
            before, after = await _apply_one(store, manifest)
        except (AlreadyExists, Conflict, Invalid, NotFound) as error:
            problems += _refusals(manifest, error)
            continue
        if before is None:
            created.append(manifest.key)
        elif before != after:
            changed.append(manifest.key)
    removed = await _prune(store, manifests)
    return ApplyResult(tuple(created), tuple(changed), tuple(removed), tuple(problems))


def _order(manifest: Manifest) -> int:
    """Return 0 for Namespaces, 2 for what makes pods: a pod's sidecar depends on Services and TLSConfigs at its creation."""
    return 0 if manifest.key.kind == "Namespace" else 2 if manifest.key.kind in _MAKE_PODS else 1


def _refusals(manifest: Manifest, error: Exception) -> list[Problem]:
    if isinstance(error, Invalid):
        return [manifest.problem(cause.field, cause.message) for cause in error.causes]
    return [manifest.problem("", str(error))]


async def _apply_one(store: Store, manifest: Manifest) -> tuple[Object | None, Object]:
    """Create or update one object; return it before (None: it is new) and after."""
    for attempt in range(_ATTEMPTS):
        try:
            before = await store.get(manifest.key)
        except NotFound:
            owned = {APPLIED_FROM: _absolute(manifest.file)}
            return None, await store.create(
                _tracked(None, _recorded(without_server_fields(manifest.object), manifest, owned))
            )
        if is_applied(before, manifest):
            return before, await _moved(store, before, manifest)
        try:
            return before, await store.update(_tracked(before, _merged(before, manifest)))
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _moved(store: Store, before: Object, manifest: Manifest) -> Object:
    """Write down when an object that is ours now stands in another file."""
    file = annotations(before).get(APPLIED_FROM)
    if file in (None, _absolute(manifest.file)):
        return before
    return await store.update(_annotated(before, {APPLIED_FROM: _absolute(manifest.file)}))


def _tracked(before: Object | None, after: Object) -> Object:
    """Return the object with the files as the manager of what they set or change (`metadata.managedFields`).

    Not of the annotations about files: kubectl gives all fields of a manager that owns `last-applied-configuration` to its
    own next server-side apply.
    """
    kind = lifecycle.kind_of(after)
    manager = Manager(MANAGER, "Update", kind.hub)
    write = Write(manager, lifecycle.now(), versions_of(kind), has_status=kind.status)
    managers = tracked_update(_unmarked(before) if before else None, _unmarked(after), write)
    return with_metadata(after, managedFields=managers)


def _unmarked(obj: Object) -> Object:
    """Return an object without the annotations that say from which file it comes."""
    marks = (APPLIED_FROM, APPLIED_DIGEST, LAST_APPLIED)
    rest = {name: text for name, text in annotations(obj).items() if name not in marks}
    return with_metadata(obj, annotations=rest or None)


def _merged(before: Object, manifest: Manifest) -> Object:
    owned = {APPLIED_FROM: _absolute(manifest.file)} if APPLIED_FROM in annotations(before) else {}
    modified = _recorded(without_server_fields(manifest.object), manifest, owned)
    return dict(merge(last_applied(before), modified, before))


def merge(original: Mapping[str, Any], modified: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Merge in three ways: `modified` wins, what only `original` had goes, the rest of `current` stays. Lists are whole."""
    result = {name: value for name, value in current.items() if name in modified or name not in original}
    for name, value in modified.items():
        old, now = original.get(name), result.get(name)
        if isinstance(value, Mapping) and isinstance(now, Mapping):
            result[name] = merge(old if isinstance(old, Mapping) else {}, value, now)
        else:
            result[name] = value
    return result


def last_applied(obj: Object) -> Object:
    """Return, in the store's version, what was applied last; nothing when that is not known."""
    text = annotations(obj).get(LAST_APPLIED, "{}")
    try:
        hub = to_hub(json.loads(text))
        return without_server_fields(hub)
    except (ValueError, RecursionError, DecodeError, KeyError, AttributeError, TypeError):
        return {}  # written by somebody else, or damaged: then nothing is known to have left the manifest


def without_server_fields(obj: Object) -> Object:
    """Return a manifest without what only the store may say, as in an object that was exported."""
    return with_metadata(
        {name: value for name, value in obj.items() if name != "status"}, **dict.fromkeys(_SET_BY_STORE)
    )


def _recorded(obj: Object, manifest: Manifest, owned: Mapping[str, str]) -> Object:
    record = {LAST_APPLIED: _configuration(manifest), APPLIED_DIGEST: _digest(manifest)}
    return _annotated(obj, {**record, **owned})


def _configuration(manifest: Manifest) -> str:
    """Return the manifest as kubectl writes it into its annotation."""
    namespace = {"namespace": manifest.key.namespace} if manifest.key.namespace else {}
    return written_configuration({**manifest.written, "metadata": {**manifest.written["metadata"], **namespace}})


def _digest(manifest: Manifest) -> str:
    return hashlib.sha256(_configuration(manifest).encode()).hexdigest()[:16]


def annotations(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def _annotated(obj: Object, more: Mapping[str, str]) -> Object:
    return with_metadata(obj, annotations={**annotations(obj), **more})


def _absolute(file: str) -> str:
    return str(Path(file).absolute())


async def _prune(store: Store, manifests: Manifests) -> list[Key]:
    """Remove what earlier readings of these files have created and this one no longer names."""
    roots, kept = _paths(manifests.roots), _paths(manifests.broken)
    present = {manifest.key for manifest in manifests.objects}
    removed: list[Key] = []
    for obj in await applied_objects(store):
        key, file = key_of(obj), Path(annotations(obj)[APPLIED_FROM])
        if key in present or not _within(file, roots) or _within(file, kept):
            continue
        try:
            await store.delete(key)
        except NotFound:  # went with its owner or its namespace
            continue
        removed.append(key)
    return removed


async def applied_objects(store: Store) -> list[Object]:
    """Return the objects that readings have created; namespaces come last."""
    kinds = sorted(KINDS, key=lambda kind: kind.kind == "Namespace")
    listings = [(await store.list(kind.group, kind.kind)).items for kind in kinds]
    return [obj for items in listings for obj in items if APPLIED_FROM in annotations(obj)]


def is_applied(obj: Object, manifest: Manifest) -> bool:
    """Say whether the manifest, as it is now, was applied to the object."""
    return annotations(obj).get(APPLIED_DIGEST) == _digest(manifest)


def _paths(names: Iterable[str]) -> list[Path]:
    return [Path(_absolute(name)) for name in names]


def _within(file: Path, roots: Sequence[Path]) -> bool:
    return any(file.is_relative_to(root) for root in roots)


def is_covered(file: str, manifests: Manifests) -> bool:
    """Say whether a file is, or was, part of what a reading covers."""
    return _within(Path(file), _paths(manifests.roots))
