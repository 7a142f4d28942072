"""The sum of a window, from one question to the next: what has come into it is added, and what has left it taken away.

Half a minute of a large mesh is a million counts, and a second later all but a thirtieth of them are the same.
"""

from collections.abc import Iterator, Mapping, Sequence

from headgate.telemetry.flows import Counts
from headgate.telemetry.slots import Slot
from headgate.telemetry.tally import Parts, Table, counts_in, in_parts, records, unpack

BREATH = 1000  # flows that are worked on before others get their turn
_NOTHING: Parts = (0, 0)


class Rolling:
    """The sum of some slots, exactly; who moves it on may stop after any step, and go on with other slots."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}  # by identity, which is nobody else's as long as a slot is here
        self._rows: dict[int, Parts] = {}  # by the number of the flow
        self._counts: dict[int, Counts] = {}  # of rows that did not change since somebody asked

    def move(self, slots: Sequence[Slot]) -> Iterator[None]:
        """Become the sum of other slots, a slot at a step."""
        wanted = {id(slot): slot for slot in slots}
        gone = {key: slot for key, slot in self._slots.items() if key not in wanted}
        if _size(gone) >= _size(self._slots) / 2:
            yield from self._begin(wanted)
            return
        for key, slot in gone.items():
            self._take_away(slot)
            del self._slots[key]
            yield
        for key, slot in wanted.items():
            if key not in self._slots:
                self._add(slot)
                self._slots[key] = slot
                yield

    def __iter__(self) -> Iterator[tuple[int, Counts]]:
        """Yield flows by their number, and what each came to."""
        for number, parts in self._rows.items():
            found = self._counts.get(number)
            if found is None:
                found = self._counts[number] = counts_in(parts)
            yield number, found

    def _begin(self, wanted: Mapping[int, Slot]) -> Iterator[None]:
        """Add up everything anew, which is faster cell by cell."""
        table: Table = {}
        for slot in wanted.values():
            unpack(slot.words, table)
            yield
        rows: dict[int, Parts] = {}
        for done, (number, row) in enumerate(table.items(), 1):
            rows[number] = in_parts(row)
            if not done % BREATH:
                yield
        self._slots, self._rows, self._counts = dict(wanted), rows, {}

    def _add(self, slot: Slot) -> None:
        for number, (latency, others) in records(slot.words):
            before = self._rows.get(number, _NOTHING)
            self._rows[number] = before[0] + latency, before[1] + others
            self._counts.pop(number, None)

    def _take_away(self, slot: Slot) -> None:
        for number, (latency, others) in records(slot.words):
            before = self._rows[number]
            left = before[0] - latency, before[1] - others
            if left == _NOTHING:
                del self._rows[number]
            else:
                self._rows[number] = left
            self._counts.pop(number, None)


def _size(slots: Mapping[int, Slot]) -> int:
    return sum(len(slot.words) for slot in slots.values())
