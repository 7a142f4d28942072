"""The state of a rollout, and its transitions: a pure function of the state and of what happened (R108).

The state is in the Canary's status, so any replica of the control plane continues from there. A transition is written to
the status before the split gets its weights: after a crash in between, the next replica sets the same weights.
"""

import hashlib
from collections.abc import Mapping, Sequence
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec import structs

from headgate.resources.canaries import Analysis, Canary, CanarySpec, RolloutStep, StepKind
from headgate.resources.meta import Value
from headgate.rollout import criteria
from headgate.rollout.criteria import Comparison, Criterion, Evidence, Judgment, Thresholds, Verdict
from headgate.statistics.betting import Block
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.histogram import Buckets

WEBHOOK = "webhook"
"""The start of the cause of a rollback that a webhook asked for; its name follows."""
BY_USER = "by a user"
"""The cause of a promotion or a rollback that a command asked for."""


class Phase(Enum):
    """The phase of a Canary."""

    SPLIT = "Split"
    PROGRESSING = "Progressing"
    PAUSED = "Paused"
    PROMOTED = "Promoted"
    ROLLED_BACK = "RolledBack"
    INVALID = "Invalid"  # the status says why; no state has this phase

    @property
    def is_over(self) -> bool:
        """Whether the rollout has ended: with the next version of `spec.backends`, or a restart, another one begins."""
        return self in (Phase.PROMOTED, Phase.ROLLED_BACK)


class Pause(Enum):
    """Why a rollout is paused."""

    SPEC = "spec.paused is true"
    GATE = "the step has a pause"
    BEFORE = "the webhooks have not agreed yet"
    EDITED = "the TrafficSplit was edited"


class Answer(NamedTuple):
    """The answer of a webhook: True for yes, False for no, None if it gave no answer; and what happened."""

    agrees: bool | None
    text: str


NO_ANSWER = Answer(None, "not called yet")


class State(Value, frozen=True, kw_only=True):
    """The state of a rollout.

    `subject` and `rules` are digests of the parts of the spec that begin another rollout, or another test of the step.
    `step` counts from 0. `since` is when every proxy had the weights of the step, in seconds since the epoch; 0 before.
    `limits` are those of relative latency criteria, `command` is the last command that was obeyed. `edit` is what a user wrote
    into the split; it stays after a resumption until the split has the weights again. `cause` are the criteria that
    ended the rollout, and `informed` the webhooks that know its end. `replies` say why webhooks do not agree.
    """

    subject: str = ""
    rules: str = ""
    phase: Phase = Phase.PROGRESSING
    pause: Pause | None = None
    step: int = 0
    since: float = 0.0
    evidence: Mapping[str, Evidence] = {}
    limits: Mapping[str, int] = {}
    command: str = ""
    edit: str = ""
    cause: str = ""
    informed: tuple[str, ...] = ()
    replies: Mapping[str, str] = {}

    @property
    def seen(self) -> Block:
        """The requests of the step, and those of them that failed."""
        success = self.evidence.get(criteria.SUCCESS)
        return success.seen if success else criteria.NOTHING

    @property
    def needs_attention(self) -> bool:
        """Whether something went wrong: the canary was rolled back, or the split was edited. Users' commands are no mistakes."""
        is_rolled_back = self.phase is Phase.ROLLED_BACK and self.cause != BY_USER
        return is_rolled_back or self.pause is Pause.EDITED

    @property
    def begun_by(self) -> str:
        """The versions, the rules and the command that began the current rollout or its current step again."""
        return f"{self.subject} {self.rules} {self.command}"

    @property
    def is_counting(self) -> bool:
        """Whether requests are evidence: in a step whose weights every proxy has, until the rollout ends."""
        return self.since > 0 and self.phase in (Phase.PROGRESSING, Phase.PAUSED)

    def has_moved(self, before: "State") -> bool:
        """Return whether the state differs from an earlier one in more than its evidence."""
        return structs.replace(self, evidence=before.evidence) != before


