"""Mistakes in HorizontalPodAutoscalers that their schema can't express."""

from typing import Any

import pytest
from tests.make.objects import obj

from headgate.admission.autoscaler_rules import autoscaler_causes


def causes(**spec: Any) -> list[str]:
    written = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3, **spec}
    return [str(cause) for cause in autoscaler_causes(obj("HorizontalPodAutoscaler", "web", version="x", spec=written))]


def resource(**target: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def test_a_valid_autoscaler_has_no_causes() -> None:
    custom = {"metric": {"name": "requests_per_second"}, "target": {"averageValue": "1500m"}}
    rules = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}], "selectPolicy": "Min"}
    assert not causes(
        metrics=[resource(averageUtilization=70), {"type": "Pods", "pods": custom}, {"type": "External"}],
        behavior={"scaleUp": rules, "scaleDown": {"stabilizationWindowSeconds": 3600}},
    )


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"maxReplicas": 0}, "spec.maxReplicas: must be 1 or more"),
        ({"minReplicas": 0}, "spec.minReplicas: must be 1 or more"),
        ({"minReplicas": 4}, "spec.maxReplicas: must be at least spec.minReplicas (4)"),
        ({"metrics": [{"type": "Pod"}]}, "spec.metrics[0].type: must be Resource, "),
        ({"metrics": [{"type": "External", "external": {"a": ["\x1b"]}}]}, "spec.metrics[0].external.a[0]: must not"),
        ({"metrics": [{"type": "Pods"}]}, "spec.metrics[0].pods: is missing: the type of the metric is Pods"),
        ({"metrics": [resource(value="1")]}, "spec.metrics[0].resource.target: must have exactly one of the fields"),
        ({"metrics": [resource(averageValue="0")]}, "spec.metrics[0].resource.target.averageValue: must be above 0"),
        ({"metrics": [resource(averageValue="x")]}, "spec.metrics[0].resource.target.averageValue: 'x' is not a"),
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
