"""Assign 10 000 hash slots of users to the backends of a sticky split; a change to weights moves few users.

A proxy hashes the key of a user to a slot (requirements 2.8). The layout depends on the current weights only, so the
same weights give the same backends after a restart and on every proxy.

The first backend gets all slots that the remaining backends leave. Each remaining backend has a home region of equal
size and grows into it from a fixed end: the first and the second of them toward each other, the third and the fourth,
and so on. So a change to weights between the first backend and another one moves only the necessary users. With two
backends this covers all changes. For three or more, no layout achieves it for every change: see docs/tasks/sticky.md.

A backend that needs more than its home region, 1/(n-1) of the slots, takes free slots at the far ends of other regions.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from headgate.model.routing import SlotRange, Sticky
from headgate.resources.meta import Value

TOTAL = 10_000
FIRST = 0


class SlotRun(Value, frozen=True, kw_only=True):
    """Adjacent slots of one `owner`, the index of a backend in the spec."""

    owner: int
    size: int


def slot_counts(weights: Sequence[int]) -> tuple[int, ...]:
    """Return the number of slots for each weight; the counts add up to 10 000.

    Slots that remain after rounding down go to the largest remainders, in case of a tie to the first. Raises
    ValueError if no weight is above 0.
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
    """Return whether rounding is necessary, because a weight does not correspond to an integer number of slots."""
    whole = sum(weights)
    return any(weight * TOTAL % whole for weight in weights)


@lru_cache(maxsize=1024)
def layout(counts: tuple[int, ...]) -> tuple[SlotRun, ...]:
    """Return the slots of all backends as runs, in the order of the slots.

    `counts` has the numbers of slots by backend; they add up to 10 000.
    """
    owners = [FIRST] * TOTAL
    left = list(counts)
    orders = [_home(index, len(counts) - 1) for index in range(len(counts) - 1)]
    for index, home in enumerate(orders, 1):
        _take(owners, left, index, home)
    for index in range(1, len(counts)):
        _take(owners, left, index, _elsewhere(orders, index - 1))
    return tuple(SlotRun(owner=owner, size=len(list(slots))) for owner, slots in groupby(owners))


def _take(owners: list[int], left: list[int], index: int, order: Sequence[int] | Iterator[int]) -> None:
    """Assign free slots to the backend `index` in the given order, until it has all the slots that it needs."""
    for slot in order:
        if not left[index]:
            return
        if owners[slot] == FIRST:
            owners[slot] = index
            left[index] -= 1


def _home(index: int, regions: int) -> Sequence[int]:
    """Return the slots of a home region in the order in which they are assigned: descending if `index` is odd."""
    slots = range(TOTAL * index // regions, TOTAL * (index + 1) // regions)
    return slots if index % 2 == 0 else slots[::-1]


def _elsewhere(homes: Sequence[Sequence[int]], index: int) -> Iterator[int]:
    """Yield the slots of other home regions, that of the paired backend first, each in reverse order of assignment."""
    partner = index ^ 1
    remaining = [other for other in range(len(homes)) if other not in {index, partner}]
    for other in ([partner] if partner < len(homes) else []) + remaining:
        yield from reversed(homes[other])


_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_STRIPE, _LANE, _WORD = 32, 8, 4


def slot_of(key: str) -> int:
    """Return the slot of a user key, from 0 to 9 999."""
    return xxh64(key.encode("utf-8", "surrogateescape")) % TOTAL


def slot_range_at(sticky: Sticky, slot: int) -> SlotRange:
    """Return the slot range that contains a slot. Raises ValueError if none does."""
    end = 0
    for slot_range in sticky.slot_ranges:
        end += slot_range.slots
        if slot < end:
            return slot_range
    raise ValueError(f"no slot range contains the slot {slot}")


def xxh64(data: bytes) -> int:
    """Return the 64-bit xxHash of `data` with seed 0, the hash that Envoy uses."""
    whole = len(data) - len(data) % _STRIPE
    digest = (_stripes(data[:whole]) if whole else _P5) + len(data)
    rest = data[whole:]
    while len(rest) >= _LANE:
        digest = _rotated(digest ^ _round(0, _number(rest[:_LANE])), 27) * _P1 + _P4
        rest = rest[_LANE:]
    if len(rest) >= _WORD:
        digest = _rotated(digest ^ (_number(rest[:_WORD]) * _P1), 23) * _P2 + _P3
        rest = rest[_WORD:]
    for byte in rest:
        digest = _rotated(digest ^ (byte * _P5), 11) * _P1
    return _avalanche(digest & _MASK)


def _stripes(data: bytes) -> int:
    lanes = [_P1 + _P2, _P2, 0, -_P1]
    for start in range(0, len(data), _LANE):
        index = start // _LANE % len(lanes)
        lanes[index] = _round(lanes[index], _number(data[start : start + _LANE]))
    digest = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    for lane in lanes:
        digest = (digest ^ _round(0, lane)) * _P1 + _P4
    return digest & _MASK


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
