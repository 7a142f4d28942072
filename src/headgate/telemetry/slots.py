"""Time in slots: growth is packed when its second is over, folded into coarser slots when it is old, and then forgotten."""

from collections import Counter, deque
from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from headgate.telemetry.counts import Counts
from headgate.telemetry.records import pack, records

SLOT = 1.0  # seconds; a window is exact to one slot
FINE = 140.0  # seconds for which slots are kept as they are: windows of two minutes need no coarser one
COARSE = 30.0  # seconds of a slot from then on
KEPT = 900.0  # seconds until it is forgotten


class Slot(NamedTuple):
    """Growth between two moments of the monotonic clock as `records`, and how much is missing or odd, in words."""

    start: float
    end: float
    records: bytes
    notes: "Counter[str]"


class Growing:
    """A slot that grows."""

    def __init__(self, start: float, length: float) -> None:
        self.start = start
        self.end = start + length
        self.table: dict[int, Counts] = {}
        self.notes: Counter[str] = Counter()

    def add(self, number: int, counts: Counts) -> None:
        """Add the growth of the flow of that number."""
        before = self.table.get(number)
        self.table[number] = before.plus(counts) if before else counts

    def closed(self) -> Slot:
        """Return it as it is now."""
        return Slot(self.start, self.end, pack(self.table), Counter(self.notes))


class Slots:
    """The slots of a quarter of an hour; `current` is that of now."""

    def __init__(self, now: float) -> None:
        self.current = Growing(now, SLOT)
        self._fine: deque[Slot] = deque()
        self._coarse: deque[Slot] = deque()
        self._folding: Growing | None = None

    def move(self, now: float) -> None:
        """Put everything where it belongs as of now."""
        if now < self.current.end:
            return
        self.cut(now)
        self.current = Growing(now, SLOT)
        while self._fine and self._fine[0].start <= now - FINE:
            self._fold(self._fine.popleft())
        while self._coarse and self._coarse[0].start <= now - KEPT:
            self._coarse.popleft()
        if self._folding and self._folding.start <= now - KEPT:
            self._folding = None

    def cut(self, now: float) -> None:
        """Close the slot of now and begin another one, so that whoever adds slots up never meets one that grew."""
        if self.current.table or self.current.notes:
            self._fine.append(self.current.closed())
            self.current = Growing(now, SLOT)

    def put(self, slot: Slot) -> None:
        """Add a slot of the past; they come oldest first."""
        (self._coarse if slot.end - slot.start > COARSE / 2 else self._fine).append(slot)

    def __iter__(self) -> Iterator[Slot]:
        """Yield all slots, oldest first."""
        return self.since(-inf)

    def since(self, moment: float) -> Iterator[Slot]:
        """Yield the slots of which the better part is after a moment, oldest first. One that grows is closed for it."""
        yield from (slot for slot in self._coarse if _is_since(moment, slot))
        if self._folding and _is_since(moment, self._folding):
            yield self._folding.closed()
        yield from (slot for slot in self._fine if _is_since(moment, slot))
        if _is_since(moment, self.current):
            yield self.current.closed()

    def _fold(self, slot: Slot) -> None:
        """Add a slot to the coarse one that is being made; one at a time, so that nobody waits for it."""
        if self._folding and slot.start >= self._folding.end:
            self._coarse.append(self._folding.closed())
            self._folding = None
        self._folding = self._folding or Growing(slot.start, COARSE)
        for number, counts in records(slot.records):
            self._folding.add(number, counts)
        self._folding.notes += slot.notes


def _is_since(moment: float, slot: Slot | Growing) -> bool:
    return slot.start >= moment - (slot.end - slot.start) / 2
