"""Complete objects as an API server does by a CustomResourceDefinition: defaults are filled in, nulls are removed."""

import functools
from collections.abc import Mapping
from typing import Any

from headgate.resources.kind import split_api_version
from headgate.resources.meta import Object
from headgate.resources.registry import find_written
from headgate.resources.schema.builders import Schema
from headgate.resources.schema.catalog import schemas


def with_schema_defaults(obj: Object) -> Object:
    """Return an object completed by the schema of its kind, if this is a kind of the mesh; else the same object."""
    schema = _own_schema(obj["apiVersion"], obj["kind"])
    return completed(obj, schema) if schema else obj


def completed(value: Any, schema: Schema) -> Any:
    """Return a value completed by its schema.

    Null counts as absent, unless the field is nullable. An absent field of a present parent gets its default; without a
    default it stays absent.
    """
    if isinstance(value, list | tuple):
        return [completed(row, schema.get("items", {})) for row in value]
    if not isinstance(value, Mapping):
        return value
    fields: Mapping[str, Schema] = schema.get("properties", {})
    extra = schema.get("additionalProperties") or {}
    parts: dict[str, Any] = {}
    for name, part in value.items():
        field = fields.get(name, extra)
        if part is not None or not field or field.get("nullable"):
            parts[name] = completed(part, field) if field else part
    absent = {name: field for name, field in fields.items() if "default" in field and name not in parts}
    return {**parts, **{name: completed(field["default"], field) for name, field in absent.items()}}


@functools.cache
def _own_schema(api_version: str, kind: str) -> Schema | None:
    """Return the schema of a kind if its room has one. API servers do not complete objects by the published ones."""
    written = find_written(api_version, kind)
    return schemas()[*split_api_version(api_version), kind] if written and written.schema else None
