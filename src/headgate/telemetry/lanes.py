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
MOST = (1 << BITS[SHORT]) - 1
"""What a short lane has room for."""


def empty(lanes: int, width: Width) -> "array[int]":
    """Return lanes that have nothing."""
    return array(width, bytes(lanes * BITS[width] // 8))


def joined(words: "array[int]") -> int:
    """Return the number whose lanes these are."""
    return int.from_bytes(words, "little")


def split(number: int, width: Width) -> "array[int]":
    """Return the lanes, up to the last that is not zero."""
    return array(width, _written(number, width))


def used(number: int, width: Width) -> "tuple[int, array[int]]":
    """Return the first lane that is not zero, and the lanes from there to the last such; `number` is not 0."""
    everything = _written(number, width)
    size = BITS[width] // 8
    first = (len(everything) - len(everything.lstrip(b"\0"))) // size
    return first, array(width, everything[first * size :])


def narrowed(number: int) -> int:
    """Return long lanes as short ones; what is too large for such a lane fills it."""
    if not number:
        return 0
    words = array(SHORT, _written(number, LONG))
    low, high = words[::2], words[1::2]
    if high.tobytes().strip(b"\0"):
        low = array(SHORT, [MOST if above else below for below, above in zip(low, high, strict=True)])
    return joined(low)


def widened(number: int) -> int:
    """Return short lanes as long ones."""
    words = split(number, SHORT)
    wide = empty(2 * len(words), SHORT)
    wide[::2] = words
    return joined(wide)


def spread(number: int, width: Width) -> dict[int, int]:
    """Return what is in the lanes by their index, without zeros."""
    if not number:
        return {}
    first, counts = used(number, width)
    return {lane: count for lane, count in enumerate(counts, first) if count}


def _written(number: int, width: Width) -> bytes:
    bits = BITS[width]
    return number.to_bytes(-(-number.bit_length() // bits) * bits // 8, "little")
