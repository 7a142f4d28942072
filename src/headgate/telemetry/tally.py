"""Growth as sparse counts: everything that is counted has a number, its cell, and most cells of a flow are zero.

A record of a flow's growth is a few machine words: `flow << 8 | cells`, then `count << 8 | cell` for each cell. A mesh of
tens of thousands of flows fits into memory only like that.
"""

from array import array
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from headgate.telemetry import lanes
from headgate.telemetry.flows import Counts
from headgate.telemetry.histogram import BUCKETS, MOST, Buckets, gathered

Tally: TypeAlias = Mapping[int, int]
"""Counts by cell; no zeros."""
Parts: TypeAlias = tuple[Buckets, int]
"""A tally in two numbers that add up: the latencies, and the other cells in long `lanes`."""
Table: TypeAlias = dict[int, dict[int, int]]
"""Tallies by the number of their flow."""

# the first cells are the latencies' buckets; the last two of these have no class
CONNECTIONS, SENT, RECEIVED, SUCCEEDED, FAILED = range(BUCKETS, BUCKETS + 5)
NO_RESPONSE = "none"
_GRPC_CODES = 17
_UNKNOWN = 2  # what a status outside of them is by gRPC's own rule
_SERVERS_FAULT = frozenset({2, 4, 12, 13, 14, 15})  # of gRPC's statuses, those that HTTP writes as 500 and above
_CLASSES = (
    *(f"{hundreds}xx" for hundreds in range(1, 6)),
    NO_RESPONSE,
    *(f"grpc-{status}" for status in range(_GRPC_CODES)),
)
_CLASS_CELLS = {name: cell for cell, name in enumerate(_CLASSES, FAILED + 1)}
UNREACHED = FAILED + 1 + len(_CLASSES)  # connections, which are no requests
_CELLS = UNREACHED + 1
_FAILURES = frozenset(
    _CLASS_CELLS[name] for name in ("5xx", NO_RESPONSE, *(f"grpc-{status}" for status in _SERVERS_FAULT))
)
_BITS = 8
_MASK = (1 << _BITS) - 1
# of a cell in a record: more is no traffic, and what a broken proxy says must not stop the others
_MOSTS = (MOST,) * BUCKETS + (1 << 48,) * (_CELLS - BUCKETS)
WORD = "Q"
_NO_LATENCY = lanes.empty(BUCKETS, lanes.SHORT)
_NO_OTHERS = lanes.empty(_CELLS - BUCKETS, lanes.LONG)


def class_cell(status: int, grpc: str = "") -> int:
    """Return the cell of a request by the status of its response, 0 without one, and gRPC's status, empty without one."""
    if grpc.isdecimal():
        return _CLASS_CELLS[f"grpc-{grpc if int(grpc) < _GRPC_CODES else _UNKNOWN}"]
    return _CLASS_CELLS.get(f"{status // 100}xx", _CLASS_CELLS[NO_RESPONSE])


def requests(tally: Tally) -> int:
    """Return how many requests there are in a tally."""
    return sum(count for cell, count in tally.items() if FAILED < cell < UNREACHED)


def counts(tally: Tally, latency: Buckets = 0) -> Counts:
    """Return a tally as its readers want it: success and failure by the classes of the responses (D22).

    Latencies are among its cells, or `latency`, which is faster for whoever has them so.
    """
    buckets: dict[int, int] = {}
    classes: list[tuple[str, int]] = []
    total = failure = 0
    for cell, count in tally.items():
        if cell < BUCKETS:
            buckets[cell] = count
        elif FAILED < cell < UNREACHED:
            classes.append((_CLASSES[cell - FAILED - 1], count))
            total += count
            failure += count if cell in _FAILURES else 0
    return Counts(
        success=total - failure + tally.get(SUCCEEDED, 0),
        failure=failure + tally.get(FAILED, 0),
        latency=latency + gathered(buckets) if buckets else latency,
        classes=tuple(sorted(classes)),
        connections=tally.get(CONNECTIONS, 0),
        unreached=tally.get(UNREACHED, 0),
        sent=tally.get(SENT, 0),
        received=tally.get(RECEIVED, 0),
    )


def add(table: Table, flow: int, tally: Tally) -> None:
    """Add a flow's growth to a table."""
    row = table.setdefault(flow, {})
    for cell, count in tally.items():
        row[cell] = row.get(cell, 0) + count


def pack(table: Table) -> "array[int]":
    """Return a table as words."""
    words = array(WORD)
    for flow, row in table.items():
        words.append(flow << _BITS | len(row))
        words.extend(min(count, _MOSTS[cell]) << _BITS | cell for cell, count in row.items())
    return words


def unpack(words: "array[int]", into: Table) -> None:
    """Add packed records to a table."""
    at = 0
    while at < len(words):
        flow, cells = words[at] >> _BITS, words[at] & _MASK
        row = into.setdefault(flow, {})
        for word in words[at + 1 : at + 1 + cells]:
            cell = word & _MASK
            row[cell] = row.get(cell, 0) + (word >> _BITS)
        at += 1 + cells


def records(words: "array[int]") -> Iterator[tuple[int, Parts]]:
    """Yield packed records: the number of the flow, and its growth."""
    at, end = 0, len(words)
    while at < end:
        head = words[at]
        begin = at + 1
        at = begin + (head & _MASK)
        latency, others = _NO_LATENCY[:], _NO_OTHERS[:]
        for word in words[begin:at]:
            cell = word & _MASK
            if cell < BUCKETS:
                latency[cell] = word >> _BITS
            else:
                others[cell - BUCKETS] = word >> _BITS
        yield head >> _BITS, (lanes.joined(latency), lanes.joined(others))


def in_parts(tally: Tally) -> Parts:
    """Return a tally in the form that adds up faster."""
    others = _NO_OTHERS[:]
    for cell, count in tally.items():
        if cell >= BUCKETS:
            others[cell - BUCKETS] = count
    return gathered({cell: count for cell, count in tally.items() if cell < BUCKETS}), lanes.joined(others)


def counts_in(parts: Parts) -> Counts:
    """Return what `counts` does."""
    latency, others = parts
    return counts({BUCKETS + cell: count for cell, count in lanes.spread(others, lanes.LONG).items()}, latency)


def flows_in(words: "array[int]") -> Iterator[int]:
    """Yield the numbers of the flows in packed records."""
    at = 0
    while at < len(words):
        yield words[at] >> _BITS
        at += 1 + (words[at] & _MASK)
