"""Reads and writes objects for the API: validation, field managers and conversion between the client and the store."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

from headgate.api.request_body import check_depth
from headgate.api.status import ApiError, apply_conflict, from_error, invalid
from headgate.api.webhooks import ORPHAN, WriteWarnings, no_warnings
from headgate.errors import Cause, Conflict, DecodeError, NotFound, StoreError
from headgate.merge.managed_fields import Manager, Write, tracked_update, versions_of
from headgate.merge.server_side_apply import ApplyConflicts, tracked_apply
from headgate.merge.structured_merge import MergeError
from headgate.objects.lifecycle import now, with_metadata
from headgate.resources import decode
from headgate.resources.kind import ServedKind
from headgate.resources.meta import Key, Object
from headgate.resources.schema.builders import Schema
from headgate.resources.schema.catalog import schema_of
from headgate.resources.schema.check import check_schema
from headgate.resources.versions import as_version, with_metadata_name
from headgate.standalone.store.foreground import FOREGROUND, requested
from headgate.standalone.store.memory import MemoryStore, Warn

Mutation: TypeAlias = Callable[[Object], Object]
Subresource: TypeAlias = Literal["", "status", "scale"]
PrepareWarnings: TypeAlias = Callable[[Key, Object | None], Awaitable[WriteWarnings]]
"""A function of the key and the stored object of a write that follows, which returns the function for its warnings."""

_ATTEMPTS = 5  # attempts of a change; an attempt fails if another client writes between its read and its write


class PathTarget(NamedTuple):
    """The object or collection that a path names. `name` is empty for a collection.

    `namespace` is empty for all namespaces and for cluster-scoped kinds.
    """

    served: ServedKind
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> Key:
        """The key of the object in the store."""
        return self.served.kind.key(self.namespace, self.name)

    @property
    def schema(self) -> Schema:
        """The schema of the kind in the version of the path."""
        return schema_of(self.served.kind, self.served.group, self.served.version)


class WriteOptions(NamedTuple):
    """The options of a write: `dryRun=All`, `fieldValidation=Strict|Warn|Ignore`, `fieldManager`, `force`."""

    dry_run: bool = False
    validation: str = "Warn"
    manager: str = "unknown"
    force: bool = False


class WriteResult(NamedTuple):
    """The stored object in the version of the path, and warnings for the user."""

    object: Object
    warnings: Sequence[str]
    created: bool = False


class Deletion(NamedTuple):
    """The last version of a deleted object, and warnings for the user. The deletion `waits` for finalizers."""

    object: Object
    warnings: Sequence[str]
    waits: bool


def as_served(obj: Object, served: ServedKind) -> Object:
    """Convert a stored object to the API version of the path."""
    if served.is_hub:
        return obj
    try:
        return as_version(obj, served.kind, served.group, served.version)
    except DecodeError:  # the old version can't represent the object, but lists with the object must not fail
        return {**obj, "apiVersion": served.api_version}


class Objects:
    """Reads and writes objects of a store in the versions of the API. All methods raise ApiError."""

    def __init__(self, store: MemoryStore, prepare_warnings: PrepareWarnings | None) -> None:
        self.store = store
        self._prepare_warnings = prepare_warnings or _without_warnings

    async def get(self, target: PathTarget) -> Object:
        """Return an object in the API version of the path."""
        with _as_api_errors(target):
            return as_served(await self.store.get(target.key), target.served)

    async def create(self, target: PathTarget, obj: Mapping[str, Any], options: WriteOptions) -> WriteResult:
        """Store a new object in the path's namespace."""
        hub, warnings = self._checked(target, _with_status(obj, None, target), None, options)
        target = target._replace(name=_name(hub))
        managers = tracked_update(None, as_served(hub, target.served), _write(target, options, "Update"))
        with _as_api_errors(target):
            hub = with_metadata(hub, managedFields=managers)
            warn = await self._prepare_warnings(target.key, None)
            stored = await self.store.create(hub, dry_run=options.dry_run, sound=True, warn=warnings.append)
        return await self._written(target, (None, stored), (warnings, warn), options)

    async def change(
        self, target: PathTarget, change: Mutation, options: WriteOptions, *, subresource: Subresource = ""
    ) -> WriteResult:
        """Read an object, apply `change` and write the result.

        After a concurrent write, the method tries again, unless the client's object has a resourceVersion.
        """
        write = _write(target, options, "Update", subresource)
        with _as_api_errors(target):
            for attempt in range(_ATTEMPTS):
                old = await self.get(target)
                new = change(old) if subresource else _with_status(change(old), old, target)
                hub, warnings = self._checked(target, new, old, options)
                hub = with_metadata(hub, managedFields=tracked_update(old, as_served(hub, target.served), write))
                warn = await self._prepared(target, old, subresource)
                try:
                    stored = await self._updated(hub, subresource, options, warnings.append)
                except Conflict:
                    if attempt + 1 == _ATTEMPTS or _revision(new) != _revision(old):
                        raise
                else:
                    return await self._written(target, (old, stored), (warnings, warn), options)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def apply(
        self, target: PathTarget, config: Mapping[str, Any], options: WriteOptions, *, subresource: Subresource = ""
    ) -> WriteResult:
        """Apply a configuration (server-side apply); create the object if it does not exist."""
        write = _write(target, options, "Apply", subresource)
        config = _with_path_identity(target, config)
        checked = check_schema(config, target.schema, required=False)
        warnings = _unknown_field_warnings(target, checked.unknown, None, options)
        if target.served.kind.is_custom:
            config = checked.value
        with _as_api_errors(target):
            try:
                old = as_served(await self.store.get(target.key), target.served)
            except NotFound:
                if subresource:
                    raise
                old = None
            new = tracked_apply(old, decode.without_nulls(config), write)
            hub, _ = self._checked(target, new, old, options._replace(validation="Ignore"))
            warn = await self._prepared(target, old, subresource)
            if old is None:
                stored = await self.store.create(hub, dry_run=options.dry_run, sound=True, warn=warnings.append)
            else:
                stored = await self._updated(hub, subresource, options, warnings.append)
        return await self._written(target, (old, stored), (warnings, warn), options)

    async def delete(self, target: PathTarget, options: Mapping[str, Any], *, dry_run: bool) -> Deletion:
        """Delete an object."""
        limits, policy = options.get("preconditions") or {}, options.get("propagationPolicy")
        orphan = policy == ORPHAN or options.get("orphanDependents") is True
        with _as_api_errors(target):
            stored = await self.store.get(target.key)
            warn = await self._prepare_warnings(target.key, stored)
            if policy == "Foreground" and not dry_run:
                limits = await self._delete_dependents_first(target.key, limits)
            last = await self.store.delete(
                target.key,
                uid=limits.get("uid") or "",
                resource_version=limits.get("resourceVersion") or "",
                orphan=orphan,
                dry_run=dry_run,
            )
        waits = bool(last["metadata"].get("deletionTimestamp"))
        # In the foreground, the objects that it owns are deleted already, though it may wait for them.
        is_deleted = not waits or set(last["metadata"].get("finalizers") or ()) == {FOREGROUND}
        advice = await warn(stored, None, dry_run=dry_run, orphan=orphan) if is_deleted else ()
        return Deletion(as_served(last, target.served), advice, waits)

    async def _delete_dependents_first(self, key: Key, limits: Mapping[str, Any]) -> Mapping[str, Any]:
        """Let an object that will be deleted wait for the objects that it owns. Return the preconditions of the deletion."""
        stored = await self.store.get(key)
        given = {name: limits[name] for name in ("uid", "resourceVersion") if limits.get(name)}
        if key.kind == "Namespace":  # it waits for its content, and some can't be deleted
            return limits
        written = await self.store.update(
            requested({**stored, "metadata": {**stored["metadata"], **given}}), sound=True
        )
        return {"uid": written["metadata"]["uid"]}

    def _checked(
        self, target: PathTarget, obj: Mapping[str, Any], old: Object | None, options: WriteOptions
    ) -> tuple[Object, list[str]]:
        """Validate a client's object; return it in the hub version, and warnings about unknown fields."""
        whole = _with_path_identity(target, obj)
        check_depth(whole)  # a JSON patch can nest it deeper than the limit of bodies
        kept = decode.kept_status(whole, old) if target.served.kind.is_of_mesh else {}
        checked = self.store.checked({name: part for name, part in whole.items() if name not in kept})
        warnings = _unknown_field_warnings(target, checked.unknown, old, options)
        if checked.hub is None:
            raise invalid(target.served, target.name or _name(whole), checked.causes)
        return {**checked.hub, **kept}, warnings

    async def _updated(self, hub: Object, subresource: Subresource, options: WriteOptions, warn: Warn) -> Object:
        """Update an object or its status. For `scale`, update the object, because the replicas are in its spec."""
        part: Literal["", "status"] = "status" if subresource == "status" else ""
        return await self.store.update(hub, subresource=part, dry_run=options.dry_run, sound=True, warn=warn)

    async def _prepared(self, target: PathTarget, old: Object | None, subresource: Subresource) -> WriteWarnings:
        """Return the function for the warnings of a write. A write of the status has no effect to prepare for."""
        return await self._prepare_warnings(target.key, None if subresource == "status" else old)

    async def _written(
        self,
        target: PathTarget,
        written: tuple[Object | None, Object],
        warned: tuple[Sequence[str], WriteWarnings],
        options: WriteOptions,
    ) -> WriteResult:
        """Return the result of a write. `written` has the object before and after it.

        `warned` has the warnings so far, and the function for those about the write.
        """
        old, stored = written
        warnings, warn = warned
        advice = await warn(old, stored, dry_run=options.dry_run)
        effect = [target.served.kind.without_effect] if old is None and target.served.kind.without_effect else []
        texts = list(dict.fromkeys((*warnings, *effect, *advice)))  # a finding about a pod may say what its review says
        return WriteResult(as_served(stored, target.served), texts, created=old is None)


