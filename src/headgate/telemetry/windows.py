"""Sliding windows over the traffic of the last 15 minutes, and stored windows of a day, from the proxies' own reports (R85, R98).

Time buckets use the monotonic clock; the wall clock only sets the end of a reading. Stored windows use the wall clock. A note
about missing counts belongs to a time bucket and a stored window, and each reading with one of them includes the note.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from headgate import durations
from headgate.errors import NoCounts
from headgate.resources.meta import Value, timestamp
from headgate.telemetry.block_reads import BlockReads
from headgate.telemetry.counters.blocks import (
    UNCOUNTED,
    StoredWindow,
    WindowBlock,
    pack_block,
    read_block,
    uncounted_seconds,
)
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow, FlowNumbers, Reading
from headgate.telemetry.counters.sliding_sum import SlidingSum
from headgate.telemetry.counters.stored_windows import ChosenWindows, StoredWindows, choose_windows
from headgate.telemetry.counters.time_buckets import FINE, KEPT, TimeBucket, TimeBuckets
from headgate.telemetry.prometheus.totals import Totals

MOST_FLOWS = 100_000
SWEEP = 60.0  # seconds between two sweeps of flow numbers
TOO_MANY = f"requests that are not counted, because there were more than {MOST_FLOWS} flows in {KEPT / 60:g} minutes"
MOST_SUMS = 4  # The maximum number of window lengths whose sums and readings are cached: the status alone reads two.
IDLE = 60.0  # Seconds after the last query until a cached sum is dropped.
REUSE = 20  # A reading is reused for this multiple of the time that its computation took, at most for a second.
CHECKPOINT_BYTES = 16 << 20  # The limit of all buckets on disk, in bytes; the oldest buckets beyond it are not saved.


class BucketCheckpoint(Value, frozen=True, kw_only=True):
    """Checkpoint of a time bucket or a stored window. It began `age` seconds before `WindowsCheckpoint.at`, and lasts `length` seconds.

    `records` has the packed counts of flows, and `notes` the numbers of events that made counts incomplete.
    """

    age: float
    length: float
    records: bytes
    notes: dict[str, int] = msgspec.field(default_factory=dict)


class WindowsCheckpoint(Value, frozen=True, kw_only=True):
    """The checkpoint of the windows, as of `at` (seconds since the epoch); `flows` comes from `FlowNumbers.encoded`.

    `stored` has the stored windows that are not in a block yet.
    """

    at: float
    flows: tuple[bytes, ...] = ()
    buckets: tuple[BucketCheckpoint, ...] = ()
    stored: tuple[BucketCheckpoint, ...] = ()


class Windows:
    """Counts the traffic of flows, and returns the sum of any window; a `flows.Source`.

    `clock` is monotonic, `wall` in seconds since the epoch. `shortest` is the shortest window in seconds: proxies report
    every few seconds, so a shorter one would have all requests of a report or none.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        most_flows: int = MOST_FLOWS,
        shortest: float = 0.0,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._shortest = shortest
        self.stored = StoredWindows()
        self.reads = BlockReads()
        self._flows = FlowNumbers(most_flows)
        self._buckets = TimeBuckets(clock())
        self._swept = clock() - SWEEP
        self._readings: dict[float, tuple[float, Reading]] = {}
        self._reading = asyncio.Lock()
        # by window in seconds: the time of the last query, and the sum
        self._sums: dict[float, tuple[float, SlidingSum]] = {}
        self._totals: Totals | None = None

    def count_in(self, totals: Totals) -> None:
        """Add all later counts to `totals`, in addition to the windows."""
        self._totals = totals

    def add(self, flow: Flow, counts: Counts) -> None:
        """Add counts of a flow to the current time bucket."""
        self._advance()
        if self._totals:
            self._totals.add(flow, counts)
        number = self._flows.number(flow)
        if number is None:
            uncounted = counts.success + counts.failure + counts.denied
            self._buckets.current.notes[TOO_MANY] += uncounted
            self.stored.note(TOO_MANY, uncounted, self._wall())
        else:
            self._buckets.current.add(number, counts)
            self.stored.add(number, counts, self._wall())

    def note(self, what: str, count: int = 1) -> None:
        """Add `count` events that made counts incomplete or late to the current bucket. `what` describes them."""
        self._advance()
        self._buckets.current.notes[what] += count
        self.stored.note(what, count, self._wall())
        if self._totals:
            self._totals.note(what, count)

    def now(self) -> float:
        """Return the wall-clock time, in seconds since the epoch."""
        return self._wall()

    def flow_of(self) -> Sequence[Flow | None]:
        """Return the flows by the numbers in time buckets and in stored windows that are in no block."""
        return self._flows.names()

    async def read(self, seconds: float, end: float | None = None) -> Reading:
        """Return the flows of the last `seconds`, at least `shortest` and at most 900.

        Windows above two minutes begin up to 30 seconds later. The reading says which window was used. Two readings that are
        at least a window apart have no request in common. With an `end` (seconds since the epoch), return the flows of the
        stored windows in the `seconds` before it. Raises NoCounts, DamagedBlock.
        """
        if end is not None:
            begin = end - seconds
            return await self.reads.shared((begin, end), lambda: self._read_stored(begin, end))
        self._advance()
        window = min(max(seconds, self._shortest), KEPT)
        async with self._reading:
            began = self._clock()
            until, reading = self._readings.get(window, (0.0, None))
            if reading is None or began >= until:
                reading = await self._read(window)
                took = self._clock() - began
                self._readings[window] = began + took + min(took * REUSE, 1.0), reading
        return reading

    def stored_end(self) -> float:
        """Return the end of the last stored window, in seconds since the epoch; 0 if there is none."""
        self.stored.advance(self._wall())
        return self.stored.end

    async def choose(self, begin: float, end: float) -> list[ChosenWindows]:
        """Return the stored windows between two times (seconds since the epoch), oldest first. Raises NoCounts.

        A time is in windows of 10 s if it is less than an hour ago, and before in windows of a minute.
        """
        self.stored.advance(self._wall())
        # Copies: this task yields, and the blocks and the closed windows change.
        blocks, closed = self.stored.blocks()
        if closed:
            blocks = [*blocks, await self.reads.in_thread(pack_block, closed, self.flow_of())]
        if chosen := choose_windows(blocks, begin, end):
            return chosen
        raise NoCounts(_no_counts(blocks, begin, end))

    async def _read_stored(self, begin: float, end: float) -> Reading:
        flows: dict[Flow, Counts] = {}
        notes: Counter[str] = Counter()
        windows: list[StoredWindow] = []
        for chosen in await self.choose(begin, end):
            windows += [chosen.block.windows[index] for index in chosen.indexes]
            await self.reads.in_thread(_add_windows, flows, chosen)
        for window in windows:
            notes.update(window.notes)
        if uncounted := uncounted_seconds(windows):
            notes[UNCOUNTED] += uncounted
        length = windows[-1].end - windows[0].start
        return Reading(end=windows[-1].end, window=length, flows=flows, cut=messages(notes))

    def checkpoint(self) -> WindowsCheckpoint:
        """Return the windows for the checkpoint on disk."""
        now, at = self._clock(), self._wall()
        buckets: list[BucketCheckpoint] = []
        room = CHECKPOINT_BYTES
        for bucket in reversed(list(self._buckets)):
            room -= len(records := bucket.packed())
            if room < 0:
                break
            length, notes = bucket.end - bucket.start, dict(bucket.notes)
            buckets.append(BucketCheckpoint(age=now - bucket.start, length=length, records=records, notes=notes))
        return WindowsCheckpoint(
            at=at,
            flows=self._flows.encoded(),
            buckets=tuple(reversed(buckets)),
            stored=tuple(
                BucketCheckpoint(
                    age=at - bucket.start,
                    length=bucket.end - bucket.start,
                    records=bucket.packed(),
                    notes=dict(bucket.notes),
                )
                for bucket in self.stored.buckets(at)
            ),
        )

    def restore(self, saved: WindowsCheckpoint) -> None:
        """Restore the counts of an earlier headgate. Call this before anything is counted."""
        now, away = self._clock(), max(self._wall() - saved.at, 0.0)
        self._flows.restore(saved.flows)
        for bucket in saved.buckets:
            start = now - bucket.age - away
            if start > now - KEPT:
                self._buckets.put(TimeBucket(start, start + bucket.length, bucket.records, Counter(bucket.notes)))
        starts = ((saved.at - bucket.age, bucket) for bucket in saved.stored)
        self.stored.restore(
            [
                TimeBucket(start, start + bucket.length, bucket.records, Counter(bucket.notes))
                for start, bucket in starts
            ],
            self._wall(),
        )

    async def _read(self, window: float) -> Reading:
        now, end = self._clock(), self._wall()
        since = now - window
        self._buckets.cut(now)
        covered = window + since - self._buckets.covered_since(since)
        buckets = list(self._buckets.since(since))
        names = self._flows.names()
        _, total = self._sums.pop(window, (0.0, SlidingSum()))
        self._sums[window] = self._clock(), total
        if len(self._sums) > MOST_SUMS:
            self._forget(next(iter(self._sums)))
        for _ in total.slide(buckets, names):
            await asyncio.sleep(0)
        return Reading(end=end, window=covered, flows=dict(total.flows), arrived=total.arrived(), cut=_cut(buckets))

    def _advance(self) -> None:
        now = self._clock()
        if self._buckets.advance(now) and not self._reading.locked():
            self._slide_sums(now)
        if self._flows.is_crowded and now >= self._swept + SWEEP:
            self._swept = now
            self._flows.sweep({number for bucket in self._buckets for number in bucket.flows()})

    def _slide_sums(self, now: float) -> None:
        """Keep the sums of recent queries up to date, so that a repeated query is fast."""
        for window, (read, total) in list(self._sums.items()):
            if now > read + IDLE:
                self._forget(window)
            elif window < FINE:
                for _ in total.slide(list(self._buckets.since(now - window)), self._flows.names()):
                    pass

    def _forget(self, window: float) -> None:
        del self._sums[window]
        self._readings.pop(window, None)


def _cut(buckets: Iterable[TimeBucket]) -> tuple[str, ...]:
    notes: Counter[str] = Counter()
    for bucket in buckets:
        notes += bucket.notes
    return messages(notes)


def messages(notes: Mapping[str, int]) -> tuple[str, ...]:
    """Return notes about missing counts as messages."""
    return tuple(f"{what}: {count}" for what, count in sorted(notes.items()))


def _add_windows(flows: dict[Flow, Counts], chosen: ChosenWindows) -> None:
    for _, counts_of in read_block(chosen.block, chosen.indexes):
        for flow, counts in counts_of.items():
            before = flows.get(flow)
            flows[flow] = before.plus(counts) if before else counts


def _no_counts(blocks: Sequence[WindowBlock], begin: float, end: float) -> str:
    if not blocks:
        return "no window is stored yet: the first one ends at most 10 seconds after headgate has started"
    return (
        f"there are no counts of the {durations.formatted(end - begin)} before {timestamp(end)}; the stored windows begin at "
        f"{timestamp(blocks[0].start)} and end at {timestamp(blocks[-1].end)}, without the times in which headgate did not run"
    )
