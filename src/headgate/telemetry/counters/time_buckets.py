"""Counts of flows in time buckets of one second, which are packed, later merged into coarser buckets, and finally dropped.

Packing makes tens of thousands of flows fit into memory. Each flow is encoded as a head, then the two
integers of `Counts` as little-endian bytes without leading and trailing zeros.
"""

from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import takewhile
from math import inf
from struct import Struct

from headgate.telemetry.counters.counts import Counts

LENGTH = 1.0  # The longest time between the first and the last report in a bucket, in seconds.
FINE = 140.0  # Seconds after which buckets are merged; shorter windows are exact to one second.
COARSE = (
    30.0  # The longest time between the beginnings of the first and the last bucket in a merged bucket, in seconds.
)
KEPT = 900.0  # Seconds after which a bucket is dropped.
_HEAD = Struct("<IHHHH")
"""The flow number, then for `latency` and `counters`: the number of omitted leading zero bytes, and of stored bytes."""


class TimeBucket:
    """The counts of the reports between two monotonic times, by flow number, with notes about missing counts.

    It starts with its first report and ends with its last one, so `start` and `end` of a single report are equal.
    Counts are packed only when the bucket is stored for longer, because packing takes longer than reading counts once.
    """

    def __init__(self, start: float, end: float, counts: Mapping[int, Counts] | bytes, notes: "Counter[str]") -> None:
        self.start = start
        self.end = end
        self.notes = notes
        self._counts = counts
        self.size = sum(1 for _ in self.flows())

    def items(self) -> Iterable[tuple[int, Counts]]:
        """Return flow numbers with their counts."""
        return unpack_flows(self._counts) if isinstance(self._counts, bytes) else self._counts.items()

    def flows(self) -> Iterable[int]:
        """Return the flow numbers."""
        return flows_in(self._counts) if isinstance(self._counts, bytes) else self._counts

    @property
    def is_packed(self) -> bool:
        """Whether the counts are packed."""
        return isinstance(self._counts, bytes)

    def packed(self) -> bytes:
        """Return the packed counts; pack them first if necessary."""
        if not isinstance(self._counts, bytes):
            self._counts = pack_flows(self._counts)
        return self._counts


