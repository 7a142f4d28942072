"""The decision of a HorizontalPodAutoscaler: the replicas of its target, its status and its Events, as in Kubernetes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from headgate.resources.autoscaling.horizontal_pod_autoscaler import AutoscalerSpec, HorizontalPodAutoscaler
from headgate.resources.core.pod_spec import Condition
from headgate.resources.meta import Object, timestamp
from headgate.standalone.controllers.actions import Action, Announce, TypedObject, with_status
from headgate.standalone.controllers.replica_proposals import Scaled
from headgate.standalone.controllers.scaling_behavior import ReplicasAt, ScalingHistory, bounded

_Fact: TypeAlias = tuple[str, str, str]
"""A condition's status, reason and message."""
_GOT_SCALE = "True", "SucceededGetScale", "the HPA controller was able to get the target's current scale"
_READY = "True", "ReadyForNewScale", "recommended size matches current size"
_DISABLED = "False", "ScalingDisabled", "scaling is disabled since the replica count of the target is zero"


class Measured(NamedTuple):
    """A metric that proposes `replicas`. `name` is that in messages, `current` an item of `status.currentMetrics`."""

    name: str
    replicas: int
    current: Object


class Unmeasured(NamedTuple):
    """A metric without a value, with the reason and the message for the user."""

    reason: str
    message: str


Outcome: TypeAlias = Measured | Unmeasured


class ScalingDecision(NamedTuple):
    """The replicas of the target, what to write and record about the autoscaler, and its history from now on."""

    replicas: int
    actions: Sequence[Action]
    history: ScalingHistory


class _Choice(NamedTuple):
    """The replicas by the metrics, the conditions about them, and the reason for a change. `by_metrics` is None without metrics."""

    replicas: int
    facts: Mapping[str, _Fact]
    reason: str = ""
    recommended: int | None = None


def needs_metrics(spec: AutoscalerSpec, replicas: int) -> bool:
    """Return whether metrics decide; else the target is disabled, or outside the least and most replicas."""
    return spec.min_replicas <= replicas <= spec.max_replicas


def plan_autoscaler(
    subject: TypedObject[HorizontalPodAutoscaler],
    scaled: Scaled,
    outcomes: Sequence[Outcome],
    history: ScalingHistory,
    *,
    now: float,
) -> ScalingDecision:
    """Return the decision about the target of an autoscaler.

    `outcomes` has one for each metric of the spec, or none if no metrics are needed. `now` is in seconds since the epoch.
    """
    autoscaler, typed = subject
    if not history.recommendations:  # after a start of headgate, the first window keeps the replicas
        history = history.recommended(ReplicasAt(now, scaled.replicas))
    choice = _chosen(typed.spec, scaled.replicas, outcomes, history, now=now)
    if choice.recommended is not None:
        history = history.recommended(ReplicasAt(now, choice.recommended))
    facts = {"AbleToScale": _GOT_SCALE, **choice.facts}
    actions: list[Action] = [Announce(autoscaler, "Warning", *failure, once=True) for failure in _failures(outcomes)]
    status: dict[str, Any] = {"desiredReplicas": choice.replicas}
    if choice.replicas != scaled.replicas:
        history = history.rescaled(ReplicasAt(now, choice.replicas - scaled.replicas))
        done = f"the HPA controller was able to update the target scale to {choice.replicas}"
        facts["AbleToScale"] = "True", "SucceededRescale", done
        message = f"New size: {choice.replicas}; reason: {choice.reason}"
        actions.append(Announce(autoscaler, "Normal", "SuccessfulRescale", message))
        status["lastScaleTime"] = timestamp(now)
    status["currentReplicas"] = scaled.replicas
    status["currentMetrics"] = [
        outcome.current if isinstance(outcome, Measured) else {"type": ""} for outcome in outcomes
    ]
    return ScalingDecision(choice.replicas, [*actions, *_written(subject, status, facts, now=now)], history)


