"""What happened lately: growth in slots of time, kept for a quarter of an hour and read as windows (R85, R98).

Slots are of the monotonic clock; the wall clock only says when a window ended. A slot that has grown old is folded into a
coarser one. What could not be counted is noted in the slot in which it would have been, and every reading says it.
"""

import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from headgate.resources.meta import Value
from headgate.telemetry.flows import Flow, Reading
from headgate.telemetry.tally import WORD, Table, Tally, add, counts, flows_in, pack, requests, unpack

SLOT = 1.0  # seconds; a window is exact to one slot
FINE = 120.0  # seconds for which slots are kept as they are
COARSE = 30.0  # seconds of a slot from then on
KEPT = 900.0  # seconds until it is forgotten
MOST_FLOWS = 100_000
SWEEP = 60.0  # seconds between looks for flows that no slot has any more
ROOM = 1000  # flows with which nobody looks
TOO_MANY = f"requests of more than {MOST_FLOWS} different flows in {KEPT / 60:g} minutes"


class Slot(NamedTuple):
    """Growth between two moments of the monotonic clock: packed records, and how much of what is missing, by its name."""

    start: float
    end: float
    words: "array[int]"
    notes: "Counter[str]"


class KeptSlot(Value, frozen=True, kw_only=True):
    """A slot on disk; `age` is how many seconds before `KeptWindows.at` it began."""

    age: float
    length: float
    words: bytes
    notes: dict[str, int] = msgspec.field(default_factory=dict)


class KeptWindows(Value, frozen=True, kw_only=True):
    """Windows on disk. `at` is in seconds since the epoch; a flow's number is its place in `flows`."""

    at: float
    flows: tuple[Flow | None, ...] = ()
    slots: tuple[KeptSlot, ...] = ()


class Windows:
    """The proxies' own reports, added up; a `flows.Source`. `clock` is monotonic, `wall` in seconds since the epoch."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        most_flows: int = MOST_FLOWS,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._most = most_flows
        self._numbers: dict[Flow, int] = {}
        self._flows: list[Flow | None] = []
        self._free: list[int] = []
        self._fine: deque[Slot] = deque()
        self._coarse: deque[Slot] = deque()
        self._open = _Open(clock())
        self._folding: _Open | None = None
        self._swept = clock() - SWEEP
        self._room = min(ROOM, most_flows - 1)

    def add(self, flow: Flow, tally: Tally) -> None:
        """Count growth as of now."""
        current = self._current()
        number = self._number(flow)
        if number is None:
            current.notes[TOO_MANY] += requests(tally)
        else:
            add(current.table, number, tally)

    def note(self, what: str, count: int = 1) -> None:
        """Note that something is missing from what is counted now, or lies about its time; `what` is for the reader."""
        self._current().notes[what] += count

    async def read(self, seconds: float) -> Reading:
        """Return what happened in the last `seconds`, a quarter of an hour at most; older slots are coarser."""
        self._current()
        since = self._clock() - min(seconds, KEPT)
        table: Table = {}
        notes: Counter[str] = Counter()
        for slot in self._slots():
            if slot.start >= since - (slot.end - slot.start) / 2:  # the better part of it is in the window
                unpack(slot.words, table)
                notes += slot.notes
        return Reading(
            end=self._wall(),
            window=min(seconds, KEPT),
            flows={flow: counts(row) for number, row in table.items() if (flow := self._flows[number])},
            cut=tuple(f"{what}: {count}" for what, count in sorted(notes.items())),
        )

    def kept(self) -> KeptWindows:
        """Return everything, to be read back by `restore`."""
        now = self._clock()
        slots = tuple(
            KeptSlot(
                age=now - slot.start,
                length=slot.end - slot.start,
                words=slot.words.tobytes(),
                notes=dict(slot.notes),
            )
            for slot in self._slots()
        )
        return KeptWindows(at=self._wall(), flows=tuple(self._flows), slots=slots)

    def restore(self, kept: KeptWindows) -> None:
        """Take over what an earlier headgate counted; nothing may have been counted yet."""
        now, away = self._clock(), max(self._wall() - kept.at, 0.0)
        self._flows = list(kept.flows)
        self._numbers = {flow: number for number, flow in enumerate(kept.flows) if flow}
        self._free = [number for number, flow in enumerate(kept.flows) if not flow]
        for item in kept.slots:
            start = now - item.age - away
            slot = Slot(start, start + item.length, array(WORD, item.words), Counter(item.notes))
            if start > now - KEPT:
                (self._coarse if item.length > SLOT else self._fine).append(slot)

    def _slots(self) -> Iterator[Slot]:
        """Yield all slots, oldest first."""
        yield from self._coarse
        if self._folding:
            yield self._folding.closed(self._folding.start + COARSE)
        yield from self._fine
        yield self._open.closed(self._open.start + SLOT)

    def _current(self) -> "_Open":
        """Return the slot of now, with all older ones in their places."""
        now = self._clock()
        if now >= self._open.start + SLOT:
            if self._open.table or self._open.notes:
                self._fine.append(self._open.closed(self._open.start + SLOT))
            self._open = _Open(now)
            self._age(now)
        return self._open

    def _age(self, now: float) -> None:
        while self._fine and self._fine[0].start <= now - FINE:
            self._fold(self._fine.popleft())
        while self._coarse and self._coarse[0].start <= now - KEPT:
            self._coarse.popleft()
        if self._folding and self._folding.start <= now - KEPT:
            self._folding = None
        if len(self._numbers) > self._room and now >= self._swept + SWEEP:
            self._swept = now
            self._sweep()

    def _fold(self, slot: Slot) -> None:
        """Add a slot to the coarse one that is being made; one at a time, so that nobody waits for it."""
        if self._folding and slot.start >= self._folding.start + COARSE:
            self._coarse.append(self._folding.closed(self._folding.start + COARSE))
            self._folding = None
        if self._folding is None:
            self._folding = _Open(slot.start)
        unpack(slot.words, self._folding.table)
        self._folding.notes += slot.notes

    def _number(self, flow: Flow) -> int | None:
        number = self._numbers.get(flow)
        if number is None and len(self._numbers) < self._most:
            if self._free:
                number = self._free.pop()
                self._flows[number] = flow
            else:
                number = len(self._flows)
                self._flows.append(flow)
            self._numbers[flow] = number
        return number

    def _sweep(self) -> None:
        """Let go of flows that no slot has; that takes a while, so it is done when half of them may be such."""
        live = {number for slot in self._slots() for number in flows_in(slot.words)}
        for number, flow in enumerate(self._flows):
            if flow and number not in live:
                del self._numbers[flow]
                self._flows[number] = None
                self._free.append(number)
        self._room = min(ROOM + 2 * len(self._numbers), self._most - 1)


class _Open:
    """A slot that grows."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.table: Table = {}
        self.notes: Counter[str] = Counter()

    def closed(self, end: float) -> Slot:
        return Slot(self.start, end, pack(self.table), Counter(self.notes))
