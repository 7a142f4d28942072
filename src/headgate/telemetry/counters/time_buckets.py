"""Counts of flows in time buckets of one second, which are packed, later merged into coarser buckets, and finally dropped.

Packing makes tens of thousands of flows fit into memory. Each flow is encoded as a head, then the two
integers of `Counts` as little-endian bytes without leading and trailing zeros.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from math import inf
from struct import Struct

from headgate.telemetry.counters.counts import Counts

LENGTH = 1.0  # Seconds in a bucket; the start of a window is rounded to a bucket.
FINE = 140.0  # Seconds after which buckets are merged; shorter windows are exact to one second.
COARSE = 30.0  # Seconds in a merged bucket.
KEPT = 900.0  # Seconds after which a bucket is dropped.
_HEAD = Struct("<IHHHH")
"""The flow number, then for `latency` and `counters`: the number of omitted leading zero bytes, and of stored bytes."""


class TimeBucket:
    """The counts between two monotonic times, by flow number, with notes about missing counts.

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
    """A time bucket to which counts are still added."""

    def __init__(self, start: float, length: float) -> None:
        self.start = start
        self.end = start + length
        self.counts: dict[int, Counts] = {}
        self.notes: Counter[str] = Counter()

    def add(self, number: int, counts: Counts) -> None:
        """Add counts to the flow of that number."""
        before = self.counts.get(number)
        self.counts[number] = before.plus(counts) if before else counts

    def closed(self) -> TimeBucket:
        """Return an immutable copy."""
        return TimeBucket(self.start, self.end, dict(self.counts), Counter(self.notes))


class TimeBuckets:
    """The time buckets of the last 15 minutes; new counts are added to the bucket `current`."""

    def __init__(self, now: float) -> None:
        self.current = OpenBucket(now, LENGTH)
        self._fine: deque[TimeBucket] = deque()
        self._coarse: deque[TimeBucket] = deque()
        self._merging: OpenBucket | None = None

    def advance(self, now: float) -> bool:
        """Start a new bucket if the current one has ended, and merge and drop old ones. Return whether it has ended."""
        if now < self.current.end:
            return False
        self.cut(now)
        self.current = OpenBucket(now, LENGTH)
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
        """Close the current bucket and start another, so that a sum never contains a bucket that still changes."""
        if self.current.counts or self.current.notes:
            self._fine.append(self.current.closed())
            self.current = OpenBucket(now, LENGTH)

    def put(self, bucket: TimeBucket) -> None:
        """Add a past bucket. Call this for the oldest bucket first."""
        (self._coarse if bucket.end - bucket.start > COARSE / 2 else self._fine).append(bucket)

    def __iter__(self) -> Iterator[TimeBucket]:
        """Yield all buckets, oldest first."""
        return self.since(-inf)

    def since(self, moment: float) -> Iterator[TimeBucket]:
        """Yield the buckets of which at least half is after `moment`, oldest first.

        A bucket that still changes is yielded as a copy.
        """
        yield from (bucket for bucket in self._coarse if _is_since(moment, bucket))
        if self._merging and _is_since(moment, self._merging):
            yield self._merging.closed()
        yield from (bucket for bucket in self._fine if _is_since(moment, bucket))
        if _is_since(moment, self.current):
            yield self.current.closed()

    def _merge(self, bucket: TimeBucket) -> None:
        """Add a bucket to the open coarse bucket. This happens once a second, so that merging never takes long."""
        if self._merging and bucket.start >= self._merging.end:
            self._coarse.append(self._merging.closed())
            self._coarse[-1].packed()
            self._merging = None
        self._merging = self._merging or OpenBucket(bucket.start, COARSE)
        for number, counts in bucket.items():
            self._merging.add(number, counts)
        self._merging.notes += bucket.notes


def _is_since(moment: float, bucket: TimeBucket | OpenBucket) -> bool:
    return bucket.start >= moment - (bucket.end - bucket.start) / 2


def pack_flows(counts_of: Mapping[int, Counts]) -> bytes:
    """Encode counts by flow number."""
    parts: list[bytes] = []
    for number, counts in counts_of.items():
        zeros, latency = _shortened(counts.latency)
        more_zeros, counters = _shortened(counts.counters)
        parts += (_HEAD.pack(number, zeros, len(latency), more_zeros, len(counters)), latency, counters)
    return b"".join(parts)


def unpack_flows(packed: bytes) -> Iterator[tuple[int, Counts]]:
    """Yield the flow numbers with their counts."""
    at, end = 0, len(packed)
    while at < end:
        number, zeros, length, more_zeros, more = _HEAD.unpack_from(packed, at)
        begin = at + _HEAD.size
        middle = begin + length
        at = middle + more
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
    found = everything.lstrip(b"\0")
    return len(everything) - len(found), found
