"""Growth of many flows in few bytes: a mesh of tens of thousands of flows fits into memory only like that.

A record is a head and the counts' two numbers (`counts.Counts`) without the zeros that they begin and end with.
"""

from collections.abc import Iterator, Mapping
from struct import Struct

from headgate.telemetry.counts import Counts

_HEAD = Struct("<IHHHH")  # the number of the flow; of latencies and of the others, how many zeros and how many bytes


def pack(table: Mapping[int, Counts]) -> bytes:
    """Return counts, by the number of their flow, as records."""
    parts: list[bytes] = []
    for number, counts in table.items():
        zeros, found = _shortened(counts.latency)
        more_zeros, more = _shortened(counts.others)
        parts += (_HEAD.pack(number, zeros, len(found), more_zeros, len(more)), found, more)
    return b"".join(parts)


def records(packed: bytes) -> Iterator[tuple[int, Counts]]:
    """Yield the number of each flow, and its counts."""
    at, end = 0, len(packed)
    while at < end:
        number, zeros, length, more_zeros, more = _HEAD.unpack_from(packed, at)
        begin = at + _HEAD.size
        middle = begin + length
        at = middle + more
        yield (
            number,
            Counts(
                int.from_bytes(packed[begin:middle], "little") << 8 * zeros,
                int.from_bytes(packed[middle:at], "little") << 8 * more_zeros,
            ),
        )


def flows_in(packed: bytes) -> Iterator[int]:
    """Yield the numbers of the flows."""
    at = 0
    while at < len(packed):
        number, _, length, _, more = _HEAD.unpack_from(packed, at)
        yield number
        at += _HEAD.size + length + more


def _shortened(number: int) -> tuple[int, bytes]:
    """Return how many zeros the bytes of a number begin with, the lowest first, and the others."""
    everything = number.to_bytes(number.bit_length() + 7 >> 3, "little")
    found = everything.lstrip(b"\0")
    return len(everything) - len(found), found
