"""The OpenAPI documents, versions 2 and 3, which kubectl reads for explain, validation and dry runs."""

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

import headgate
from headgate.api.computed_groups import COMPUTED_GROUPS
from headgate.api.status import no_such_path
from headgate.resources.kind import ServedKind, api_version
from headgate.resources.kind_set import KindSet
from headgate.resources.registry import BUILT_IN
from headgate.resources.schema import catalog
from headgate.resources.schema.builders import REF, Schema, gvk, operation
from headgate.standalone.apiserver import openapi_pb

_PATCH_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")
_V3_REF = "#/components/schemas/"
_once_for_kinds = functools.lru_cache(maxsize=4)  # for the present kinds, and for those before a change to definitions


@_once_for_kinds
def v2_json(kinds: KindSet = BUILT_IN) -> bytes:
    """Return the Swagger 2.0 document as JSON."""
    return msgspec.json.encode(_v2(kinds))


@_once_for_kinds
def v2_protobuf(kinds: KindSet = BUILT_IN) -> bytes:
    """Return the Swagger 2.0 document in protobuf, for older versions of kubectl."""
    return openapi_pb.document(_v2(kinds))


def v3_index(kinds: KindSet = BUILT_IN) -> dict[str, Any]:
    """Return the index of OpenAPI 3.0 documents: the URL of each group and version, with a hash of the content."""
    return {
        "paths": {
            path: {
                "serverRelativeURL": f"/openapi/v3/{path}?hash={hashlib.sha256(v3_json(path, kinds)).hexdigest()[:32]}"
            }
            for path in _v3_paths(kinds)
        }
    }


@functools.lru_cache(maxsize=512)
def v3_json(path: str, kinds: KindSet = BUILT_IN) -> bytes:
    """Return the OpenAPI 3.0 document of `api/v1` or `apis/GROUP/VERSION` as JSON. Raises ApiError 404."""
    served_version = _v3_paths(kinds).get(path)
    if served_version is None:
        raise no_such_path()
    group, version = served_version
    if computed := COMPUTED_GROUPS.get((group, version)):
        return _v3_document(computed.paths(), {*computed.definitions()}, kinds)
    served = kinds.groups[group][version]
    paths = {path: operations for served_kind in served for path, operations in _paths(served_kind, v3=True).items()}
    return _v3_document(paths, {catalog.name_of(group, version, served_kind.kind) for served_kind in served}, kinds)


def _v3_document(paths: Mapping[str, Any], names: set[str], kinds: KindSet) -> bytes:
    """Return a document with `paths`, the definitions called `names`, and the definitions that these reference."""
    schemas = json.dumps({name: _definitions(kinds)[name] for name in sorted(_closure(names, kinds))})
    document = {
        "openapi": "3.0.0",
        "info": _info(),
        "paths": paths,
        "components": {"schemas": json.loads(schemas.replace(REF, _V3_REF))},
    }
    return msgspec.json.encode(document)


@_once_for_kinds
def _definitions(kinds: KindSet) -> Mapping[str, Schema]:
    computed = (row for group in COMPUTED_GROUPS.values() for row in group.definitions().items())
    return {**catalog.definitions_of(kinds), **dict(computed)}


def _v3_paths(kinds: KindSet) -> Mapping[str, tuple[str, str]]:
    stored = [(group, version) for group, versions in kinds.groups.items() for version in versions]
    return {
        f"{'apis' if group else 'api'}/{api_version(group, version)}": (group, version)
        for group, version in (*stored, *(key for key, computed in COMPUTED_GROUPS.items() if computed.paths()))
    }


def _closure(names: set[str], kinds: KindSet) -> set[str]:
    closure: set[str] = set()
    while names - closure:
        name = (names - closure).pop()
        closure.add(name)
        text = json.dumps(_definitions(kinds)[name])
        names |= {part.partition('"')[0] for part in text.split(REF)[1:]}
    return closure


def _v2(kinds: KindSet) -> dict[str, Any]:
    every = [served_kind for versions in kinds.groups.values() for many in versions.values() for served_kind in many]
    return {
        "swagger": "2.0",
        "info": _info(),
        "paths": {
            path: operations for served_kind in every for path, operations in _paths(served_kind, v3=False).items()
        }
        | {path: operations for computed in COMPUTED_GROUPS.values() for path, operations in computed.paths().items()},
        "definitions": dict(_definitions(kinds)),
    }


def _info() -> dict[str, str]:
    return {"title": "headgate", "version": headgate.__version__}


def _paths(served: ServedKind, *, v3: bool) -> dict[str, Any]:
    """Return the paths of a resource, reduced to what kubectl reads: its kind and the parameters of PATCH."""
    prefix = f"/{'apis' if served.group else 'api'}/{served.api_version}"
    scope = "/namespaces/{namespace}" if served.kind.namespaced else ""
    read = operation("list", gvk(served.group, served.version, served.kind.kind))
    changed = {**read, "x-kubernetes-action": "patch", "parameters": [_parameter(n, v3=v3) for n in _PATCH_PARAMETERS]}
    listing = f"{prefix}{scope}/{served.plural}"
    return {listing: {"get": read}, f"{listing}/{{name}}": {"patch": changed}}


def _parameter(name: str, *, v3: bool) -> dict[str, Any]:
    kind = "boolean" if name == "force" else "string"
    shape: dict[str, Any] = {"schema": {"type": kind}} if v3 else {"type": kind}
    return {"name": name, "in": "query", **shape}
