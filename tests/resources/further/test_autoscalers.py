"""HorizontalPodAutoscalers keep every metric between autoscaling/v1 and autoscaling/v2."""

from typing import Any

import pytest

from headgate.resources.registry import BUILT_IN
from headgate.resources.versions import as_version, hub_of

KIND = BUILT_IN.find("autoscaling", "HorizontalPodAutoscaler")
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
PODS = {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}}


def autoscaler(version: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {"maxReplicas": 3, **spec},
    }


def test_the_target_of_v1_is_a_metric_of_v2() -> None:
    assert KIND
    assert hub_of(autoscaler("v1", targetCPUUtilizationPercentage=70), KIND) == autoscaler("v2", metrics=[CPU])
    assert hub_of(autoscaler("v1"), KIND) == autoscaler("v2")


def test_further_metrics_survive_a_change_by_a_client_of_v1() -> None:
    assert KIND
    stored = autoscaler("v2", metrics=[CPU, PODS])
    old = as_version(stored, KIND, "autoscaling", "v1")
    assert old["spec"]["targetCPUUtilizationPercentage"] == 70
    assert "metrics" not in old["spec"]
    assert hub_of(old, KIND) == stored


@pytest.mark.parametrize("name", ["metrics", "behavior", "current-metrics", "conditions"])
@pytest.mark.parametrize("text", ["[", "1", '"a"', "true", "[1]", "[" * 100_000, f'[{{"a": {"[" * 300}{"]" * 300}}}]'])
def test_an_annotation_without_the_json_of_its_field_is_kept(name: str, text: str) -> None:
    assert KIND
    annotations = {f"autoscaling.alpha.kubernetes.io/{name}": text}
    odd = {
        **autoscaler("v1", targetCPUUtilizationPercentage=70),
        "metadata": {"name": "web", "annotations": annotations},
    }
    assert hub_of(odd, KIND) == {**autoscaler("v2", metrics=[CPU]), "metadata": odd["metadata"]}


def test_the_behavior_and_the_status_survive_a_change_by_a_client_of_v1() -> None:
    assert KIND
    measured = [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40}}},
        {"type": "Pods", "pods": {"metric": {"name": "rps"}, "current": {"averageValue": "3"}}},
    ]
    conditions = [{"type": "AbleToScale", "status": "True"}]
    status = {"currentReplicas": 2, "desiredReplicas": 2, "currentMetrics": measured, "conditions": conditions}
    stored = {**autoscaler("v2", behavior={"scaleDown": {"stabilizationWindowSeconds": 0}}), "status": status}
    old = as_version(stored, KIND, "autoscaling", "v1")
    assert old["status"] == {"currentReplicas": 2, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 40}
    assert "behavior" not in old["spec"]
    assert hub_of(old, KIND) == stored
