"""The transitions of a rollout: a pure function of its state and of what happened (R108, D33).

A transition is written to the Canary's status before the split gets its weights: after a crash in between, the next replica
sets the same weights.
"""

from msgspec import structs

from headgate.resources.mesh.canary.analysis import Analysis, When
from headgate.resources.mesh.canary.types import Action, StepKind
from headgate.rollout import criteria
from headgate.rollout.criteria import Comparison, Judgment, Verdict
from headgate.rollout.plan import RolloutPlan
from headgate.rollout.state import BY_USER, LOST, WEBHOOK, Facts, Life, Loss, Pause, Phase, State
from headgate.telemetry.counters.counts import UNCONNECTED, Counts

MISSED_REQUESTS = 20
"""The expected requests of a silent canary from which it counts as lost. Each proxy divides its own requests in turn, so a few
may be missing by chance."""
RECENT_S = 10.0
"""Seconds within which a canary must have got requests before a decision for it, if the interval is shorter. Proxies report
every 5 seconds."""


def following(plan: RolloutPlan, before: State, facts: Facts) -> State:
    """Return the next state."""
    state = structs.replace(_started(plan, before), missing=facts.missing)
    if plan.analysis is None:
        return structs.replace(state, phase=Phase.SPLIT, since=state.since or (facts.now if facts.is_active else 0.0))
    state = _commanded(plan, state, facts)
    if state.begun_by != before.begun_by:
        facts = facts._replace(answers={})  # the answers are about the state before
    if plan.weights(state) != plan.weights(before):
        facts = facts._replace(is_active=False)  # the proxies have acknowledged other weights
    return _ended(plan, state, facts) if state.phase.is_over else _running(plan, _paused(plan, state, facts), facts)


def _ended(plan: RolloutPlan, state: State, facts: Facts) -> State:
    """Note when every proxy has the last weights, and which webhooks know the end."""
    since = state.since or (facts.now if facts.is_active else 0.0)
    informed = {*state.informed, *(name for name, answer in facts.answers.items() if answer.agrees is not None)}
    return structs.replace(
        state, since=since, informed=tuple(name for name in plan.hooks(When.AFTER) if name in informed)
    )


def _running(plan: RolloutPlan, state: State, facts: Facts) -> State:
    if state.pause is Pause.EDITED:
        return state
    replies = {name: answer.text for name, answer in facts.answers.items() if not answer.agrees}
    state = structs.replace(state, replies=replies)
    refusing = [name for name, answer in facts.answers.items() if answer.agrees is False]
    if refusing and not plan.is_held:
        return _rolled_back(state, f"{WEBHOOK} {', '.join(refusing)}")
    if state.pause is Pause.BEFORE:
        agreed = not plan.spec.paused and facts.agree(plan.hooks(When.BEFORE))
        return structs.replace(state, phase=Phase.PROGRESSING, pause=None, since=0.0) if agreed else state
    state = _looked_after(plan, state, facts)
    if (
        plan.analysis
        and not plan.is_held
        and state.lost
        and facts.now >= state.lost_since + plan.analysis.interval_seconds
    ):
        return _rolled_back(state, LOST)
    if not state.since:
        return structs.replace(state, since=facts.now) if facts.is_active else state
    return _judged(plan, _counted(plan, state, facts), facts)


def judgment(plan: RolloutPlan, state: State) -> Judgment:
    """Return the decision that the evidence of the current step allows."""
    step_criteria = plan.criteria(state)
    return criteria.judged(step_criteria, state.evidence, plan.thresholds(step_criteria))


def _started(plan: RolloutPlan, before: State) -> State:
    """Begin another rollout if the versions have changed, and the tests of the step if only the rules have."""
    if before.subject != plan.subject:
        return _begun(plan, State(subject=plan.subject, rules=plan.rules, command=before.command))
    is_known = before.phase.is_over or criteria.is_complete(plan.criteria(before), before.evidence)
    if before.rules == plan.rules and is_known:
        return before  # else the evidence is of other rules, or of another version of headgate
    changed = structs.replace(before, rules=plan.rules)
    if before.phase.is_over and plan.analysis:
        return structs.replace(changed, step=min(before.step, len(plan.shares) - 1))
    step = min(before.step, max(len(plan.shares) - 2, 0))  # a change to the steps promotes no canary
    begun = _step(plan, structs.replace(changed, latency_limits={}), step)
    still = before.pause in (Pause.BEFORE, Pause.EDITED) and not begun.phase.is_over
    return structs.replace(begun, phase=before.phase, pause=before.pause) if still else begun


def _begun(plan: RolloutPlan, state: State) -> State:
    """Begin the first step; the canary gets no request before the webhooks have agreed."""
    begun = _step(plan, structs.replace(state, latency_limits={}, cause="", informed=()), 0)
    has_webhooks = not begun.phase.is_over and plan.hooks(When.BEFORE)
    return structs.replace(begun, pause=Pause.BEFORE) if has_webhooks else begun


def _step(plan: RolloutPlan, state: State, step: int) -> State:
    """Begin a step without evidence. After the last step the rollout is over, and its last evidence stays."""
    if plan.analysis is None:
        return structs.replace(state, step=0, since=0.0)
    last = len(plan.shares) - 1
    life = Life(ready=state.life.ready, was_ready=state.life.was_ready)
    begun = structs.replace(
        state,
        phase=Phase.PROGRESSING,
        pause=None,
        step=min(step, last),
        since=0.0,
        life=life,
        lost=None,
        lost_since=0.0,
    )
    if step >= last:
        return structs.replace(begun, phase=Phase.PROMOTED)
    return structs.replace(begun, evidence=criteria.start(plan.criteria(begun)))


