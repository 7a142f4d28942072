"""Parses the bodies of PATCH requests: JSON patch, merge patch, strategic merge patch, and apply configurations.

Each of the first three becomes a function from the old object to the new object.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import jsonpatch
import jsonpointer
import msgspec

from headgate.api.status import ApiError, unsupported_value
from headgate.errors import Cause, DecodeError
from headgate.merge.structured_merge import field_schema, item_schema
from headgate.resources.meta import Object
from headgate.resources.schema.builders import Schema
from headgate.standalone.apiserver.request_parsing import parse_body

MOST_OPERATIONS = 10_000  # of a JSON patch, as in kube-apiserver
MOST_COPIED_BYTES = 3 * 1024 * 1024  # by all `copy` operations of a JSON patch, as in kube-apiserver
APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_DIRECTIVES = ("$patch", "$retainKeys")


def parse_patch(media_type: str, body: bytes, schema: Schema, *, strategic: bool) -> Callable[[Object], Object]:
    """Return the function that applies a patch. `strategic` is False for custom resources, whose schemas have no merge keys.

    Raises ApiError 415 for an unsupported type of patch, 400 for a malformed body.
    """
    if media_type not in (_JSON_PATCH, _MERGE, _STRATEGIC):
        supported = f"{_JSON_PATCH}, {_MERGE}, {_STRATEGIC}, {APPLY}"
        raise ApiError(
            415,
            f"the body of the request was in an unknown format ({media_type}) - accepted media types include: {supported}",
        )
    if media_type == _STRATEGIC and not strategic:
        raise ApiError(
            415, "custom resources do not support strategic merge patch; use a merge patch: kubectl patch --type=merge"
        )
    patch = parse_body(body, media_type)
    if media_type == _STRATEGIC:
        return lambda obj: strategic_patch(obj, patch, schema)
    apply = json_patch if media_type == _JSON_PATCH else merge_patch
    return lambda obj: apply(obj, patch)


def apply_configuration(query: Mapping[str, str], body: bytes) -> Mapping[str, Any]:
    """Return the configuration of a server-side apply. Raises ApiError 400."""
    if not query.get("fieldManager"):
        raise ApiError(400, "fieldManager: Required value: is required for apply patch")
    config = parse_body(body, APPLY)
    if not isinstance(config, Mapping):
        raise ApiError(400, "the body of an apply patch must be an object")
    metadata = config.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("managedFields"):
        raise ApiError(400, "metadata.managedFields must be nil; remove it from the applied object")
    return config


def json_patch(obj: Object, operations: Any) -> Object:
    """Apply JSON patch operations (RFC 6902).

    Raises ApiError 400 for a malformed patch, 413 for too many operations, DecodeError when an operation fails on this object.
    """
    if not isinstance(operations, list):
        raise ApiError(400, "a JSON patch must be a list of operations; to patch with an object use --type=merge")
    if (number := len(operations)) > MOST_OPERATIONS:
        raise ApiError(413, f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {number}")
    try:
        patched = _patched(obj, jsonpatch.JsonPatch(operations).patch)
    except jsonpatch.InvalidJsonPatch as error:
        raise ApiError(400, f"the JSON patch is malformed: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise DecodeError(Cause("patch", f"can't be applied to the object: {error}")) from error
    except RecursionError as error:  # each operation can put a value deeper into the last one
        raise DecodeError(Cause("patch", "nests lists and objects too deeply")) from error
    return _as_object(patched)


def _patched(obj: Object, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Apply operations one by one. Raises DecodeError when all `copy` operations together copy too much."""
    patched: Any = copy.deepcopy(obj)
    copied = 0
    for operation in operations:
        if operation["op"] == "copy":
            copied += len(msgspec.json.encode(jsonpointer.resolve_pointer(patched, operation["from"])))
            if copied > MOST_COPIED_BYTES:
                raise DecodeError(Cause("patch", f"copies more than {MOST_COPIED_BYTES} bytes in all; copy less"))
        patched = jsonpatch.JsonPatch([operation]).apply(patched, in_place=True)
    return patched


def merge_patch(obj: Object, patch: Any) -> Object:
    """Apply a JSON merge patch (RFC 7386): a field of the patch replaces the object's field, null removes the field.

    Raises ApiError 400.
    """
    return _as_object(_merged(obj, _as_object(patch)))


def _merged(value: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    result = dict(value) if isinstance(value, Mapping) else {}
    for name, part in patch.items():
        if part is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), part)
    return result


def strategic_patch(obj: Object, patch: Any, schema: Schema) -> Object:
    """Apply Kubernetes' strategic merge patch, which merges lists by the merge key of their schema. Raises ApiError 400."""
    return _as_object(_strategic(obj, _as_object(patch), schema))


def _as_object(value: Any) -> Object:
    if not isinstance(value, Mapping):
        raise ApiError(400, "a merge patch must be an object, and so must the result of each patch")
    return value