async def _without_warnings(key: Key, old: Object | None) -> WriteWarnings:  # noqa: ARG001 - of PrepareWarnings
    return no_warnings


@contextmanager
def _as_api_errors(target: PathTarget) -> Iterator[None]:
    """Convert errors of the store, of a merge and of decoding to ApiErrors."""
    try:
        yield
    except ApplyConflicts as error:
        raise apply_conflict(error) from error
    except MergeError as error:
        raise invalid(target.served, target.name, [Cause("", str(error))]) from error
    except (StoreError, DecodeError) as error:
        raise from_error(error, target.served, target.name) from error


def _with_path_identity(target: PathTarget, obj: Mapping[str, Any]) -> Object:
    """Return the object with the kind, namespace and name of its path. Raises ApiError 400 if it has different ones."""
    served = target.served
    for field, expected in (("apiVersion", served.api_version), ("kind", served.kind.kind)):
        given = obj.get(field) or expected
        if given != expected:
            raise ApiError(400, f"the {field} in the data ({given}) does not match the expected {field} ({expected})")
    obj = with_metadata_name({**obj, "apiVersion": served.api_version, "kind": served.kind.kind})
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        raise invalid(served, target.name, [Cause("metadata", "is missing: give the object a metadata.name")])
    for field, in_path in (("namespace", target.namespace), ("name", target.name)):
        given = metadata.get(field) or in_path
        if in_path and given != in_path:
            raise ApiError(
                400, f"the {field} of the object ({given}) does not match the {field} on the URL ({in_path})"
            )
        metadata = {**metadata, field: given} if given else metadata
    return {**obj, "metadata": metadata}


