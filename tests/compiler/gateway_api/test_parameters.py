"""Parameters of Gateways from ConfigMaps: precedence over the parameters of the class, and messages about mistakes."""

import re
from typing import Any

import pytest
from tests.make import values
from tests.make.objects import Object, config_map, gateway, obj

from headgate.compiler.gateway_api.parameters import Parameters, gateway_parameters
from headgate.kinds import GATEWAY
from headgate.resources.gateway_api.gateway import Gateway
from headgate.resources.meta import Key


def parameters_map(name: str, *, labeled: bool = True, **data: str) -> Object:
    return config_map(
        name, data, namespace="shop", labels={"headgate.dev/gateway-parameters": "true"} if labeled else {}
    )


def reference(name: str, **more: str) -> dict[str, str]:
    return {"group": "", "kind": "ConfigMap", "name": name, **more}


def parameters(
    *config_maps: dict[str, Any], of_class: dict[str, str] | None = None, **infrastructure: Any
) -> tuple[Parameters, list[tuple[str, str]]]:
    """Return the parameters of a Gateway, and the fields and messages of the mistakes."""
    class_spec = {"controllerName": "headgate.dev/gateway-controller"} | (
        {"parametersRef": of_class} if of_class else {}
    )
    snapshot = values.snapshot(
        gateway("edge", class_name="edge", namespace="shop", infrastructure=infrastructure),
        obj("GatewayClass", "edge", namespace="", spec=class_spec),
        *config_maps,
    )
    edge = snapshot.objects[Key(GATEWAY, "Gateway", "shop", "edge")]
    assert isinstance(edge, Gateway)
    found, causes = gateway_parameters(snapshot, edge)
    return found, [(cause.field, cause.message) for cause in causes]


def test_a_gateway_without_references_has_the_defaults() -> None:
    assert parameters() == (Parameters(), [])


def test_the_parameters_of_a_gateway_override_those_of_its_class() -> None:
    found, mistakes = parameters(
        parameters_map("class", replicas="2", serviceType="LoadBalancer", serviceAnnotations='example.com/a: "true"'),
        parameters_map("own", replicas="3\n", resources="requests: {cpu: 0.5, memory: 64Mi}\nlimits: {cpu: 1}"),
        of_class=reference("class", namespace="shop"),
        parametersRef=reference("own"),
    )
    assert mistakes == []
    assert found == Parameters(
        replicas=3,
        service_type="LoadBalancer",
        service_annotations={"example.com/a": "true"},
        resources={"requests": {"cpu": "0.5", "memory": "64Mi"}, "limits": {"cpu": "1"}},
    )


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("replicas", "-1", "must be a whole number from 0 to 1000, not '-1'"),
        ("replicas", "1001", "must be a whole number from 0 to 1000"),
        ("serviceType", "ExternalName", "must be ClusterIP, NodePort or LoadBalancer, not 'ExternalName'"),
        (
            "serviceAnnotations",
            "example.com/internal: true",
            "the value of example.com/internal must be text, not a boolean; write it with quotes",
        ),
        ("serviceAnnotations", "a b: c", "key 'a b' must have at most 63 letters"),
        ("serviceAnnotations", "headgate.dev/gateway: a/b", "headgate sets headgate.dev/gateway itself; remove it"),
        ("serviceAnnotations", "a: b: c", "is not valid YAML"),
        ("serviceAnnotations", "[" * 4000, "is not valid YAML"),
        ("serviceAnnotations", "x" * 6000, "must have at most 5000 characters, not 6000"),
        ("resources", "cpu: 1", "unknown field `cpu`"),
        ("resources", "requests: {gpu: 1}", "requests.gpu is not a resource of a proxy; the resources are cpu, memory"),
        ("resources", "limits: {cpu: fast}", "limits.cpu: 'fast' is not a quantity"),
        ("resources", "limits: {cpu: -1}", "limits.cpu must be 0 or more, not -1"),
        ("resources", "{requests: {cpu: 2}, limits: {cpu: 1}}", "limits.cpu must be at least requests.cpu"),
        ("replica", "1", "is not a parameter; did you mean replicas?"),
        ("size", "1", "is not a parameter; the parameters are replicas, serviceType, serviceAnnotations, resources"),
    ],
)
def test_the_message_about_a_mistake_names_the_config_map_the_key_and_valid_values(
    key: str, text: str, words: str
) -> None:
    _, (mistake,) = parameters(parameters_map("own", **{key: text}), parametersRef=reference("own"))
    field, message = mistake
    assert field == "spec.infrastructure.parametersRef"
    assert message.startswith(f"ConfigMap shop/own, key {key}: ")
    assert re.search(words, message)


@pytest.mark.parametrize(
    ("ref", "labeled", "field", "words"),
    [
        (reference("none"), True, "name", 'ConfigMap shop/none with the label headgate.dev/gateway-parameters: "true"'),
        (reference("own"), False, "name", "create it, or add the label"),
        (reference("own") | {"kind": "Secret"}, True, "kind", "reads parameters from a ConfigMap, not from Secret"),
        (reference("own") | {"group": "example.com"}, True, "kind", "not from ConfigMap.example.com"),
    ],
)
def test_a_parameters_ref_to_a_missing_unlabeled_or_unsupported_object_is_invalid(
    ref: dict[str, str], field: str, words: str, *, labeled: bool
) -> None:
    _, (mistake,) = parameters(parameters_map("own", labeled=labeled), parametersRef=ref)
    assert mistake[0] == f"spec.infrastructure.parametersRef.{field}"
    assert words in mistake[1]


def test_invalid_parameters_of_a_class_are_reported_for_its_gateways() -> None:
    """A class has no namespace, so its reference must have one."""
    _, mistakes = parameters(parameters_map("own"), of_class=reference("own"), parametersRef=reference("own"))
    message = "the parameters of GatewayClass edge are not valid: spec.parametersRef.namespace: is missing"
    assert [(field, text.split(": write")[0]) for field, text in mistakes] == [("spec.gatewayClassName", message)]


@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize("key", ["headgate.dev/inject", "app.kubernetes.io/name"])
def test_labels_and_annotations_that_headgate_sets_are_rejected(field: str, key: str) -> None:
    """Otherwise another Service in headgate-system could select the pods of a Gateway."""
    _, mistakes = parameters(**{field: {key: "headgate", "example.com/team": "web"}})
    assert mistakes == [(f"spec.infrastructure.{field}.{key}", f"headgate sets {key} itself; remove it")]
