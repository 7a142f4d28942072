"""Compares a value with its schema: every field that is unknown, missing, of another type or out of its limits.

For the kinds whose schema says all that can be said about one field alone. What is between fields is for each kind's
own checks; `rows` and `part` let these look at values of any type.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources.checks import unknown_fields
from headgate.resources.grammars import GRAMMARS
from headgate.resources.names import type_name
from headgate.resources.schema_parts import Schema

_WORDS = {"string": "text", "integer": "a whole number", "boolean": "true or false", "array": "a list"}
_TYPES = {"string": str, "integer": int, "boolean": bool, "object": Mapping, "array": list | tuple}


def rows(value: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects in what should be a list, with their places."""
    for index, item in enumerate(value if isinstance(value, list | tuple) else ()):
        if isinstance(item, Mapping):
            yield index, item


def part(value: object, name: str) -> Mapping[str, Any]:
    """Return a field that should be an object; an empty one where it is none."""
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def schema_causes(value: object, schema: Schema, where: str) -> Iterator[Cause]:
    """Yield every mistake in a value; `null` counts as absent."""
    wanted = schema.get("type")
    if wanted is None:
        return
    if isinstance(value, bool) != (wanted == "boolean") or not isinstance(value, _TYPES[wanted]):
        quotes = {"string": "; write it with quotes", "integer": "; write it without quotes"}
        hint = quotes.get(wanted, "") if isinstance(value, str | int | float) else ""
        yield Cause(where, f"must be {_WORDS.get(wanted, 'an object')}, not {type_name(value)}{hint}")
    elif isinstance(value, Mapping):
        yield from _record_causes(value, schema, where)
    elif isinstance(value, list | tuple):
        yield from _list_causes(value, schema, where)
    else:
        yield from _limits(value, schema, where)


def _record_causes(value: Mapping[str, Any], schema: Schema, where: str) -> Iterator[Cause]:
    fields: Mapping[str, Schema] = schema.get("properties", {})
    extra = schema.get("additionalProperties")
    if fields:
        yield from unknown_fields(value, tuple(fields), where)
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield Cause(f"{where}.{name}", "is missing")
    for name, item in value.items():
        field = fields.get(name, extra)
        if item is not None and field is not None:
            yield from schema_causes(item, field, f"{where}.{name}")


def _list_causes(value: list[Any] | tuple[Any, ...], schema: Schema, where: str) -> Iterator[Cause]:
    least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    if len(value) < least:
        yield Cause(where, f"must have at least {least} {'entry' if least == 1 else 'entries'}")
    if len(value) > most:
        yield Cause(where, f"must have at most {most} entries, not {len(value)}")
    for index, item in enumerate(value):
        yield from schema_causes(item, schema["items"], f"{where}[{index}]")


def _limits(value: object, schema: Schema, where: str) -> Iterator[Cause]:
    allowed = schema.get("enum")
    if allowed and value not in allowed:
        wanted = f"one of {', '.join(map(str, allowed))}" if len(allowed) > 1 else allowed[0]
        yield Cause(where, f"must be {wanted}, not {value!r}")
    elif isinstance(value, int):
        least, most = schema.get("minimum", value), schema.get("maximum", value)
        if not least <= value <= most:
            limit = f"from {least} to {most}" if "maximum" in schema else f"{least} or more"
            yield Cause(where, f"must be {limit}, not {value}")
    elif isinstance(value, str):
        yield from _text_causes(value, schema, where)


def _text_causes(value: str, schema: Schema, where: str) -> Iterator[Cause]:
    least, most = schema.get("minLength", 0), schema.get("maxLength", len(value))
    fault = GRAMMARS.get(schema.get("format", ""))
    if len(value) < least:
        yield Cause(where, "must not be empty")
    elif len(value) > most:
        yield Cause(where, f"must have at most {most} characters, not {len(value)}")
    elif fault and (message := fault(value)):
        yield Cause(where, message)
