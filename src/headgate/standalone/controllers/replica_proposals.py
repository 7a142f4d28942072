"""The number of replicas that a metric proposes, by the algorithm of Kubernetes' HorizontalPodAutoscaler.

https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#algorithm-details

1. The ratio is the mean of the measured pods, divided by the target. Within the tolerance of 1, nothing changes.
2. A pod that was not measured counts with the whole target in a ratio below 1, and with 0 in one above. A pod that is not
   ready counts with 0 in a ratio above 1, and otherwise not at all.
3. When these pods turn the ratio, nothing changes.

All values are in thousandths.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from headgate.quantity import thousandths
from headgate.resources.core.pod_spec import Container, Pod, is_native_sidecar
from headgate.resources.meta import epoch_seconds

CPU = "cpu"
_INITIALIZATION_S = 300.0  # in which the processor time of a pod that is not ready does not count
_FIRST_READINESS_S = 30.0  # after which a pod that is not ready has been ready before


class PodSample(NamedTuple):
    """The value of a pod, in the `window_s` seconds before `time` (seconds since the epoch)."""

    value: int
    time: float = 0.0
    window_s: float = 0.0


class Scaled(NamedTuple):
    """The scale of a workload: `replicas` of its spec, `observed` of its status, and the pods that its selector selects."""

    replicas: int
    observed: int
    pods: Sequence[Pod]


class Tolerance(NamedTuple):
    """How far a ratio may be below and above 1 without a change."""

    down: Fraction = Fraction(1, 10)
    up: Fraction = Fraction(1, 10)

    def covers(self, ratio: Fraction) -> bool:
        """Return whether a ratio is near enough to 1."""
        return 1 - self.down <= ratio <= 1 + self.up


class NoProposal(Exception):
    """A metric from which no number of replicas can be computed, with the reason for the user."""


class Proposal(NamedTuple):
    """A number of replicas, with the current values: the mean of the pods, and their utilization in percent."""

    replicas: int
    average: int
    utilization: int | None = None


class Samples(NamedTuple):
    """The measured pods by name, and the time of the decision. Processor time counts only of pods that have started."""

    by_pod: Mapping[str, PodSample]
    now: float
    is_cpu: bool = False


class _Groups(NamedTuple):
    """The values of ready pods by name, and the names of pods that are not ready, and of those that were not measured."""

    values: Mapping[str, int]
    unready: Sequence[str]
    missing: Sequence[str]

    @property
    def average(self) -> int:
        """The mean of the ready pods."""
        return sum(self.values.values()) // len(self.values)


_Ratio = Callable[[Mapping[str, int]], Fraction]


def by_average(scaled: Scaled, samples: Samples, target: int, tolerance: Tolerance) -> Proposal:
    """Return the replicas with which the mean of the pods is `target`. Raises NoProposal."""
    groups = _measured(scaled, samples)

    def ratio(counted: Mapping[str, int]) -> Fraction:
        return Fraction(sum(counted.values()), len(counted) * target)

    replicas = _proposed(scaled.replicas, groups, ratio=ratio, full=lambda _: target, tolerance=tolerance)
    return Proposal(replicas, groups.average)


def by_utilization(
    scaled: Scaled, samples: Samples, target: int, tolerance: Tolerance, *, requests: Mapping[str, int]
) -> Proposal:
    """Return the replicas with which the pods use `target` percent of their requests, which are given by pod.

    Raises NoProposal.
    """
    groups = _measured(scaled, samples)

    def utilization(counted: Mapping[str, int]) -> int:
        return sum(counted.values()) * 100 // max(sum(requests[name] for name in counted), 1)

    replicas = _proposed(
        scaled.replicas,
        groups,
        ratio=lambda counted: Fraction(utilization(counted), target),
        full=lambda name: requests[name] * max(100, target) // 100,
        tolerance=tolerance,
    )
    return Proposal(replicas, groups.average, utilization(groups.values))


def by_total(scaled: Scaled, value: int, target: int, tolerance: Tolerance) -> Proposal:
    """Return the replicas for the value of an object: the ready pods, multiplied by its ratio to the target.

    Raises NoProposal if no pod exists.
    """
    ratio = Fraction(value, target)
    if scaled.replicas == 0:
        return Proposal(math.ceil(ratio), value)
    if tolerance.covers(ratio):
        return Proposal(scaled.replicas, value)
    _require_pods(scaled)
    ready = sum(pod.status.phase == "Running" and pod.ready_since is not None for pod in scaled.pods)
    return Proposal(math.ceil(ratio * ready), value)


def by_share(scaled: Scaled, value: int, target: int, tolerance: Tolerance) -> Proposal:
    """Return the replicas with which the share of each in the value of an object is `target`."""
    observed = max(scaled.observed, 1)
    stays = scaled.observed > 0 and tolerance.covers(Fraction(value, target * observed))
    return Proposal(scaled.observed if stays else math.ceil(Fraction(value, target)), -(-value // observed))


def requests(pods: Sequence[Pod], resource: str, container: str = "") -> dict[str, int]:
    """Return the requests of pods by name: of all their containers, or of one.

    Raises NoProposal for a container without a request.
    """
    return {
        pod.metadata.name: sum(_request(pod, spec, resource) for spec in counted_containers(pod, container))
        for pod in pods
    }


def counted_containers(pod: Pod, name: str = "") -> list[Container]:
    """Return the containers of a pod that run all the time, or only the one with a name."""
    sidecars = [init for init in pod.spec.init_containers if is_native_sidecar(init)]
    return [container for container in (*sidecars, *pod.spec.containers) if name in ("", container.name)]


def _request(pod: Pod, container: Container, resource: str) -> int:
    given = container.resources
    amount = ((given and given.requests) or {}).get(resource, ((given and given.limits) or {}).get(resource))
    if amount is None:
        raise NoProposal(
            f"missing request for {resource} in container {container.name} of Pod {pod.metadata.name}; "
            f"set resources.requests.{resource}, or use averageValue as the target"
        )
    return thousandths(amount)


def _measured(scaled: Scaled, samples: Samples) -> _Groups:
    """Return the groups of the pods. Raises NoProposal if no pod is ready."""
    _require_pods(scaled)
    values: dict[str, int] = {}
    unready: list[str] = []
    missing: list[str] = []
    for pod in scaled.pods:
        name = pod.metadata.name
        sample = samples.by_pod.get(name)
        if not pod.active:
            continue
        if pod.status.phase == "Pending":
            unready.append(name)
        elif sample is None:
            missing.append(name)
        elif samples.is_cpu and _is_starting(pod, sample, samples.now):
            unready.append(name)
        else:
            values[name] = sample.value
    if not values:
        raise NoProposal("did not receive metrics for targeted pods (pods might be unready)")
    return _Groups(values, unready, missing)


def _require_pods(scaled: Scaled) -> None:
    if not scaled.pods:
        raise NoProposal("no pods returned by selector while calculating replica count")


def _is_starting(pod: Pod, sample: PodSample, now: float) -> bool:
    """Return whether the processor time of a pod may be that of its start."""
    condition = next((condition for condition in pod.status.conditions if condition.type == "Ready"), None)
    if condition is None or not pod.status.start_time:
        return True
    started, changed = epoch_seconds(pod.status.start_time), epoch_seconds(condition.last_transition_time)
    unready = condition.status == "False"
    if now < started + _INITIALIZATION_S:
        return unready or sample.time < changed + sample.window_s
    return unready and changed < started + _FIRST_READINESS_S


def _proposed(
    current: int,
    groups: _Groups,
    *,
    ratio: _Ratio,
    full: Callable[[str], int],
    tolerance: Tolerance,
) -> int:
    """Return the replicas by the three steps above. `full` is the value of a pod that meets the target."""
    values = groups.values
    first = ratio(values)
    grows = first > 1
    assumed = dict.fromkeys(groups.unready, 0) if grows else {}
    if first != 1:
        assumed |= {name: 0 if grows else full(name) for name in groups.missing}
    if not assumed and not groups.missing:
        return current if tolerance.covers(first) else math.ceil(first * len(values))
    counted = {**values, **assumed}
    second = ratio(counted)
    if tolerance.covers(second) or (first < 1 < second) or (first > 1 > second):
        return current
    replicas = math.ceil(second * len(counted))
    return current if (replicas > current) != (second > 1) else replicas
