"""The type of a Canary's analysis (R109, D19): the steps of the rollout, and the criteria of its decisions."""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from fractions import Fraction
from typing import Annotated, Any

from headgate import durations
from headgate.quantity import PERCENTAGE, parse_percentage, parse_share
from headgate.resources.meta import Input, parsed, rows
from headgate.resources.schema import builders
from headgate.resources.schema.builders import (
    DURATION,
    MATCH_NAME,
    PERCENTILE,
    PORT_LIMITS,
    REQUEST_PATH,
    listing,
)
from headgate.resources.schema.declared import BrokenAt, Field, FieldRule
from headgate.resources.smi.http_route_group import HttpMatch, request_match

_ZERO_DURATION = "^(0+[hms]+)+$"


def _not_with(other: str, field: str, other_is_unset: str, why: str = "") -> FieldRule:
    """Return the rule that a field of the analysis needs the other one to be unset, as a CEL expression says."""

    def broken(analysis: Mapping[str, Any]) -> bool:
        value = analysis.get(other)
        return isinstance(value, bool | list) and bool(value) and analysis.get(field) is not None

    message = f"can't be combined with {other}{why}; remove one of them"
    return FieldRule(field, message, f"!has(self.{other}) || {other_is_unset} || !has(self.{field})", broken)


def _needed(field: str, other: str, hint: str) -> FieldRule:
    """Return the rule that a field of the analysis without listed steps belongs to another one."""

    def broken(analysis: Mapping[str, Any]) -> bool:
        return not analysis.get("steps") and analysis.get(field) is None and analysis.get(other) is not None

    cel = f"has(self.{field}) || !has(self.{other}) || has(self.steps) && size(self.steps) > 0"
    return FieldRule(field, f"is missing: {hint}", cel, broken)


_UP_TO_50 = "[0-4]?[0-9]([.][0-9]+)?|50([.]0+)?"
_BESIDE = "must be at most 50%, because the baseline has the same share"
_HALF = Fraction(1, 2)


def _has_high_share(analysis: Mapping[str, Any]) -> bool:
    """Return whether the share of the computed steps is too high for a canary and a baseline."""
    share = parsed(analysis.get("maxShare"), parse_share)
    return analysis.get("baseline") is not None and share is not None and share > _HALF


def _high_steps(analysis: Mapping[str, Any]) -> Iterator[BrokenAt]:
    """Yield the listed steps whose share is too high for a canary and a baseline."""
    for index, share, _ in _listed_shares(analysis):
        if analysis.get("baseline") is not None and _HALF < share < 1:
            yield BrokenAt(index)


def _falling_steps(analysis: Mapping[str, Any]) -> Iterator[BrokenAt]:
    """Yield the listed steps whose share is not above that of the step before."""
    before, written = Fraction(0), ""
    for index, share, text in _listed_shares(analysis):
        if share <= before:
            yield BrokenAt(index, f", {written}")
        before, written = share, text


def _listed_shares(analysis: Mapping[str, Any]) -> Iterator[tuple[int, Fraction, str]]:
    """Yield the index and the share of each listed step with a valid share, and the share as written."""
    for index, step in rows(analysis.get("steps")):
        if share := parsed(step.get("share"), parse_share):
            yield index, share, step["share"]


class Step(Input, frozen=True, kw_only=True):
    """A step of the analysis: the canary's share, a percentage. With `pause`, it ends only when a user promotes."""

    share: Annotated[str, Field(schema=builders.share("The canary's share of the requests, for example 25%."))]
    pause: Annotated[bool, Field("Whether the step ends only when a user promotes the canary.")] = False