class Facts(NamedTuple):
    """What a transition reads besides the spec and the state.

    `now` is in seconds since the epoch. `in_force` says whether every proxy that needs the weights has acknowledged them,
    `edit` is what a user has written into the owned split. `counts` are new since the last transition, by backend as written
    in the spec, and `copies` those of copies to the canary. `latency` is the histogram of the reference before them, and
    `answers` are those of webhooks in this step.
    """

    now: float
    in_force: bool = False
    edit: str = ""
    command: str = ""
    counts: Mapping[str, Counts] = {}
    copies: Counts = Counts()
    latency: Buckets = 0
    answers: Mapping[str, Answer] = {}

    def agree(self, hooks: Sequence[str]) -> bool:
        """Return whether all of these webhooks agree."""
        return all(self.answers.get(name, NO_ANSWER).agrees for name in hooks)


class Plan:
    """What the spec of a Canary says about its rollout."""

    def __init__(self, canary: Canary) -> None:
        self.canary = canary
        self.spec: CanarySpec = canary.spec
        self.analysis: Analysis | None = canary.spec.analysis
        self._weights: dict[Fraction | None, Mapping[str, int]] = {}

    @cached_property
    def subject(self) -> str:
        """The digest of the versions that are rolled out: with another one, the rollout begins again."""
        roles = (self.analysis.canary, self.analysis.baseline) if self.analysis else ()
        return _digest([self.spec.service, self.spec.backends, roles])

    @cached_property
    def rules(self) -> str:
        """The digest of the analysis: with another one, the evidence of the current step begins again."""
        return _digest(self.analysis)

    @cached_property
    def shares(self) -> Sequence[Fraction]:
        """The canary's share in each step; the last is 1."""
        return self.spec.shares

    @property
    def is_held(self) -> bool:
        """Whether the rollout makes no decision of its own: it is paused, or a dry run."""
        return self.spec.paused or bool(self.analysis and self.analysis.dry_run)

    def reference(self, state: State) -> str:
        """Return the backend that the canary is compared with: the baseline, if it gets requests, or the primary."""
        baseline = self.analysis.baseline if self.analysis and self.step(state).kind is StepKind.SHARE else ""
        return baseline or self.spec.primary

    def step(self, state: State) -> RolloutStep:
        """Return the current step of an analysis, or its last one. In a dry run, it has the share that the canary keeps."""
        found = self.spec.rollout[min(state.step, len(self.shares) - 1)]
        return found._replace(share=self.spec.written_share) if self.keeps_weights(state) else found

    def keeps_weights(self, state: State) -> bool:
        """Return whether the weights are those of the backends: without analysis, and in a dry run until it ends."""
        return self.analysis is None or (self.analysis.dry_run and not state.phase.is_over)

    def kind(self, state: State) -> StepKind:
        """Return what the canary gets now: after the end of the rollout, all requests or none."""
        has_share = self.analysis is None or state.phase.is_over or state.pause is Pause.BEFORE
        return StepKind.SHARE if has_share else self.step(state).kind

    def share(self, state: State) -> Fraction:
        """Return the canary's share that a state wants."""
        if self.keeps_weights(state):
            return self.spec.written_share
        if state.phase is Phase.ROLLED_BACK or state.pause is Pause.BEFORE:
            return Fraction(0)
        return Fraction(1) if state.phase is Phase.PROMOTED else self.step(state).share

    def weights(self, state: State) -> Mapping[str, int]:
        """Return the weight of each backend that a state wants."""
        share = None if self.keeps_weights(state) else self.share(state)
        if share not in self._weights:
            wanted = self.spec.fixed_weights if share is None else self.spec.weights_at(share)
            named = zip(self.spec.backends, wanted, strict=True)
            self._weights[share] = {backend.service: weight for backend, weight in named}
        return self._weights[share]

    def has_gate(self, state: State) -> bool:
        """Return whether the current step ends only when a user promotes."""
        return self.step(state).pause

    def hooks(self, when: str) -> Sequence[str]:
        """Return the names of the webhooks of a time: `before`, `during` or `after`."""
        return [hook.name for hook in self.analysis.hooks(when)] if self.analysis else []

    def criteria(self, state: State) -> Sequence[Criterion]:
        """Return the criteria of the analysis with the limits that are known."""
        return criteria.criteria(self.analysis, state.limits) if self.analysis else ()

    def thresholds(self, found: Sequence[Criterion]) -> Thresholds:
        """Return the evidence that decides."""
        error = self.analysis.tolerated_error if self.analysis else Fraction(1)
        return Thresholds.of(error, steps=len(self.shares) - 1, tests=len(found))


