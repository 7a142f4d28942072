"""How fast and how far an autoscaler scales: stabilization windows, policies, and the least and most replicas.

The defaults and the words are those of Kubernetes' HorizontalPodAutoscaler.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headgate.resources.autoscaling.horizontal_pod_autoscaler import (
    AutoscalerSpec,
    Behavior,
    ScalingPolicy,
    ScalingRules,
)

_LONGEST_WINDOW_S = 3600.0  # the most that stabilizationWindowSeconds may be; periodSeconds is at most half of it
_PERIOD_S = 15
_UP = ScalingRules(
    stabilization_window_seconds=0,
    select_policy="Max",
    policies=(
        ScalingPolicy(type="Pods", value=4, period_seconds=_PERIOD_S),
        ScalingPolicy(type="Percent", value=100, period_seconds=_PERIOD_S),
    ),
)
_DOWN = ScalingRules(
    stabilization_window_seconds=300,
    select_policy="Max",
    policies=(ScalingPolicy(type="Percent", value=100, period_seconds=_PERIOD_S),),
)
_WITHIN = "DesiredWithinRange", "the desired count is within the acceptable range"


class ReplicasAt(NamedTuple):
    """A number at a time in seconds since the epoch: a recommended number of replicas, or added ones (removed: negative)."""

    time: float
    replicas: int


class ScalingHistory(NamedTuple):
    """The recommendations before stabilization, and the changes to the replicas, oldest first."""

    recommendations: tuple[ReplicasAt, ...] = ()
    rescales: tuple[ReplicasAt, ...] = ()

    def recommended(self, change: ReplicasAt) -> "ScalingHistory":
        """Return the history with a recommendation."""
        return self._replace(recommendations=(*_recent(self.recommendations, change.time), change))

    def rescaled(self, change: ReplicasAt) -> "ScalingHistory":
        """Return the history with a change to the replicas."""
        return self._replace(rescales=(*_recent(self.rescales, change.time), change))


class Bounded(NamedTuple):
    """The replicas that a behavior allows now.

    `stabilized` has the reason and the message if recent recommendations delay the change. `limit` has those of the limit that
    applies; `is_limited` says that it changes the number.
    """

    replicas: int
    stabilized: tuple[str, str] | None
    limit: tuple[str, str]
    is_limited: bool


def bounded(spec: AutoscalerSpec, current: int, recommended: int, history: ScalingHistory, now: float) -> Bounded:
    """Return the replicas to scale to, from `current`, when the metrics recommend `recommended`.

    `history` has earlier recommendations and changes; `now` is in seconds since the epoch.
    """
    stable = _stable(spec, current, recommended, history, now)
    stabilized = None
    if stable != recommended:
        higher = recommended >= current
        name, lower, lowest = ("Up", "lower", "lowest") if higher else ("Down", "higher", "highest")
        message = f"recent recommendations were {lower} than current one, applying the {lowest} recent recommendation"
        stabilized = f"Scale{name}Stabilized", message
    most, least = _limits(spec, current, history, now)
    if stable > current and stable > most[0]:
        return Bounded(most[0], stabilized, most[1:], is_limited=True)
    if stable < current and stable < least[0]:
        return Bounded(least[0], stabilized, least[1:], is_limited=True)
    return Bounded(stable, stabilized, _WITHIN, is_limited=False)


def _stable(spec: AutoscalerSpec, current: int, recommended: int, history: ScalingHistory, now: float) -> int:
    """Return the recommendation that stands: the lowest one of its window upwards, the highest one downwards."""
    up, down = rules(spec)

    def recent(window: int) -> list[int]:
        return [change.replicas for change in history.recommendations if change.time > now - window]

    lowest = min([recommended, *recent(up.stabilization_window_seconds or 0)])
    highest = max([recommended, *recent(down.stabilization_window_seconds or 0)])
    return min(max(current, lowest), highest)


def rules(spec: AutoscalerSpec) -> tuple[ScalingRules, ScalingRules]:
    """Return the rules of scaling up and down, with the defaults of absent fields."""
    behavior = spec.behavior or Behavior()
    return _completed(behavior.scale_up, _UP), _completed(behavior.scale_down, _DOWN)


def _completed(rules: ScalingRules | None, defaults: ScalingRules) -> ScalingRules:
    if rules is None:
        return defaults
    window = rules.stabilization_window_seconds
    return ScalingRules(
        stabilization_window_seconds=defaults.stabilization_window_seconds if window is None else window,
        select_policy=rules.select_policy or defaults.select_policy,
        policies=rules.policies or defaults.policies,
        tolerance=rules.tolerance,
    )


def _limits(
    spec: AutoscalerSpec, current: int, history: ScalingHistory, now: float
) -> tuple[tuple[int, str, str], tuple[int, str, str]]:
    """Return the most and the least replicas now, each with its reason and message."""
    up, down = rules(spec)
    rate = max(_allowed(up, current, history, now=now, sign=1), current)
    most = (rate, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
    if rate >= spec.max_replicas:
        message = "the desired replica count is more than the maximum replica count"
        most = (spec.max_replicas, "TooManyReplicas", message)
    rate = min(_allowed(down, current, history, now=now, sign=-1), current)
    least = (rate, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
    if rate <= spec.min_replicas:
        message = "the desired replica count is less than the minimum replica count"
        least = (spec.min_replicas, "TooFewReplicas", message)
    return most, least


def _allowed(rules: ScalingRules, current: int, history: ScalingHistory, *, now: float, sign: int) -> int:
    """Return the replicas that the policies of a direction allow; `sign` is 1 upwards, -1 downwards."""
    if rules.select_policy == "Disabled":
        return current
    proposals = []
    for policy in rules.policies or ():
        since = now - policy.period_seconds
        begin = current - sum(change.replicas for change in history.rescales if change.time > since)
        if policy.type == "Pods":
            proposals.append(begin + sign * policy.value)
        else:
            hundredths = begin * (100 + sign * policy.value)
            proposals.append(-(-hundredths // 100) if sign > 0 else hundredths // 100)
    return max(proposals) if (rules.select_policy == "Max") == (sign > 0) else min(proposals)


def _recent(changes: Iterable[ReplicasAt], now: float) -> Iterable[ReplicasAt]:
    return (change for change in changes if change.time > now - _LONGEST_WINDOW_S)
