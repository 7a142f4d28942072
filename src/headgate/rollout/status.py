"""The status of a Canary: for people and tools, and with the state that any replica continues from (R108, R109)."""

from collections.abc import Iterator, Mapping
from math import log
from typing import Any

import msgspec

from headgate.compiler.reasons import ConditionType, Reason
from headgate.compiler.report import StatusCondition
from headgate.plane.status.conditions import timed
from headgate.resources.mesh.canary.types import OLD_VERSION_UNUSED, PROMOTED
from headgate.resources.meta import Key, Object, generation_of, part, status_of, timestamp
from headgate.rollout.messages import message, share_text
from headgate.rollout.plan import RolloutPlan
from headgate.rollout.state import Pause, Phase, State, state_fields, state_in


class Problem(msgspec.Struct, frozen=True):
    """Why a Canary does nothing: a reason for conditions, and what the user can do."""

    reason: str
    message: str


def canary_status(obj: Object, plan: RolloutPlan, state: State, now: float) -> Mapping[str, Any]:
    """Return the whole status of a Canary. `now` is in seconds since the epoch."""
    weights = state.edit.weights if state.pause is Pause.EDITED and state.edit else plan.weights(state)
    status = _status(obj, list(_conditions(plan, state, message(plan, state, now))), now)
    status["backends"] = [{"service": service, "weight": weight} for service, weight in weights.items()]
    if plan.analysis:
        names = () if state.phase is Phase.PROMOTED else (plan.reference(state), plan.analysis.canary)
        seen = dict(zip(names, state.seen, strict=False))  # the counts of the step before are none of the last step
        for row in status["backends"]:
            if sample := seen.get(row["service"]):
                row |= {"requests": sample.trials, "failures": sample.events}
        status |= {"step": state.step + 1, "stepCount": len(plan.shares), "canaryShare": share_text(plan.share(state))}
        status["criteria"] = list(_criteria(plan, state))
    status["rollout"] = state_fields(state)
    return status


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
        "canaryShare": share_text(plan.share(state)),
        "requests": {"canary": canary.trials, "reference": reference.trials},
        "failures": {"canary": canary.events, "reference": reference.events},
    }


def _criteria(plan: RolloutPlan, state: State) -> Iterator[Mapping[str, str]]:
    """Yield how near the evidence of each criterion is to a decision, on the logarithmic scale of the evidence.

    Criteria that were added after the end of the rollout have no evidence.
    """
    criteria = plan.criteria(state)
    thresholds = plan.thresholds(criteria)
    for criterion in criteria:
        evidence = state.evidence.get(criterion.name)
        if evidence is None:
            continue
        row = {"name": criterion.name, "rollBack": _part(evidence.against, thresholds.worse)}
        yield {**row, "promote": _part(evidence.fine.evidence, thresholds.fine)} if evidence.fine else row


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
    return {**_status(obj, conditions, now), "rollout": state_fields(State(command=state_in(obj).command))}


def unreadable_status(obj: Object, problem: Problem, now: float) -> Mapping[str, Any]:
    """Return the status of an invalid Canary, whose objects and conditions stay as they are."""
    before = status_of(obj)
    accepted = _status(obj, [_not_accepted(problem)], now)
    remaining = [row for row in before.get("conditions") or () if row["type"] != ConditionType.ACCEPTED.value]
    return {**before, **accepted, "conditions": [*accepted["conditions"], *remaining]}


def _not_accepted(problem: Problem) -> StatusCondition:
    return StatusCondition(
        type=ConditionType.ACCEPTED.value, status=False, reason=problem.reason, message=problem.message
    )


def _status(obj: Object, conditions: list[StatusCondition], now: float) -> dict[str, Any]:
    generation, before = generation_of(obj), status_of(obj).get("conditions")
    timed_conditions = timed(conditions, before, generation=generation, now=timestamp(now))
    return {"observedGeneration": generation, "conditions": timed_conditions}


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
