"""Pure functions that compute the next sizes of the new and the old ReplicaSets in a rollout."""

import math
from collections.abc import Sequence

from headgate.resources.apps.deployment import RollingUpdate, Strategy
from headgate.resources.meta import Value


class Sizes(Value, frozen=True, kw_only=True):
    """Numbers of pods: `wanted` in the Deployment, `new` in its current ReplicaSet, `old` in each older one, oldest first.

    `new` and `old` have requested pods, `new_available` and `old_available` have available pods.
    """

    wanted: int
    new: int
    new_available: int
    old: tuple[int, ...]
    old_available: tuple[int, ...]


def bounds(strategy: Strategy, replicas: int) -> tuple[int, int]:
    """Return the largest total number of pods, and the smallest number of available pods, during a rollout."""
    limits = strategy.rolling_update or RollingUpdate()
    surge = _share(limits.max_surge, replicas, up=True)
    unavailable = _share(limits.max_unavailable, replicas, up=False)
    if not surge and not unavailable:
        unavailable = 1  # with 0 for both limits, the rollout could never progress
    return replicas + surge, max(replicas - unavailable, 0)


def roll(sizes: Sizes, strategy: Strategy) -> tuple[int, tuple[int, ...]]:
    """Return the next sizes (new, old): as many new pods as maxSurge allows, as few old pods as availability requires."""
    most, least = bounds(strategy, sizes.wanted)
    room = most - sizes.new - sum(sizes.old)
    new = min(sizes.new + max(room, 0), sizes.wanted)
    ready = min(sizes.new_available, sizes.new)
    spare = ready + sum(sizes.old) - least
    broken = [have - min(able, have) for have, able in zip(sizes.old, sizes.old_available, strict=True)]
    old, spare = _shrink(sizes.old, broken, spare)
    healthy = sum(min(able, have) for have, able in zip(sizes.old, sizes.old_available, strict=True)) + ready
    old, _ = _shrink(old, old, min(spare, healthy - least))
    return new, old


def recreate(sizes: Sizes, *, old_left: bool) -> tuple[int, tuple[int, ...]]:
    """Return the next sizes (new, old) for `Recreate`: while old pods are left, the new ReplicaSet does not grow."""
    return sizes.new if old_left else sizes.wanted, (0,) * len(sizes.old)


def resize(sizes: Sequence[int], replicas: int) -> list[int]:
    """Return the next sizes of a paused Deployment's ReplicaSets, oldest first.

    Only the newest ReplicaSet grows, and the oldest ones shrink first.
    """
    result = list(sizes)
    if not result:
        return result
    surplus = sum(result) - replicas
    result[-1] += max(-surplus, 0)
    shrunk, _ = _shrink(result, result, surplus)
    return list(shrunk)


def _shrink(sizes: Sequence[int], most: Sequence[int], budget: int) -> tuple[tuple[int, ...], int]:
    """Reduce each size by at most its limit in `most`, and their sum by at most `budget`.

    Return the sizes and the unused budget.
    """
    result = []
    for size, limit in zip(sizes, most, strict=True):
        taken = max(min(size, limit, budget), 0)
        budget -= taken
        result.append(size - taken)
    return tuple(result), budget


def _share(limit: int | str, replicas: int, *, up: bool) -> int:
    """Return a limit such as `2` or `25%` as a number of pods, rounded `up` or down.

    Any other text means 25%, the default.
    """
    if isinstance(limit, int):
        return max(limit, 0)
    number = limit.removesuffix("%")
    percent = int(number) if number.isdigit() else 25
    exact = replicas * percent / 100
    return math.ceil(exact) if up else math.floor(exact)
