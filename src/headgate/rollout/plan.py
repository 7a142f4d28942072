"""What the spec of a Canary says about its rollout: the steps, the weights and the criteria at a state (R108)."""

import hashlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property

import msgspec

from headgate.quantity import parse_percentage
from headgate.resources.mesh.canary.analysis import Analysis, When
from headgate.resources.mesh.canary.types import Canary, CanarySpec, RolloutStep, StepKind
from headgate.rollout import criteria
from headgate.rollout.criteria import Criterion, Thresholds
from headgate.rollout.state import Pause, Phase, State


class RolloutPlan:
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
    def steps(self) -> Sequence[RolloutStep]:
        """The steps of the rollout. To compute them takes a third of a millisecond, and a look reads them ten times."""
        return self.spec.rollout

    @cached_property
    def shares(self) -> Sequence[Fraction]:
        """The canary's share in each step; the last is 1."""
        return [step.share for step in self.steps]

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
        step = self.steps[min(state.step, len(self.shares) - 1)]
        return step._replace(share=self.spec.written_share) if self.keeps_weights(state) else step

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
            weights = self.spec.fixed_weights if share is None else self.spec.weights_at(share)
            named = zip(self.spec.backends, weights, strict=True)
            self._weights[share] = {backend.service: weight for backend, weight in named}
        return self._weights[share]

    def expected(self, state: State, requests: int) -> float:
        """Return how many requests the canary should get while the reference gets `requests`.

        Return 0 if this is unknown: where users stay at a backend, and for requests that fit a match.
        """
        if self.analysis is None or self.spec.stickiness or self.kind(state) is StepKind.MATCH:
            return 0.0
        if self.kind(state) is StepKind.MIRROR:
            return requests * float(parse_percentage(self.analysis.mirror))
        weights = self.weights(state)
        return requests * weights[self.analysis.canary] / max(weights[self.reference(state)], 1)

    def has_gate(self, state: State) -> bool:
        """Return whether the current step ends only when a user promotes."""
        return self.step(state).pause

    def hooks(self, when: When) -> Sequence[str]:
        """Return the names of the webhooks that are called at a time."""
        return [hook.name for hook in self.analysis.hooks(when)] if self.analysis else []

    def criteria(self, state: State) -> Sequence[Criterion]:
        """Return the criteria of the analysis with the limits that are known."""
        return criteria.criteria(self.analysis, state.latency_limits) if self.analysis else ()

    def thresholds(self, criteria: Sequence[Criterion]) -> Thresholds:
        """Return the evidence that decides."""
        error = self.analysis.tolerated_error if self.analysis else Fraction(1)
        return Thresholds.of(error, steps=len(self.shares) - 1, tests=len(criteria))


def _digest(value: object) -> str:
    return hashlib.blake2s(msgspec.json.encode(value), digest_size=8).hexdigest()
