"""The sum of a sliding window: adds buckets that enter the window, and subtracts buckets that leave the window.

In a large mesh, a window of half a minute has a million counts. A second later, only a thirtieth of the counts differ.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import NO_PEER, Flow, PodTotals
from headgate.telemetry.counters.time_buckets import TimeBucket

Key = TypeVar("Key")
_NAMELESS = Flow(
    source=NO_PEER, destination=NO_PEER
)  # a default that is never used, because each flow number in a bucket has a flow


class SlidingSum:
    """The exact sum of some time buckets. `flows` has the counts of each flow."""

    def __init__(self) -> None:
        self._reset()

    def arrived(self) -> PodTotals:
        """Return a copy of the sums that each pod received."""
        return PodTotals(requests=dict(self._requests), copies=dict(self._copies))

    def slide(self, buckets: Sequence[TimeBucket], names: Sequence[Flow | None]) -> Iterator[None]:
        """Change this sum to the sum of `buckets`, one bucket per step. `names` has the current flows by number.

        The caller may stop after any step, and slide to other buckets later.
        """
        by_id = {id(bucket): bucket for bucket in buckets}
        gone = {key: bucket for key, bucket in self._buckets.items() if key not in by_id}
        if _size(gone) >= _size(self._buckets) / 2:
            self._reset()
            gone = {}
        for key, bucket in gone.items():
            self._subtract(bucket)
            del self._buckets[key]
            yield
        for key, bucket in by_id.items():
            if key not in self._buckets:
                self._add(bucket, names)
                self._buckets[key] = bucket
                yield

    def _reset(self) -> None:
        self.flows: dict[Flow, Counts] = {}
        self._requests: dict[str, Counts] = {}
        self._copies: dict[str, Counts] = {}
        self._buckets: dict[
            int, TimeBucket
        ] = {}  # The keys are `id(bucket)`, unique while this dict refers to the bucket.
        self._names: dict[int, Flow] = {}
        """The flow of each flow number at the time when its bucket was added; numbers are reused."""

    def _add(self, bucket: TimeBucket, names: Sequence[Flow | None]) -> None:
        for number, counts in bucket.items():
            flow = self._names.get(number)
            if flow is None:
                flow = self._names[number] = names[number] or _NAMELESS
            _increase(self.flows, flow, counts)
            if pod := flow.destination.pod:
                _increase(self._copies if flow.copy else self._requests, pod, counts)

    def _subtract(self, bucket: TimeBucket) -> None:
        for number, counts in bucket.items():
            flow = self._names[number]
            if pod := flow.destination.pod:
                _decrease(self._copies if flow.copy else self._requests, pod, counts)
            if not _decrease(self.flows, flow, counts):
                del self._names[number]


def _increase(sums: dict[Key, Counts], key: Key, counts: Counts) -> None:
    before = sums.get(key)
    sums[key] = before.plus(counts) if before else counts


def _decrease(sums: dict[Key, Counts], key: Key, counts: Counts) -> bool:
    """Subtract counts from the sum of `key`; return whether the sum is still above zero."""
    left = sums[key].minus(counts)
    if left.latency or left.counters:
        sums[key] = left
        return True
    del sums[key]
    return False


def _size(buckets: Mapping[int, TimeBucket]) -> int:
    return sum(bucket.size for bucket in buckets.values())
