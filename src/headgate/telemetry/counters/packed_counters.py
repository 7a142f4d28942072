"""Many counters packed into one integer, so that one `+` adds all of them.

Each counter takes 32 or 64 bits; the first counter takes the lowest bits. One addition is twenty times as fast as a
loop over counters. It is exact as long as no counter overflows, so callers limit what they add. See
docs/internals/adr/0004-packed-counters.md for measurements against numpy.

The little-endian bytes of a packed integer are an array of C integers, as OTLP encodes histograms.
"""

from array import array
from collections.abc import Mapping
from typing import Literal, TypeAlias

Width: TypeAlias = Literal["I", "Q"]
"""The width of a counter as a type code of `array`: `I` is 32 bits, `Q` is 64 bits."""
NARROW: Width = "I"
"""32 bits, for histograms, because many of them are in memory."""
WIDE: Width = "Q"
"""64 bits, for counts without a limit."""
BITS: Mapping[Width, int] = {NARROW: 32, WIDE: 64}
LARGEST_NARROW = (1 << BITS[NARROW]) - 1


def zeros(count: int, width: Width) -> "array[int]":
    """Return an array of `count` counters at zero."""
    return array(width, bytes(count * BITS[width] // 8))


def pack(counters: "array[int]") -> int:
    """Pack counters into an integer."""
    return int.from_bytes(counters, "little")


def unpack(packed: int, width: Width) -> "array[int]":
    """Return the counters of `packed`, up to the last counter that is not zero."""
    return array(width, _to_bytes(packed, width))


def unpack_from_first(packed: int, width: Width) -> "tuple[int, array[int]]":
    """Return the index of the first counter that is not zero, and the counters from there to the last that is not zero.

    `packed` must not be 0.
    """
    everything = _to_bytes(packed, width)
    size = BITS[width] // 8
    first = (len(everything) - len(everything.lstrip(b"\0"))) // size
    return first, array(width, everything[first * size :])


def by_index(packed: int, width: Width) -> dict[int, int]:
    """Return the counters that are not zero, by index."""
    if not packed:
        return {}
    first, counters = unpack_from_first(packed, width)
    return {index: count for index, count in enumerate(counters, first) if count}


def to_narrow(packed: int) -> int:
    """Convert wide counters to narrow ones; a count that does not fit becomes `LARGEST_NARROW`."""
    if not packed:
        return 0
    halves = array(NARROW, _to_bytes(packed, WIDE))
    low, high = halves[::2], halves[1::2]
    if high.tobytes().strip(b"\0"):
        low = array(NARROW, [LARGEST_NARROW if above else below for below, above in zip(low, high, strict=True)])
    return pack(low)


def to_wide(packed: int) -> int:
    """Convert narrow counters to wide ones."""
    counters = unpack(packed, NARROW)
    halves = zeros(2 * len(counters), NARROW)
    halves[::2] = counters
    return pack(halves)


def highest_bits(count: int) -> int:
    """Return an integer in which each of `count` wide counters has its highest bit set, for `difference`."""
    return sum(1 << BITS[WIDE] * (index + 1) - 1 for index in range(count))


def difference(new: int, old: int, highest: int) -> int | None:
    """Subtract wide counters; return None if a counter is smaller in `new` than in `old`. Counts must be below 2^63.

    `highest` is the result of `highest_bits`. These bits are set in `new` before the subtraction. Afterwards, the bit of
    a counter is 0 if and only if the counter had to borrow.
    """
    if not old:
        return new
    rest = (new | highest) - old
    return rest ^ highest if rest & highest == highest else None


def _to_bytes(packed: int, width: Width) -> bytes:
    bits = BITS[width]
    return packed.to_bytes(-(-packed.bit_length() // bits) * bits // 8, "little")
