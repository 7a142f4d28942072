"""Latency histograms with log-spaced buckets.

Unlike percentiles, they can be added across proxies, pods and time (R89).

The error of a percentile is at most 5 % (`model.latency_buckets`). A histogram is one integer with a narrow packed
counter per bucket.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil, sqrt
from operator import mul
from typing import TypeAlias

from headgate.model.latency_buckets import BOUNDS_US as BOUNDS_US  # noqa: PLC0414  # other modules import it from here
from headgate.statistics.intervals import quantile_interval
from headgate.telemetry.counters import packed_counters

BUCKETS = len(BOUNDS_US) + 1  # the last bucket is for latencies above all bounds
MOST = packed_counters.LARGEST_NARROW
"""The largest count of a bucket, enough for two million requests a second with the same latency for half an hour."""
_COUNTER_BITS = packed_counters.BITS[packed_counters.NARROW]
_EMPTY = packed_counters.zeros(BUCKETS, packed_counters.NARROW)
_SHIFT = 8  # a sum that could overflow a bucket is divided by 2 to this power
_SHIFT_MASK = sum((MOST >> _SHIFT) << _COUNTER_BITS * bucket for bucket in range(BUCKETS))

Buckets: TypeAlias = int
"""Packed counts, one for each of `BOUNDS_US` and one for longer latencies; 0 is an empty histogram."""


def bucket_of(microseconds: float) -> int:
    """Return the bucket index of a latency; as in Envoy, a latency equal to a bound belongs to the next bucket."""
    return bisect_right(BOUNDS_US, microseconds)


def gathered(counts: Mapping[int, int]) -> Buckets:
    """Return the histogram with these counts, given by bucket index."""
    counters = _EMPTY[:]
    for bucket, count in counts.items():
        counters[bucket] = min(count, MOST)
    return packed_counters.pack(counters)


def merged(several: Sequence[Buckets], requests: int) -> Buckets:
    """Return the sum of histograms. `requests` is the number of requests in all of them.

    If the total could overflow a bucket, all counts are divided by 256, which hardly changes percentiles.
    """
    if requests > MOST:
        several = [buckets >> _SHIFT & _SHIFT_MASK for buckets in several]
    return sum(several)


def percentiles(buckets: Buckets, shares: Sequence[float]) -> tuple[float, ...]:
    """Return the latency in seconds at each share (0 to 1); empty if there are no requests."""
    return tuple([_MIDDLES[bucket] for bucket in _buckets_at(buckets, shares)]) if buckets else ()


def deviation(buckets: Buckets) -> float:
    """Return the standard deviation of the latencies in seconds; 0 if there are no requests.

    Each latency counts as the middle of its bucket, which is at most 5 % away. So the error is at most 5 % of the root mean
    square of the latencies, and latencies within one bucket have a deviation of 0. Latencies below 0.1 ms count as 0.095 ms,
    and above 60 s as 60 s.
    """
    if not buckets:
        return 0.0
    first, counters = packed_counters.unpack_from_first(buckets, packed_counters.NARROW)
    middles = _MIDDLES[first : first + len(counters)]
    total = sum(counters)
    mean = sum(map(mul, counters, middles)) / total
    return sqrt(sum([count * (middle - mean) ** 2 for count, middle in zip(counters, middles, strict=True)]) / total)


def quantile_bounds(buckets: Buckets, share: float, error: float) -> tuple[float, float]:
    """Return a confidence interval in seconds for the latency at a share (0 to 1); its high end may be infinite.

    The ends are bounds of buckets. The interval misses the true latency with a probability of at most `error`.
    """
    counters = packed_counters.unpack(buckets, packed_counters.NARROW)  # without empty buckets at the end
    low, high = quantile_interval(counters, BOUNDS_US[: len(counters)], share, error)
    return low / 1e6, high / 1e6


def bound_at(microseconds: float) -> int:
    """Return the index of the first bound at or above a latency; `len(BOUNDS_US)` if the latency is above all bounds."""
    return bisect_left(BOUNDS_US, microseconds)


def count_above(buckets: Buckets, bound: int) -> int:
    """Return the number of latencies at or above the bound with this index."""
    return sum(packed_counters.unpack(buckets >> _COUNTER_BITS * (bound + 1), packed_counters.NARROW))


def totals(buckets: Buckets, count: int) -> Sequence[int]:
    """Return the numbers in the first `count` buckets."""
    numbers = packed_counters.unpack(buckets, packed_counters.NARROW)
    return [*numbers, *[0] * (count - len(numbers))]


def percentile_bound(buckets: Buckets, share: float) -> int | None:
    """Return the index of the first bound above the latency at a share (0 to 1); None if there are no requests.

    The index is `len(BOUNDS_US)` if the latency is above all bounds.
    """
    return _buckets_at(buckets, (share,))[0] if buckets else None


def _buckets_at(buckets: Buckets, shares: Sequence[float]) -> list[int]:
    """Return the index of the bucket with the latency at each share. There must be a latency."""
    first, counters = packed_counters.unpack_from_first(buckets, packed_counters.NARROW)
    running = list(accumulate(counters))
    total = running[-1]
    return [first + bisect_left(running, ceil(share * total) or 1) for share in shares]


def _middle(index: int) -> float:
    """Return the geometric middle of a bucket, in seconds."""
    if index >= len(BOUNDS_US):
        return BOUNDS_US[-1] / 1e6
    above = BOUNDS_US[index]
    below = BOUNDS_US[index - 1] if index else above / 1.1
    return sqrt(below * above) / 1e6


# One entry more than there are buckets, because the last bucket may overflow into another.
_MIDDLES = tuple(map(_middle, range(BUCKETS + 1)))
