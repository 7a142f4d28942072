"""Blocks of stored windows: the compressed counts of all flows in windows that follow each other, for the last day (R85).

A block has everything that is needed to read it, so that blocks can be saved, dropped and lost one by one.
"""

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, NamedTuple

import msgspec

from headgate.errors import TelemetryError
from headgate.resources.meta import Value, timestamp
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow
from headgate.telemetry.counters.time_buckets import TimeBucket, pack_flows, unpack_flows

_LEVEL = 1  # zlib's fastest level: level 6 takes four times as long, and saves a tenth
UNCOUNTED = "seconds in this window without counts, in which headgate did not run"
_WINDOW_BYTES = 200  # the memory of a window without its records, roughly


class StoredWindow(Value, frozen=True, kw_only=True):
    """A window from `start` to `end` (seconds since the epoch), with the number of bytes that its records take.

    `notes` has the numbers of events that made counts incomplete.
    """

    start: float
    end: float
    size: int
    notes: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def middle(self) -> float:
        """The time in the middle of the window. A window belongs to the time that contains its middle."""
        return (self.start + self.end) / 2


class WindowBlock(Value, frozen=True, kw_only=True):
    """Windows, oldest first, and their counts. `flows` has the flows by number, and `records` those of all windows."""

    windows: Annotated[tuple[StoredWindow, ...], msgspec.Meta(min_length=1)]
    flows: bytes
    records: bytes

    @property
    def start(self) -> float:
        """The start of the first window."""
        return self.windows[0].start

    @property
    def end(self) -> float:
        """The end of the last window."""
        return self.windows[-1].end

    @property
    def size(self) -> int:
        """The memory that the block takes, in bytes."""
        return len(self.flows) + len(self.records) + _WINDOW_BYTES * len(self.windows)


class DamagedBlock(TelemetryError):
    """A block can't be read."""

    def __init__(self, block: WindowBlock, error: Exception) -> None:
        span = f"{timestamp(block.start)} to {timestamp(block.end)}"
        super().__init__(f"the windows of traffic counts from {span} are damaged: {error}")
        self.block = block


class WindowCounts(NamedTuple):
    """A window of a block with the counts of its flows, or of the selected ones."""

    window: StoredWindow
    counts: Mapping[Flow, Counts]


def pack_block(buckets: Sequence[TimeBucket], flow_of: Sequence[Flow | None]) -> WindowBlock:
    """Return a block with a window for each bucket, whose times are seconds since the epoch.

    `flow_of` has the flows by the numbers in the buckets.
    """
    numbers = sorted({number for bucket in buckets for number in bucket.flows()})
    flows = {number: flow for number in numbers if (flow := flow_of[number])}
    windows = tuple(
        StoredWindow(start=bucket.start, end=bucket.end, size=len(bucket.packed()), notes=dict(bucket.notes))
        for bucket in buckets
    )
    records = b"".join(bucket.packed() for bucket in buckets)
    return WindowBlock(windows=windows, flows=_compressed(flows), records=zlib.compress(records, _LEVEL))


def read_block(
    block: WindowBlock, chosen: Iterable[int], selects: Callable[[Flow], bool] | None = None
) -> Iterator[WindowCounts]:
    """Yield the windows with the indexes `chosen` and the counts of their flows, or of the flows that `selects` accepts.

    Raises DamagedBlock.
    """
    flows, records = flows_of(block), _decompressed_records(block)
    if selects:
        flows = {number: flow for number, flow in flows.items() if selects(flow)}
    ends = [0]
    for window in block.windows:
        ends.append(ends[-1] + window.size)
    for index in chosen:
        packed = records[ends[index] : ends[index + 1]]
        try:
            counts = {flows[number]: value for number, value in unpack_flows(packed, flows)}
        except struct.error as error:
            raise DamagedBlock(block, error) from error
        yield WindowCounts(block.windows[index], counts)


def flows_of(block: WindowBlock) -> Mapping[int, Flow]:
    """Return the flows of a block by number. Neighboring blocks often have the same flows, and then share them.

    Raises DamagedBlock.
    """
    try:
        return _flows_in(block.flows)
    except (zlib.error, msgspec.DecodeError) as error:
        raise DamagedBlock(block, error) from error


def _decompressed_records(block: WindowBlock) -> bytes:
    try:
        return zlib.decompress(block.records)
    except zlib.error as error:
        raise DamagedBlock(block, error) from error


@lru_cache(8)
def _flows_in(compressed: bytes) -> Mapping[int, Flow]:
    return msgspec.msgpack.decode(zlib.decompress(compressed), type=dict[int, Flow])


def _compressed(flows: Mapping[int, Flow]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(flows), _LEVEL)


def merge_blocks(blocks: Iterable[WindowBlock], length: float) -> WindowBlock:
    """Return a block with the same counts in windows of `length` seconds, which begin at multiples of it.

    There must be a window. A window of the result begins with its first and ends with its last window in `blocks`.
    Raises DamagedBlock.
    """
    number_of: dict[Flow, int] = {}
    buckets: list[TimeBucket] = []
    merging: list[WindowCounts] = []

    def close() -> None:
        buckets.append(_merged(merging, number_of))
        merging.clear()

    for block in blocks:
        for read in read_block(block, range(len(block.windows))):
            if merging and merging[0].window.start // length != read.window.start // length:
                close()
            merging.append(read)
    close()
    return pack_block(buckets, tuple(number_of))


def _merged(windows: Sequence[WindowCounts], number_of: dict[Flow, int]) -> TimeBucket:
    """Return the sum of windows by the numbers of flows, with a note about gaps; new flows get the next numbers."""
    total: dict[int, Counts] = {}
    notes: Counter[str] = Counter()
    for window, counts_of in windows:
        notes.update(window.notes)
        for flow, counts in counts_of.items():
            number = number_of.setdefault(flow, len(number_of))
            before = total.get(number)
            total[number] = before.plus(counts) if before else counts
    if uncounted := uncounted_seconds([window for window, _ in windows]):
        notes[UNCOUNTED] += uncounted
    return TimeBucket(windows[0].window.start, windows[-1].window.end, pack_flows(total), notes)


def uncounted_seconds(windows: Sequence[StoredWindow]) -> int:
    """Return the number of seconds between windows, which are oldest first."""
    return round(sum(later.start - earlier.end for earlier, later in pairwise(windows)))