def _unknown_field_warnings(
    target: PathTarget, paths: Sequence[str], old: Object | None, options: WriteOptions
) -> list[str]:
    """Return warnings about unknown fields that a write adds. Raises ApiError 400 with `fieldValidation=Strict`."""
    served = target.served
    earlier = check_schema(old, target.schema, required=False).unknown if paths and old else ()
    unknown = [f'unknown field "{path}"' for path in paths if path not in earlier]
    if unknown and options.validation == "Strict":
        raise ApiError(
            400, f"{served.kind.kind} in version {served.api_version}: strict decoding error: {', '.join(unknown)}"
        )
    return unknown if options.validation == "Warn" else []


def _write(
    target: PathTarget, options: WriteOptions, operation: Literal["Apply", "Update"], subresource: Subresource = ""
) -> Write:
    """Describe a write for `managedFields`: its field manager, its time and the versions of the kind."""
    served = target.served
    manager = Manager(options.manager, operation, served.api_version, subresource)
    return Write(manager, now(), versions_of(served.kind), has_status=served.kind.status, force=options.force)


def _name(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata")
    return str(metadata.get("name") or metadata.get("generateName") or "") if isinstance(metadata, Mapping) else ""


def _with_status(new: Mapping[str, Any], old: Object | None, target: PathTarget) -> Object:
    """Return the object. For a custom kind, it has the old status: only writes to the subresource `status` change it.

    An invalid status in the client's object is ignored too: Go clients write `null` for empty required fields, such as
    `status.parents`.
    """
    if not (target.served.kind.is_custom and target.served.kind.status):
        return dict(new)
    bare = {name: value for name, value in new.items() if name != "status"}
    return {**bare, "status": old["status"]} if old and "status" in old else bare


def _revision(obj: Object) -> Any:
    return (obj.get("metadata") or {}).get("resourceVersion")
