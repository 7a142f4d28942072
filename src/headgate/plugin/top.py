"""`kubectl traffic top`: a TrafficMetricsList as a table, and nothing else (R103, R104)."""

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from headgate.figures import NONE, latency
from headgate.plugin.api import Document, items, name_of
from headgate.plugin.colours import Colour
from headgate.plugin.errors import WrongUsage
from headgate.plugin.numbers import Numbers, denied, failures, numbers_of, percent, rate
from headgate.plugin.table import Cell, written


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A resource and its numbers; of a TrafficSplit one of its backends, with its weight.

    `pods` is how many it has, `meshed` how many of them have a sidecar; None where the API does not say it.
    """

    namespace: str
    name: str
    numbers: Numbers
    backend: str = ""
    weight: int | None = None
    pods: int | None = None
    meshed: int = 0


class Column(msgspec.Struct, frozen=True):
    """A figure: its title, how it is written, what sorts it, least first, and when it has a colour."""

    title: str
    text: Callable[[Line], str]
    order: Callable[[Line], float]
    colour: Callable[[Line], Colour] = lambda _: ""

    def cell(self, line: Line) -> Cell:
        """Return the figure of a line."""
        return Cell(self.text(line), self.colour(line))


def _failing(count: Callable[[Numbers], int]) -> Callable[[Line], Colour]:
    return lambda line: "failing" if count(line.numbers) else ""


def _worst(value: float | None, *, largest_first: bool = True) -> float:
    """Return what sorts the value that asks for attention first, and what is unknown last."""
    return math.inf if value is None else -value if largest_first else value


SUCCESS = Column(
    "SUCCESS",
    lambda line: percent(line.numbers),
    lambda line: _worst(line.numbers.share, largest_first=False),
    _failing(lambda numbers: numbers.failure),
)
RPS = Column("RPS", lambda line: rate(line.numbers), lambda line: _worst(line.numbers.rps))
P50 = Column("LATENCY_P50", lambda line: latency(line.numbers.p50), lambda line: _worst(line.numbers.p50))
P90 = Column("LATENCY_P90", lambda line: latency(line.numbers.p90), lambda line: _worst(line.numbers.p90))
P99 = Column("LATENCY_P99", lambda line: latency(line.numbers.p99), lambda line: _worst(line.numbers.p99))
FAILURES = Column(
    "FAILURES",
    lambda line: failures(line.numbers),
    lambda line: _worst(line.numbers.failure),
    _failing(lambda numbers: numbers.failure),
)
DENIED = Column(
    "DENIED",
    lambda line: denied(line.numbers),
    lambda line: _worst(line.numbers.refused),
    lambda line: "refused" if line.numbers.refused else "",
)
MESHED = Column(
    "MESHED",
    lambda line: f"{line.meshed}/{line.pods}" if line.pods else NONE,
    lambda line: _worst(line.meshed / line.pods if line.pods else None, largest_first=False),
)
COPIES = Column("COPIES", lambda line: str(line.numbers.copies), lambda line: _worst(line.numbers.copies))
CONNECTIONS = Column(
    "CONNECTIONS", lambda line: str(line.numbers.connections), lambda line: _worst(line.numbers.connections)
)
UNREACHED = Column(
    "CONN_FAILURES",
    lambda line: str(line.numbers.unreached),
    lambda line: _worst(line.numbers.unreached),
    _failing(lambda numbers: numbers.unreached),
)
WEIGHT = Column(
    "WEIGHT", lambda line: NONE if line.weight is None else str(line.weight), lambda line: _worst(line.weight)
)
NARROW = (SUCCESS, RPS, P99)
WIDE = (SUCCESS, RPS, P50, P90, P99, FAILURES)
_ORDERS: Mapping[str, Callable[[Line], float]] = {
    name: column.order
    for column in (*WIDE, DENIED, COPIES, CONNECTIONS, UNREACHED, MESHED, WEIGHT)
    for name in (column.title.lower(), column.title.lower().removeprefix("latency_"))
}
_BY_NAME = ("name", "namespace")


def lines_of(document: Document) -> list[Line]:
    """Return what a list, or one resource, says. Raises HeadgateError when its numbers can't be read."""
    return [_line(item) for item in items(document)]


def _line(item: Document) -> Line:
    namespace, name = name_of(item)
    backend, mesh = item.get("backend") or {}, item.get("mesh") or {}
    return Line(
        namespace=namespace,
        name=name,
        numbers=numbers_of(item),
        backend=str(backend.get("name") or ""),
        weight=backend.get("weight"),
        pods=mesh.get("pods"),
        meshed=mesh.get("meshed") or 0,
    )


def sort_names() -> tuple[str, ...]:
    """Return the names of what lines can be sorted by."""
    return (*_BY_NAME, *_ORDERS)


def check_order(by: str) -> None:
    """Find out early whether lines can be sorted `by`. Raises WrongUsage."""
    if by and by not in _ORDERS and by not in _BY_NAME:
        raise WrongUsage(f"there is no column {by!r} to sort by; choose one of {', '.join(sort_names())}")


def in_order(lines: Sequence[Line], by: str) -> list[Line]:
    """Sort by a column: names as in the alphabet, the lowest success first, the most of everything else first."""
    check_order(by)
    if not by:
        return list(lines)
    key = _ORDERS.get(by)
    named = sorted(lines, key=lambda line: (line.name, line.namespace) if by == "name" else (line.namespace, line.name))
    return sorted(named, key=key) if key else named


def table(lines: Sequence[Line], *, wide: bool = False, namespaces: bool = False, colours: bool = False) -> str:
    """Return the table. `namespaces` begins it with the NAMESPACE."""
    backends = any(line.backend for line in lines)
    columns = _columns(lines, wide=wide, backends=backends)
    names = ["NAMESPACE"] * namespaces + ["NAME"] + ["BACKEND"] * backends
    rows = [
        [Cell(line.namespace)] * namespaces
        + [Cell(line.name)]
        + [Cell(line.backend or NONE)] * backends
        + [one.cell(line) for one in columns]
        for line in lines
    ]
    return written([*names, *(column.title for column in columns)], rows, left=len(names), colours=colours)


def _columns(lines: Sequence[Line], *, wide: bool, backends: bool) -> tuple[Column, ...]:
    weight = (WEIGHT,) if backends else ()
    refused = (DENIED,) if any(line.numbers.refused for line in lines) else ()
    if not wide:
        return (*weight, *NARROW, *refused, *((MESHED,) if _has_gaps(lines) else ()))
    copies = (COPIES,) if any(line.numbers.copies for line in lines) else ()
    connections = (CONNECTIONS,) if any(line.numbers.connections for line in lines) else ()
    unreached = (UNREACHED,) if any(line.numbers.unreached for line in lines) else ()
    meshed = (MESHED,) if any(line.pods is not None for line in lines) else ()
    return (*weight, *WIDE, *refused, *copies, *connections, *unreached, *meshed)


def _has_gaps(lines: Sequence[Line]) -> bool:
    """Return whether some pods have a sidecar, and others have none."""
    return 0 < sum(line.meshed for line in lines) < sum(line.pods or 0 for line in lines)
