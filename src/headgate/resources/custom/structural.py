"""The rules of a CustomResourceDefinition's schema that `schema.check` does not have: combinations of schemas and further limits.

Rules in CEL (`x-kubernetes-validations`) are not evaluated.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headgate.errors import Cause
from headgate.resources import regexes
from headgate.resources.schema.builders import Schema
from headgate.resources.schema.check import check_schema


def value_causes(value: Any, schema: Schema, path: str = "") -> Iterator[Cause]:
    """Yield the broken rules of a value and of the values in it. `path` is its field."""
    if value is None:
        return
    yield from (Cause(path, message) for message in _limits(value, schema))
    yield from _combinations(value, schema, path)
    if isinstance(value, Mapping):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, inner in value.items():
            field = properties.get(name, extra)
            if isinstance(field, Mapping):
                yield from value_causes(inner, field, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple) and isinstance(schema.get("items"), Mapping):
        for index, inner in enumerate(value):
            yield from value_causes(inner, schema["items"], f"{path}[{index}]")


def _limits(value: Any, schema: Schema) -> Iterator[str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_limits(value, schema)
    elif isinstance(value, Mapping):
        if len(value) < schema.get("minProperties", 0):
            yield f"must have at least {schema['minProperties']} fields"
        if len(value) > schema.get("maxProperties", len(value)):
            yield f"must have at most {schema['maxProperties']} fields"
    elif isinstance(value, list | tuple):
        yield from _list_limits(value, schema)


def _number_limits(value: float, schema: Schema) -> Iterator[str]:
    least, most, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if schema.get("exclusiveMinimum") is True and value == least:
        yield f"must be greater than {least}"
    if schema.get("exclusiveMaximum") is True and value == most:
        yield f"must be less than {most}"
    if isinstance(step, int | float) and step > 0 and value % step:
        yield f"must be a multiple of {step}"


def _list_limits(value: Sequence[Any], schema: Schema) -> Iterator[str]:
    kind = schema.get("x-kubernetes-list-type")
    if (schema.get("uniqueItems") or kind == "set") and len(set(map(msgspec.json.encode, value))) < len(value):
        yield "has the same entry twice"
    if kind == "map":
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        named = [tuple(str(row.get(key)) for key in keys) for row in value if isinstance(row, Mapping)]
        if len(set(named)) < len(named):
            yield f"has two entries with the same {', '.join(keys)}"


def _combinations(value: Any, schema: Schema, path: str) -> Iterator[Cause]:

    def fits(inner: Schema) -> bool:
        return _fits(value, inner)

    for inner in schema.get("allOf") or ():
        if not fits(inner):
            yield Cause(path, f"must match all schemas in allOf{_required(inner)}")
    if (some := schema.get("anyOf")) and not any(map(fits, some)):
        yield Cause(path, f"must match at least one schema in anyOf{''.join(map(_required, some))}")
    if (some := schema.get("oneOf")) and sum(map(fits, some)) != 1:
        yield Cause(path, f"must match exactly one schema in oneOf{''.join(map(_required, some))}")
    if isinstance(inner := schema.get("not"), Mapping) and fits(inner):
        yield Cause(path, "must not match the schema in not")


def _required(schema: Schema) -> str:
    """Return a hint with the fields that a schema requires."""
    return f" ({', '.join(map(str, schema['required']))})" if schema.get("required") else ""


def _fits(value: Any, schema: Schema) -> bool:
    """Return whether a value follows a schema, which may have only a part of the rules, such as `required`."""
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, str | int) and not isinstance(value, bool)
    if isinstance(value, str) and "pattern" in schema and not regexes.search(schema["pattern"], value):
        return False
    boxed = check_schema(
        {"value": value}, {"properties": {"value": {**schema, "x-kubernetes-preserve-unknown-fields": True}}}
    )
    if "type" not in schema and isinstance(value, Mapping):
        boxed = check_schema(value, {**schema, "type": "object", "x-kubernetes-preserve-unknown-fields": True})
    if "type" not in schema and schema.get("enum") and value not in schema["enum"]:
        return False
    return not boxed.causes and next(value_causes(value, schema), None) is None
