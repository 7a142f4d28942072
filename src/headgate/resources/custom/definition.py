"""CustomResourceDefinitions: their checks, and their status, which says that the kind is served."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.kinds import KindNames
from headgate.resources import cells, regexes
from headgate.resources.columns import NAME, Column
from headgate.resources.kind import Kind
from headgate.resources.meta import Key, Object, is_dns_label, is_dns_subdomain, part, rows

_DEEPEST = 60  # levels of a schema
_VERSION = re.compile(r"v(?P<major>\d+)((?P<stage>alpha|beta)(?P<minor>\d+))?")
_STAGES = {"alpha": 0, "beta": 1, None: 2}


def definition_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a CustomResourceDefinition that its schema can't express."""
    spec, name = part(obj, "spec"), part(obj, "metadata").get("name", "")
    names = part(spec, "names")
    group, plural, kind = str(spec.get("group", "")), str(names.get("plural", "")), str(names.get("kind", ""))
    if not is_dns_subdomain(group) or "." not in group:
        yield Cause(
            "spec.group", f"{group!r} is not the group of a custom resource; write a DNS name such as example.com"
        )
    if not is_dns_label(plural):
        yield Cause("spec.names.plural", f"{plural!r} is not a resource name: use lower case letters, digits and '-'")
    if not kind.isalnum() or not is_dns_label(kind.lower()):
        yield Cause("spec.names.kind", f"{kind!r} is not the name of a kind: use letters and digits, such as CronTab")
    if name != f"{plural}.{group}":
        yield Cause("metadata.name", f"must be spec.names.plural+'.'+spec.group: {plural}.{group}")
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        yield Cause("spec.scope", "must be Namespaced or Cluster")
    yield from _version_causes(spec)


def _version_causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    versions = [*rows(spec.get("versions"))]
    if len([version for _, version in versions if version.get("storage") is True]) != 1:
        yield Cause("spec.versions", "must have exactly one version with `storage: true`")
    if len({str(version.get("name")) for _, version in versions}) < len(versions):
        yield Cause("spec.versions", "has two versions with the same name")
    for index, version in versions:
        where = f"spec.versions[{index}]"
        if not is_dns_label(str(version.get("name", ""))):
            yield Cause(f"{where}.name", "must be the name of a version, such as v1 or v1beta1")
        schema = part(version, "schema").get("openAPIV3Schema")
        if not isinstance(schema, Mapping):
            yield Cause(
                f"{where}.schema.openAPIV3Schema",
                "is missing: write the schema of the version, at least `type: object`",
            )
        elif schema.get("type") != "object":
            yield Cause(f"{where}.schema.openAPIV3Schema.type", "must be object")
        else:
            yield from _schema_causes(schema, f"{where}.schema.openAPIV3Schema", 0)


def _schema_causes(schema: Mapping[str, Any], where: str, depth: int) -> Iterator[Cause]:
    """Yield the mistakes in a schema for which its objects could not be checked."""
    if depth > _DEEPEST:
        yield Cause(where, f"is nested more than {_DEEPEST} levels deep")
        return
    if (pattern := schema.get("pattern")) and (fault := regexes.fault(str(pattern))):
        yield Cause(f"{where}.pattern", fault)
    if "$ref" in schema:
        yield Cause(f"{where}.$ref", "is forbidden: write the schema itself")
    for name, inner in inner_schemas(schema):
        if isinstance(inner, Mapping):
            yield from _schema_causes(inner, f"{where}.{name}", depth + 1)
        elif not isinstance(inner, bool):
            yield Cause(f"{where}.{name}", "must be a schema")


def inner_schemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the schemas inside a schema, each with its place."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        yield from ((f"properties.{name}", inner) for name, inner in properties.items())
    for name in ("items", "additionalProperties", "not"):
        if name in schema:
            yield name, schema[name]
    for name in ("allOf", "anyOf", "oneOf"):
        yield from ((f"{name}[{index}]", inner) for index, inner in rows(schema.get(name)))


def version_order(version: str) -> tuple[object, ...]:
    """Return the sort key of a version as Kubernetes prefers them: v2, v1, v1beta1, v1alpha1, then all further ones by name."""
    parts = _VERSION.fullmatch(version)
    if parts is None:
        return (1, version)
    return (0, -_STAGES[parts["stage"]], -int(parts["major"]), -int(parts["minor"] or 0), version)


def established(obj: Object, old: Object | None, now: str) -> Object:
    """Return a definition with the status that its kind is served since its creation; `now` is the current time."""
    before = part(old or {}, "status")
    spec = part(obj, "spec")
    stored = [version["name"] for _, version in rows(spec.get("versions")) if version.get("storage")]
    earlier = [name for name in before.get("storedVersions") or () if name not in stored]
    conditions = before.get("conditions") or [
        _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
        _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", now),
    ]
    status = {"conditions": conditions, "acceptedNames": part(spec, "names"), "storedVersions": [*earlier, *stored]}
    return {**obj, "status": status}


def _condition(type: str, reason: str, message: str, now: str) -> Mapping[str, str]:
    return {"type": type, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}


def with_names(obj: Object) -> Object:
    """Return a definition with the values that an API server completes."""
    spec = part(obj, "spec")
    names = {**part(spec, "names")}
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    return {**obj, "spec": {"conversion": {"strategy": "None"}, **spec, "names": names}}


def definition_key(name: str) -> Key:
    """Return the key of a CustomResourceDefinition."""
    return KIND.key("", name)


KIND = Kind(
    KindNames(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        ("crd", "crds"),
        namespaced=False,
    ),
    checks=definition_causes,
    columns=(NAME, Column("Created At", cell=cells.at("metadata.creationTimestamp"))),
    status=True,
    categories=("api-extensions",),
)