def _commanded(plan: RolloutPlan, state: State, facts: Facts) -> State:
    """Obey a command of the user that was not obeyed yet."""
    if not facts.command or facts.command == state.command:
        return state
    action, state = Action(facts.command.partition("/")[0]), structs.replace(state, command=facts.command)
    if action is Action.RESTART:
        return _begun(plan, state)
    return state if state.phase.is_over else _obeyed(plan, state, action)


def _obeyed(plan: RolloutPlan, state: State, action: Action) -> State:
    if action is Action.PROMOTE:
        next_step = 0 if state.pause is Pause.BEFORE else state.step + 1
        return _step(plan, structs.replace(state, cause=BY_USER), next_step)
    if action is Action.ABORT:
        return _rolled_back(state, BY_USER)
    if action is Action.RESUME and state.pause is Pause.EDITED:
        return _step(plan, state, state.step) if state.step else _begun(plan, state)
    return state


def _paused(plan: RolloutPlan, state: State, facts: Facts) -> State:
    """Pause, or end a pause. A rollout whose split was edited stays paused until the user resumes it."""
    if state.pause is Pause.EDITED or facts.edit not in (None, state.edit):
        edit = facts.edit or state.edit
        return structs.replace(state, phase=Phase.PAUSED, pause=Pause.EDITED, edit=edit, since=0.0)
    state = structs.replace(state, edit=facts.edit)
    if state.pause is Pause.BEFORE:
        return state
    if plan.spec.paused:
        return structs.replace(state, phase=Phase.PAUSED, pause=Pause.SPEC)
    if state.pause is Pause.SPEC:
        return structs.replace(state, phase=Phase.PROGRESSING, pause=None)
    return state


def _new_requests(plan: RolloutPlan, state: State, facts: Facts) -> Comparison:
    """Return the new requests that are compared in a step."""
    reference = facts.counts.get(plan.reference(state), Counts())
    if plan.kind(state) is StepKind.MIRROR:
        return Comparison(reference=reference, canary=facts.copies)
    name = plan.analysis.canary if plan.analysis else ""
    return Comparison(reference=reference, canary=facts.counts.get(name, Counts()))


def _looked_after(plan: RolloutPlan, state: State, facts: Facts) -> State:
    """Note whether the canary is alive, and since when it counts as lost (D33).

    It is lost while it has no ready endpoint although it had one, and while it gets no requests although it got some and the
    reference still gets so many that its share of them would be large.
    """
    if plan.analysis is None:
        return state
    new, life = _new_requests(plan, state, facts), state.life
    requests = criteria.attempted(new.canary).trials
    life = Life(
        ready=facts.ready,
        was_ready=life.was_ready or facts.ready,
        request_at=facts.now if requests else life.request_at,
        missed=0 if requests else life.missed + criteria.attempted(new.reference).trials,
        unconnected=life.unconnected + new.canary.count(UNCONNECTED),
    )
    is_silent = 0 < life.request_at < facts.now - plan.analysis.interval_seconds
    lost = None
    if life.was_ready and not life.ready:
        lost = Loss.ENDPOINTS
    elif is_silent and _misses_requests(plan, life, state):
        lost = Loss.REQUESTS
    since = (state.lost_since if state.lost else facts.now) if lost else 0.0
    return structs.replace(state, life=life, lost=lost, lost_since=since)


def _is_alive(plan: RolloutPlan, analysis: Analysis, state: State, facts: Facts) -> bool:
    """Return whether a decision in favor of the canary is possible now: it is ready, and got its last requests recently (D33)."""
    recently = max(analysis.interval_seconds, RECENT_S)
    is_served = facts.now <= state.life.request_at + recently and not _misses_requests(plan, state.life, state)
    return facts.ready and not state.lost and is_served


def _misses_requests(plan: RolloutPlan, life: Life, state: State) -> bool:
    """Return whether the reference got so many requests since the last ones of the canary that some are missing."""
    return plan.expected(state, life.missed) >= MISSED_REQUESTS


def _counted(plan: RolloutPlan, state: State, facts: Facts) -> State:
    """Add the new requests to the evidence. Relative limits come from earlier requests only."""
    if plan.analysis is None:
        return state
    limits = criteria.relative_limits(plan.analysis, facts.latency, state.latency_limits)
    state = structs.replace(state, latency_limits=limits)
    new = _new_requests(plan, state, facts)
    return structs.replace(state, evidence=criteria.gathered(plan.criteria(state), state.evidence, new, facts.now))


def _judged(plan: RolloutPlan, state: State, facts: Facts) -> State:
    if plan.analysis is None:
        return state
    judged = judgment(plan, state)
    if plan.is_held:
        return state
    if judged.verdict is Verdict.ROLL_BACK:
        return _rolled_back(state, ", ".join(judged.criteria))
    is_ready = (
        judged.verdict is Verdict.PROMOTE
        and _is_alive(plan, plan.analysis, state, facts)
        and facts.now >= state.since + plan.analysis.interval_seconds
        and state.seen.candidate.trials >= plan.analysis.min_requests
        and facts.agree(plan.hooks(When.DURING))
    )
    if not is_ready:
        return state
    if plan.has_gate(state):
        return structs.replace(state, phase=Phase.PAUSED, pause=Pause.GATE)
    return _step(plan, structs.replace(state, cause=""), state.step + 1)


def _rolled_back(state: State, cause: str) -> State:
    return structs.replace(state, phase=Phase.ROLLED_BACK, pause=None, cause=cause, since=0.0)
