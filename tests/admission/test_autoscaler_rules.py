"""Mistakes in HorizontalPodAutoscalers that their schema can't express."""

from typing import Any

import pytest
from tests.make.objects import obj

from headgate.admission.autoscaler_rules import autoscaler_causes
from headgate.admission.chain import object_check
from headgate.settings import Settings


def causes(**spec: Any) -> list[str]:
    written = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3, **spec}
    return [str(cause) for cause in autoscaler_causes(obj("HorizontalPodAutoscaler", "web", version="x", spec=written))]


def resource(type: str = "AverageValue", **target: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "target": {"type": type, **target}}}


QUEUE = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "30"}}
EXTERNAL = {"type": "External", "external": QUEUE}


def test_a_valid_autoscaler_has_no_causes() -> None:
    custom = {"metric": {"name": "requests_per_second"}, "target": {"type": "AverageValue", "averageValue": "1500m"}}
    policies = [{"type": "Pods", "value": 1, "periodSeconds": 15}]
    rules = {"policies": policies, "selectPolicy": "Min", "tolerance": "0"}
    assert not causes(
        metrics=[resource("Utilization", averageUtilization=70), {"type": "Pods", "pods": custom}, EXTERNAL],
        behavior={"scaleUp": rules, "scaleDown": {"stabilizationWindowSeconds": 3600}},
    )


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"maxReplicas": 0}, "spec.maxReplicas: must be 1 or more"),
        ({"minReplicas": 0}, "spec.minReplicas: must be 1 or more"),
        ({"minReplicas": 4}, "spec.maxReplicas: must be at least spec.minReplicas (4)"),
        ({"metrics": [{"type": "Pod"}]}, "spec.metrics[0].type: must be one of Resource, "),
        (
            {"metrics": [{"type": "External", "external": {**QUEUE, "a": ["\x1b"]}}]},
            "spec.metrics[0].external.a[0]: must not",
        ),
        ({"metrics": [{"type": "Pods"}]}, "spec.metrics[0].pods: is missing: the type of the metric is Pods"),
        ({"metrics": [resource(value="1")]}, "spec.metrics[0].resource.target: must have exactly one of the fields"),
        ({"metrics": [resource(averageValue="0")]}, "spec.metrics[0].resource.target.averageValue: must be above 0"),
        ({"metrics": [resource(averageValue="x")]}, "spec.metrics[0].resource.target.averageValue: 'x' is not a"),
        (
            {"metrics": [resource(averageValue="1", averageUtilization=1)]},
            "spec.metrics[0].resource.target: must have exactly one of the fields",
        ),
        (
            {"metrics": [resource(averageValue="1", value="1")]},
            "spec.metrics[0].resource.target: must have exactly one of the fields",
        ),
        (
            {"metrics": [resource("Utilization", averageValue="1")]},
            "spec.metrics[0].resource.target.type: must be AverageValue, because averageValue is set, not 'Utilization'",
        ),
        ({"metrics": [{"type": "External"}]}, "spec.metrics[0].external: is missing: the type of the metric is"),
        (
            {"metrics": [{**EXTERNAL, **resource(averageValue="1"), "type": "External"}]},
            "spec.metrics[0].resource: must not be set: the type of the metric is External",
        ),
        ({"scaleTargetRef": {"kind": "Deployment", "name": ""}}, "spec.scaleTargetRef.name: must be a name without /"),
        ({"scaleTargetRef": {"kind": "Deployment", "name": "a/b"}}, "spec.scaleTargetRef.name: must be a name without"),
        ({"behavior": {"scaleUp": {"tolerance": "-1m"}}}, "spec.behavior.scaleUp.tolerance: must be 0 or more"),
        ({"behavior": {"scaleUp": {"tolerance": "x"}}}, "spec.behavior.scaleUp.tolerance: 'x' is not a quantity"),
        ({"behavior": {"scaleDown": {"policies": []}}}, "spec.behavior.scaleDown.policies: must have at least one"),
        (
            {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601}}},
            "spec.behavior.scaleUp.stabilizationWindowSeconds: must be from 0 to 3600",
        ),
        ({"behavior": {"scaleDown": {"selectPolicy": "No"}}}, "spec.behavior.scaleDown.selectPolicy: must be Max"),
        (
            {"behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 0, "periodSeconds": 15}]}}},
            "spec.behavior.scaleDown.policies[0].value: must be above 0",
        ),
        (
            {"behavior": {"scaleDown": {"policies": [{"type": "Pod", "value": 1, "periodSeconds": 15}]}}},
            "spec.behavior.scaleDown.policies[0].type: must be Pods or Percent, not 'Pod'",
        ),
        (
            {"behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1801}]}}},
            "spec.behavior.scaleDown.policies[0].periodSeconds: must be from 1 to 1800",
        ),
    ],
)
def test_a_mistake_is_named_with_its_field(spec: dict[str, Any], cause: str) -> None:
    (message,) = causes(**spec)
    assert message.startswith(cause)


@pytest.mark.parametrize("metrics", [{}, {"metrics": None}, {"metrics": []}])
def test_the_default_metric_is_the_utilization_of_cpu(metrics: dict[str, Any]) -> None:
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 3,
        **metrics,
    }
    checked = object_check(Settings())(obj("HorizontalPodAutoscaler", "web", version="autoscaling/v2", spec=spec))
    assert checked.hub
    assert checked.hub["spec"]["metrics"] == [resource("Utilization", averageUtilization=80)]
