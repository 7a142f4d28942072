"""The stored windows of the last day: windows of 10 s for an hour, and of a minute before (R85).

Times are wall-clock times, in seconds since the epoch. A count first belongs to the open window. Closed windows of a whole minute
become a block, and the blocks of 10 minutes also become one block with windows of a minute. There are windows
without traffic, and none for times in which nothing was counted.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import NamedTuple

from headgate.telemetry.counters.blocks import StoredWindow, WindowBlock
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.time_buckets import OpenBucket, TimeBucket

SHORT_S, LONG_S = 10, 60  # the lengths of windows
BLOCK_S, LONG_BLOCK_S = 60, 600  # the time of all windows in a block with short windows, and in one with long windows
SHORT_KEPT_S, LONG_KEPT_S = 3600, 24 * 3600
SHORT_BYTES, LONG_BYTES = 32 << 20, 64 << 20
"""The limits of all blocks, in memory and on disk; the oldest ones beyond them are dropped."""
MOST_CLOSED = 60  # windows without a block; the oldest ones beyond it are dropped
LONGEST_PAUSE_S = 60.0  # a longer time without `advance` is one in which nothing was counted: the machine was suspended
CLOCK_SET_BACK = "windows that were dropped because the clock was set back"


class ChosenWindows(NamedTuple):
    """The indexes of some windows in a block."""

    block: WindowBlock
    indexes: Sequence[int]


class StoredWindows:
    """The open window, closed windows, and blocks with `short` and `long` windows, each oldest first.

    `durable_until` is the time until which a checkpoint on disk has all counts. A block must not be saved earlier: after a
    crash, counts that are missing in the checkpoint are counted again from the proxies' next reports.
    """

    def __init__(self) -> None:
        self.short: list[WindowBlock] = []
        self.long: list[WindowBlock] = []
        self.durable_until = inf
        self._open: OpenBucket | None = None
        self._closed: list[TimeBucket] = []

    @property
    def end(self) -> float:
        """The end of the last closed window; 0 if there is none."""
        return self._closed[-1].end if self._closed else self.short[-1].end if self.short else 0.0

    def add(self, number: int, counts: Counts, now: float) -> None:
        """Add counts to the flow of that number in the open window."""
        self._current(now).add(number, counts)

    def note(self, what: str, count: int, now: float) -> None:
        """Add events that made counts incomplete to the open window."""
        self._current(now).notes[what] += count

    def advance(self, now: float) -> None:
        """Close the open window if it has ended, and open the next one. The first call begins the first window."""
        current = self._open
        if current is None:
            self._open = OpenBucket(now)
            return
        if now < current.start - LONGEST_PAUSE_S:
            self._drop_all(now)
            return
        if now < (end := _end_of(current.start)):
            return
        current.end = end
        self._close(current)
        start = end if now - end <= LONGEST_PAUSE_S else now
        while start + SHORT_S <= now:
            self._close(OpenBucket(start), start + SHORT_S)
            start += SHORT_S
        self._open = OpenBucket(start)

    def buckets(self, now: float) -> list[TimeBucket]:
        """Return the windows that are in no block, for a checkpoint. The open window ends at `now`."""
        if self._open is None or (self._open.is_empty and now <= self._open.start):
            return list(self._closed)
        self._open.end = max(now, self._open.start)
        return [*self._closed, self._open.closed()]

    def restore(self, buckets: Iterable[TimeBucket], now: float) -> None:
        """Restore the windows of a checkpoint, except those that a restored block has and those that are too old."""
        end = max(self.short[-1].end if self.short else -inf, now - LONG_KEPT_S)
        self._closed = [bucket for bucket in buckets if end <= bucket.start and bucket.end <= now]

    def restore_blocks(self, short: Iterable[WindowBlock], long: Iterable[WindowBlock], now: float) -> None:
        """Restore saved blocks, except those from the future and those that are too old. Call it before `restore`."""
        self.short, self.long = (
            sorted((block for block in blocks if block.end <= now), key=lambda block: block.start)
            for blocks in (short, long)
        )
        self.trim(now)

    def due(self) -> Sequence[TimeBucket]:
        """Return the windows of the oldest minute that has no block; none before that minute has ended."""
        if not self._closed or self._open is None:
            return ()
        end = self._closed[0].start // BLOCK_S * BLOCK_S + BLOCK_S
        return [bucket for bucket in self._closed if bucket.start < end] if self._open.start >= end else ()

    def put(self, block: WindowBlock, buckets: Sequence[TimeBucket]) -> None:
        """Add the block of the windows that `due` returned."""
        done = set(map(id, buckets))
        self._closed = [bucket for bucket in self._closed if id(bucket) not in done]
        self.short.append(block)

    def due_merge(self, now: float) -> Sequence[WindowBlock]:
        """Return the blocks of the oldest 10 minutes whose long windows are missing; none before these minutes have ended.

        When they take half of the limit of bytes, the minutes until now. A long block of the same 10 minutes comes first.
        """
        end = self.long[-1].end if self.long else -inf
        missing = [block for block in self.short if block.end > end]
        if not missing:
            return ()
        slot = _slot(missing[0])
        if now < (slot + 1) * LONG_BLOCK_S and sum(block.size for block in missing) <= SHORT_BYTES / 2:
            return ()
        begun = self.long[-1:] if self.long and _slot(self.long[-1]) == slot else []
        return [*begun, *(block for block in missing if _slot(block) == slot)]

    def put_merged(self, block: WindowBlock) -> None:
        """Add a block with long windows, which replaces an earlier one of the same 10 minutes."""
        if self.long and _slot(self.long[-1]) == _slot(block):
            self.long.pop()
        self.long.append(block)

    def drop(self, dropped: WindowBlock) -> None:
        """Drop a block."""
        self.short, self.long = (
            [block for block in blocks if block is not dropped] for blocks in (self.short, self.long)
        )

    def trim(self, now: float) -> None:
        """Drop blocks that are too old, and the oldest ones beyond the limits of bytes."""
        self.short = _trimmed(self.short, now - SHORT_KEPT_S, SHORT_BYTES)
        self.long = _trimmed(self.long, now - LONG_KEPT_S, LONG_BYTES)

    def blocks(self) -> tuple[Sequence[WindowBlock], Sequence[TimeBucket]]:
        """Return copies of the blocks, and of the closed windows after them, oldest first. A time is in short windows, if it has any."""
        begin = self.short[0].start if self.short else inf
        return [*(block for block in self.long if block.start < begin), *self.short], list(self._closed)

    def _current(self, now: float) -> OpenBucket:
        self.advance(now)
        if self._open is None:
            raise AssertionError("unreachable: advance opens a window")
        return self._open

    def _close(self, bucket: OpenBucket, end: float = 0.0) -> None:
        bucket.end = end or bucket.end
        closed = bucket.closed()
        closed.packed()
        self._closed = [*self._closed[1 - MOST_CLOSED :], closed]

    def _drop_all(self, now: float) -> None:
        self.short, self.long, self._closed, self._open = [], [], [], OpenBucket(now)
        self._open.notes[CLOCK_SET_BACK] += 1


def choose_windows(blocks: Sequence[WindowBlock], begin: float, end: float) -> list[ChosenWindows]:
    """Return the windows whose middle is after `begin` and not after `end`; without such a window, the one across `end`.

    `blocks` has the blocks of `StoredWindows.blocks`, and one of its closed windows. A time that several blocks have is in the last of them.
    """
    return _windows(blocks, lambda window: begin < window.middle <= end) or _windows(
        blocks, lambda window: window.start < end <= window.end
    )


def _windows(blocks: Sequence[WindowBlock], is_chosen: Callable[[StoredWindow], bool]) -> list[ChosenWindows]:
    starts = [*(block.start for block in blocks[1:]), inf][: len(blocks)]
    chosen = [
        ChosenWindows(
            block,
            [index for index, window in enumerate(block.windows) if window.start < next_start and is_chosen(window)],
        )
        for block, next_start in zip(blocks, starts, strict=True)
    ]
    return [windows for windows in chosen if windows.indexes]


def _end_of(start: float) -> float:
    return start // SHORT_S * SHORT_S + SHORT_S


def _slot(block: WindowBlock) -> float:
    return block.start // LONG_BLOCK_S


def _trimmed(blocks: Sequence[WindowBlock], begin: float, limit: int) -> list[WindowBlock]:
    """Return the newest blocks that end after `begin` and take at most `limit` bytes."""
    newest: list[WindowBlock] = []
    for block in reversed(blocks):
        limit -= block.size
        if block.end <= begin or limit < 0:
            break
        newest.append(block)
    return newest[::-1]
