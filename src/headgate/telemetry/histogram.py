"""Latencies as counts in log-spaced buckets: they add up across proxies, pods and time, which percentiles do not (R89).

A percentile is off by at most 5 % (`model.latency`). A histogram is one number (`lanes`), a bucket a short lane.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil, sqrt
from typing import TypeAlias

from headgate.model.latency import BOUNDS_US as BOUNDS_US  # noqa: PLC0414  # where it always was
from headgate.telemetry import lanes

BUCKETS = len(BOUNDS_US) + 1  # the last one is for what is longer
MOST = lanes.MOST
"""What a bucket has room for: two million requests a second, all of them as fast, for half an hour."""
_EMPTY = lanes.empty(BUCKETS, lanes.SHORT)
_FEWER = 8  # bits that counts are shortened by where there are too many to be added
_KEPT = sum((MOST >> _FEWER) << 32 * bucket for bucket in range(BUCKETS))

Buckets: TypeAlias = int
"""Counts, one for each of `BOUNDS_US` and one for what is longer; 0 is no latency at all."""


def bucket_of(microseconds: float) -> int:
    """Return the index of the bucket that a latency is counted in; Envoy counts what equals a bound above it."""
    return bisect_right(BOUNDS_US, microseconds)


def gathered(counts: Mapping[int, int]) -> Buckets:
    """Return the histogram that has these counts, by the index of their bucket."""
    words = _EMPTY[:]
    for bucket, count in counts.items():
        words[bucket] = min(count, MOST)
    return lanes.joined(words)


def merged(several: Sequence[Buckets], requests: int) -> Buckets:
    """Add histograms of so many `requests` up; of too many for a bucket one in 256 counts, which no percentile notices."""
    if requests > MOST:
        several = [buckets >> _FEWER & _KEPT for buckets in several]
    return sum(several)


def percentiles(buckets: Buckets, shares: Sequence[float]) -> tuple[float, ...]:
    """Return the percentiles of several shares at once; nothing without requests."""
    if not buckets:
        return ()
    first, words = lanes.used(buckets, lanes.SHORT)
    running = list(accumulate(words))
    total = running[-1]
    return tuple([_MIDDLES[first + bisect_left(running, ceil(share * total) or 1)] for share in shares])


def _middle(index: int) -> float:
    """Return what stands for the latencies of a bucket, in seconds."""
    if index >= len(BOUNDS_US):
        return BOUNDS_US[-1] / 1e6
    above = BOUNDS_US[index]
    below = BOUNDS_US[index - 1] if index else above / 1.1
    return sqrt(below * above) / 1e6


_MIDDLES = tuple(map(_middle, range(BUCKETS + 1)))  # one more for what overflows, by a proxy that tells nonsense