def plan_unscaled(
    subject: TypedObject[HorizontalPodAutoscaler], type: str, reason: str, message: str, *, now: float
) -> list[Action]:
    """Return the actions for an autoscaler that can't scale its target: the condition `type` is False, with an Event."""
    fact = "False", reason, message
    return [
        Announce(subject.object, "Warning", reason, message, once=True),
        *_written(subject, {}, {type: fact}, now=now),
    ]


def _chosen(
    spec: AutoscalerSpec, current: int, outcomes: Sequence[Outcome], history: ScalingHistory, *, now: float
) -> _Choice:
    if current == 0 and spec.min_replicas != 0:
        return _Choice(0, {"ScalingActive": _DISABLED})
    if current > spec.max_replicas:
        return _Choice(spec.max_replicas, {}, "Current number of replicas above Spec.MaxReplicas")
    if current < spec.min_replicas:
        return _Choice(spec.min_replicas, {}, "Current number of replicas below Spec.MinReplicas")
    measured = [outcome for outcome in outcomes if isinstance(outcome, Measured)]
    failed = next((outcome for outcome in outcomes if isinstance(outcome, Unmeasured)), None)
    highest = max(measured, key=lambda outcome: outcome.replicas, default=None)
    # A metric without a value could need more replicas, so the other metrics don't scale down.
    if highest is None or (failed and highest.replicas < current):
        reason = failed.reason if failed else "InvalidMetricSourceType"
        message = f"the HPA was unable to compute the replica count: {failed.message if failed else 'no metrics'}"
        return _Choice(current, {"ScalingActive": ("False", reason, message)})
    result = bounded(spec, current, highest.replicas, history, now)
    valid = f"the HPA was able to successfully calculate a replica count from {highest.name}"
    facts = {
        "AbleToScale": ("True", *result.stabilized) if result.stabilized else _READY,
        "ScalingActive": ("True", "ValidMetricFound", valid),
        "ScalingLimited": (str(result.is_limited), *result.limit),
    }
    above = highest.replicas > current
    reason = f"{highest.name} above target" if above else "All metrics below target"
    return _Choice(result.replicas, facts, reason, highest.replicas)


def _failures(outcomes: Sequence[Outcome]) -> Sequence[tuple[str, str]]:
    """Return the reason and the message of the Event for each failed metric, and of that for all of them."""
    failures = [(outcome.reason, outcome.message) for outcome in outcomes if isinstance(outcome, Unmeasured)]
    if not failures:
        return []
    counted = f"{len(failures)} invalid out of {len(outcomes)}"
    summary = f"invalid metrics ({counted}), first error is: {failures[0][1]}"
    return [*failures, ("FailedComputeMetricsReplicas", summary)]


def _written(
    subject: TypedObject[HorizontalPodAutoscaler],
    fields: Mapping[str, Any],
    facts: Mapping[str, _Fact],
    *,
    now: float,
) -> list[Action]:
    """Return the action that writes changed fields and conditions of the status; its other fields stay."""
    autoscaler, typed = subject
    before = {condition.type: condition for condition in typed.status.conditions}
    kept = {type: (condition.status, condition.reason, condition.message) for type, condition in before.items()}
    status = {
        "currentReplicas": 0,
        "desiredReplicas": 0,
        **(autoscaler.get("status") or {}),
        "observedGeneration": typed.metadata.generation,
        **fields,
        "conditions": [
            _condition(type, fact, before.get(type), now=now) for type, fact in sorted({**kept, **facts}.items())
        ],
    }
    return with_status(autoscaler, status)


def _condition(type: str, fact: _Fact, before: Condition | None, *, now: float) -> dict[str, str]:
    status, reason, message = fact
    same = before is not None and before.status == status
    return {
        "type": type,
        "status": status,
        "lastTransitionTime": before.last_transition_time if before and same else timestamp(now),
        "reason": reason,
        "message": message,
    }
