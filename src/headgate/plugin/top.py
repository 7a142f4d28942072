"""`kubectl traffic top`: a TrafficMetricsList as a table, and nothing else (R103, R104)."""

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from headgate.figures import NONE, latency
from headgate.plugin.api import Document, items, name_of
from headgate.plugin.errors import WrongUsage
from headgate.plugin.numbers import Numbers, failures, numbers_of, percent, rate
from headgate.plugin.table import written


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A resource and its numbers; of a TrafficSplit one of its backends, with its weight."""

    namespace: str
    name: str
    numbers: Numbers
    backend: str = ""
    weight: int | None = None


class Column(msgspec.Struct, frozen=True):
    """A figure: its title, how it is written, and what sorts it, least first."""

    title: str
    text: Callable[[Line], str]
    order: Callable[[Line], float]


def _worst(value: float | None, *, largest_first: bool = True) -> float:
    """Return what sorts the value that asks for attention first, and what is unknown last."""
    return math.inf if value is None else -value if largest_first else value


SUCCESS = Column(
    "SUCCESS", lambda line: percent(line.numbers), lambda line: _worst(line.numbers.share, largest_first=False)
)
RPS = Column("RPS", lambda line: rate(line.numbers), lambda line: _worst(line.numbers.rps))
P50 = Column("LATENCY_P50", lambda line: latency(line.numbers.p50), lambda line: _worst(line.numbers.p50))
P90 = Column("LATENCY_P90", lambda line: latency(line.numbers.p90), lambda line: _worst(line.numbers.p90))
P99 = Column("LATENCY_P99", lambda line: latency(line.numbers.p99), lambda line: _worst(line.numbers.p99))
FAILURES = Column("FAILURES", lambda line: failures(line.numbers), lambda line: _worst(line.numbers.failure))
COPIES = Column("COPIES", lambda line: str(line.numbers.copies), lambda line: _worst(line.numbers.copies))
CONNECTIONS = Column(
    "CONNECTIONS", lambda line: str(line.numbers.connections), lambda line: _worst(line.numbers.connections)
)
UNREACHED = Column(
    "CONN_FAILURES", lambda line: str(line.numbers.unreached), lambda line: _worst(line.numbers.unreached)
)
WEIGHT = Column(
    "WEIGHT", lambda line: NONE if line.weight is None else str(line.weight), lambda line: _worst(line.weight)
)
NARROW = (SUCCESS, RPS, P99)
WIDE = (SUCCESS, RPS, P50, P90, P99, FAILURES)
_ORDERS: Mapping[str, Callable[[Line], float]] = {
    name: column.order
    for column in (*WIDE, COPIES, CONNECTIONS, UNREACHED, WEIGHT)
    for name in (column.title.lower(), column.title.lower().removeprefix("latency_"))
}
_BY_NAME = ("name", "namespace")


def lines_of(document: Document) -> list[Line]:
    """Return what a list, or one resource, says. Raises HeadgateError when its numbers can't be read."""
    return [_line(item) for item in items(document)]


def _line(item: Document) -> Line:
    namespace, name = name_of(item)
    backend = item.get("backend") or {}
    return Line(
        namespace=namespace,
        name=name,
        numbers=numbers_of(item),
        backend=str(backend.get("name") or ""),
        weight=backend.get("weight"),
    )


def check_order(by: str) -> None:
    """Find out early whether lines can be sorted `by`. Raises WrongUsage."""
    if by and by not in _ORDERS and by not in _BY_NAME:
        raise WrongUsage(f"there is no column {by!r} to sort by; choose one of {', '.join((*_BY_NAME, *_ORDERS))}")


def in_order(lines: Sequence[Line], by: str) -> list[Line]:
    """Sort by a column: names as in the alphabet, the lowest success first, the most of everything else first."""
    check_order(by)
    if not by:
        return list(lines)
    key = _ORDERS.get(by)
    named = sorted(lines, key=lambda line: (line.name, line.namespace) if by == "name" else (line.namespace, line.name))
    return sorted(named, key=key) if key else named


def table(lines: Sequence[Line], *, wide: bool = False, namespaces: bool = False) -> str:
    """Return the table. `namespaces` begins it with the NAMESPACE."""
    backends = any(line.backend for line in lines)
    columns = _columns(lines, wide=wide, backends=backends)
    names = ["NAMESPACE"] * namespaces + ["NAME"] + ["BACKEND"] * backends
    rows = [
        [line.namespace] * namespaces
        + [line.name]
        + [line.backend or NONE] * backends
        + [one.text(line) for one in columns]
        for line in lines
    ]
    return written([*names, *(column.title for column in columns)], rows, left=len(names))


def _columns(lines: Sequence[Line], *, wide: bool, backends: bool) -> tuple[Column, ...]:
    if not wide:
        return (WEIGHT, *NARROW) if backends else NARROW
    copies = (COPIES,) if any(line.numbers.copies for line in lines) else ()
    connections = (CONNECTIONS,) if any(line.numbers.connections for line in lines) else ()
    unreached = (UNREACHED,) if any(line.numbers.unreached for line in lines) else ()
    return (*((WEIGHT,) if backends else ()), *WIDE, *copies, *connections, *unreached)
