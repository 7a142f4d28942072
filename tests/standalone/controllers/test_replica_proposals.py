"""The number of replicas that a metric proposes, by the algorithm that Kubernetes documents."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
from tests.make.objects import container, pod

from headgate.resources.core.pod_spec import Pod
from headgate.resources.decode import read
from headgate.resources.meta import timestamp
from headgate.standalone.controllers.replica_proposals import (
    NoProposal,
    PodSample,
    Samples,
    Scaled,
    Tolerance,
    by_average,
    by_share,
    by_total,
    by_utilization,
    requests,
)

NOW = 1_700_000_000.0
NAMES = ("a", "b", "c", "d")


def running(name: str, *, ready: bool = True, age: float = 3600, ready_for: float = 1800, **more: Any) -> Pod:
    """Return a pod that started `age` seconds ago and has its readiness since `ready_for` seconds."""
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": timestamp(NOW - ready_for)}
    status = {"phase": "Running", "startTime": timestamp(NOW - age), "conditions": [condition], **more}
    limited = container(resources={"requests": {"cpu": "1", "memory": "1k"}})
    return read(pod(name, containers=[limited], status=status), Pod)


def scaled(*pods: Pod) -> Scaled:
    return Scaled(len(pods), len(pods), pods)


def replicas(values: Sequence[int], target: int, **more: Any) -> int:
    """Return the proposed replicas for pods with values."""
    pods = [running(name) for name in NAMES[: len(values)]]
    return by_average(scaled(*pods), samples(dict(zip(NAMES, values, strict=False))), target, **more).replicas


def samples(values: Mapping[str, int], *, is_cpu: bool = False, window: float = 5) -> Samples:
    return Samples({name: PodSample(value, NOW, window) for name, value in values.items()}, NOW, is_cpu)


DEFAULT = Tolerance()


@pytest.mark.parametrize(
    ("values", "target", "proposed"),
    [
        ([200], 100, 2),  # the examples of Kubernetes' documents: twice the target doubles the replicas,
        ([50, 50], 100, 1),  # and half of the target halves them
        ([110, 110], 100, 2),  # within the tolerance
        ([111, 111], 100, 3),
        ([90, 90], 100, 2),
        ([101, 0, 0], 100, 2),  # rounded up
        ([0, 0, 0], 100, 0),
    ],
)
def test_the_replicas_are_multiplied_by_the_ratio_of_the_mean_to_the_target(
    values: list[int], target: int, proposed: int
) -> None:
    assert replicas(values, target, tolerance=DEFAULT) == proposed


def test_a_tolerance_has_two_directions() -> None:
    wide = Tolerance(down=Fraction(1, 2), up=Fraction(0))
    assert replicas([60, 60], 100, tolerance=wide) == 2
    assert replicas([101, 101], 100, tolerance=wide) == 3


@pytest.mark.parametrize(
    ("value", "proposed"),
    [
        (50, 2),  # down: 50 and 100 for the pod without a value are within 1 1/2 of two pods
        (10, 2),  # (10 + 100) / 2 / 100 = 0.55: ceil(1.1) replicas
        (90, 2),
        (150, 2),  # up: 150 and 0 turn the ratio to 0.75
        (300, 3),  # (300 + 0) / 2 / 100 = 1.5: three replicas
    ],
)
def test_a_pod_without_a_value_slows_scaling_in_both_directions(value: int, proposed: int) -> None:
    pods = scaled(running("a"), running("b"))
    assert by_average(pods, samples({"a": value}), 100, DEFAULT).replicas == proposed


def test_a_pod_that_is_not_ready_counts_with_0_when_scaling_up_and_not_at_all_otherwise() -> None:
    starting = running("b", ready=False, age=10, ready_for=10)
    values = {"a": 300, "b": 900}
    assert by_average(scaled(running("a"), starting), samples(values, is_cpu=True), 100, DEFAULT).replicas == 3
    values = {"a": 40, "b": 900}
    assert by_average(scaled(running("a"), starting), samples(values, is_cpu=True), 100, DEFAULT).replicas == 1
    pending = running("b", phase="Pending")
    assert by_average(scaled(running("a"), pending), samples({"a": 300}), 100, DEFAULT).replicas == 3


@pytest.mark.parametrize(
    ("starting", "counts"),
    [
        (running("b", age=200, ready_for=100), True),  # ready, with a whole window since then
        (running("b", age=200, ready_for=4), False),  # its window began before it was ready
        (running("b", ready=False, age=200, ready_for=100), False),
        (running("b", ready=False, age=3600, ready_for=100), True),  # it was ready before
        (running("b", ready=False, age=3600, ready_for=3590), False),  # it has never been ready
        (running("b", conditions=[]), False),
    ],
)
def test_processor_time_counts_of_pods_that_have_started(starting: Pod, *, counts: bool) -> None:
    mean = by_average(scaled(running("a"), starting), samples({"a": 100, "b": 300}, is_cpu=True), 100, DEFAULT).average
    assert mean == (200 if counts else 100)
    memory = by_average(scaled(running("a"), starting), samples({"a": 100, "b": 300}), 100, DEFAULT).average
    assert memory == 200


def test_ended_pods_and_pods_that_end_do_not_count() -> None:
    pods = scaled(running("a"), running("b", phase="Failed"), running("c", phase="Succeeded"))
    assert by_average(pods, samples({"a": 100}), 100, DEFAULT).replicas == 3  # within the tolerance: unchanged


def test_utilization_is_a_whole_percentage_of_all_requests() -> None:
    pods = scaled(running("a"), running("b"))
    asked = requests(pods.pods, "cpu")
    assert asked == {"a": 1000, "b": 1000}
    proposal = by_utilization(pods, samples({"a": 1500, "b": 509}), 50, DEFAULT, requests=asked)
    assert (proposal.utilization, proposal.average, proposal.replicas) == (100, 1004, 4)
    # A pod without a value counts with all of its request: (0 + 1000) / 2000 is 50 %.
    assert by_utilization(pods, samples({"a": 0}), 50, DEFAULT, requests=asked).replicas == 2


def test_a_container_without_a_request_is_named() -> None:
    bare = read(pod("web-1", containers=[container("app")]), Pod)
    with pytest.raises(NoProposal, match="missing request for cpu in container app of Pod web-1; set resources"):
        requests([bare], "cpu")
    limited = read(pod("web-1", containers=[container("app", resources={"limits": {"cpu": "200m"}})]), Pod)
    assert requests([limited], "cpu") == {"web-1": 200}


@pytest.mark.parametrize(
    ("pods", "reason"),
    [((), "no pods returned by selector"), ((running("a"),), "did not receive metrics for targeted pods")],
)
def test_without_values_there_is_no_proposal(pods: Sequence[Pod], reason: str) -> None:
    with pytest.raises(NoProposal, match=reason):
        by_average(scaled(*pods), samples({}), 100, DEFAULT)


def test_the_value_of_an_object_multiplies_the_ready_pods() -> None:
    pods = scaled(running("a"), running("b"), running("c", ready=False))
    assert by_total(pods, 300, 100, DEFAULT).replicas == 6
    assert by_total(pods, 105, 100, DEFAULT).replicas == 3
    assert by_total(Scaled(0, 0, ()), 250, 100, DEFAULT).replicas == 3


def test_the_value_of_an_object_without_pods_proposes_nothing() -> None:
    with pytest.raises(NoProposal, match="no pods returned by selector"):
        by_total(Scaled(2, 0, ()), 250, 100, DEFAULT)


def test_the_average_of_an_object_is_its_value_for_each_replica() -> None:
    pods = scaled(running("a"), running("b"))
    assert by_share(pods, 1000, 100, DEFAULT) == (10, 500, None)
    assert by_share(pods, 210, 100, DEFAULT).replicas == 2
    assert by_share(Scaled(1, 0, ()), 210, 100, DEFAULT).replicas == 3
