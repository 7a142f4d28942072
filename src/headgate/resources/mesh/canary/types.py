"""The type of Canaries (004; R108, R109, D19): a split whose weights a rollout moves to the new version.

Quantities, percentages and durations stay text, as users write them; properties return their exact values. The checks of
the kind guarantee that each of these texts has a value.
"""

from collections.abc import Iterator
from enum import Enum
from fractions import Fraction
from typing import NamedTuple

from headgate import durations
from headgate.quantity import parse_percentage
from headgate.resources.meta import Input, Resource
from headgate.resources.smi.http_route_group import HttpMatch
from headgate.resources.weights import integer_weights, quantity, whole_weights

CANARY_WEIGHTS = "headgate.dev/canary-weights"
"""The annotation of an owned TrafficSplit with the weights that the rollout has set: `website-v1=9,website-v2=1`."""
PROMOTED = "Promoted"
"""The condition that is True once the canary has all requests, False once it was rolled back, and Unknown before."""
OLD_VERSION_UNUSED = "OldVersionUnused"
"""The condition that is True once no proxy sends the old version a request."""
ONE = Fraction(1)


class CanaryBackend(Input, frozen=True, kw_only=True):
    """A backend of a Canary: a Service (or `name.namespace`, D12) and its relative weight, a quantity such as `900m`."""

    service: str
    weight: int | float | str

    @property
    def amount(self) -> Fraction:
        """The exact weight."""
        return quantity(self.weight, "spec.backends.weight")


class Step(Input, frozen=True, kw_only=True):
    """A step of the analysis: the canary's share, a percentage. With `pause`, it ends only when a user promotes."""

    share: str
    pause: bool = False


class StepKind(Enum):
    """What the canary gets in a step: a share of all requests, copies of requests, or the requests that fit a match."""

    SHARE = "share"
    MIRROR = "mirror"
    MATCH = "match"


class RolloutStep(NamedTuple):
    """A step of the whole rollout: the canary's share. With `pause`, it ends only when a user promotes."""

    share: Fraction
    pause: bool = False
    kind: StepKind = StepKind.SHARE


class SuccessCriteria(Input, frozen=True, kw_only=True):
    """The limits of the canary's success rate: relative to the primary (`max_drop`, `margin`), and absolute (`min`)."""

    max_drop: str = "0%"
    margin: str = "1%"
    min: str = ""

    @property
    def tolerated_drop(self) -> Fraction:
        """The drop below the primary's success rate that is no reason to roll back."""
        return parse_percentage(self.max_drop)

    @property
    def excluded_drop(self) -> Fraction:
        """The drop that must be ruled out before the canary is promoted: `max_drop` and `margin` together."""
        return parse_percentage(self.max_drop) + parse_percentage(self.margin)

    @property
    def least(self) -> Fraction | None:
        """The least success rate of the canary; None without an absolute limit."""
        return parse_percentage(self.min) if self.min else None


class ClientErrorCriterion(Input, frozen=True, kw_only=True):
    """The limit of the canary's share of client errors (4xx), relative to the primary's."""

    max_increase: str = "0%"
    margin: str = "1%"

    @property
    def tolerated_increase(self) -> Fraction:
        """The increase above the primary's share that is no reason to roll back."""
        return parse_percentage(self.max_increase)

    @property
    def excluded_increase(self) -> Fraction:
        """The increase that must be ruled out before the canary is promoted: `max_increase` and `margin` together."""
        return parse_percentage(self.max_increase) + parse_percentage(self.margin)


class LatencyCriterion(Input, frozen=True, kw_only=True):
    """A limit of one of the canary's latency percentiles: absolute (`max`), relative to the primary, or both."""

    percentile: str
    max: str = ""
    max_increase: str = ""

    @property
    def quantile(self) -> Fraction:
        """The share of requests that are at most as slow as the percentile: 99/100 for `p99`, 999/1000 for `p999`."""
        digits = self.percentile.removeprefix("p")
        return Fraction(int(digits), 10 ** len(digits))

    @property
    def max_microseconds(self) -> int | None:
        """The highest latency in microseconds; None without an absolute limit."""
        return durations.milliseconds(self.max) * 1000 if self.max else None

    @property
    def tolerated_increase(self) -> Fraction | None:
        """The highest increase above the primary's latency: 1/10 for `10%`; None without a relative limit."""
        return parse_percentage(self.max_increase) if self.max_increase else None


class When(Enum):
    """When a webhook is called: before the first request to the canary, during each step, or after the end."""

    BEFORE = "Before"
    DURING = "During"
    AFTER = "After"


class Webhook(Input, frozen=True, kw_only=True):
    """A program that headgate calls: a Service in the Canary's namespace."""

    name: str
    when: When
    service: str
    port: int
    path: str = "/"


