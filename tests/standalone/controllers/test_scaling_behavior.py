"""Stabilization windows, policies and limits of autoscalers, as Kubernetes documents them."""

from typing import Any

import msgspec
import pytest

from headgate.resources.autoscaling.horizontal_pod_autoscaler import AutoscalerSpec
from headgate.standalone.controllers.scaling_behavior import Bounded, ReplicasAt, ScalingHistory, bounded

NOW = 1_700_000_000.0
NONE = ScalingHistory()
FREE = {"stabilizationWindowSeconds": 0}


def spec(up: Any = None, down: Any = None, *, least: int = 1, most: int = 100) -> AutoscalerSpec:
    written = {
        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
        "minReplicas": least,
        "maxReplicas": most,
        "behavior": {"scaleUp": up, "scaleDown": down},
    }
    return msgspec.convert(written, AutoscalerSpec)


def policy(type: str, value: int, seconds: int = 60) -> dict[str, Any]:
    return {"type": type, "value": value, "periodSeconds": seconds}


def history(*recommendations: tuple[float, int], rescales: tuple[tuple[float, int], ...] = ()) -> ScalingHistory:
    """Return a history of numbers, each at a time in seconds before now."""
    past = [tuple(ReplicasAt(NOW - ago, number) for ago, number in row) for row in (recommendations, rescales)]
    return ScalingHistory(*past)


def test_scaling_down_waits_until_each_recommendation_of_five_minutes_is_lower() -> None:
    assert bounded(spec(), 10, 2, history((299, 8), (100, 3)), NOW).replicas == 8
    result = bounded(spec(), 10, 2, history((301, 8), (100, 3)), NOW)
    assert (result.replicas, result.stabilized and result.stabilized[0]) == (3, "ScaleDownStabilized")
    assert bounded(spec(), 10, 2, history((301, 8)), NOW) == Bounded(
        2, None, ("DesiredWithinRange", "the desired count is within the acceptable range"), is_limited=False
    )


def test_scaling_up_with_a_window_takes_the_lowest_recommendation() -> None:
    slow = spec({"stabilizationWindowSeconds": 60})
    result = bounded(slow, 2, 6, history((30, 3)), NOW)
    assert (result.replicas, result.stabilized and result.stabilized[0]) == (3, "ScaleUpStabilized")
    assert bounded(slow, 2, 6, history((60, 3)), NOW).replicas == 6


@pytest.mark.parametrize(
    ("current", "recommended", "replicas", "reason"),
    [
        (1, 50, 5, "ScaleUpLimit"),  # by default 4 pods in 15 seconds, or twice as many
        (20, 50, 40, "ScaleUpLimit"),
        (60, 200, 100, "TooManyReplicas"),
        (20, 0, 1, "TooFewReplicas"),
        (20, 7, 7, "DesiredWithinRange"),
    ],
)
def test_the_default_policies_and_the_limits(current: int, recommended: int, replicas: int, reason: str) -> None:
    result = bounded(spec(), current, recommended, NONE, NOW)
    assert (result.replicas, result.limit[0], result.is_limited) == (replicas, reason, reason != "DesiredWithinRange")


POLICIES = {"policies": [policy("Pods", 4), policy("Percent", 10)], **FREE}


@pytest.mark.parametrize(("current", "replicas"), [(80, 72), (72, 64), (40, 36), (10, 6), (6, 2), (3, 1)])
def test_policies_of_scaling_down_as_in_the_documents_of_kubernetes(current: int, replicas: int) -> None:
    """Above 40 replicas the policy of 10 % allows more, below that the policy of 4 pods."""
    assert bounded(spec(down=POLICIES), current, 0, NONE, NOW).replicas == replicas


@pytest.mark.parametrize(
    ("select", "up", "down"), [("Max", 24, 16), ("Min", 22, 18), ("Disabled", 20, 20), (None, 24, 16)]
)
def test_the_selected_policy(select: str | None, up: int, down: int) -> None:
    rules = {**POLICIES, **({"selectPolicy": select} if select else {})}
    assert bounded(spec(rules, rules), 20, 90, NONE, NOW).replicas == up
    assert bounded(spec(rules, rules), 20, 0, NONE, NOW).replicas == down


def test_a_policy_counts_the_changes_of_its_period() -> None:
    rules = {"policies": [policy("Pods", 4)], **FREE}
    before = history(rescales=((90, 9), (59, 3)))
    assert bounded(spec(rules, rules), 20, 90, before, NOW).replicas == 21
    assert bounded(spec(rules, rules), 20, 0, before, NOW).replicas == 13
    assert bounded(spec(rules, rules), 20, 90, history(rescales=((1, 4),)), NOW).replicas == 20


def test_a_history_keeps_an_hour() -> None:
    kept = history((3601, 1), (3599, 2)).recommended(ReplicasAt(NOW, 3))
    assert [change.replicas for change in kept.recommendations] == [2, 3]
    assert kept.rescaled(ReplicasAt(NOW, 1)).rescales == (ReplicasAt(NOW, 1),)
