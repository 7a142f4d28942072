"""What happened lately, read as windows (R85, R98): growth of flows, in slots of time.

Slots are of the monotonic clock; the wall clock only says when a window ended. What could not be counted is noted in the
slot in which it would have been, and every reading says it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from headgate.resources.meta import Value
from headgate.telemetry.counts import Counts
from headgate.telemetry.flows import Flow, Reading
from headgate.telemetry.rolling import Rolling
from headgate.telemetry.slots import FINE, KEPT, Slot, Slots
from headgate.telemetry.totals import Totals

MOST_FLOWS = 100_000
SWEEP = 60.0  # seconds between looks for flows that no slot has any more
ROOM = 1000  # flows with which nobody looks
TOO_MANY = f"requests of more than {MOST_FLOWS} different flows in {KEPT / 60:g} minutes"
MOST_ROLLING = 2  # windows whose sums are kept from one question to the next
IDLE = 60.0  # seconds after the last question until they are let go of
REUSE = 20  # times as long as a reading took, it is good for whoever asks the same; a second at most
PART = 1000  # flows that are written on disk together, and anew when one of them is another
KEPT_BYTES = 16 << 20  # of slots on disk; those of a larger mesh reach less far back


class KeptSlot(Value, frozen=True, kw_only=True):
    """A slot on disk; `age` is how many seconds before `KeptWindows.at` it began."""

    age: float
    length: float
    records: bytes
    notes: dict[str, int] = msgspec.field(default_factory=dict)


class KeptWindows(Value, frozen=True, kw_only=True):
    """Windows on disk, at a time in seconds since the epoch. A flow's number is its place in `flows`.

    These are MessagePack each, of so many flows that nobody waits for one.
    """

    at: float
    flows: tuple[bytes, ...] = ()
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
        self._flows = _Flows(most_flows)
        self._slots = Slots(clock())
        self._swept = clock() - SWEEP
        self._readings: dict[float, tuple[float, Reading]] = {}
        self._reading = asyncio.Lock()
        self._rolling: dict[float, tuple[float, Rolling]] = {}  # by window: when it was read, and its sum
        self._totals: Totals | None = None

    def count_in(self, totals: Totals) -> None:
        """Count everything there too, from now on."""
        self._totals = totals

    def add(self, flow: Flow, counts: Counts) -> None:
        """Count growth as of now."""
        self._move()
        if self._totals:
            self._totals.add(flow, counts)
        number = self._flows.number(flow)
        if number is None:
            self._slots.current.notes[TOO_MANY] += counts.success + counts.failure + counts.denied
        else:
            self._slots.current.add(number, counts)

    def note(self, what: str, count: int = 1) -> None:
        """Note that something is missing from what is counted now, or lies about its time; `what` is for the reader."""
        self._move()
        self._slots.current.notes[what] += count
        if self._totals:
            self._totals.note(what, count)

    async def read(self, seconds: float) -> Reading:
        """Return what happened in the last `seconds`, a quarter of an hour at most; older slots are coarser."""
        self._move()
        window = min(seconds, KEPT)
        async with self._reading:
            began = self._clock()
            until, reading = self._readings.get(window, (0.0, None))
            if reading is None or began >= until:
                reading = await self._read(window)
                took = self._clock() - began
                self._readings = {window: (began + took + min(took * REUSE, 1.0), reading)}
        return reading

    def kept(self) -> KeptWindows:
        """Return what goes to disk, to be read back by `restore`."""
        now = self._clock()
        slots: list[KeptSlot] = []
        room = KEPT_BYTES
        for slot in reversed(list(self._slots)):
            room -= len(records := slot.packed())
            if room < 0:
                break
            slots.append(
                KeptSlot(age=now - slot.start, length=slot.end - slot.start, records=records, notes=dict(slot.notes))
            )
        return KeptWindows(at=self._wall(), flows=self._flows.kept(), slots=tuple(reversed(slots)))

    def restore(self, kept: KeptWindows) -> None:
        """Take over what an earlier headgate counted; nothing may have been counted yet."""
        now, away = self._clock(), max(self._wall() - kept.at, 0.0)
        self._flows.restore(kept.flows)
        for item in kept.slots:
            start = now - item.age - away
            if start > now - KEPT:
                self._slots.put(Slot(start, start + item.length, item.records, Counter(item.notes)))

    async def _read(self, window: float) -> Reading:
        since, end = self._clock() - window, self._wall()
        self._slots.cut(self._clock())
        slots = list(self._slots.since(since))
        names = self._flows.names()
        _, rolling = self._rolling.pop(window, (0.0, Rolling()))
        self._rolling[window] = self._clock(), rolling
        if len(self._rolling) > MOST_ROLLING:
            del self._rolling[next(iter(self._rolling))]
        for _ in rolling.move(slots, names):
            await asyncio.sleep(0)
        return Reading(end=end, window=window, flows=dict(rolling.flows), arrived=rolling.arrived(), cut=_cut(slots))

    def _move(self) -> None:
        now = self._clock()
        if self._slots.move(now) and not self._reading.locked():
            self._move_sums(now)
        if self._flows.is_crowded and now >= self._swept + SWEEP:
            self._swept = now
            self._flows.sweep({number for slot in self._slots for number in slot.flows()})

    def _move_sums(self, now: float) -> None:
        """Move on the sums that somebody asked for lately, so that who asks again waits for what is newer than a second."""
        for window, (read, rolling) in list(self._rolling.items()):
            if now > read + IDLE:
                del self._rolling[window]
                self._readings.pop(window, None)
            elif window < FINE:
                for _ in rolling.move(list(self._slots.since(now - window)), self._flows.names()):
                    pass


class _Flows:
    """Numbers of flows. A number is used again when no slot has it any more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._room = min(ROOM, most - 1)
        self._numbers: dict[Flow, int] = {}
        self._names: list[Flow | None] = []
        self._free: list[int] = []
        self._written: dict[int, bytes] = {}

    def number(self, flow: Flow) -> int | None:
        """Return a flow's number; None when there are too many flows."""
        number = self._numbers.get(flow)
        if number is not None or len(self._numbers) >= self._most:
            return number
        if self._free:
            number = self._free.pop()
        else:
            number = len(self._names)
            self._names.append(None)
        self._name(number, flow)
        return number

    @property
    def is_crowded(self) -> bool:
        """Whether half of the flows may be such as no slot has."""
        return len(self._numbers) > self._room

    def sweep(self, live: set[int]) -> None:
        """Let go of all others."""
        for flow, number in [item for item in self._numbers.items() if item[1] not in live]:
            del self._numbers[flow]
            self._free.append(number)
            self._name(number, None)
        self._room = min(ROOM + 2 * len(self._numbers), self._most - 1)

    def names(self) -> Sequence[Flow | None]:
        """Return the flows in the order of their numbers, as they are now."""
        return tuple(self._names)

    def kept(self) -> tuple[bytes, ...]:
        """Return all flows, in parts of which only those are made that changed."""
        firsts = range(0, len(self._names), PART)
        for first in firsts:
            if first not in self._written:
                self._written[first] = msgspec.msgpack.encode(self._names[first : first + PART])
        return tuple(self._written[first] for first in firsts)

    def restore(self, parts: Iterable[bytes]) -> None:
        """Take over an earlier headgate's numbers."""
        self._names = [flow for part in parts for flow in msgspec.msgpack.decode(part, type=list[Flow | None])]
        self._numbers = {flow: number for number, flow in enumerate(self._names) if flow}
        self._free = [number for number, flow in enumerate(self._names) if not flow]

    def _name(self, number: int, flow: Flow | None) -> None:
        self._names[number] = flow
        self._written.pop(number - number % PART, None)
        if flow:
            self._numbers[flow] = number


def _cut(slots: Iterable[Slot]) -> tuple[str, ...]:
    notes: Counter[str] = Counter()
    for slot in slots:
        notes += slot.notes
    return tuple(f"{what}: {count}" for what, count in sorted(notes.items()))
