"""The OpenAPI documents, versions 2 and 3, which kubectl reads for explain, validation and dry runs."""

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

import headgate
from headgate.api.computed_groups import COMPUTED_GROUPS
from headgate.api.inspect import schema as inspect_schema
from headgate.api.metrics import schema as metrics_schema
from headgate.api.status import no_such_path
from headgate.resources.kind import ServedKind, api_version
from headgate.resources.registry import GROUPS
from headgate.resources.schema import catalog
from headgate.resources.schema.builders import REF, Schema
from headgate.standalone.apiserver import openapi_pb

_GVK = "x-kubernetes-group-version-kind"
_PATCH_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")
_V3_REF = "#/components/schemas/"


@functools.cache
def v2_json() -> bytes:
    """Return the Swagger 2.0 document as JSON."""
    return msgspec.json.encode(_v2())


@functools.cache
def v2_protobuf() -> bytes:
    """Return the Swagger 2.0 document in protobuf, for older versions of kubectl."""
    return openapi_pb.document(_v2())


def v3_index() -> dict[str, Any]:
    """Return the index of OpenAPI 3.0 documents: the URL of each group and version, with a hash of the content."""
    return {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={hashlib.sha256(v3_json(path)).hexdigest()[:32]}"}
            for path in _v3_paths()
        }
    }


@functools.cache
def v3_json(path: str) -> bytes:
    """Return the OpenAPI 3.0 document of `api/v1` or `apis/GROUP/VERSION` as JSON. Raises ApiError 404."""
    found = _v3_paths().get(path)
    if found is None:
        raise no_such_path()
    group, version = found
    if computed := COMPUTED_GROUPS.get((group, version)):
        return _v3_document(computed.paths(), computed.definitions())
    served = GROUPS[group][version]
    paths = {path: item for one in served for path, item in _paths(one, v3=True).items()}
    return _v3_document(paths, {catalog.names()[group, version, one.kind.kind] for one in served})


def _v3_document(paths: Mapping[str, Any], names: set[str]) -> bytes:
    """Return a document with `paths`, the definitions called `names`, and the definitions that these reference."""
    schemas = json.dumps({name: _definitions()[name] for name in sorted(_closure(names))})
    document = {
        "openapi": "3.0.0",
        "info": _info(),
        "paths": paths,
        "components": {"schemas": json.loads(schemas.replace(REF, _V3_REF))},
    }
    return msgspec.json.encode(document)


def _definitions() -> Mapping[str, Schema]:
    return {**catalog.definitions(), **metrics_schema.definitions(), **inspect_schema.definitions()}


def _v3_paths() -> Mapping[str, tuple[str, str]]:
    stored = [(group, version) for group, versions in GROUPS.items() for version in versions]
    return {
        f"{'apis' if group else 'api'}/{api_version(group, version)}": (group, version)
        for group, version in (*stored, *(key for key, computed in COMPUTED_GROUPS.items() if computed.paths()))
    }


def _closure(names: set[str]) -> set[str]:
    found: set[str] = set()
    while names - found:
        name = (names - found).pop()
        found.add(name)
        text = json.dumps(_definitions()[name])
        names |= {part.partition('"')[0] for part in text.split(REF)[1:]}
    return found


def _v2() -> dict[str, Any]:
    every = [one for versions in GROUPS.values() for many in versions.values() for one in many]
    return {
        "swagger": "2.0",
        "info": _info(),
        "paths": {path: item for one in every for path, item in _paths(one, v3=False).items()}
        | {path: item for computed in COMPUTED_GROUPS.values() for path, item in computed.paths().items()},
        "definitions": dict(_definitions()),
    }


def _info() -> dict[str, str]:
    return {"title": "headgate", "version": headgate.__version__}


def _paths(served: ServedKind, *, v3: bool) -> dict[str, Any]:
    """Return the paths of a resource, reduced to what kubectl reads: its kind and the parameters of PATCH."""
    gvk = {_GVK: {"group": served.group, "version": served.version, "kind": served.kind.kind}}
    prefix = f"/{'apis' if served.group else 'api'}/{served.api_version}"
    scope = "/namespaces/{namespace}" if served.kind.namespaced else ""
    read = {"responses": {"200": {"description": "OK"}}, "x-kubernetes-action": "list", **gvk}
    changed = {**read, "x-kubernetes-action": "patch", "parameters": [_parameter(n, v3=v3) for n in _PATCH_PARAMETERS]}
    listing = f"{prefix}{scope}/{served.plural}"
    return {listing: {"get": read}, f"{listing}/{{name}}": {"patch": changed}}


def _parameter(name: str, *, v3: bool) -> dict[str, Any]:
    kind = "boolean" if name == "force" else "string"
    shape: dict[str, Any] = {"schema": {"type": kind}} if v3 else {"type": kind}
    return {"name": name, "in": "query", **shape}
