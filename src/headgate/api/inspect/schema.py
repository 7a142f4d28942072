"""The OpenAPI schemas of the inspect API, generated from the types of its objects, for `kubectl explain` and clients."""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.api.inspect.query import CREATE, RESOURCES, Resource
from headgate.plan.planning import PlanResult
from headgate.resources import inspect, revisions
from headgate.resources.call_records import CallRecord
from headgate.resources.explanations import Explanation
from headgate.resources.mesh_status import MeshStatus
from headgate.resources.schema.builders import META, Schema, anything, flag, kind, listing, record, text, whole
from headgate.resources.schema.catalog import definition_name

_GVK = "x-kubernetes-group-version-kind"
_SHAPES: Mapping[str, type[msgspec.Struct]] = {
    "Proxy": inspect.Proxy,
    "ProxyConfig": inspect.ProxyConfig,
    "PodSidecar": inspect.PodSidecar,
    "Finding": inspect.Finding,
    "MeshStatus": MeshStatus,
    "Explanation": Explanation,
    "Plan": PlanResult,
    "CallRecord": CallRecord,
    "Revision": revisions.Revision,
    "RevisionRestoration": revisions.RevisionRestoration,
}
_COMMON = ("apiVersion", "kind", "metadata")


@functools.cache
def definitions() -> Mapping[str, Schema]:
    """Return the schemas by the names of their OpenAPI definitions."""
    return {_name(name): {**_of_kind(shape), _GVK: [_gvk(name)]} for name, shape in _SHAPES.items()}


def names() -> set[str]:
    """Return the names of all definitions, and of the definitions that they reference."""
    return {*map(_name, _SHAPES), f"{META}ObjectMeta"}


def paths() -> dict[str, Any]:
    """Return the paths for OpenAPI documents of version 2 or 3."""
    return {path: item for resource in RESOURCES.values() for path, item in _paths(resource)}


def _paths(resource: Resource) -> list[tuple[str, Any]]:
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    every = f"/apis/{inspect.API_VERSION}{scope}/{resource.plural}"
    found = [(every, _get(resource.kind, "list"))] if "list" in resource.verbs else []
    found += [(every, _post(resource.kind))] if CREATE in resource.verbs else []
    found += [(f"{every}/{{name}}", _get(resource.kind, "get"))] if "get" in resource.verbs else []
    return found + [(f"{every}/{{name}}/{part}", _get(name, "get")) for part, name in resource.subresources.items()]


def _get(name: str, action: str) -> dict[str, Any]:
    answers = {"responses": {"200": {"description": "OK"}}}
    return {"get": {**answers, "x-kubernetes-action": action, _GVK: _gvk(name)}}


def _post(name: str) -> dict[str, Any]:
    answers = {"responses": {"200": {"description": "OK"}}}
    return {"post": {**answers, "x-kubernetes-action": "post", _GVK: _gvk(name)}}


def _gvk(name: str) -> dict[str, str]:
    return {"group": inspect.GROUP, "version": inspect.VERSION, "kind": name}


def _name(name: str) -> str:
    return definition_name(inspect.GROUP, inspect.VERSION, name)


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
    msgspec.inspect.FloatType: {"type": "number", "description": ""},
    msgspec.inspect.DictType: anything(""),
    msgspec.inspect.AnyType: anything(""),
}


def _schema(info: msgspec.inspect.Type) -> Schema:
    match info:
        case msgspec.inspect.StructType(cls=shape):
            return record(_sentence(shape), "", **_fields(shape))
        case msgspec.inspect.VarTupleType(item_type=item):
            return listing("", _schema(item))
        case msgspec.inspect.UnionType(types=types):
            return next(_schema(one) for one in types if not isinstance(one, msgspec.inspect.NoneType))
        case msgspec.inspect.LiteralType(values=values):
            return {**text(""), "enum": list(values)}
        case _:
            return _PLAIN.get(type(info), text(""))


def _sentence(shape: type[msgspec.Struct]) -> str:
    """Return the first paragraph of a type's docstring."""
    return (shape.__doc__ or "").strip().partition("\n\n")[0]