def following(plan: Plan, before: State, facts: Facts) -> State:
    """Return the next state."""
    state = _started(plan, before)
    if plan.analysis is None:
        return structs.replace(state, phase=Phase.SPLIT, since=state.since or (facts.now if facts.in_force else 0.0))
    state = _commanded(plan, state, facts)
    if state.begun_by != before.begun_by:
        facts = facts._replace(answers={})  # the webhooks were asked about the state before
    if plan.weights(state) != plan.weights(before):
        facts = facts._replace(in_force=False)  # the proxies have acknowledged other weights
    return _ended(plan, state, facts) if state.phase.is_over else _running(plan, _paused(plan, state, facts), facts)


def _ended(plan: Plan, state: State, facts: Facts) -> State:
    """Note when every proxy has the last weights, and which webhooks know the end."""
    since = state.since or (facts.now if facts.in_force else 0.0)
    known = {*state.informed, *(name for name, answer in facts.answers.items() if answer.agrees is not None)}
    return structs.replace(state, since=since, informed=tuple(name for name in plan.hooks("after") if name in known))


def _running(plan: Plan, state: State, facts: Facts) -> State:
    if state.pause is Pause.EDITED:
        return state
    replies = {name: answer.text for name, answer in facts.answers.items() if not answer.agrees}
    state = structs.replace(state, replies=replies)
    refusing = [name for name, answer in facts.answers.items() if answer.agrees is False]
    if refusing and not plan.is_held:
        return _rolled_back(state, f"{WEBHOOK} {', '.join(refusing)}")
    if state.pause is Pause.BEFORE:
        agreed = not plan.spec.paused and facts.agree(plan.hooks("before"))
        return structs.replace(state, phase=Phase.PROGRESSING, pause=None, since=0.0) if agreed else state
    if not state.since:
        return structs.replace(state, since=facts.now) if facts.in_force else state
    return _judged(plan, _counted(plan, state, facts), facts)


def judgment(plan: Plan, state: State) -> Judgment:
    """Return the decision that the evidence of the current step allows."""
    found = plan.criteria(state)
    return criteria.judged(found, state.evidence, plan.thresholds(found))


def _started(plan: Plan, before: State) -> State:
    """Begin another rollout if the versions have changed, and the tests of the step if only the rules have."""
    if before.subject != plan.subject:
        return _begun(plan, State(subject=plan.subject, rules=plan.rules, command=before.command))
    is_known = before.phase.is_over or criteria.is_complete(plan.criteria(before), before.evidence)
    if before.rules == plan.rules and is_known:
        return before  # else the evidence is of other rules, or of another version of headgate
    changed = structs.replace(before, rules=plan.rules)
    if before.phase.is_over and plan.analysis:
        return structs.replace(changed, step=min(before.step, len(plan.shares) - 1))
    step = min(before.step, max(len(plan.shares) - 2, 0))  # a change of the steps promotes no canary
    begun = _step(plan, structs.replace(changed, limits={}), step)
    still = before.pause in (Pause.BEFORE, Pause.EDITED) and not begun.phase.is_over
    return structs.replace(begun, phase=before.phase, pause=before.pause) if still else begun


