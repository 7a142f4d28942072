"""Compares a value with its schema: the one walk over both that finds unknown, missing and mistyped fields, and limits.

What is between fields is for each kind's own checks.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from headgate.errors import Cause
from headgate.resources.checks.grammars import fault as grammar_fault
from headgate.resources.definitions.parts import Schema, item_schema
from headgate.resources.names import type_name

_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
_USUAL = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
_ALSO: Mapping[str, type | tuple[type, ...]] = {"number": int, "array": tuple, "object": Mapping}
_HINTS = {"string": "; write it with quotes", "integer": "; write it without quotes"}
_Place: TypeAlias = "tuple[()] | tuple[_Place, str | int]"


class Examined(NamedTuple):
    """A value compared with its schema.

    `value` lacks the fields that the schema does not have. Their paths are in `unknown`, and a cause for each in `causes`.
    """

    value: Any
    unknown: Sequence[str]
    causes: Sequence[Cause]


def examine(obj: Any, schema: Schema, *, required: bool = True, skipped: Collection[str] = ()) -> Examined:
    """Compare an object with its schema; `null` counts as absent.

    With `required`, a required field that is absent is a mistake. `skipped` are fields of the object to leave as they are.
    """
    walk = _Walk(required=required)
    value = walk.record(obj, schema, (), skipped)
    return Examined(value, walk.unknown, walk.causes)


class _Walk:
    """Collects what is wrong on the way through a value. A place becomes text only where something is wrong."""

    def __init__(self, *, required: bool) -> None:
        self.unknown: list[str] = []
        self.causes: list[Cause] = []
        self._required = required

    def value(self, value: Any, schema: Schema, place: _Place) -> Any:
        """Return a value without unknown fields."""
        wanted = schema.get("type")
        if wanted is None:
            return value
        if type(value) is not _USUAL[wanted] and not _fits(value, wanted, schema):
            self._add(place, f"must be {_WORDS[wanted]}, not {type_name(value)}{_hint(value, wanted)}")
        elif wanted == "object":
            return self.record(value, schema, place)
        elif wanted == "array":
            return self._list(value, schema, place)
        elif message := _text_limits(value, schema) if isinstance(value, str) else _limits(value, schema):
            self._add(place, message)
        return value

    def record(self, value: Mapping[str, Any], schema: Schema, place: _Place, skipped: Collection[str] = ()) -> Any:
        """Return an object without unknown fields."""
        fields: Mapping[str, Schema] = schema.get("properties", {})
        extra = schema.get("additionalProperties")
        for name in schema.get("required", ()) if self._required else ():
            if value.get(name) is None:
                self._add((place, name), "is missing")
        found: dict[str, Any] = {}
        for name, item in value.items():
            field = fields.get(name, extra)
            if field is None and fields:
                self.unknown.append(_text((place, name)))
                self._add((place, name), _unknown_message(name, fields))
            elif field is None or item is None or name in skipped:
                found[name] = item
            else:
                found[name] = self.value(item, field, (place, name))
        return found

    def _list(self, value: Sequence[Any], schema: Schema, place: _Place) -> list[Any]:
        least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
        if len(value) < least:
            self._add(place, f"must have at least {least} {'entry' if least == 1 else 'entries'}")
        if len(value) > most:
            self._add(place, f"must have at most {most} entries, not {len(value)}")
        items = item_schema(schema)
        return [self.value(item, items, (place, index)) for index, item in enumerate(value)]

    def _add(self, place: _Place, message: str) -> None:
        self.causes.append(Cause(_text(place), message))


def _text(place: _Place) -> str:
    """Return a place as users write it: `spec.rules[0].name`."""
    if not place:
        return ""
    before, name = _text(place[0]), place[1]
    if isinstance(name, int):
        return f"{before}[{name}]"
    return f"{before}.{name}" if before else str(name)


def _fits(value: Any, wanted: str, schema: Schema) -> bool:
    """Whether a value of an unusual type is one that the schema allows too."""
    if isinstance(value, bool):
        return False
    if schema.get("format") == "int-or-string":
        return isinstance(value, str | int | float)
    return isinstance(value, _ALSO.get(wanted, ()))


def _hint(value: Any, wanted: str) -> str:
    return _HINTS.get(wanted, "") if isinstance(value, str | int | float) else ""


def _unknown_message(name: object, known: Collection[str]) -> str:
    nearest = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known here are {', '.join(known)}"
    return f"is not a field; {hint}"


def _limits(value: Any, schema: Schema) -> str:
    if fault := _choice(value, schema):
        return fault
    least, most = schema.get("minimum", value), schema.get("maximum", value)
    if not least <= value <= most:
        limit = f"from {least} to {most}" if "maximum" in schema else f"{least} or more"
        return f"must be {limit}, not {value}"
    return ""


def _text_limits(value: str, schema: Schema) -> str:
    if fault := _choice(value, schema):
        return fault
    if len(value) < schema.get("minLength", 0):
        return "must not be empty"
    most = schema.get("maxLength")
    if most is not None and len(value) > most:
        return f"must have at most {most} characters, not {len(value)}"
    return grammar_fault(value, schema) if "pattern" in schema or "format" in schema else ""


def _choice(value: Any, schema: Schema) -> str:
    allowed = schema.get("enum")
    if not allowed or value in allowed:
        return ""
    wanted = f"one of {', '.join(map(str, allowed))}" if len(allowed) > 1 else allowed[0]
    return f"must be {wanted}, not {value!r}"
