"""Latencies as counts in log-spaced buckets: they add up across proxies, pods and time, which percentiles do not (R89).

A percentile is off by at most 5 % (`model.latency`).
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import sqrt

from headgate.model.latency import BOUNDS_US as BOUNDS_US  # noqa: PLC0414  # where it always was

_LEAST = 1e-9  # of a request: the share 0 is the first one

Buckets = tuple[int, ...]
"""Counts, one for each of `BOUNDS_US` and one for what is longer; or nothing, which is no latency at all."""


def bucket_of(microseconds: float) -> int:
    """Return the index of the bucket that a latency is counted in."""
    return bisect_left(BOUNDS_US, microseconds)


def merged(several: Iterable[Sequence[int]]) -> Buckets:
    """Add histograms up."""
    present = [buckets for buckets in several if buckets]
    return tuple(map(sum, zip(*present, strict=True))) if present else ()


def percentile(buckets: Sequence[int], share: float) -> float | None:
    """Return the latency in seconds that `share` (0 to 1) of the requests stay below; None without requests."""
    found = percentiles(buckets, (share,))
    return found[0] if found else None


def percentiles(buckets: Sequence[int], shares: Sequence[float]) -> tuple[float, ...]:
    """Return the percentiles of several shares at once; nothing without requests."""
    running = list(accumulate(buckets))
    if not running or not running[-1]:
        return ()
    total = running[-1]
    return tuple(_middle(bisect_left(running, max(share * total, _LEAST))) for share in shares)


def _middle(index: int) -> float:
    """Return what stands for the latencies of a bucket, in seconds."""
    if index == len(BOUNDS_US):
        return BOUNDS_US[-1] / 1e6
    above = BOUNDS_US[index]
    below = BOUNDS_US[index - 1] if index else above / 1.1
    return sqrt(below * above) / 1e6
