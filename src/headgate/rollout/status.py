"""The status of a Canary: for people and tools, and with the state that any replica continues from (R108, R109)."""

from collections.abc import Iterator, Mapping
from math import log
from typing import Any

import msgspec

from headgate import formatting
from headgate.compiler.reasons import ConditionType, Reason
from headgate.compiler.report import StatusCondition
from headgate.plane.status.conditions import timed
from headgate.resources.mesh.canary.status import BackendCounts, CanaryStatus, CriterionEvidence
from headgate.resources.mesh.canary.types import OLD_VERSION_UNUSED, PROMOTED
from headgate.resources.meta import Key, Object, generation_of, part, status_of, timestamp
from headgate.resources.status import ObjectCondition, status_fields
from headgate.rollout.messages import message
from headgate.rollout.plan import RolloutPlan
from headgate.rollout.state import Pause, Phase, State, state_fields, state_in


class Problem(msgspec.Struct, frozen=True):
    """Why a Canary does nothing: a reason for conditions, and what the user can do."""

    reason: str
    message: str


def canary_status(obj: Object, plan: RolloutPlan, state: State, now: float) -> Mapping[str, Any]:
    """Return the whole status of a Canary. `now` is in seconds since the epoch."""
    return status_fields(
        CanaryStatus(
            observed_generation=generation_of(obj),
            conditions=_dated(obj, list(_conditions(plan, state, message(plan, state, now))), now),
            step=state.step + 1 if plan.analysis else 0,
            step_count=len(plan.shares),
            canary_share=formatting.share(plan.share(state)) if plan.analysis else "",
            backends=tuple(_backends(plan, state)),
            criteria=tuple(_criteria(plan, state)),
            rollout=state_fields(state),
        )
    )


def _backends(plan: RolloutPlan, state: State) -> Iterator[BackendCounts]:
    """Yield the weights of the backends, and the requests of those that are compared."""
    weights = state.edit.weights if state.pause is Pause.EDITED and state.edit else plan.weights(state)
    names: tuple[str, ...] = ()
    if plan.analysis and state.phase is not Phase.PROMOTED:  # the last step has no counts of the step before
        names = plan.reference(state), plan.analysis.canary
    seen = dict(zip(names, state.seen, strict=False))
    for service, weight in weights.items():
        sample = seen.get(service)
        yield BackendCounts(
            service=service,
            weight=weight,
            requests=sample.trials if sample else None,
            failures=sample.events if sample else None,
        )


def call_body(key: Key, plan: RolloutPlan, state: State) -> Mapping[str, Any]:
    """Return the JSON body of a webhook's request."""
    reference, canary = state.seen
    return {
        "namespace": key.namespace,
        "name": key.name,
        "service": plan.spec.service,
        "canary": plan.analysis.canary if plan.analysis else "",
        "phase": state.phase.value,
        "step": state.step + 1,
        "canaryShare": formatting.share(plan.share(state)),
        "requests": {"canary": canary.trials, "reference": reference.trials},
        "failures": {"canary": canary.events, "reference": reference.events},
    }


def _criteria(plan: RolloutPlan, state: State) -> Iterator[CriterionEvidence]:
    """Yield how near the evidence of each criterion is to a decision, on the logarithmic scale of the evidence.

    Criteria that were added after the end of the rollout have no evidence.
    """
    criteria = plan.criteria(state)
    thresholds = plan.thresholds(criteria)
    for criterion in criteria:
        evidence = state.evidence.get(criterion.name)
        if evidence is None:
            continue
        yield CriterionEvidence(
            name=criterion.name,
            roll_back=_part(evidence.against, thresholds.worse),
            promote=_part(evidence.fine.evidence, thresholds.fine) if evidence.fine else "",
        )


def _part(evidence: float, threshold: float) -> str:
    return f"{min(max(log(evidence) / log(threshold), 0.0), 1.0):.0%}"


def refused_status(obj: Object, problem: Problem, now: float) -> Mapping[str, Any]:
    """Return the status of a Canary that is valid, and does nothing.

    If the problem ends, the rollout begins again, and does not obey the last command a second time.
    """
    unknown = f"the rollout does not run: {problem.message}"
    types = (
        ConditionType.RESOLVED_REFS.value,
        *((PROMOTED, OLD_VERSION_UNUSED) if part(obj, "spec").get("analysis") else ()),
    )
    conditions = [
        _not_accepted(problem),
        *(StatusCondition(type=name, status=None, reason=problem.reason, message=unknown) for name in types),
        StatusCondition(
            type=ConditionType.PROGRAMMED.value,
            status=False,
            reason=Reason.INVALID.value,
            message="no proxy is configured for this object; see the other conditions",
        ),
    ]
    return status_fields(
        CanaryStatus(
            observed_generation=generation_of(obj),
            conditions=_dated(obj, conditions, now),
            rollout=state_fields(State(command=state_in(obj).command)),
        )
    )


def unreadable_status(obj: Object, problem: Problem, now: float) -> Mapping[str, Any]:
    """Return the status of an invalid Canary, whose objects and conditions stay as they are."""
    before = status_of(obj)
    conditions = _dated(obj, [_not_accepted(problem)], now)
    accepted = status_fields(CanaryStatus(observed_generation=generation_of(obj), conditions=conditions))
    remaining = [row for row in before.get("conditions") or () if row["type"] != ConditionType.ACCEPTED.value]
    return {**before, **accepted, "conditions": [*accepted["conditions"], *remaining]}


def _not_accepted(problem: Problem) -> StatusCondition:
    return StatusCondition(
        type=ConditionType.ACCEPTED.value, status=False, reason=problem.reason, message=problem.message
    )


def _dated(obj: Object, conditions: list[StatusCondition], now: float) -> tuple[ObjectCondition, ...]:
    before = status_of(obj).get("conditions")
    return timed(conditions, before, generation=generation_of(obj), now=timestamp(now))


def _conditions(plan: RolloutPlan, state: State, text: str) -> Iterator[StatusCondition]:
    yield StatusCondition(
        type=ConditionType.ACCEPTED.value, status=True, reason="Accepted", message="the object is valid"
    )
    missing = [f"Service {name} not found; it gets no traffic until it exists" for name in state.missing]
    yield StatusCondition(
        type=ConditionType.RESOLVED_REFS.value,
        status=not missing,
        reason=Reason.BACKEND_NOT_FOUND.value if missing else "ResolvedRefs",
        message="; ".join(missing) or "every backend exists",
    )
    is_active = state.since > 0
    yield StatusCondition(
        type=ConditionType.PROGRAMMED.value,
        status=is_active,
        reason="Programmed" if is_active else "Pending",
        message=f"{'every proxy has' if is_active else 'not every proxy has'} the weights of the TrafficSplit",
    )
    if plan.analysis is None:
        return
    is_promoted = state.phase is Phase.PROMOTED
    yield StatusCondition(
        type=PROMOTED, status=is_promoted if state.phase.is_over else None, reason=state.phase.value, message=text
    )
    unused, old = is_promoted and is_active, plan.spec.primary
    yield StatusCondition(
        type=OLD_VERSION_UNUSED,
        status=unused,
        reason="NoTraffic" if unused else "InUse",
        message=f"no proxy sends {old} new requests; it may be scaled down" if unused else f"{old} may get requests",
    )
