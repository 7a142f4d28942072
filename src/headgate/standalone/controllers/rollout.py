"""The arithmetic of a rollout: how many pods of the new and of the old templates to want next."""

import math
from collections.abc import Sequence

from headgate.resources.meta import Value
from headgate.resources.workloads import RollingUpdate, Strategy


class Sizes(Value, frozen=True, kw_only=True):
    """Numbers of pods: wanted in all, and per ReplicaSet asked for and available; `old` from oldest to newest."""

    wanted: int
    new: int
    new_available: int
    old: tuple[int, ...]
    old_available: tuple[int, ...]


def bounds(strategy: Strategy, wanted: int) -> tuple[int, int]:
    """Return how many pods there may be in all, and how many must stay available."""
    limits = strategy.rolling_update or RollingUpdate()
    surge = _share(limits.max_surge, wanted, up=True)
    unavailable = _share(limits.max_unavailable, wanted, up=False)
    if not surge and not unavailable:
        unavailable = 1  # otherwise nothing could ever change
    return wanted + surge, max(wanted - unavailable, 0)


def roll(sizes: Sizes, strategy: Strategy) -> tuple[int, tuple[int, ...]]:
    """Return the next sizes, new and old: as many new pods as the surge allows, as few old ones as are still needed."""
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
    """Return the next sizes when all old pods must have gone before the first new one starts."""
    return sizes.new if old_left else sizes.wanted, (0,) * len(sizes.old)


def resize(sizes: Sequence[int], wanted: int) -> list[int]:
    """Scale without rolling, as for a paused Deployment: the newest (last) grows, the oldest shrink first."""
    result = list(sizes)
    if not result:
        return result
    surplus = sum(result) - wanted
    result[-1] += max(-surplus, 0)
    shrunk, _ = _shrink(result, result, surplus)
    return list(shrunk)


def _shrink(sizes: Sequence[int], most: Sequence[int], budget: int) -> tuple[tuple[int, ...], int]:
    """Take up to `budget` away in all, up to `most` from each; return what stays and the rest of the budget."""
    result = []
    for size, limit in zip(sizes, most, strict=True):
        taken = max(min(size, limit, budget), 0)
        budget -= taken
        result.append(size - taken)
    return tuple(result), budget


def _share(limit: int | str, wanted: int, *, up: bool) -> int:
    """Resolve `2` or `25%`; a text that is neither counts as Kubernetes' default, 25%."""
    if isinstance(limit, int):
        return max(limit, 0)
    number = limit.removesuffix("%")
    percent = int(number) if number.isdigit() else 25
    exact = wanted * percent / 100
    return math.ceil(exact) if up else math.floor(exact)