def _begun(plan: Plan, state: State) -> State:
    """Begin the first step; the canary gets no request before the webhooks have agreed."""
    begun = _step(plan, structs.replace(state, limits={}, cause="", informed=()), 0)
    is_asked = not begun.phase.is_over and plan.hooks("before")
    return structs.replace(begun, pause=Pause.BEFORE) if is_asked else begun


def _step(plan: Plan, state: State, step: int) -> State:
    """Begin a step without evidence. After the last step the rollout is over, and its last evidence stays."""
    if plan.analysis is None:
        return structs.replace(state, step=0, since=0.0)
    last = len(plan.shares) - 1
    begun = structs.replace(state, phase=Phase.PROGRESSING, pause=None, step=min(step, last), since=0.0)
    if step >= last:
        return structs.replace(begun, phase=Phase.PROMOTED)
    return structs.replace(begun, evidence=criteria.start(plan.criteria(begun)))


def _commanded(plan: Plan, state: State, facts: Facts) -> State:
    """Obey a command of the user that was not obeyed yet."""
    if not facts.command or facts.command == state.command:
        return state
    verb, state = facts.command.partition("/")[0], structs.replace(state, command=facts.command)
    if verb == "restart":
        return _begun(plan, state)
    return state if state.phase.is_over else _obeyed(plan, state, verb)


def _obeyed(plan: Plan, state: State, verb: str) -> State:
    if verb == "promote":
        next_step = 0 if state.pause is Pause.BEFORE else state.step + 1
        return _step(plan, structs.replace(state, cause=BY_USER), next_step)
    if verb == "abort":
        return _rolled_back(state, BY_USER)
    if verb == "resume" and state.pause is Pause.EDITED:
        return _step(plan, state, state.step) if state.step else _begun(plan, state)
    return state


def _paused(plan: Plan, state: State, facts: Facts) -> State:
    """Pause, or end a pause. A rollout whose split was edited stays paused until the user resumes it."""
    if state.pause is Pause.EDITED or facts.edit not in ("", state.edit):
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


def _counted(plan: Plan, state: State, facts: Facts) -> State:
    """Add the new requests to the evidence. Relative limits come from earlier requests only."""
    if plan.analysis is None:
        return state
    state = structs.replace(state, limits=criteria.relative_limits(plan.analysis, facts.latency, state.limits))
    is_copied = plan.kind(state) is StepKind.MIRROR
    canary = facts.copies if is_copied else facts.counts.get(plan.analysis.canary, Counts())
    new = Comparison(reference=facts.counts.get(plan.reference(state), Counts()), canary=canary)
    return structs.replace(state, evidence=criteria.gathered(plan.criteria(state), state.evidence, new, facts.now))


def _judged(plan: Plan, state: State, facts: Facts) -> State:
    if plan.analysis is None:
        return state
    found = judgment(plan, state)
    if plan.is_held:
        return state
    if found.verdict is Verdict.ROLL_BACK:
        return _rolled_back(state, ", ".join(found.criteria))
    is_ready = (
        found.verdict is Verdict.PROMOTE
        and facts.now >= state.since + plan.analysis.interval_seconds
        and state.seen.candidate.trials >= plan.analysis.min_requests
        and facts.agree(plan.hooks("during"))
    )
    if not is_ready:
        return state
    if plan.has_gate(state):
        return structs.replace(state, phase=Phase.PAUSED, pause=Pause.GATE)
    return _step(plan, structs.replace(state, cause=""), state.step + 1)


def _rolled_back(state: State, cause: str) -> State:
    return structs.replace(state, phase=Phase.ROLLED_BACK, pause=None, cause=cause, since=0.0)


def _digest(value: object) -> str:
    return hashlib.blake2s(msgspec.json.encode(value), digest_size=8).hexdigest()
