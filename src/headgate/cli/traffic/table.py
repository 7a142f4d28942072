"""Format tables as kubectl prints them, with right-aligned columns of metrics (R103)."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from rich.text import Text

from headgate.cli.output import make_table
from headgate.cli.table_layout import table_text
from headgate.cli.traffic.colors import STYLES, Color
from headgate.cli.traffic.metrics import Metrics, latency_interval, percent, rate, success_interval
from headgate.formatting import NONE, latency

_GAP = 3


class Cell(NamedTuple):
    """The text and color of a table cell."""

    text: str
    color: Color = ""


class MetricColumn(msgspec.Struct, frozen=True):
    """A column of metrics. Rows are sorted by `value`: descending, or ascending with `least_first`."""

    title: str
    value: Callable[[Metrics], float | None]
    text: Callable[[Metrics], str] | None = None
    color: Callable[[Metrics], Color] = lambda _: ""
    least_first: bool = False

    def cell(self, metrics: Metrics) -> Cell:
        """Return the cell of a row."""
        value = self.value(metrics)
        text = self.text(metrics) if self.text else NONE if value is None else str(value)
        return Cell(text, self.color(metrics))

    def sort_key(self, metrics: Metrics) -> float:
        """Return the sort key of a row; unknown values come last."""
        value = self.value(metrics)
        return math.inf if value is None else value if self.least_first else -value


def _failing(metrics: Metrics) -> Color:
    return "failing" if metrics.failure else ""


def _latency(share: str) -> MetricColumn:
    return MetricColumn(
        f"LATENCY_{share.upper()}",
        lambda metrics: getattr(metrics, share),
        lambda metrics: latency(getattr(metrics, share)),
    )


SUCCESS = MetricColumn("SUCCESS", lambda metrics: metrics.share, percent, _failing, least_first=True)
RPS = MetricColumn("RPS", lambda metrics: metrics.rps, rate)
P50, P90, P99 = map(_latency, ("p50", "p90", "p99"))
STDDEV = MetricColumn("LATENCY_STDDEV", lambda metrics: metrics.stddev, lambda metrics: latency(metrics.stddev))
INTERVALS = (
    MetricColumn("SUCCESS_99%", lambda _: None, success_interval),
    *(
        MetricColumn(f"{share.upper()}_99%", lambda _: None, partial(latency_interval, share))
        for share in ("p50", "p90", "p99")
    ),
)
"""The confidence intervals of 99 %."""
FAILURES = MetricColumn(
    "FAILURES",
    lambda metrics: metrics.failure,
    lambda metrics: str(metrics.failure) if metrics.requests else NONE,
    _failing,
)
DENIED = MetricColumn(
    "DENIED",
    lambda metrics: metrics.denied_total,
    lambda metrics: (
        str(metrics.denied_total) if metrics.requests or metrics.connections or metrics.denied_total else NONE
    ),
    lambda metrics: "denied" if metrics.denied_total else "",
)
COPIES = MetricColumn("COPIES", lambda metrics: metrics.copies)
CONNECTIONS = MetricColumn("CONNECTIONS", lambda metrics: metrics.connections)
CONNECTION_FAILURES = MetricColumn(
    "CONN_FAILURES",
    lambda metrics: metrics.connection_failures,
    color=lambda metrics: "failing" if metrics.connection_failures else "",
)
UNREACHED = MetricColumn(
    "UNREACHED",
    lambda metrics: metrics.unreached,
    color=lambda metrics: "failing" if metrics.unreached else "",
)
MESHED = MetricColumn(
    "MESHED",
    lambda metrics: metrics.meshed / metrics.pods if metrics.pods else None,
    lambda metrics: f"{metrics.meshed}/{metrics.pods}" if metrics.pods else NONE,
    least_first=True,
)
WEIGHT = MetricColumn("WEIGHT", lambda metrics: metrics.weight)
NARROW = (SUCCESS, RPS, P99)
WIDE = (SUCCESS, RPS, P50, P90, P99, FAILURES)
COLUMNS = (*WIDE, STDDEV, DENIED, UNREACHED, COPIES, CONNECTIONS, CONNECTION_FAILURES, MESHED, WEIGHT)


def nonzero_columns(values: Iterable[Metrics], *columns: MetricColumn) -> tuple[MetricColumn, ...]:
    """Return the columns that have a value other than zero in at least one row."""
    rows = tuple(values)
    return tuple(column for column in columns if any(map(column.value, rows)))


def format_table(header: Sequence[str], rows: Sequence[Sequence[Cell]], *, left: int, colors: bool) -> str:
    """Return a table as text, as kubectl prints it. The first `left` columns are left-aligned, the other ones right-aligned."""
    table = make_table(header, right=header[left:], gap=_GAP)
    for row in rows:
        table.add_row(*(Text(cell.text, STYLES[cell.color]) for cell in row))
    return table_text(table, colors=colors)
