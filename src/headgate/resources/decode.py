"""Check objects in any version, and decode them to the typed values that the compiler reads."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from headgate.errors import Cause, DecodeError
from headgate.resources.kind import Kind, api_version, split_api_version
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Object, Resource, metadata_causes
from headgate.resources.registry import BUILT_IN, DEFINITION, KINDS, find_written
from headgate.resources.schema.catalog import schema_of, schemas
from headgate.resources.schema.check import check_schema, type_causes
from headgate.resources.schema.defaults import completed
from headgate.resources.versions import hub_of, kind_written, to_hub, with_metadata_name

T = TypeVar("T")
_PLACE = re.compile(r"(?P<message>.*?)(?: - at `(?:key in )?\$\.?(?P<field>.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_WRONG = re.compile(r"Expected `(.*?)`(.*?), got `(.*?)`")
_WORDS = {
    "int": "a whole number",
    "float": "a fraction",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
TOP_LEVEL = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
"""Fields that every object may have. A kind without a status ignores `status`."""


class Checked(NamedTuple):
    """The result of checking an object, which is valid if `causes` is empty.

    `hub` is the object in hub version and `value` its decoded form. If there are causes, both are None, except in
    results of `check_stored`. `value` is also None for a kind that headgate only stores. `unknown` has the paths of
    fields that are not in the schema.
    """

    causes: tuple[Cause, ...]
    hub: Object | None = None
    value: Resource | None = None
    unknown: Sequence[str] = ()


class Check(Protocol):
    """The type of `check`, and of functions that add further checks to it."""

    def __call__(self, obj: Object, *, request: bool = False, kinds: KindSet = BUILT_IN) -> Checked: ...


def check(obj: Object, *, request: bool = False, kinds: KindSet = BUILT_IN) -> Checked:
    """Validate and decode an object in the version that it is written in.

    All objects from files and requests are checked here.

    All structural mistakes are returned together. References to missing objects are allowed, because objects may be
    created in any order (R22). Unknown fields are mistakes in kinds of the mesh, and ignored in Kubernetes' own kinds.

    With `request`, an object is checked as a Kubernetes API server checks it: unknown fields of the mesh's kinds are
    removed from `hub` and are no mistakes, and the types in `metadata` and `status` are checked too.
    """
    try:
        kind = kind_written(obj, kinds)
    except DecodeError as error:
        return Checked(error.causes)
    skipped = _unchecked_fields(kind, request=request)
    schema = schema_of(kind, *split_api_version(obj["apiVersion"]))
    obj = completed(obj, schema) if kind.definition else obj
    examined = check_schema(obj, schema, required=_has_required_fields(kind), skipped=skipped)
    is_strict = kind.is_of_mesh and not request
    tolerated = [at for at in examined.unknown if at in TOP_LEVEL] if is_strict else examined.unknown
    if kind.is_custom and not is_strict:
        obj = examined.value
    general, special = tuple(metadata_causes(obj)), tuple(kind.checks(obj) if kind.checks else ())
    named = {cause.field for cause in (*general, *special)}.union(tolerated)
    causes = (*general, *(cause for cause in examined.causes if cause.field not in named), *special)
    if causes:
        return Checked(causes, unknown=examined.unknown)
    try:
        hub = hub_of(obj, kind)
        return Checked((), hub, read(hub, kind.shape) if kind.shape else None, examined.unknown)
    except DecodeError as error:  # invalid conversion annotations, or invalid fields that no check covers
        return Checked(error.causes, unknown=examined.unknown)


def kept_status(new: Object, old: Object | None) -> Object:
    """Return the field `status` of a write that keeps the stored one, else nothing.

    It is not checked again, as in Kubernetes 1.30 and newer: an earlier version may have written it, and no user can
    correct it.
    """
    return {"status": old["status"]} if old and "status" in old and new.get("status") == old["status"] else {}


def _unchecked_fields(kind: Kind, *, request: bool) -> Sequence[str]:
    """Return the top-level fields that are not compared with the schema.

    Go clients write `null` for empty required fields of a status, and no client of a further kind writes one for headgate.
    """
    if kind.requires_fields:
        return ("status",) if request else ("metadata", "status")
    return () if request else ("metadata", "status")


def _has_required_fields(kind: Kind) -> bool:
    """Return whether the required fields of the schema are checked: the rooms of Kubernetes' own kinds check theirs."""
    return kind.is_custom or kind.requires_fields or kind is DEFINITION


