"""The published OpenAPI documents: every kind has a schema, and every reference resolves."""

import json
import re
from typing import Any

import pytest

from headgate.api.status import ApiError
from headgate.resources.registry import BUILT_IN
from headgate.resources.schema import catalog
from headgate.standalone.apiserver import openapi

SERVED = [one for versions in BUILT_IN.groups.values() for many in versions.values() for one in many]


@pytest.mark.parametrize("one", SERVED, ids=lambda one: f"{one.api_version} {one.kind.kind}")
def test_every_kind_has_a_schema(one: Any) -> None:
    schema = catalog.schemas()[one.group, one.version, one.kind.kind]
    assert {"apiVersion", "kind", "metadata"} <= set(schema["properties"])


def test_every_reference_of_the_openapi_documents_resolves() -> None:
    swagger = json.loads(openapi.v2_json())
    for name in re.findall('"#/definitions/([^"]+)"', json.dumps(swagger)):
        assert name in swagger["definitions"]
    for path in openapi.v3_index()["paths"]:
        document = json.loads(openapi.v3_json(path))
        for name in re.findall('"#/components/schemas/([^"]+)"', json.dumps(document)):
            assert name in document["components"]["schemas"]
    with pytest.raises(ApiError):
        openapi.v3_json("apis/none/v1")


def test_the_protobuf_document_names_every_definition() -> None:
    document = openapi.v2_protobuf()
    assert document.startswith(b"\x0a\x032.0")
    for name in catalog.definitions():
        assert name.encode() in document


@pytest.mark.parametrize(
    ("group", "version", "kind"),
    [
        ("split.smi-spec.io", "v1alpha1", "TrafficSplit"),
        ("split.smi-spec.io", "v1alpha4", "TrafficSplit"),
        ("specs.smi-spec.io", "v1alpha4", "HTTPRouteGroup"),
        *(("gateway.networking.k8s.io", "v1", kind) for kind in ("GatewayClass", "Gateway", "ReferenceGrant")),
        *(("gateway.networking.k8s.io", "v1", kind) for kind in ("HTTPRoute", "GRPCRoute")),
        ("gateway.networking.k8s.io", "v1alpha2", "TCPRoute"),
        ("access.smi-spec.io", "v1alpha1", "TrafficTarget"),
        ("access.smi-spec.io", "v1alpha3", "TrafficTarget"),
        *(("specs.smi-spec.io", "v1alpha4", kind) for kind in ("HTTPRouteGroup", "TCPRoute", "UDPRoute")),
        ("headgate.dev", "v1beta1", "TLSConfig"),
        ("", "v1beta1", "TLSConfig"),
    ],
)
def test_each_field_of_a_mesh_schema_has_a_description(group: str, version: str, kind: str) -> None:
    def described(schema: Any, path: str) -> None:
        assert schema.get("description"), path
        for name, field in schema.get("properties", {}).items():
            assert field.get("description"), f"{path}.{name}"
            if name != "metadata":  # the schemas of Kubernetes' own types have no descriptions
                described(field, f"{path}.{name}")
        if "items" in schema and "properties" in schema["items"]:
            described(schema["items"], f"{path}[]")

    described(catalog.schemas()[group, version, kind], kind)


@pytest.mark.parametrize(
    ("version", "kind", "path", "text"),
    [
        ("headgate.dev/v1beta1", "Canary", "spec.backends.weight", "1 is 1000m"),
        ("headgate.dev/v1beta1", "Canary", "spec.analysis.success.maxDrop", "proven to be lower"),
        ("headgate.dev/v1beta1", "Canary", "spec.analysis.steps.pause", "promotes"),
        ("headgate.dev/v1beta1", "Canary", "status.canaryShare", "share of the requests"),
        ("access.smi-spec.io/v1alpha3", "TrafficTarget", "status.pods.sidecars", "nothing is enforced at pods"),
        ("specs.smi-spec.io/v1alpha4", "TCPRoute", "spec.matches.ports", "all when empty"),
        ("headgate.dev/v1beta1", "TLSConfig", "spec.selector", "matchLabels: {} selects all"),
        ("headgate.dev/v1beta1", "TLSConfig", "spec.subjectNames", "DNS|certificates"),
    ],
)
def test_the_document_for_kubectl_explain_describes_each_field(version: str, kind: str, path: str, text: str) -> None:
    """The tests with the real kubectl explain some fields too."""
    group, _, number = version.partition("/")
    named = {"group": group, "version": number, "kind": kind}
    schemas = json.loads(openapi.v3_json(f"apis/{version}"))["components"]["schemas"].values()
    field = next(schema for schema in schemas if named in schema.get("x-kubernetes-group-version-kind", ()))
    for name in path.split("."):
        field = field.get("items", field)["properties"][name]
    assert re.search(text, field["description"])
