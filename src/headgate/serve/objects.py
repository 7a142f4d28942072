"""Reading and writing objects: everything between a parsed request and the store, in the version that was asked for."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from headgate.errors import Cause, Conflict, DecodeError, NotFound, StoreError
from headgate.resources import crd, decode
from headgate.resources.meta import Key, Object
from headgate.resources.registry import ACCESS, GATEWAY, MESH, SPECS, SPLIT
from headgate.resources.versions import from_hub, to_hub, with_metadata_name
from headgate.serve import fields
from headgate.serve.defaults import completed
from headgate.serve.kinds import Served
from headgate.serve.status import ApiError, from_error, invalid
from headgate.store.base import Store


class Advise(Protocol):
    """Returns warnings about an object that was just written; with `dry_run`, about one that would have been."""

    def __call__(self, obj: Object, *, dry_run: bool) -> Awaitable[Sequence[str]]: ...


Change: TypeAlias = Callable[[Object], Object]
Subresource: TypeAlias = Literal["", "status"]

CUSTOM_GROUPS = (SPLIT, SPECS, ACCESS, GATEWAY, MESH)
"""Custom resources on a cluster, and treated as such: pruned, without merge keys."""
_ATTEMPTS = 5


class Target(NamedTuple):
    """What a path points at: `name` is empty for the collection, `namespace` for all namespaces or none."""

    served: Served
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> Key:
        """The object in the store."""
        return self.served.kind.key(self.namespace, self.name)


class WriteOptions(NamedTuple):
    """What a client may ask of a write (`dryRun=All`, `fieldValidation=Strict|Warn|Ignore`)."""

    dry_run: bool = False
    validation: str = "Warn"


class Written(NamedTuple):
    """What is stored now, in the version asked for, and what the user should know about it."""

    object: Object
    warnings: Sequence[str]
    created: bool = False


def as_served(obj: Object, served: Served) -> Object:
    """Return an object of the store in the version asked for."""
    if served.is_hub:
        return obj
    try:
        return from_hub(obj, served.group, served.version)
    except DecodeError:  # one object that does not fit an old version must not hide all the others
        return {**obj, "apiVersion": served.api_version}


class Objects:
    """The objects of a store, as clients of the API see them. Every call raises ApiError."""

    def __init__(self, store: Store, advise: Advise | None) -> None:
        self.store = store
        self._advise = advise

    async def get(self, target: Target) -> Object:
        """Return an object."""
        try:
            return as_served(await self.store.get(target.key), target.served)
        except StoreError as error:
            raise from_error(error, target.served, target.name) from error

    async def create(self, target: Target, obj: Mapping[str, Any], options: WriteOptions) -> Written:
        """Store a new object in the path's namespace."""
        hub, warnings = self._prepared(target, obj, None, options)
        try:
            stored = await self.store.create(hub, dry_run=options.dry_run)
        except (StoreError, DecodeError) as error:
            raise from_error(error, target.served, _name(hub)) from error
        return await self._written(target, stored, warnings, options, created=True)

    async def change(
        self, target: Target, change: Change, options: WriteOptions, *, subresource: Subresource = ""
    ) -> Written:
        """Read, change and write; tries again when somebody else wrote in between and the client named no version."""
        for attempt in range(_ATTEMPTS):
            old = await self.get(target)
            try:
                new = change(old)
                hub, warnings = self._prepared(target, new, old, options)
                stored = await self.store.update(hub, subresource=subresource, dry_run=options.dry_run)
            except (StoreError, DecodeError) as error:
                fresh = isinstance(error, Conflict) and _revision(new) == _revision(old)
                if fresh and attempt + 1 < _ATTEMPTS:
                    continue
                raise from_error(error, target.served, target.name) from error
            return await self._written(target, stored, warnings, options)
        raise AssertionError("the last attempt returns or raises")

    async def apply(self, target: Target, change: Change, options: WriteOptions) -> Written:
        """Change an object; create it when there is none."""
        try:
            await self.store.get(target.key)
        except NotFound:
            return await self.create(target, change({}), options)
        return await self.change(target, change, options)

    async def delete(self, target: Target, options: Mapping[str, Any], *, dry_run: bool) -> Object | None:
        """Delete an object. Returns it when it still waits for finalizers, None when it is gone."""
        limits = options.get("preconditions") or {}
        try:
            last = await self.store.delete(
                target.key,
                uid=limits.get("uid") or "",
                resource_version=limits.get("resourceVersion") or "",
                orphan=options.get("propagationPolicy") == "Orphan" or options.get("orphanDependents") is True,
                dry_run=dry_run,
            )
        except StoreError as error:
            raise from_error(error, target.served, target.name) from error
        return as_served(last, target.served) if last["metadata"].get("deletionTimestamp") else None

    def _prepared(
        self, target: Target, obj: Mapping[str, Any], old: Object | None, options: WriteOptions
    ) -> tuple[Object, Sequence[str]]:
        """Check an object as the user wrote it and bring it into the store's form; also return the warnings."""
        served = target.served
        whole = _addressed(target, obj)
        schema = crd.schema(served.group, served.version, served.kind.kind)
        known = set(fields.unknown_fields(old, schema)) if old else set()
        unknown = [f'unknown field "{path}"' for path in fields.unknown_fields(whole, schema) if path not in known]
        if unknown and options.validation == "Strict":
            raise ApiError(
                400, f"{served.kind.kind} in version {served.api_version}: strict decoding error: {', '.join(unknown)}"
            )
        if served.kind.group in CUSTOM_GROUPS:
            whole = fields.without_unknown(whole, schema)
        self._check(target, whole, schema)
        try:
            hub = completed(to_hub(whole))
        except DecodeError as error:
            raise from_error(error, served, target.name) from error
        return hub, unknown if options.validation == "Warn" else ()

    def _check(self, target: Target, obj: Object, schema: crd.Schema) -> None:
        causes = {cause.field: cause for cause in fields.type_causes(obj, schema)}
        found: list[Cause] = list(decode.validate(obj))
        found += [cause for field, cause in causes.items() if field not in {one.field for one in found}]
        if found:
            raise invalid(target.served, target.name or _name(obj), found)

    async def _written(
        self, target: Target, stored: Object, warnings: Sequence[str], options: WriteOptions, *, created: bool = False
    ) -> Written:
        advice = await self._advise(stored, dry_run=options.dry_run) if self._advise else ()
        return Written(as_served(stored, target.served), [*warnings, *advice], created)


def _addressed(target: Target, obj: Mapping[str, Any]) -> Object:
    """Return the object with the kind, namespace and name of its path. Raises ApiError 400 when it says otherwise."""
    served = target.served
    for field, wanted in (("apiVersion", served.api_version), ("kind", served.kind.kind)):
        given = obj.get(field) or wanted
        if given != wanted:
            raise ApiError(400, f"{field} of the object is {given}, but the path is for {wanted}")
    obj = with_metadata_name({**obj, "apiVersion": served.api_version, "kind": served.kind.kind})
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        raise invalid(served, target.name, [Cause("metadata", "is missing: give the object a metadata.name")])
    for field, there in (("namespace", target.namespace), ("name", target.name)):
        given = metadata.get(field) or there
        if there and given != there:
            raise ApiError(400, f"the {field} of the object ({given}) does not match the {field} on the URL ({there})")
        metadata = {**metadata, field: given} if given else metadata
    return {**obj, "metadata": metadata}


def _name(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata")
    return str(metadata.get("name") or metadata.get("generateName") or "") if isinstance(metadata, Mapping) else ""


def _revision(obj: Object) -> Any:
    return (obj.get("metadata") or {}).get("resourceVersion")
