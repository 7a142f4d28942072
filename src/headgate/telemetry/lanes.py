"""Counts side by side in one whole number, each in its lane of bits, the first the lowest.

Such numbers are added and subtracted lane by lane by `+` and `-`, twenty times as fast as count by count, as long as no lane
overflows. In bytes they are arrays of a little-endian machine: Envoy runs on no other.
"""

from array import array
from collections.abc import Mapping
from typing import Literal, TypeAlias

Width: TypeAlias = Literal["I", "Q"]
SHORT: Width = "I"
"""Lanes of 32 bits: for what may be large in number."""
LONG: Width = "Q"
"""Lanes of 64 bits: for what may be large."""
BITS: Mapping[Width, int] = {SHORT: 32, LONG: 64}


def empty(lanes: int, width: Width) -> "array[int]":
    """Return lanes that have nothing."""
    return array(width, bytes(lanes * BITS[width] // 8))


def joined(words: "array[int]") -> int:
    """Return the number whose lanes these are."""
    return int.from_bytes(words, "little")


def split(number: int, width: Width) -> "array[int]":
    """Return the lanes, up to the last that is not zero."""
    bits = BITS[width]
    return array(width, number.to_bytes(-(-number.bit_length() // bits) * bits // 8, "little"))


def spread(number: int, width: Width) -> dict[int, int]:
    """Return what is in the lanes by their index, without zeros."""
    if not number:
        return {}
    bits = BITS[width]
    first = ((number & -number).bit_length() - 1) // bits
    return {lane: count for lane, count in enumerate(split(number >> first * bits, width), first) if count}
