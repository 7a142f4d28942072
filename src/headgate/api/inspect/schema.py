"""The OpenAPI schemas of the inspect API, generated from the types of its objects, for `kubectl explain` and clients."""

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.api.inspect.registry import RESOURCES
from headgate.api.inspect.resource import CREATE, WATCH, InspectResource
from headgate.resources.inspect import API_VERSION, GROUP, VERSION
from headgate.resources.schema.builders import (
    GVK,
    Schema,
    anything,
    flag,
    gvk,
    kind,
    listing,
    operation,
    record,
    text,
    whole,
)
from headgate.resources.schema.catalog import definition_name

_COMMON = ("apiVersion", "kind", "metadata")


def definitions() -> Mapping[str, Schema]:
    """Return the schemas by the names of their OpenAPI definitions."""
    return {_name(name): {**_of_kind(shape), GVK: [gvk(GROUP, VERSION, name)]} for name, shape in shapes().items()}


def shapes() -> Mapping[str, type[msgspec.Struct]]:
    """Return the types of the objects and of their parts, by kind."""
    resources = RESOURCES.values()
    whole = {resource.kind: resource.shape for resource in resources if resource.shape}
    parts = (part for resource in resources for part in resource.subresources.values())
    return whole | {part.kind: part.shape for part in parts if part.shape}


def paths() -> dict[str, Any]:
    """Return the paths for OpenAPI documents of version 2 or 3."""
    return {path: operation for resource in RESOURCES.values() for path, operation in _paths(resource)}


def _paths(resource: InspectResource) -> list[tuple[str, Any]]:
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    every = f"/apis/{API_VERSION}{scope}/{resource.plural}"
    operations = {
        "list": (every, _operation("get", resource.kind, "list")),
        CREATE: (every, _operation("post", resource.kind, "post")),
        "get": (f"{every}/{{name}}", _operation("get", resource.kind, "get")),
    }
    parts = resource.subresources.items()
    return [
        *(operations[verb] for verb in resource.verbs if verb != WATCH),  # a watch has the path of the list
        *((f"{every}/{{name}}/{name}", _operation("get", part.kind, "get")) for name, part in parts),
    ]


def _operation(method: str, name: str, action: str) -> dict[str, Any]:
    return {method: operation(action, gvk(GROUP, VERSION, name))}


def _name(name: str) -> str:
    return definition_name(GROUP, VERSION, name)


def _of_kind(shape: type[msgspec.Struct]) -> Schema:
    own = {name: schema for name, schema in _fields(shape).items() if name not in _COMMON}
    return kind(_sentence(shape), "", **own)


def _fields(shape: type[msgspec.Struct]) -> dict[str, Schema]:
    info = msgspec.inspect.type_info(shape)
    fields = info.fields if isinstance(info, msgspec.inspect.StructType) else ()
    return {field.encode_name: _schema(field.type) for field in fields}


_PLAIN: Mapping[type[msgspec.inspect.Type], Schema] = {
    msgspec.inspect.BoolType: flag(""),
    msgspec.inspect.IntType: whole(""),
    msgspec.inspect.DictType: anything(""),
    msgspec.inspect.AnyType: anything(""),
}


def _schema(info: msgspec.inspect.Type) -> Schema:
    match info:
        case msgspec.inspect.Metadata(type=inner, extra_json_schema=extra):
            return {**_schema(inner), **(extra or {})}
        case msgspec.inspect.StructType(cls=shape):
            return record(_sentence(shape), "", **_fields(shape))
        case msgspec.inspect.VarTupleType(item_type=entry):
            return listing("", _schema(entry))
        case msgspec.inspect.UnionType(types=types):
            return next(
                _schema(alternative) for alternative in types if not isinstance(alternative, msgspec.inspect.NoneType)
            )
        case msgspec.inspect.LiteralType() | msgspec.inspect.EnumType():
            values = (
                info.values
                if isinstance(info, msgspec.inspect.LiteralType)
                else [alternative.value for alternative in info.cls]
            )
            return {**text(""), "enum": list(values)}
        case _:
            return _PLAIN.get(type(info), text(""))


def _sentence(shape: type[msgspec.Struct]) -> str:
    """Return the first paragraph of a type's docstring."""
    return (shape.__doc__ or "").strip().partition("\n\n")[0]
