"""A histogram of durations for `/metrics`."""

from bisect import bisect_left
from collections.abc import Iterator

from headgate.telemetry.prometheus.text import Line, histogram

BOUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Seconds."""


class Timings:
    """Durations since headgate started."""

    def __init__(self) -> None:
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self._buckets[bisect_left(BOUNDS, seconds)] += 1
        self._total += seconds

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the histogram."""
        return histogram(BOUNDS, self._buckets, self._total)