class SuccessCriteria(Input, frozen=True, kw_only=True):
    """The limits of the canary's success rate: relative to the primary (`max_drop`, `margin`), and absolute (`min`)."""

    max_drop: Annotated[
        str,
        Field(
            "The canary is rolled back once its success rate is proven to be lower than the primary's by more.",
            pattern=PERCENTAGE,
        ),
    ] = "0%"
    margin: Annotated[
        str,
        Field(
            "The canary is promoted once a drop of maxDrop and margin together is ruled out.",
            pattern=PERCENTAGE,
        ),
    ] = "1%"
    min: Annotated[
        str,
        Field(
            schema=builders.share(
                "The canary is rolled back once its success rate is proven to be lower; with 100% after any failure. "
                "No such limit when absent."
            )
        ),
    ] = ""

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

    max_increase: Annotated[
        str,
        Field(
            "The canary is rolled back once its share is proven to be higher than the primary's by more.",
            pattern=PERCENTAGE,
        ),
    ] = "0%"
    margin: Annotated[
        str,
        Field(
            "The canary is promoted once an increase of maxIncrease and margin together is ruled out.",
            pattern=PERCENTAGE,
        ),
    ] = "1%"

    @property
    def tolerated_increase(self) -> Fraction:
        """The increase above the primary's share that is no reason to roll back."""
        return parse_percentage(self.max_increase)

    @property
    def excluded_increase(self) -> Fraction:
        """The increase that must be ruled out before the canary is promoted: `max_increase` and `margin` together."""
        return parse_percentage(self.max_increase) + parse_percentage(self.margin)


class LatencyCriterion(Input, frozen=True, kw_only=True):
    """A limit for one of the canary's latency percentiles: absolute (`max`), relative to the primary, or both."""

    __rules__ = (
        FieldRule(
            "",
            "has no limit: write max, for example 500ms, or maxIncrease, for example 10%",
            cel="has(self.max) || has(self.maxIncrease)",
            broken=lambda criterion: criterion.get("max") is None and criterion.get("maxIncrease") is None,
        ),
    )

    percentile: Annotated[
        str, Field("The percentile: p50 to p99, or with more digits, as p999 for 99.9%.", pattern=PERCENTILE)
    ]
    max: Annotated[str, Field("The highest latency, for example 500ms.", pattern=DURATION)] = ""
    max_increase: Annotated[
        str,
        Field("The highest increase above the latency of the primary, for example 10%.", pattern=PERCENTAGE),
    ] = ""

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

    name: Annotated[str, Field("The name, for messages.", pattern=MATCH_NAME)]
    when: Annotated[When, Field("Before the first request to the canary, during each step, or after the end.")]
    service: Annotated[str, Field("The Service in the Canary's namespace.", grammar="label")]
    port: Annotated[int, Field("The port of the Service.", limits=PORT_LIMITS)]
    path: Annotated[str, Field("The path of the request.", pattern=REQUEST_PATH)] = "/"


