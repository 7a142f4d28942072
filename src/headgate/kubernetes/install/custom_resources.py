"""The CustomResourceDefinitions of SMI's and headgate's kinds, generated from the schemas of the registry."""

from collections.abc import Iterable, Mapping
from typing import Any

from headgate.resources.columns import additional_printer_columns
from headgate.resources.kind import Kind
from headgate.resources.meta import Object
from headgate.resources.registry import KINDS
from headgate.resources.schema.builders import RULES
from headgate.resources.schema.catalog import schemas

CONVERSION_PATH = "/convert"
_KEPT = frozenset(
    {
        "default",
        "description",
        "enum",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "required",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
        RULES,
    }
)
_FORMATS = frozenset({"int32", "int64", "date-time", "byte"})

Schema = Mapping[str, Any]


def mesh_kinds() -> tuple[Kind, ...]:
    """Return the kinds with schemas of headgate's own. Users install the Gateway API's CustomResourceDefinitions themselves."""
    return tuple(kind for kind in KINDS if kind.is_custom and kind.schema)


def converted_kinds() -> tuple[Kind, ...]:
    """Return the kinds whose definitions name the webhook that converts objects between versions."""
    return tuple(kind for kind in mesh_kinds() if len(kind.versions) > 1)


def custom_resource_definitions(kinds: Iterable[Kind], webhook: Mapping[str, Any]) -> tuple[Object, ...]:
    """Return the CustomResourceDefinition of each kind.

    `webhook` is the `clientConfig` of the webhook that converts objects between versions.
    """
    return tuple(_definition(kind, webhook) for kind in kinds)


def without_rules(part: Any) -> Any:
    """Return a definition, or a part of it, without rules: API servers before Kubernetes 1.25 reject an applied one with rules."""
    if isinstance(part, Mapping):
        return {name: without_rules(value) for name, value in part.items() if name != RULES}
    return [without_rules(element) for element in part] if isinstance(part, list) else part


def _definition(kind: Kind, webhook: Mapping[str, Any]) -> Object:
    names: dict[str, Any] = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if kind.names.short:
        names["shortNames"] = list(kind.names.short)
    if kind.categories:
        names["categories"] = list(kind.categories)
    spec: dict[str, Any] = {
        "group": kind.group,
        "names": names,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "versions": [_version(kind, version) for version in kind.versions],
    }
    if len(kind.versions) > 1:
        reviews = {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {**webhook, "service": {**webhook["service"], "path": CONVERSION_PATH}},
        }
        spec["conversion"] = {"strategy": "Webhook", "webhook": reviews}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": spec,
    }


def _version(kind: Kind, version: str) -> Mapping[str, Any]:
    schema = _structural(schemas()[kind.group, version, kind.kind])
    schema["properties"] = {**schema["properties"], "metadata": {"type": "object"}}
    fields = {
        "name": version,
        "served": True,
        "storage": version == kind.versions[0],
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": additional_printer_columns(kind.columns, schema),
    }
    return {**fields, "subresources": {"status": {}}} if kind.status else fields


def _structural(schema: Schema) -> dict[str, Any]:
    """Return a schema in the form that CustomResourceDefinitions accept.

    CustomResourceDefinitions have no equivalent for headgate's own formats, so the webhook checks such strings. A field
    without a type accepts any value.
    """
    structural = {name: value for name, value in schema.items() if name in _KEPT}
    if schema.get("format") == "int-or-string":  # a quantity: 1 or 500m
        del structural["type"]
        structural["x-kubernetes-int-or-string"] = True
    if schema.get("format") in _FORMATS:
        structural["format"] = schema["format"]
    if "properties" in schema:
        structural["properties"] = {name: _structural(part) for name, part in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            structural[name] = _structural(schema[name])
    if "type" not in structural and not structural.get("x-kubernetes-int-or-string"):
        structural["x-kubernetes-preserve-unknown-fields"] = True
    return structural