class Analysis(Input, frozen=True, kw_only=True):
    """`spec.analysis`: the roles of the backends, the steps of the rollout, and the criteria of the decision.

    The steps are either listed, or computed from `step_share` and `max_share`. Before them, the canary gets copies of a
    part of the requests (`mirror`), and then the requests that fit `matches`. All shares are percentages.
    """

    canary: str
    baseline: str = ""
    mirror: str = ""
    matches: tuple[HttpMatch, ...] = ()
    steps: tuple[Step, ...] = ()
    step_share: str = ""
    max_share: str = ""
    interval: str = "1m"
    min_requests: int = 20
    error_probability: str = "1%"
    failures_within: str = ""
    dry_run: bool = False
    success: SuccessCriteria = SuccessCriteria()
    client_errors: ClientErrorCriterion | None = None
    latencies: tuple[LatencyCriterion, ...] = ()
    webhooks: tuple[Webhook, ...] = ()

    def hooks(self, when: When) -> tuple[Webhook, ...]:
        """Return the webhooks of a time."""
        return tuple(hook for hook in self.webhooks if hook.when == when)

    @property
    def interval_seconds(self) -> float:
        """The shortest length of a step in seconds."""
        return durations.milliseconds(self.interval) / 1000

    @property
    def cluster_seconds(self) -> float:
        """The seconds within which failures of one version count as one; 0 if each failure counts."""
        return durations.milliseconds(self.failures_within) / 1000 if self.failures_within else 0.0

    @property
    def tolerated_error(self) -> Fraction:
        """The tolerated probability of a wrong rollback, and of a wrong promotion."""
        return parse_percentage(self.error_probability)


class Action(Enum):
    """What a request asks of a rollout."""

    PROMOTE = "Promote"
    ABORT = "Abort"
    RESUME = "Resume"
    RESTART = "Restart"


class Request(Input, frozen=True, kw_only=True):
    """An action that the rollout takes once for each ID."""

    action: Action
    id: str


class CanarySpec(Input, frozen=True, kw_only=True):
    """`spec` of a Canary: clients call the root `service`, and `backends` share its traffic.

    Without `analysis` the shares are those of the backends' weights. With `analysis` they are those of the first step.
    """

    service: str
    backends: tuple[CanaryBackend, ...]
    paused: bool = False
    request: Request | None = None
    analysis: Analysis | None = None

    @property
    def command(self) -> str:
        """The request as `ACTION/ID`; empty without one."""
        return f"{self.request.action.value}/{self.request.id}" if self.request else ""

    @property
    def fixed_weights(self) -> tuple[int, ...]:
        """The integer weights of the backends, in their order and in the ratio of their quantities (D24)."""
        return tuple(integer_weights([backend.amount for backend in self.backends]))

    @property
    def written_share(self) -> Fraction:
        """The canary's share by the weights of the backends; 0 without analysis."""
        return self._first_share(self.analysis.canary) if self.analysis else Fraction(0)

    @property
    def primary(self) -> str:
        """The backend with the old version: neither the canary nor the baseline; empty without analysis."""
        roles = (self.analysis.canary, self.analysis.baseline) if self.analysis else ()
        return next((item.service for item in self.backends if roles and item.service not in roles), "")

    @property
    def rollout(self) -> tuple[RolloutStep, ...]:
        """The steps of the rollout, from the share of the backends' weights to 1; empty without analysis.

        Before them are steps without a share: with copies of requests, and with the requests that fit a match.
        A listed step with the share of the backends' weights is this first step. If the canary's weight is 0, the first
        listed or computed step is the first.
        """
        if self.analysis is None:
            return ()
        first = self._first_share(self.analysis.canary)
        found = [RolloutStep(first), *_later_steps(self.analysis, first), RolloutStep(ONE)]
        pauses: dict[Fraction, bool] = {}
        for share, pause, _ in found:
            pauses[share] = pauses.get(share, False) or pause
        wanted = ((StepKind.MIRROR, self.analysis.mirror), (StepKind.MATCH, self.analysis.matches))
        before = (RolloutStep(Fraction(0), kind=kind) for kind, value in wanted if value)
        return (*before, *(RolloutStep(share, pause) for share, pause in pauses.items() if share))

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """The canary's share in each step; the baseline has the same share, but none in the last step."""
        return tuple(step.share for step in self.rollout)

    def weights_at(self, share: Fraction) -> tuple[int, ...]:
        """Return the integer weights of the backends, in their order, at a share of the canary.

        The baseline has the canary's share, and the primary the rest. At 1 the canary has all traffic, at 0 the primary.
        Requires `analysis`.
        """
        if self.analysis is None:
            raise ValueError("a Canary without analysis has only the weights of its backends")
        beside = share if self.analysis.baseline and share < 1 else Fraction(0)
        shares = {self.analysis.canary: share, self.analysis.baseline: beside}
        return whole_weights([shares.get(item.service, 1 - share - beside) for item in self.backends])

    def _first_share(self, canary: str) -> Fraction:
        amounts = {item.service: item.amount for item in self.backends}
        return amounts[canary] / sum(amounts.values())


def _later_steps(analysis: Analysis, first: Fraction) -> Iterator[RolloutStep]:
    """Yield the steps between the first one and the last one."""
    if not analysis.step_share:
        yield from (RolloutStep(parse_percentage(step.share), step.pause) for step in analysis.steps)
        return
    share, rise, most = first, parse_percentage(analysis.step_share), parse_percentage(analysis.max_share)
    while share < most:
        share = min(share + rise, most)
        yield RolloutStep(share)


class Canary(Resource, frozen=True, kw_only=True):
    """A Canary. Its rollout owns the TrafficSplit of the same name, and moves its weights (D19)."""

    spec: CanarySpec
