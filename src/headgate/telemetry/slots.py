"""Time in slots: growth is packed when its second is over, folded into coarser slots when it is old, and then forgotten."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from math import inf

from headgate.telemetry.counts import Counts
from headgate.telemetry.records import flows_in, pack, records

SLOT = 1.0  # seconds; a window is exact to one slot
FINE = 140.0  # seconds for which slots are kept as they are: windows of two minutes need no coarser one
COARSE = 30.0  # seconds of a slot from then on
KEPT = 900.0  # seconds until it is forgotten


class Slot:
    """Growth between two moments of the monotonic clock, and how much is missing or odd, in words.

    Counts are by the number of their flow, as `records` or not yet: who asks for what was a moment ago waits for no packing.
    """

    def __init__(self, start: float, end: float, counts: Mapping[int, Counts] | bytes, notes: "Counter[str]") -> None:
        self.start = start
        self.end = end
        self.notes = notes
        self._counts = counts
        self.size = sum(1 for _ in self.flows())

    def items(self) -> Iterable[tuple[int, Counts]]:
        """Return the counts by the number of their flow."""
        return records(self._counts) if isinstance(self._counts, bytes) else self._counts.items()

    def flows(self) -> Iterable[int]:
        """Return the numbers of the flows."""
        return flows_in(self._counts) if isinstance(self._counts, bytes) else self._counts

    @property
    def is_packed(self) -> bool:
        """Whether the counts are records."""
        return isinstance(self._counts, bytes)

    def packed(self) -> bytes:
        """Return the counts as records, which they are from now on."""
        if not isinstance(self._counts, bytes):
            self._counts = pack(self._counts)
        return self._counts


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
        return Slot(self.start, self.end, dict(self.table), Counter(self.notes))


class Slots:
    """The slots of a quarter of an hour; `current` is that of now."""

    def __init__(self, now: float) -> None:
        self.current = Growing(now, SLOT)
        self._fine: deque[Slot] = deque()
        self._coarse: deque[Slot] = deque()
        self._folding: Growing | None = None

    def move(self, now: float) -> bool:
        """Put everything where it belongs as of now, when a slot is over; return whether one is."""
        if now < self.current.end:
            return False
        self.cut(now)
        self.current = Growing(now, SLOT)
        for slot in takewhile(lambda slot: not slot.is_packed, reversed(self._fine)):
            slot.packed()
        while self._fine and self._fine[0].start <= now - FINE:
            self._fold(self._fine.popleft())
        while self._coarse and self._coarse[0].start <= now - KEPT:
            self._coarse.popleft()
        if self._folding and self._folding.start <= now - KEPT:
            self._folding = None
        return True

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
            self._coarse[-1].packed()
            self._folding = None
        self._folding = self._folding or Growing(slot.start, COARSE)
        for number, counts in slot.items():
            self._folding.add(number, counts)
        self._folding.notes += slot.notes


def _is_since(moment: float, slot: Slot | Growing) -> bool:
    return slot.start >= moment - (slot.end - slot.start) / 2
