"""Latencies as counts in log-spaced buckets: they add up across proxies, pods and time, which percentiles do not (R89).

A percentile is off by at most 5 % (`model.latency`). A histogram is one whole number: 64 bits of it are a bucket, the first
bucket the lowest, as in the memory of a little-endian machine (Envoy runs on no other). So histograms add up by `+`, twenty
times as fast as bucket by bucket; a count never reaches its neighbour's bits, because it is below 2**63.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil, sqrt
from typing import TypeAlias

from headgate.model.latency import BOUNDS_US as BOUNDS_US  # noqa: PLC0414  # where it always was

BUCKETS = len(BOUNDS_US) + 1  # the last one is for what is longer
LANE = 64
"""Bits of a bucket."""
_WORD, _BYTES = "Q", LANE // 8
_EMPTY = array(_WORD, bytes(_BYTES * BUCKETS))
_TOPS = sum(1 << LANE * (bucket + 1) - 1 for bucket in range(BUCKETS))  # the highest bit of each bucket

Buckets: TypeAlias = int
"""Counts, one for each of `BOUNDS_US` and one for what is longer; 0 is no latency at all."""


def bucket_of(microseconds: float) -> int:
    """Return the index of the bucket that a latency is counted in; Envoy counts what equals a bound above it."""
    return bisect_right(BOUNDS_US, microseconds)


def gathered(counts: Mapping[int, int]) -> Buckets:
    """Return the histogram that has these counts, by the index of their bucket."""
    words = _EMPTY[:]
    for bucket, count in counts.items():
        words[bucket] = count
    return int.from_bytes(words, "little")


def spread(buckets: Buckets) -> dict[int, int]:
    """Return the counts of a histogram by the index of their bucket, without zeros."""
    if not buckets:
        return {}
    first = ((buckets & -buckets).bit_length() - 1) // LANE
    return {bucket: count for bucket, count in enumerate(_words(buckets >> first * LANE), first) if count}


def growth(buckets: Buckets, old: Buckets) -> Buckets | None:
    """Return by how much each bucket grew; None when one shrank."""
    if not old:
        return buckets
    rest = (buckets | _TOPS) - old
    return rest ^ _TOPS if rest & _TOPS == _TOPS else None


def percentile(buckets: Buckets, share: float) -> float | None:
    """Return the latency in seconds that `share` (0 to 1) of the requests stay below; None without requests."""
    found = percentiles(buckets, (share,))
    return found[0] if found else None


def percentiles(buckets: Buckets, shares: Sequence[float]) -> tuple[float, ...]:
    """Return the percentiles of several shares at once; nothing without requests."""
    if not buckets:
        return ()
    running = list(accumulate(_words(buckets)))
    total = running[-1]
    return tuple([_MIDDLES[bisect_left(running, ceil(share * total) or 1)] for share in shares])


def _words(buckets: Buckets) -> "array[int]":
    """Return the counts, up to the last that is not zero."""
    return array(_WORD, buckets.to_bytes(-(-buckets.bit_length() // LANE) * _BYTES, "little"))


def _middle(index: int) -> float:
    """Return what stands for the latencies of a bucket, in seconds."""
    if index == len(BOUNDS_US):
        return BOUNDS_US[-1] / 1e6
    above = BOUNDS_US[index]
    below = BOUNDS_US[index - 1] if index else above / 1.1
    return sqrt(below * above) / 1e6


_MIDDLES = tuple(map(_middle, range(BUCKETS)))