class OpenBucket:
    """A time bucket to which counts are still added. The caller moves `end` to the time of each report."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.end = start
        self.counts: dict[int, Counts] = {}
        self.notes: Counter[str] = Counter()

    def add(self, number: int, counts: Counts) -> None:
        """Add counts to the flow of that number."""
        before = self.counts.get(number)
        self.counts[number] = before.plus(counts) if before else counts

    @property
    def is_empty(self) -> bool:
        """Whether the bucket has no counts and no notes."""
        return not self.counts and not self.notes

    def closed(self) -> TimeBucket:
        """Return an immutable copy."""
        return TimeBucket(self.start, self.end, dict(self.counts), Counter(self.notes))


class TimeBuckets:
    """The time buckets of the last 15 minutes; new counts are added to the bucket `current`."""

    def __init__(self, now: float) -> None:
        self.current = OpenBucket(now)
        self._maintained = now
        self._fine: deque[TimeBucket] = deque()
        self._coarse: deque[TimeBucket] = deque()
        self._merging: OpenBucket | None = None

    def advance(self, now: float) -> bool:
        """Prepare for a report at `now`: start a new bucket if the current one is empty or too old.

        Between two buckets, merge and drop old ones, at most once a second. Return whether that happened.
        """
        if not self.current.is_empty and now < self.current.start + LENGTH:
            self.current.end = now
            return False
        self.cut(now)
        self.current = OpenBucket(now)
        if now < self._maintained + LENGTH:
            return False
        self._maintained = now
        for bucket in takewhile(lambda bucket: not bucket.is_packed, reversed(self._fine)):
            bucket.packed()
        while self._fine and self._fine[0].start <= now - FINE:
            self._merge(self._fine.popleft())
        while self._coarse and self._coarse[0].start <= now - KEPT:
            self._coarse.popleft()
        if self._merging and self._merging.start <= now - KEPT:
            self._merging = None
        return True

    def cut(self, now: float) -> None:
        """Close the current bucket and start another.

        Call it before a reading, so that no bucket has reports from before and after the end of a window, and so that a sum
        never contains a bucket that still changes.
        """
        if not self.current.is_empty:
            self._fine.append(self.current.closed())
            self.current = OpenBucket(now)

    def put(self, bucket: TimeBucket) -> None:
        """Add a past bucket. Call this for the oldest bucket first."""
        (self._coarse if bucket.end - bucket.start > COARSE / 2 else self._fine).append(bucket)

    def __iter__(self) -> Iterator[TimeBucket]:
        """Yield all buckets, oldest first."""
        return self.since(-inf)

    def since(self, moment: float) -> Iterator[TimeBucket]:
        """Yield the buckets after `moment`, oldest first: merged ones that start later, and remaining buckets whose middle is later.

        A window that ended at `moment` cut its last bucket there, so no bucket of it is yielded again. Merging ignores such
        cuts, and therefore a merged bucket across `moment` is left out (`covered_since`). A bucket that still changes is
        yielded as a copy.
        """
        yield from (bucket for bucket in self._merged() if bucket.start > moment)
        yield from (bucket for bucket in self._fine if bucket.start + bucket.end > 2 * moment)
        if not self.current.is_empty and self.current.start + self.current.end > 2 * moment:
            yield self.current.closed()

    def covered_since(self, moment: float) -> float:
        """Return the time since which `since(moment)` has all reports: after the merged bucket across `moment`, if any."""
        return max((bucket.end for bucket in self._merged() if bucket.start <= moment < bucket.end), default=moment)

    def _merged(self) -> Iterator[TimeBucket]:
        yield from self._coarse
        if self._merging:
            yield self._merging.closed()

    def _merge(self, bucket: TimeBucket) -> None:
        """Add a bucket to the open coarse bucket. This happens once a second, so that merging never takes long."""
        if self._merging and bucket.start >= self._merging.start + COARSE:
            self._coarse.append(self._merging.closed())
            self._coarse[-1].packed()
            self._merging = None
        self._merging = self._merging or OpenBucket(bucket.start)
        self._merging.end = bucket.end
        for number, counts in bucket.items():
            self._merging.add(number, counts)
        self._merging.notes += bucket.notes


def pack_flows(counts_of: Mapping[int, Counts]) -> bytes:
    """Encode counts by flow number."""
    parts: list[bytes] = []
    for number, counts in counts_of.items():
        zeros, latency = _shortened(counts.latency)
        more_zeros, counters = _shortened(counts.counters)
        parts += (_HEAD.pack(number, zeros, len(latency), more_zeros, len(counters)), latency, counters)
    return b"".join(parts)


def unpack_flows(packed: bytes, selected: Container[int] | None = None) -> Iterator[tuple[int, Counts]]:
    """Yield the flow numbers with their counts: all, or the `selected` numbers."""
    at, end = 0, len(packed)
    while at < end:
        number, zeros, length, more_zeros, more = _HEAD.unpack_from(packed, at)
        begin = at + _HEAD.size
        middle = begin + length
        at = middle + more
        if selected is not None and number not in selected:
            continue
        yield (
            number,
            Counts(
                int.from_bytes(packed[begin:middle], "little") << 8 * zeros,
                int.from_bytes(packed[middle:at], "little") << 8 * more_zeros,
            ),
        )


def flows_in(packed: bytes) -> Iterator[int]:
    """Yield the flow numbers."""
    at = 0
    while at < len(packed):
        number, _, length, _, more = _HEAD.unpack_from(packed, at)
        yield number
        at += _HEAD.size + length + more


def _shortened(packed: int) -> tuple[int, bytes]:
    """Return the number of leading zero bytes, and the bytes without zeros at both ends (little-endian)."""
    everything = packed.to_bytes(packed.bit_length() + 7 >> 3, "little")
    significant = everything.lstrip(b"\0")
    return len(everything) - len(significant), significant
