"""The Gateway API's kinds have the published limits, except for the listed deviations."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.make.objects import Object, external_backend, gateway, listener, route

from headgate.kinds import GATEWAY
from headgate.resources.decode import check
from headgate.resources.registry import KINDS
from headgate.resources.schema import gateway_api as gateway_schemas
from headgate.resources.schema.catalog import schemas
from headgate.resources.schema.gateway_api import gateway_api

TEXTS = Path(gateway_schemas.__file__).with_name("gateway_api_texts.json")


def filtering_route(*filters: Any) -> Object:
    return route("web", {"filters": list(filters)}, parents=[])


def listening_gateway(**fields: Any) -> Object:
    return gateway("edge", listener(**fields))


def edit(**fields: Any) -> dict[str, Any]:
    return {"type": "RequestHeaderModifier", "requestHeaderModifier": fields}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.group == GATEWAY], ids=lambda kind: kind.kind)
def test_each_version_has_the_published_spec(kind: Any) -> None:
    assert all(schemas()[GATEWAY, version, kind.kind]["properties"]["spec"]["properties"] for version in kind.versions)


def test_each_type_and_field_has_a_description_and_each_description_a_field() -> None:
    texts = msgspec.json.decode(TEXTS.read_bytes())
    definitions = {name.rpartition(".")[2]: schema for name, schema in gateway_api().items()}
    assert {*texts} - {"*", "reference"} == {*definitions}
    for name, schema in definitions.items():
        described = {field for field, part in schema["properties"].items() if part.get("description")}
        assert described == {*schema["properties"]}, name
        assert {field.partition(".")[0] for field in texts[name] if field} <= described, name
    fields = {field for schema in definitions.values() for field in schema["properties"]}
    assert {*texts["*"], *texts["reference"]} <= fields


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        (
            filtering_route(edit(set=[{"name": "a", "value": "b"}] * 17)),
            "spec.rules[0].filters[0].requestHeaderModifier.set",
        ),
        (filtering_route({"type": "Unknown"}), "spec.rules[0].filters[0].type"),
        (filtering_route(edit(remove=["a b"])), "spec.rules[0].filters[0].requestHeaderModifier.remove[0]"),
        (
            filtering_route({"type": "RequestRedirect", "requestRedirect": {"hostname": "1.2.3.4"}}),
            "spec.rules[0].filters[0].requestRedirect.hostname",
        ),
    ],
    ids=["published", "types", "header names", "no addresses"],
)
def test_objects_outside_the_published_limits_are_rejected(obj: dict[str, Any], field: str) -> None:
    assert [cause.field for cause in check(obj).causes] == [field]


@pytest.mark.parametrize(
    "obj",
    [
        listening_gateway(allowedRoutes={"namespaces": {"from": "None"}}),
        listening_gateway(
            protocol="HTTPS",
            tls={"certificateRefs": [{"name": "cert"}], "frontendValidation": {"caCertificateRefs": []}},
        ),
    ],
    ids=["a listener without routes", "frontendValidation of v1.3"],
)
def test_listed_deviations_are_accepted(obj: dict[str, Any]) -> None:
    assert check(obj).causes == ()


def trusting(**validation: Any) -> Object:
    return external_backend(
        "out", "a.example", tls={"mode": "ServerOnly", "validation": {"hostname": "a.example", **validation}}
    )


@pytest.mark.parametrize(
    ("obj", "field", "words"),
    [
        (
            filtering_route({"type": "CORS", "cors": {"allowOrigins": ["https://a.example/"]}}),
            "filters[0].cors.allowOrigins[0]",
            "'https://a.example/' is not an origin; write for example https://shop.example,",
        ),
        (
            filtering_route(
                {
                    "type": "ExternalAuth",
                    "externalAuth": {
                        "protocol": "HTTP",
                        "backendRef": {"name": "auth", "port": 80},
                        "http": {"path": "/a b"},
                    },
                }
            ),
            ".externalAuth.http.path",
            "'/a b' is not the path of a URL;",
        ),
        (listening_gateway(protocol="a b"), "spec.listeners[0].protocol", "'a b' is not a protocol; write HTTP,"),
        (trusting(wellKnownCACertificates="All"), ".wellKnownCACertificates", "write System"),
        (
            trusting(wellKnownCACertificates="System", subjectAltNames=[{"type": "URI", "uri": "web"}]),
            ".subjectAltNames[0].uri",
            "'web' is not a URI; write for example spiffe://",
        ),
    ],
    ids=["origin", "path", "protocol", "CAs", "URI"],
)
def test_a_text_with_a_mistake_has_a_message_without_the_published_pattern(obj: Object, field: str, words: str) -> None:
    (cause,) = check(obj).causes
    assert cause.field.endswith(field)
    assert words in cause.message
    assert "^" not in cause.message


def test_lists_are_merged_by_their_published_keys() -> None:
    spec = schemas()[GATEWAY, "v1", "HTTPRoute"]["properties"]["spec"]["properties"]
    rule = spec["rules"]["items"]["properties"]
    match = rule["matches"]["items"]["properties"]
    keys = {name: match[name].get("x-kubernetes-list-map-keys") for name in ("headers", "queryParams")}
    assert keys == {"headers": ["name"], "queryParams": ["name"]}
    assert rule["matches"]["x-kubernetes-list-type"] == "atomic"
