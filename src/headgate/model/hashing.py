"""XXH64, the hash by which Envoy finds a user's slot, so that `explain` can say which one it is."""

from headgate.model.filters import Side, Sticky
from headgate.model.slots import TOTAL

_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_STRIPE, _LANE, _WORD = 32, 8, 4


def slot_of(key: str) -> int:
    """Return the slot of a user, from 0 to 9 999."""
    return xxh64(key.encode("utf-8", "surrogateescape")) % TOTAL


def side_of(sticky: Sticky, slot: int) -> Side:
    """Return the side that has a slot. Raises ValueError when none has."""
    end = 0
    for side in sticky.sides:
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
