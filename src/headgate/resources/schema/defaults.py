"""Fill in the default values of fields, as an API server does by a CustomResourceDefinition."""

import functools
from collections.abc import Mapping
from typing import Any

from headgate.resources.kind import split_api_version
from headgate.resources.meta import Object
from headgate.resources.registry import find_written
from headgate.resources.schema.builders import Schema
from headgate.resources.schema.catalog import schemas


def with_schema_defaults(obj: Object) -> Object:
    """Return an object with the default of each field that is absent from a present parent. Other fields stay the same."""
    schema = _with_defaults(obj["apiVersion"], obj["kind"])
    return completed(obj, schema) if schema else obj


def completed(value: Any, schema: Schema) -> Any:
    """Return a value with the defaults of its schema."""
    if isinstance(value, Mapping):
        fields: Mapping[str, Schema] = schema.get("properties", {})
        absent = {name: field["default"] for name, field in fields.items() if "default" in field and name not in value}
        return {
            name: completed(part, fields[name]) if name in fields else part
            for name, part in {**value, **absent}.items()
        }
    if isinstance(value, list | tuple):
        return [completed(row, schema.get("items", {})) for row in value]
    return value


@functools.cache
def _with_defaults(api_version: str, kind: str) -> Schema | None:
    """Return the schema of a kind if it has defaults. Those of published definitions are not an API server's."""
    found = find_written(api_version, kind)
    schema = schemas()[*split_api_version(api_version), kind] if found and found.schema else None
    return schema if schema and _has_default(schema) else None


def _has_default(schema: Schema) -> bool:
    rows = (*schema.get("properties", {}).values(), schema.get("items", {}))
    return "default" in schema or any(_has_default(row) for row in rows if row)
