"""Histograms of the sizes of responses."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable

from headgate.model.size_buckets import BOUNDS_BYTES
from headgate.telemetry.counters.histogram import Buckets, gathered


def histogram(sizes: Iterable[int]) -> Buckets:
    """Return the histogram of some sizes in bytes."""
    return gathered(Counter(bisect_right(BOUNDS_BYTES, size) for size in sizes))
