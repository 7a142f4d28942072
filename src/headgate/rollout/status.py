"""The status of a Canary: for people and tools, and with the state that any replica continues from (R108, R109)."""

from collections.abc import Iterator, Mapping
from math import log
from typing import Any

import msgspec

from headgate.compiler.report import StatusCondition
from headgate.plane.status.conditions import status_of, timed
from headgate.resources.meta import Key, Object, timestamp
from headgate.rollout.messages import message, share_text
from headgate.rollout.owned_split import edited_weights
from headgate.rollout.plan import Plan
from headgate.rollout.state import Pause, Phase, State, state_in


class Problem(msgspec.Struct, frozen=True):
    """Why a Canary does nothing: a reason for conditions, and what the user can do."""

    reason: str
    message: str


def canary_status(obj: Object, plan: Plan, state: State, now: float) -> Mapping[str, Any]:
    """Return the whole status of a Canary. `now` is in seconds since the epoch."""
    is_edited, text = state.pause is Pause.EDITED, message(plan, state, now)
    weights = edited_weights(state.edit) if is_edited else plan.weights(state)
    status = _status(obj, state.phase, text, list(_conditions(plan, state, text)), now)
    status["backends"] = [{"service": service, "weight": weight} for service, weight in weights.items()]
    if plan.analysis:
        names = () if state.phase is Phase.PROMOTED else (plan.reference(state), plan.analysis.canary)
        seen = dict(zip(names, state.seen, strict=False))  # the counts of the step before are none of the last step
        for row in status["backends"]:
            if sample := seen.get(row["service"]):
                row |= {"requests": sample.trials, "failures": sample.events}
        status |= {"step": state.step + 1, "steps": len(plan.shares), "canaryWeight": share_text(plan.share(state))}
        status["criteria"] = list(_criteria(plan, state))
    status["rollout"] = _encoded(state)
    return status


def call_body(key: Key, plan: Plan, state: State) -> Mapping[str, Any]:
    """Return the JSON body of a webhook's request."""
    reference, canary = state.seen
    return {
        "namespace": key.namespace,
        "name": key.name,
        "service": plan.spec.service,
        "canary": plan.analysis.canary if plan.analysis else "",
        "phase": state.phase.value,
        "step": state.step + 1,
        "canaryWeight": share_text(plan.share(state)),
        "requests": {"canary": canary.trials, "reference": reference.trials},
        "failures": {"canary": canary.events, "reference": reference.events},
    }


def _criteria(plan: Plan, state: State) -> Iterator[Mapping[str, str]]:
    """Yield how near the evidence of each criterion is to a decision, on the logarithmic scale of the evidence.

    Criteria that were added after the end of the rollout have no evidence.
    """
    found = plan.criteria(state)
    thresholds = plan.thresholds(found)
    for item in found:
        known = state.evidence.get(item.name)
        if known is None:
            continue
        row = {"name": item.name, "rollBack": _part(known.against, thresholds.worse)}
        yield {**row, "promote": _part(known.fine.evidence, thresholds.fine)} if known.fine else row


def _encoded(state: State) -> str:
    return msgspec.json.encode(state).decode()


def _part(evidence: float, threshold: float) -> str:
    return f"{min(max(log(evidence) / log(threshold), 0.0), 1.0):.0%}"


def invalid_status(obj: Object, problem: Problem, now: float) -> Mapping[str, Any]:
    """Return the status of a Canary that does nothing.

    If the problem ends, the rollout begins again, and does not obey the last command a second time.
    """
    conditions = [StatusCondition(type="Accepted", status=False, reason=problem.reason, message=problem.message)]
    status = _status(obj, Phase.INVALID, problem.message, conditions, now)
    return {**status, "rollout": _encoded(State(command=state_in(obj).command))}


def _status(obj: Object, phase: Phase, text: str, conditions: list[StatusCondition], now: float) -> dict[str, Any]:
    generation = obj["metadata"].get("generation", 0)
    before = status_of(obj).get("conditions")
    return {
        "observedGeneration": generation,
        "phase": phase.value,
        "message": text,
        "conditions": timed(conditions, before, generation=generation, now=timestamp(now)),
    }


def _conditions(plan: Plan, state: State, text: str) -> Iterator[StatusCondition]:
    yield StatusCondition(type="Accepted", status=True, reason="Accepted", message="the object is valid")
    in_force = state.since > 0
    yield StatusCondition(
        type="Programmed",
        status=in_force,
        reason="Programmed" if in_force else "Pending",
        message=f"{'every proxy has' if in_force else 'not every proxy has'} the weights of the TrafficSplit",
    )
    if plan.analysis is None:
        return
    is_promoted = state.phase is Phase.PROMOTED
    yield StatusCondition(type="Promoted", status=is_promoted, reason=state.phase.value, message=text)
    unused = is_promoted and in_force
    old = plan.spec.primary
    yield StatusCondition(
        type="OldVersionUnused",
        status=unused,
        reason="NoTraffic" if unused else "InUse",
        message=f"no proxy sends {old} new requests; it may be scaled down" if unused else f"{old} may get requests",
    )
