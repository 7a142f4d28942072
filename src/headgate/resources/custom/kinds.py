"""The kinds that CustomResourceDefinitions define."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.kinds import KindNames
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.custom import json_path
from headgate.resources.custom.definition import version_order
from headgate.resources.custom.structural import value_causes
from headgate.resources.foreign_meshes import foreign_hint
from headgate.resources.kind import Kind, api_version, split_api_version
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Object, part, rows
from headgate.resources.registry import BUILT_IN
from headgate.resources.schema.builders import META, REF, Schema

_TEXT = {"type": "string"}
_IDENTITY: Mapping[str, Schema] = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    "metadata": {"$ref": f"{REF}{META}ObjectMeta"},
}
_SCALE_PATHS = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def with_definitions(definitions: Iterable[Object]) -> KindSet:
    """Return the built-in kinds and those of CustomResourceDefinitions, which are valid and in hub version.

    A definition of a built-in kind, such as one of the Gateway API, adds nothing.
    """
    by_name = {str(obj["metadata"]["name"]): _essence(obj) for obj in definitions}
    in_order = [by_name[name] for name in sorted(by_name)]
    new = [obj for obj in in_order if not _is_built_in(part(obj, "spec"))]
    return KindSet((*BUILT_IN.kinds, *map(defined_kind, new)), new) if new else BUILT_IN


def _essence(definition: Object) -> Object:
    """Return the part of a definition that decides about the kind: sets of equal definitions are equal."""
    return {"metadata": {"name": definition["metadata"]["name"]}, "spec": definition["spec"]}


def _is_built_in(spec: Mapping[str, Any]) -> bool:
    names, group = part(spec, "names"), spec["group"]
    plurals = {kind.plural for kind in BUILT_IN.kinds if kind.group == group}
    return BUILT_IN.find(group, names["kind"]) is not None or names["plural"] in plurals


def defined_kind(definition: Object) -> Kind:
    """Return the kind of a definition."""
    spec, name = definition["spec"], definition["metadata"]["name"]
    names, group = spec["names"], spec["group"]
    rows_of = {row["name"]: row for _, row in rows(spec["versions"]) if row.get("served")}
    versions = tuple(sorted(rows_of, key=version_order)) or tuple(row["name"] for _, row in rows(spec["versions"]))
    schemas = {version: _schema(rows_of.get(version, {})) for version in versions}
    subresources = part(rows_of.get(versions[0], {}), "subresources")
    scale = part(subresources, "scale")
    scales = bool(scale) and all(scale.get(field) == path for field, path in _SCALE_PATHS.items())

    def schema(_: str, version: str) -> Schema:
        return schemas[version]

    def checks(obj: Object) -> Iterator[Cause]:
        _, version = split_api_version(obj["apiVersion"])
        content = {field: value for field, value in obj.items() if field not in _IDENTITY}
        yield from value_causes(content, schemas[version])

    return Kind(
        KindNames(
            group, names["kind"], names["plural"], tuple(names.get("shortNames") or ()), spec["scope"] == "Namespaced"
        ),
        versions=versions,
        schema=schema,
        checks=checks,
        columns=_columns(rows_of.get(versions[0], {})),
        status="status" in subresources,
        subresources=("scale",) if scales else (),
        categories=tuple(names.get("categories") or ()),
        selectable=frozenset(
            str(row.get("jsonPath", "")).removeprefix(".")
            for _, row in rows(rows_of.get(versions[0], {}).get("selectableFields"))
        ),
        definition=name,
        without_effect=f"{names['plural']} of {api_version(group, versions[0])} are stored without effect"
        + (f"; {hint}" if (hint := foreign_hint(group)) else ""),
    )


def _schema(version: Mapping[str, Any]) -> Schema:
    """Return the schema of a version, with what the schemas of all objects have."""
    schema = _typed(part(part(version, "schema"), "openAPIV3Schema"))
    properties = {**part(schema, "properties")}
    status = {} if "status" in properties else {"status": {"x-kubernetes-preserve-unknown-fields": True}}
    if "status" not in part(version, "subresources"):
        status = {}
    fields = {**properties, **status, **_IDENTITY} if properties else {}
    return {**schema, "type": "object", **({"properties": fields} if fields else {})}


def _typed(schema: Schema) -> Schema:
    """Return a schema in which a number or text has a type, as in the schemas of Kubernetes' own kinds."""
    typed = dict(schema)
    if schema.get("x-kubernetes-int-or-string"):
        typed |= {"type": "string", "format": "int-or-string"}
    if isinstance(schema.get("properties"), Mapping):
        typed["properties"] = {name: _typed(inner) for name, inner in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            typed[name] = _typed(schema[name])
    if schema.get("additionalProperties") is True:
        typed["additionalProperties"] = {}
    elif schema.get("additionalProperties") is False:
        del typed["additionalProperties"]
    return typed


def _columns(version: Mapping[str, Any]) -> tuple[Column, ...]:
    written = [
        Column(
            str(row.get("name", "")),
            description=str(row.get("description", "")),
            type=str(row.get("type", "string")),
            wide=bool(row.get("priority")),
            cell=json_path.cell(str(row.get("jsonPath", "")), is_date=row.get("type") == "date"),
            format=str(row.get("format", "")),
        )
        for _, row in rows(version.get("additionalPrinterColumns"))
    ]
    return (NAME, *(written or (AGE,)))
