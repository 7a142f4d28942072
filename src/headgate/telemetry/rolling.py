"""The sum of a window, from one question to the next: what has come into it is added, and what has left it taken away.

Half a minute of a large mesh is a million counts, and a second later all but a thirtieth of them are the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from headgate.telemetry.counts import Counts
from headgate.telemetry.flows import NOBODY, Arrived, Flow
from headgate.telemetry.slots import Slot

Key = TypeVar("Key")
_NAMELESS = Flow(source=NOBODY, destination=NOBODY)  # there is none: a number that counts has a name


class Rolling:
    """The sum of some slots, exactly; who moves it on may stop after any step, and go on with other slots.

    `flows` is what each flow came to.
    """

    def __init__(self) -> None:
        self._begin()

    def arrived(self) -> Arrived:
        """Return what each pod received, as it is now."""
        return Arrived(requests=dict(self._requests), copies=dict(self._copies))

    def move(self, slots: Sequence[Slot], names: Sequence[Flow | None]) -> Iterator[None]:
        """Become the sum of other slots, a slot at a step. `names` are the flows of now by their numbers."""
        wanted = {id(slot): slot for slot in slots}
        gone = {key: slot for key, slot in self._slots.items() if key not in wanted}
        if _size(gone) >= _size(self._slots) / 2:
            self._begin()
            gone = {}
        for key, slot in gone.items():
            self._take_away(slot)
            del self._slots[key]
            yield
        for key, slot in wanted.items():
            if key not in self._slots:
                self._add(slot, names)
                self._slots[key] = slot
                yield

    def _begin(self) -> None:
        self.flows: dict[Flow, Counts] = {}
        self._requests: dict[str, Counts] = {}
        self._copies: dict[str, Counts] = {}
        self._slots: dict[int, Slot] = {}  # by identity, which is nobody else's as long as a slot is here
        self._names: dict[int, Flow] = {}  # of flows that are here: their numbers may be others' by now

    def _add(self, slot: Slot, names: Sequence[Flow | None]) -> None:
        for number, counts in slot.items():
            flow = self._names.get(number)
            if flow is None:
                flow = self._names[number] = names[number] or _NAMELESS
            _grow(self.flows, flow, counts)
            if pod := flow.destination.pod:
                _grow(self._copies if flow.copy else self._requests, pod, counts)

    def _take_away(self, slot: Slot) -> None:
        for number, counts in slot.items():
            flow = self._names[number]
            if pod := flow.destination.pod:
                _shrink(self._copies if flow.copy else self._requests, pod, counts)
            if not _shrink(self.flows, flow, counts):
                del self._names[number]


def _grow(sums: dict[Key, Counts], key: Key, counts: Counts) -> None:
    before = sums.get(key)
    sums[key] = before.plus(counts) if before else counts


def _shrink(sums: dict[Key, Counts], key: Key, counts: Counts) -> bool:
    """Return whether anything is left."""
    left = sums[key].minus(counts)
    if left.latency or left.others:
        sums[key] = left
        return True
    del sums[key]
    return False


def _size(slots: Mapping[int, Slot]) -> int:
    return sum(slot.size for slot in slots.values())