def type_mistakes(obj: Object, version: str = "", kind: str = "") -> Sequence[Cause]:
    """Return the fields of the wrong type and the missing ones in an object, which may say itself what it is.

    Code that reads objects without decoding them relies on these types. Objects of unknown kinds have no mistakes.
    """
    version, kind = version or str(obj.get("apiVersion", "")), kind or str(obj.get("kind", ""))
    schema = schemas().get((*split_api_version(version), kind))
    return type_causes(obj, schema) if schema else ()


def check_stored(obj: Object) -> Checked:
    """Check a stored object. Mistakes in the fields `Kind.unread` do not prevent its decoding."""
    checked = check(obj)
    kind = find_written(obj["apiVersion"], obj["kind"])
    if not kind or not kind.shape or not kind.unread:
        return checked
    if not all(kind.unread.fullmatch(cause.field) for cause in checked.causes):
        return checked
    hub = to_hub(obj)
    if checked.causes and kind.left_out:
        hub = {**hub, "spec": {name: value for name, value in hub["spec"].items() if name != kind.left_out}}
    try:
        return checked._replace(hub=hub, value=read(hub, kind.shape))
    except DecodeError:  # an annotation that is no text, as only files can have it
        return checked


def validate(obj: Object) -> tuple[Cause, ...]:
    """Return all structural mistakes of an object; empty if it is valid."""
    return check(obj).causes


def with_api_version(obj: Object) -> Object:
    """Return an object with an `apiVersion`. A missing one becomes the newest version in which the object is valid.

    An object that is valid in no version gets the newest version. This applies only to kinds that the specifications
    write without `apiVersion`, and only to files: the API rejects such objects, as kubectl does.
    """
    kind = next((kind for kind in KINDS if kind.unversioned and kind.kind == obj.get("kind")), None)
    if obj.get("apiVersion") or kind is None:
        return obj
    newest, *older = ({**obj, "apiVersion": api_version(*version)} for version in kind.served_versions)
    return next((candidate for candidate in (newest, *older) if not validate(with_metadata_name(candidate))), newest)


def read(hub: Object, shape: type[T]) -> T:
    """Decode an object in hub version as the type `shape`. Raises DecodeError with the paths of the wrong fields."""
    try:
        return msgspec.convert(hub, shape, strict=True)
    except msgspec.ValidationError as first:
        try:
            return msgspec.convert(
                without_nulls(hub), shape, strict=True
            )  # a field without a value, such as `labels:`, is null
        except msgspec.ValidationError as error:
            raise DecodeError(_cause(str(error))) from first


def without_nulls(value: Any) -> Any:
    """Return a value without its null fields, which Kubernetes treats as missing."""
    if isinstance(value, Mapping):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(inner) for inner in value]
    return value


def _cause(text: str) -> Cause:
    """Translate a message of msgspec to a cause like `spec.backends[0].weight: must be a whole number, not text`."""
    match = _PLACE.fullmatch(text)
    field = (match["field"] or "" if match else "").replace("[...]", "")
    message = match["message"] if match else text
    if missing := _MISSING.fullmatch(message):
        return Cause(f"{field}.{missing[1]}" if field else missing[1], "is missing")
    if wrong := _WRONG.fullmatch(message):
        expected = " or ".join(_WORDS.get(word, word) for word in wrong[1].split(" | "))
        return Cause(field, f"must be {expected}{wrong[2]}, not {_WORDS.get(wrong[3], wrong[3])}")
    return Cause(field, message)
