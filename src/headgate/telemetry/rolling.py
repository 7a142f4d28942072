"""The sum of a window, from one question to the next: what has come into it is added, and what has left it taken away.

Half a minute of a large mesh is a million counts, and a second later all but a thirtieth of them are the same.
"""

from collections.abc import Iterator, Mapping, Sequence

from headgate.telemetry.counts import Counts
from headgate.telemetry.slots import Slot


class Rolling:
    """The sum of some slots, exactly; who moves it on may stop after any step, and go on with other slots.

    `rows` are by the number of the flow.
    """

    def __init__(self) -> None:
        self.rows: dict[int, Counts] = {}
        self._slots: dict[int, Slot] = {}  # by identity, which is nobody else's as long as a slot is here

    def move(self, slots: Sequence[Slot]) -> Iterator[None]:
        """Become the sum of other slots, a slot at a step."""
        wanted = {id(slot): slot for slot in slots}
        gone = {key: slot for key, slot in self._slots.items() if key not in wanted}
        if _size(gone) >= _size(self._slots) / 2:
            self.rows, self._slots, gone = {}, {}, {}
        for key, slot in gone.items():
            self._take_away(slot)
            del self._slots[key]
            yield
        for key, slot in wanted.items():
            if key not in self._slots:
                self._add(slot)
                self._slots[key] = slot
                yield

    def _add(self, slot: Slot) -> None:
        rows = self.rows
        for number, counts in slot.items():
            before = rows.get(number)
            rows[number] = before.plus(counts) if before else counts

    def _take_away(self, slot: Slot) -> None:
        rows = self.rows
        for number, counts in slot.items():
            left = rows[number].minus(counts)
            if left.latency or left.others:
                rows[number] = left
            else:
                del rows[number]


def _size(slots: Mapping[int, Slot]) -> int:
    return sum(slot.size for slot in slots.values())