class Analysis(Input, frozen=True, kw_only=True):
    """`spec.analysis`: the roles of the backends, the steps of the rollout, and the criteria of the decision.

    The steps are either listed, or computed from `step_share` and `max_share`. Before them, the canary gets copies of a
    part of the requests (`mirror`), and then the requests that fit `matches`. All shares are percentages.
    """

    __rules__ = (
        FieldRule(
            "baseline",
            "is the canary; name another backend, with the primary's version, or remove the field",
            cel="!has(self.baseline) || self.baseline != self.canary",
            broken=lambda analysis: (
                isinstance(analysis.get("baseline"), str) and analysis["baseline"] == analysis.get("canary")
            ),
        ),
        *(_not_with("steps", field, "size(self.steps) == 0") for field in ("stepShare", "maxShare")),
        _needed(
            "stepShare",
            "maxShare",
            "write by how much each step raises the canary's share up to maxShare, for example 10%",
        ),
        _needed(
            "maxShare", "stepShare", "write the canary's share at which the steps of stepShare end, for example 50%"
        ),
        *(
            _not_with("dryRun", field, "!self.dryRun", ", which changes nothing for the canary")
            for field in ("mirror", "matches")
        ),
        FieldRule(
            "steps[].share",
            "must be above the share of the step before",
            cel="!has(self.steps) || self.steps.all(step, self.steps.exists_one(other, step.share == other.share))",
            broken=_falling_steps,
        ),
        FieldRule(
            "steps[].share",
            f"{_BESIDE}; only a last step has 100%",
            cel="!has(self.baseline) || !has(self.steps) || "
            f"self.steps.all(step, step.share.matches('^({_UP_TO_50}|100([.]0+)?)%$'))",
            broken=_high_steps,
        ),
        FieldRule(
            "maxShare",
            _BESIDE,
            cel=f"!has(self.baseline) || !has(self.maxShare) || self.maxShare.matches('^({_UP_TO_50})%$')",
            broken=_has_high_share,
        ),
        FieldRule(
            "interval",
            "must be longer than 0; write for example 30s",
            cel=f"!has(self.interval) || !self.interval.matches('{_ZERO_DURATION}')",
            broken=lambda analysis: (
                isinstance(analysis.get("interval"), str)
                and re.search(_ZERO_DURATION, analysis["interval"]) is not None
            ),
        ),
    )

    canary: Annotated[str, Field("The backend with the new version.")]
    baseline: Annotated[
        str,
        Field(
            "A backend with the primary's version and the canary's share; the canary is compared with it. "
            "When absent, the canary is compared with the primary."
        ),
    ] = ""
    mirror: Annotated[
        str,
        Field(
            schema=builders.share(
                "A step before the first share: the canary gets copies of this share of the requests, for example 20%, and no "
                "user's request. No such step when absent."
            )
        ),
    ] = ""
    matches: Annotated[
        tuple[HttpMatch, ...],
        Field(
            schema=listing(
                "A step before the first share: only the requests that satisfy one of these matches go to the canary. No such "
                "step when empty.",
                request_match(),
                key="name",
            )
        ),
    ] = ()
    steps: Annotated[
        tuple[Step, ...],
        Field(
            "The steps after the first one, whose shares rise. A last step with 100% follows by itself.",
            item=Field("One step of the rollout."),
            limits={"maxItems": 100},
        ),
    ] = ()
    step_share: Annotated[
        str,
        Field(
            schema=builders.share(
                "Instead of steps: the canary's share rises by this much in each step, up to maxShare."
            )
        ),
    ] = ""
    max_share: Annotated[
        str, Field(schema=builders.share("The canary's share in the last step of stepShare; 100% follows."))
    ] = ""
    interval: Annotated[str, Field("The shortest length of a step, for example 30s.", pattern=DURATION)] = "1m"
    min_requests: Annotated[
        int, Field("The least number of requests to the canary in each step.", limits={"minimum": 1})
    ] = 20
    error_probability: Annotated[
        str,
        Field(
            "The tolerated probability of a wrong rollback, and of a wrong promotion.",
            pattern=PERCENTAGE,
        ),
    ] = "1%"
    failures_within: Annotated[
        str,
        Field(
            "Failures of one version within this time count as one, for example 10s, because one incident may cause them. "
            "When absent, each failure counts.",
            pattern=DURATION,
        ),
    ] = ""
    dry_run: Annotated[bool, Field("Whether decisions are reported only, and no weight changes.")] = False
    success: Annotated[SuccessCriteria, Field("The limits of the canary's success rate.")] = SuccessCriteria()
    client_errors: Annotated[
        ClientErrorCriterion | None,
        Field(
            "Compares the shares of client errors: statuses of 400 to 499, and gRPC's client errors. When absent, they are "
            "no reason to roll back."
        ),
    ] = None
    latencies: Annotated[
        tuple[LatencyCriterion, ...],
        Field(
            "The limits of the canary's latency; none when empty.",
            key="percentile",
            item=Field("A limit of one percentile: max, maxIncrease, or both."),
        ),
    ] = ()
    webhooks: Annotated[
        tuple[Webhook, ...],
        Field(
            "The programs that headgate calls with POST; 2xx agrees, 4xx rolls the canary back, other responses are retried.",
            key="name",
            item=Field("One program."),
        ),
    ] = ()

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
