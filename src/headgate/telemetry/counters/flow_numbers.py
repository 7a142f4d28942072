"""Small numbers for flows, so that time buckets need not repeat the flows themselves."""

from collections.abc import Iterable, Sequence

import msgspec

from headgate.telemetry.counters.flows import Flow

ROOM = 1000  # flows up to which no sweep is worth it
PART = 1000  # flows that are encoded together, and again when one of them changes


class FlowNumbers:
    """Numbers at most `most` flows. A number is used again once no bucket has it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._room = min(ROOM, most - 1)
        self._numbers: dict[Flow, int] = {}
        self._names: list[Flow | None] = []
        self._free: list[int] = []
        self._encoded: dict[int, bytes] = {}

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
        """Whether so many flows were added that half of them may be unused."""
        return len(self._numbers) > self._room

    def sweep(self, used: set[int]) -> None:
        """Free all numbers but these."""
        for flow, number in [item for item in self._numbers.items() if item[1] not in used]:
            del self._numbers[flow]
            self._free.append(number)
            self._name(number, None)
        self._room = min(ROOM + 2 * len(self._numbers), self._most - 1)

    def names(self) -> Sequence[Flow | None]:
        """Return a copy of the flows in the order of their numbers."""
        return tuple(self._names)

    def encoded(self) -> tuple[bytes, ...]:
        """Return all flows in parts as MessagePack, of which only those are encoded that changed."""
        firsts = range(0, len(self._names), PART)
        for first in firsts:
            if first not in self._encoded:
                self._encoded[first] = msgspec.msgpack.encode(self._names[first : first + PART])
        return tuple(self._encoded[first] for first in firsts)

    def restore(self, parts: Iterable[bytes]) -> None:
        """Take over the numbers of an earlier headgate (`encoded`)."""
        self._names = [flow for part in parts for flow in msgspec.msgpack.decode(part, type=list[Flow | None])]
        self._numbers = {flow: number for number, flow in enumerate(self._names) if flow}
        self._free = [number for number, flow in enumerate(self._names) if not flow]

    def _name(self, number: int, flow: Flow | None) -> None:
        self._names[number] = flow
        self._encoded.pop(number - number % PART, None)
        if flow:
            self._numbers[flow] = number
