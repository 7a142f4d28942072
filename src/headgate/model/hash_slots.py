"""Who has which of 10 000 slots of users, so that a change of weights moves few of them (requirements 2.8).

A proxy hashes what identifies a user to a slot. The layout below is computed from the weights of now alone, so that the
same weights always mean the same sides, after a restart and on every proxy.

The first backend has what the others leave. The others have home regions of equal size, and grow into them from fixed
ends: the first and the second towards each other, the third and the fourth, and so on. So where weights move between the
first backend and the others, exactly the users move that the change asks for, and nobody else. With two backends, those
are all changes. No layout can do this for every change among three: see docs/sticky.md.

A backend that outgrows its home, 1/(n-1) of the users, takes what is free in the others' regions, at their far ends.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from headgate.model.routing import SlotRange, Sticky
from headgate.resources.meta import Value

TOTAL = 10_000
FIRST = 0


class Run(Value, frozen=True, kw_only=True):
    """Slots beside each other of one `owner`, a backend's index as written."""

    owner: int
    size: int


def slot_counts(weights: Sequence[int]) -> tuple[int, ...]:
    """Return how many of the 10 000 slots each relative weight means, rounded so that they add up to all of them.

    What is left after rounding down goes to the largest remainders, of equal ones to the first. Raises ValueError when
    no weight is above 0.
    """
    whole = sum(weights)
    if whole <= 0:
        raise ValueError("no weight is above 0")
    counts = [weight * TOTAL // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: (-(weights[index] * TOTAL % whole), index))
    for index in by_remainder[: TOTAL - sum(counts)]:
        counts[index] += 1
    return tuple(counts)


def is_rounded(weights: Sequence[int]) -> bool:
    """Say whether the weights mean fractions of a slot."""
    whole = sum(weights)
    return any(weight * TOTAL % whole for weight in weights)


@lru_cache(maxsize=1024)
def layout(counts: tuple[int, ...]) -> tuple[Run, ...]:
    """Return the slots in their order, for the number of slots of each backend as written; they add up to 10 000."""
    owners = [FIRST] * TOTAL
    left = list(counts)
    orders = [_home(index, len(counts) - 1) for index in range(len(counts) - 1)]
    for index, home in enumerate(orders, 1):
        _take(owners, left, index, home)
    for index in range(1, len(counts)):
        _take(owners, left, index, _elsewhere(orders, index - 1))
    return tuple(Run(owner=owner, size=len(list(slots))) for owner, slots in groupby(owners))


def _take(owners: list[int], left: list[int], index: int, order: Sequence[int] | Iterator[int]) -> None:
    """Give a backend free slots in an order, as many as it lacks."""
    for slot in order:
        if not left[index]:
            return
        if owners[slot] == FIRST:
            owners[slot] = index
            left[index] -= 1


def _home(index: int, regions: int) -> Sequence[int]:
    """Return the slots of a region in the order in which its backend takes them: pairs grow towards each other."""
    slots = range(TOTAL * index // regions, TOTAL * (index + 1) // regions)
    return slots if index % 2 == 0 else slots[::-1]


def _elsewhere(homes: Sequence[Sequence[int]], index: int) -> Iterator[int]:
    """Yield the slots of the other regions from their far ends, the partner's first: its far end is where one arrives."""
    partner = index ^ 1
    others = [other for other in range(len(homes)) if other not in {index, partner}]
    for other in ([partner] if partner < len(homes) else []) + others:
        yield from reversed(homes[other])


_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_STRIPE, _LANE, _WORD = 32, 8, 4


def slot_of(key: str) -> int:
    """Return the slot of a user, from 0 to 9 999."""
    return xxh64(key.encode("utf-8", "surrogateescape")) % TOTAL


def slot_range_at(sticky: Sticky, slot: int) -> SlotRange:
    """Return the side that has a slot. Raises ValueError when none has."""
    end = 0
    for side in sticky.slot_ranges:
        end += side.slots
        if slot < end:
            return side
    raise ValueError(f"no side has the slot {slot}")


def xxh64(data: bytes) -> int:
    """Return the hash of some bytes, with the seed 0, as a number of 64 bits."""
    whole = len(data) - len(data) % _STRIPE
    found = (_stripes(data[:whole]) if whole else _P5) + len(data)
    rest = data[whole:]
    while len(rest) >= _LANE:
        found = _rotated(found ^ _round(0, _number(rest[:_LANE])), 27) * _P1 + _P4
        rest = rest[_LANE:]
    if len(rest) >= _WORD:
        found = _rotated(found ^ (_number(rest[:_WORD]) * _P1), 23) * _P2 + _P3
        rest = rest[_WORD:]
    for byte in rest:
        found = _rotated(found ^ (byte * _P5), 11) * _P1
    return _avalanche(found & _MASK)


def _stripes(data: bytes) -> int:
    lanes = [_P1 + _P2, _P2, 0, -_P1]
    for start in range(0, len(data), _LANE):
        index = start // _LANE % len(lanes)
        lanes[index] = _round(lanes[index], _number(data[start : start + _LANE]))
    found = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    for lane in lanes:
        found = (found ^ _round(0, lane)) * _P1 + _P4
    return found & _MASK


def _round(lane: int, number: int) -> int:
    return _rotated(lane + number * _P2, 31) * _P1 & _MASK


def _rotated(number: int, bits: int) -> int:
    number &= _MASK
    return (number << bits | number >> (64 - bits)) & _MASK


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _avalanche(number: int) -> int:
    number = (number ^ number >> 33) * _P2 & _MASK
    number = (number ^ number >> 29) * _P3 & _MASK
    return number ^ number >> 32
