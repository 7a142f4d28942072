"""What a schema says about merging a value: whether it is one leaf, and what identifies the items of a list.

`x-kubernetes-list-type` and `x-kubernetes-map-type` decide; where the older `x-kubernetes-patch-strategy` is all there is,
it does. A value without a schema is read off itself: its fields are apart, its lists are one leaf.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from headgate.merge.paths import field, keyed, valued
from headgate.resources.definitions.parts import Schema, field_schema, item_schema

Form: TypeAlias = Literal["leaf", "fields", "items"]


class _Absent:
    """The type of `ABSENT`."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""Stands for a value that is not there; null counts as absent."""


class MergeError(Exception):
    """A configuration can't be merged: `path` is the list, `message` what is wrong with it."""


class Item(NamedTuple):
    """A part of a value: its path element, its value and its schema. Items of equal elements are duplicates."""

    element: str
    value: Any
    schema: Schema


def form(value: Any, schema: Schema) -> Form:
    """Say how a value is merged: as one leaf, field by field, or item by item."""
    if isinstance(value, Mapping):
        return "leaf" if schema.get("x-kubernetes-map-type") == "atomic" else "fields"
    if isinstance(value, list | tuple) and list_type(schema) != "atomic":
        return "items"
    return "leaf"


def list_type(schema: Schema) -> str:
    """Return `atomic`, `set` or `map`."""
    if given := schema.get("x-kubernetes-list-type"):
        return str(given)
    if "merge" not in str(schema.get("x-kubernetes-patch-strategy", "")).split(","):
        return "atomic"
    return "map" if "x-kubernetes-patch-merge-key" in schema else "set"


def list_keys(schema: Schema) -> Sequence[str]:
    """Return the fields that identify an item of a list of type `map`."""
    return schema.get("x-kubernetes-list-map-keys") or [schema["x-kubernetes-patch-merge-key"]]


def has_field(schema: Schema, element: str) -> bool:
    """Say whether an element is a field that the schema names, not a key of a map."""
    return element.startswith("f:") and element[2:] in schema.get("properties", {})


def schema_at(schema: Schema, element: str) -> Schema:
    """Return the schema of the part at a path element; an empty one where the schema says nothing about it."""
    return field_schema(schema, element[2:]) if element.startswith("f:") else item_schema(schema)


def parts(value: Any, schema: Schema) -> list[Item]:
    """Return the parts of a value that is merged field by field or item by item.

    An item that has nothing to identify it by has its index as its element.
    """
    if isinstance(value, Mapping):
        named = ((field(name), part) for name, part in value.items() if part is not None)
        return [Item(element, part, schema_at(schema, element)) for element, part in named]
    items = item_schema(schema)
    if list_type(schema) == "set":
        return [Item(valued(item), item, items) for item in value]
    names = list_keys(schema)
    return [Item(_key_of(item, names, items) or f"i:{index}", item, items) for index, item in enumerate(value)]


def _key_of(item: Any, names: Sequence[str], schema: Schema) -> str:
    keys: dict[str, Any] = {}
    for name in names if isinstance(item, Mapping) else ():
        value = item.get(name)
        if value is None:
            value = field_schema(schema, name).get("default")
        if value is not None:
            keys[name] = value
    return keyed(keys) if keys else ""
