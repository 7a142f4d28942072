"""Write the schemas of Kubernetes' kinds, from a kube-apiserver's OpenAPI document, to resources/schema/core.json.

The written schemas have field names, types, required fields and list keys, but no descriptions.

    curl -sk -H "Authorization: Bearer $TOKEN" https://127.0.0.1:6443/openapi/v2 > v2.json
    python tools/core_schemas.py v2.json
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src/headgate/resources/schema/core.json"
CORE = "io.k8s.api.core.v1."
SLICE = "io.k8s.api.discovery.v1beta1."
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
ROOTS = (
    *(
        CORE + kind
        for kind in ("Namespace", "Node", "Service", "Pod", "ServiceAccount", "Secret", "ConfigMap", "Event")
    ),
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.apps.v1.ReplicaSet",
    "io.k8s.api.autoscaling.v1.Scale",
    SLICE + "EndpointSlice",
    META + "Status",
)
KEEP = {
    "type",
    "format",
    "required",
    "$ref",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
}


def text() -> dict[str, Any]:
    """Return the schema of a string."""
    return {"type": "string"}


def number() -> dict[str, Any]:
    """Return the schema of a 32-bit integer."""
    return {"type": "integer", "format": "int32"}


def texts() -> dict[str, Any]:
    """Return the schema of a list of strings."""
    return {"type": "array", "items": text()}


def record(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these fields."""
    return {"type": "object", "properties": properties}


def records(key: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of a list of objects with the merge key `key`."""
    return {
        "type": "array",
        "items": {**record(**{key: text()}, **properties), "required": [key]},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        "x-kubernetes-patch-merge-key": key,
        "x-kubernetes-patch-strategy": "merge",
    }


TCP = {**text(), "default": "TCP"}  # `protocol`, a key of the list of ports; ports without a protocol use TCP
# Objects that server-side apply treats as one value; OpenAPI documents mark these since Kubernetes 1.21.
ATOMIC = (
    *(CORE + part for part in ("LocalObjectReference", "ObjectReference", "TypedLocalObjectReference")),
    *(CORE + part for part in ("ConfigMapKeySelector", "SecretKeySelector", "ObjectFieldSelector")),
    *(CORE + part for part in ("ResourceFieldSelector", "NodeSelector", "NodeSelectorTerm")),
)
# Fields of releases after Kubernetes 1.20. Current manifests use them, and strict validation must accept these.
NEWER: dict[str, dict[str, Any]] = {
    CORE + "ServiceSpec": {
        "internalTrafficPolicy": text(),
        "loadBalancerClass": text(),
        "trafficDistribution": text(),
        "ipFamilyPolicy": text(),
        "selector": {"type": "object", "additionalProperties": text(), "x-kubernetes-map-type": "atomic"},
    },
    CORE + "ServicePort": {"protocol": TCP},
    CORE + "ContainerPort": {"protocol": TCP},
    META + "ManagedFieldsEntry": {"subresource": text()},
    CORE + "Container": {
        "restartPolicy": text(),
        "resizePolicy": {"type": "array", "items": record(resourceName=text(), restartPolicy=text())},
    },
    CORE + "Probe": {
        "grpc": {**record(port=number(), service=text()), "required": ["port"]},
        "terminationGracePeriodSeconds": {"type": "integer", "format": "int64"},
    },
    CORE + "ResourceRequirements": {"claims": records("name", request=text())},
    CORE + "SecurityContext": {"appArmorProfile": record(type=text(), localhostProfile=text())},
    CORE + "PodSecurityContext": {
        "appArmorProfile": record(type=text(), localhostProfile=text()),
        "supplementalGroupsPolicy": text(),
    },
    CORE + "PodSpec": {
        "os": {**record(name=text()), "required": ["name"]},
        "hostUsers": {"type": "boolean"},
        "schedulingGates": records("name"),
        "resourceClaims": records("name", resourceClaimName=text(), resourceClaimTemplateName=text()),
    },
    CORE + "PodStatus": {"hostIPs": {"type": "array", "items": record(ip=text())}, "resize": text()},
    CORE + "PodCondition": {"observedGeneration": {"type": "integer", "format": "int64"}},
    CORE + "PodAffinityTerm": {
        "namespaceSelector": {"$ref": f"#/definitions/{META}LabelSelector"},
        "matchLabelKeys": texts(),
        "mismatchLabelKeys": texts(),
    },
    CORE + "TopologySpreadConstraint": {
        "minDomains": number(),
        "matchLabelKeys": texts(),
        "nodeAffinityPolicy": text(),
        "nodeTaintsPolicy": text(),
    },
    "io.k8s.api.apps.v1.DeploymentStatus": {"terminatingReplicas": number()},
    "io.k8s.api.apps.v1.ReplicaSetStatus": {"terminatingReplicas": number()},
}


def references(schema: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to."""
    if isinstance(schema, dict):
        if isinstance(ref := schema.get("$ref"), str):
            yield ref.rpartition("/")[2]
        for part in schema.values():
            yield from references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from references(part)


def closure(definitions: Mapping[str, Any]) -> list[str]:
    """Return the names of the definitions of all kinds, and of the definitions that these refer to."""
    found: dict[str, None] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = None
            waiting.extend(references(definitions[name]))
    return sorted(found)


def facts(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without descriptions."""
    kept: dict[str, Any] = {key: value for key, value in schema.items() if key in KEEP}
    if "properties" in schema:
        kept["properties"] = {name: facts(part) for name, part in schema["properties"].items()}
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            kept[part] = facts(schema[part])
    return kept


def slice_v1(definitions: dict[str, Any]) -> dict[str, Any]:
    """Derive EndpointSlice v1 from v1beta1: `topology` became `deprecatedTopology`; `zone` and `hints` are new."""
    old, new = SLICE, "io.k8s.api.discovery.v1."
    derived = {
        new + name: json.loads(json.dumps(definitions[old + name]).replace(old, new))
        for name in ("EndpointSlice", "Endpoint", "EndpointConditions", "EndpointPort")
    }
    derived[new + "EndpointSlice"]["x-kubernetes-group-version-kind"][0]["version"] = "v1"
    fields = derived[new + "Endpoint"]["properties"]
    fields["deprecatedTopology"] = fields.pop("topology")
    fields["zone"] = text()
    zones = {"type": "array", "items": {**record(name=text()), "required": ["name"]}}
    fields["hints"] = definitions[old + "Endpoint"]["properties"]["hints"] = record(forZones=zones, forNodes=zones)
    for group in (derived[new + "EndpointConditions"], definitions[old + "EndpointConditions"]):
        group["properties"].update(serving={"type": "boolean"}, terminating={"type": "boolean"})
    return derived


def main() -> int:
    """Read the OpenAPI document; write the schemas."""
    published = json.loads(Path(sys.argv[1]).read_text())["definitions"]
    definitions = {name: facts(published[name]) for name in closure(published)}
    for name, fields in NEWER.items():
        definitions[name]["properties"] |= fields
    for name in ATOMIC:
        definitions[name]["x-kubernetes-map-type"] = "atomic"
    definitions |= slice_v1(definitions)
    definitions[QUANTITY]["format"] = "int-or-string"  # the document says string, but a number is valid too
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(definitions, sort_keys=True, separators=(",", ":")) + "\n")
    print(f"{TARGET.name}: {len(definitions)} definitions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
