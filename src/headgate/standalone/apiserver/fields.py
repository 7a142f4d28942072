"""Checks an object against its kind's schema: fields that nobody knows, and values of the wrong type."""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources.crd import Schema, resolved
from headgate.resources.meta import Object
from headgate.resources.names import type_name

_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
}


def unknown_fields(obj: Object, schema: Schema) -> tuple[str, ...]:
    """Return the paths of the fields that the schema does not have."""
    return tuple(_unknown(obj, schema, ""))


def type_causes(obj: Object, schema: Schema) -> tuple[Cause, ...]:
    """Return a cause for each value whose type is not the schema's."""
    return tuple(_mistyped(obj, schema, ""))


def without_unknown(value: Any, schema: Schema) -> Any:
    """Return a copy without the fields that the schema does not have, as a real server stores it."""
    if isinstance(value, Mapping) and _closed(schema):
        fields = schema["properties"]
        return {name: without_unknown(part, resolved(fields[name])) for name, part in value.items() if name in fields}
    if isinstance(value, list) and "items" in schema:
        items = resolved(schema["items"])
        return [without_unknown(item, items) for item in value]
    return value


def _closed(schema: Schema) -> bool:
    return "properties" in schema and "additionalProperties" not in schema


def _unknown(value: Any, schema: Schema, where: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            place = f"{where}.{name}" if where else str(name)
            if name in schema.get("properties", {}):
                yield from _unknown(part, resolved(schema["properties"][name]), place)
            elif isinstance(schema.get("additionalProperties"), Mapping):
                yield from _unknown(part, resolved(schema["additionalProperties"]), place)
            elif _closed(schema):
                yield place
    elif isinstance(value, list) and "items" in schema:
        items = resolved(schema["items"])
        for index, item in enumerate(value):
            yield from _unknown(item, items, f"{where}[{index}]")


def _mistyped(value: Any, schema: Schema, where: str) -> Iterator[Cause]:
    wanted = schema.get("type")
    if value is None or wanted is None or _is_number_or_text(value, schema):
        return
    if not _fits(value, wanted):
        yield Cause(where, f"must be {_WORDS[wanted]}, not {type_name(value)}")
    elif isinstance(value, Mapping):
        extra = schema.get("additionalProperties")
        for name, part in value.items():
            field = schema.get("properties", {}).get(name, extra if isinstance(extra, Mapping) else {})
            yield from _mistyped(part, resolved(field), f"{where}.{name}" if where else str(name))
    elif isinstance(value, list):
        items = resolved(schema.get("items", {}))
        for index, item in enumerate(value):
            if item is None and "type" in items:
                yield Cause(f"{where}[{index}]", f"must be {_WORDS[items['type']]}, not null")
            yield from _mistyped(item, items, f"{where}[{index}]")


def _is_number_or_text(value: Any, schema: Schema) -> bool:
    flexible = schema.get("format") == "int-or-string"
    return flexible and isinstance(value, int | float | str) and not isinstance(value, bool)


def _fits(value: Any, wanted: str) -> bool:
    if wanted == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    types = {"string": str, "boolean": bool, "object": Mapping, "array": list | tuple}
    return isinstance(value, types[wanted])