def _strategic(value: Any, patch: Mapping[str, Any], schema: Schema) -> Any:
    """Merge a patch into one object.

    `$patch: replace` replaces the object, `$patch: delete` empties it, and `$retainKeys` removes the fields that it omits.
    """
    directive = patch.get("$patch", "merge")
    if directive == "replace":
        return {name: part for name, part in patch.items() if name != "$patch"}
    if directive == "delete":
        return {}
    if directive != "merge":
        raise ApiError(400, unsupported_value("$patch", directive, ("merge", "replace", "delete")))
    kept = {_identity(name) for name in _listed(patch, "$retainKeys")} if "$retainKeys" in patch else None
    base = value if isinstance(value, Mapping) else {}
    result = {name: part for name, part in base.items() if kept is None or name in kept}
    for name, part in patch.items():
        if name.startswith("$"):
            continue
        if part is None:
            result.pop(name, None)
        else:
            result[name] = _strategic_field(result.get(name), part, field_schema(schema, name))
    return _list_directives(result, patch, schema)


def _strategic_field(value: Any, part: Any, schema: Schema) -> Any:
    if isinstance(part, Mapping):
        return _strategic(value, part, schema)
    if isinstance(part, list) and "merge" in str(schema.get("x-kubernetes-patch-strategy", "")).split(","):
        return _merged_list(value if isinstance(value, list) else [], part, schema)
    return part


def _merged_list(items: Sequence[Any], patch: Sequence[Any], schema: Schema) -> list[Any]:
    key = schema.get("x-kubernetes-patch-merge-key")
    if key is None:
        present = set(map(_identity, items))
        return [*items, *(entry for entry in patch if _identity(entry) not in present)]
    for entry in patch:
        if not isinstance(entry, Mapping):
            raise ApiError(400, "an item of a list with a merge key in the patch is not an object")
    if any(entry.get("$patch") == "replace" for entry in patch):
        return [entry for entry in patch if entry.get("$patch") != "replace"]
    return _merged_items(items, patch, key, item_schema(schema))


def _merged_items(
    items: Sequence[Mapping[str, Any]], patch: Sequence[Mapping[str, Any]], key: str, schema: Schema
) -> list[Any]:
    """Merge each item of a patch into the first item with the same key; append it if there is none."""
    result: list[Mapping[str, Any] | None] = list(items)  # None for a deleted item
    places: dict[str | bytes, list[int]] = {}
    for index, old in enumerate(items):
        places.setdefault(_identity(old.get(key)), []).append(index)
    for entry in patch:
        if key not in entry:
            raise ApiError(400, f"an item of a list in the patch does not contain the list's merge key {key}")
        same = _identity(entry[key])
        if entry.get("$patch") == "delete":
            for index in places.pop(same, ()):
                result[index] = None
        elif same in places:
            first = places[same][0]
            result[first] = _strategic(result[first], entry, schema)
        else:
            places[same] = [len(result)]
            result.append(_strategic({}, entry, schema))
    return [entry for entry in result if entry is not None]


def _identity(value: Any) -> str | bytes:
    """Return a value by which equal values of JSON are found in a set or a mapping: with lists, each search takes long."""
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted")


def _list_directives(result: dict[str, Any], patch: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    for name in patch:
        if name.startswith(_DELETE):
            field, deleted = name.removeprefix(_DELETE), set(map(_identity, _listed(patch, name)))
            present = result.get(field)
            kept = [entry for entry in present if _identity(entry) not in deleted] if isinstance(present, list) else []
            result[field] = kept
    for name in patch:
        if name.startswith(_ORDER):
            field, listed = name.removeprefix(_ORDER), _listed(patch, name)
            if isinstance(result.get(field), list):
                key = field_schema(schema, field).get("x-kubernetes-patch-merge-key")
                result[field] = _in_order(result[field], listed, key)
        elif name.startswith("$") and not name.startswith(_DELETE) and name not in _DIRECTIVES:
            raise ApiError(400, f"{name}: unknown directive of a strategic merge patch; remove it")
    return result


def _listed(patch: Mapping[str, Any], directive: str) -> list[Any]:
    listed = patch[directive]
    if not isinstance(listed, list):
        raise ApiError(400, f"{directive} must be a list")
    return listed


def _in_order(items: list[Any], listed: Sequence[Any], key: str | None) -> list[Any]:
    """Sort items into the order of `listed`. An unlisted item stays behind the item that it follows in `items`."""

    def identity(entry: Any) -> str | bytes:
        return _identity(entry.get(key) if key and isinstance(entry, Mapping) else entry)

    ranks: dict[str | bytes, int] = {}
    for rank, entry in enumerate(listed):
        ranks.setdefault(identity(entry), rank)
    runs: list[tuple[int, list[Any]]] = [(-1, [])]  # each with the rank of its first item, which unlisted ones follow
    for entry in items:
        if (place := ranks.get(identity(entry))) is not None:
            runs.append((place, []))
        runs[-1][1].append(entry)
    return [entry for _, run in sorted(runs, key=itemgetter(0)) for entry in run]
