"""Encodes the counts of many flows as bytes, so that a mesh of tens of thousands of flows fits into memory.

A record is a head, then the two integers of `Counts` as little-endian bytes, without leading and trailing zero bytes.
"""

from collections.abc import Iterator, Mapping
from struct import Struct

from headgate.telemetry.counters.counts import Counts

_HEAD = Struct(
    "<IHHHH"
)  # flow number; for `latency` and for `others`: bytes of leading zeros that are left out, bytes that follow


def pack_flows(counts_of: Mapping[int, Counts]) -> bytes:
    """Encode counts by flow number."""
    parts: list[bytes] = []
    for number, counts in counts_of.items():
        zeros, latency = _shortened(counts.latency)
        more_zeros, others = _shortened(counts.others)
        parts += (_HEAD.pack(number, zeros, len(latency), more_zeros, len(others)), latency, others)
    return b"".join(parts)


def unpack_flows(packed: bytes) -> Iterator[tuple[int, Counts]]:
    """Yield each flow number and its counts."""
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
    """Yield the flow numbers alone."""
    at = 0
    while at < len(packed):
        number, _, length, _, more = _HEAD.unpack_from(packed, at)
        yield number
        at += _HEAD.size + length + more


def _shortened(packed: int) -> tuple[int, bytes]:
    """Return how many zero bytes come first, and the bytes from there to the last that is not zero."""
    everything = packed.to_bytes(packed.bit_length() + 7 >> 3, "little")
    found = everything.lstrip(b"\0")
    return len(everything) - len(found), found
