"""`kubectl traffic top`: a TrafficMetricsList as a table (R103, R104)."""

from collections.abc import Sequence

import msgspec

from headgate.cli.output import WrongUsage
from headgate.cli.traffic.api import Document, items, resource_name
from headgate.cli.traffic.metrics import Metrics, parse_metrics
from headgate.cli.traffic.table import (
    COLUMNS,
    CONNECTION_FAILURES,
    CONNECTIONS,
    COPIES,
    DENIED,
    INTERVALS,
    MESHED,
    NARROW,
    STDDEV,
    UNREACHED,
    WEIGHT,
    WIDE,
    Cell,
    MetricColumn,
    format_table,
    nonzero_columns,
)
from headgate.formatting import NONE


class ResourceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A resource and its metrics; for a TrafficSplit, one of its backends."""

    namespace: str
    name: str
    metrics: Metrics
    backend: str = ""


_ORDERS = {
    name: column for column in COLUMNS for name in (column.title.lower(), column.title.lower().removeprefix("latency_"))
}
SORT_NAMES = ("name", "namespace", *_ORDERS)
"""The values of --sort-by."""


def parse_rows(document: Document) -> list[ResourceRow]:
    """Return the rows of a list or a single resource. Raises HeadgateError when a metric can't be parsed."""
    return [_line(entry) for entry in items(document)]


def _line(document: Document) -> ResourceRow:
    namespace, name = resource_name(document)
    backend = str((document.get("backend") or {}).get("name") or "")
    return ResourceRow(namespace=namespace, name=name, metrics=parse_metrics(document), backend=backend)


def check_order(by: str) -> None:
    """Check a value of --sort-by before the API is called. Raises WrongUsage."""
    if by and by not in SORT_NAMES:
        raise WrongUsage(f"--sort-by: there is no column {by!r}; write one of {', '.join(SORT_NAMES)}")


def needs_uncertainty(by: str) -> bool:
    """Return whether the API must add the standard deviation, because rows are sorted by it."""
    return _ORDERS.get(by) is STDDEV


def sort_rows(lines: Sequence[ResourceRow], by: str) -> list[ResourceRow]:
    """Sort rows by a column: names alphabetically, the lowest success rate first, other values in descending order."""
    check_order(by)
    if not by:
        return list(lines)
    named = sorted(lines, key=lambda line: (line.name, line.namespace) if by == "name" else (line.namespace, line.name))
    column = _ORDERS.get(by)
    return sorted(named, key=lambda line: column.sort_key(line.metrics)) if column else named


def table(lines: Sequence[ResourceRow], *, wide: bool = False, namespaces: bool = False, colors: bool = False) -> str:
    """Return the table. `namespaces` adds the column NAMESPACE."""
    backends = any(line.backend for line in lines)
    columns = ((WEIGHT,) if backends else ()) + _columns([line.metrics for line in lines], wide=wide)
    names = ["NAMESPACE"] * namespaces + ["NAME"] + ["BACKEND"] * backends
    rows = [
        [Cell(line.namespace)] * namespaces
        + [Cell(line.name)]
        + [Cell(line.backend or NONE)] * backends
        + [column.cell(line.metrics) for column in columns]
        for line in lines
    ]
    return format_table([*names, *(column.title for column in columns)], rows, left=len(names), colors=colors)


def _columns(values: Sequence[Metrics], *, wide: bool) -> tuple[MetricColumn, ...]:
    """Return the columns. Optional columns are included only if they have values.

    In the narrow table, MESHED is included only if some pods, but not all, have a sidecar.
    """
    if wide:
        meshed = (MESHED,) if any(metrics.pods is not None for metrics in values) else ()
        uncertain = (STDDEV, *INTERVALS) if any(metrics.intervals for metrics in values) else ()
        return (
            *WIDE,
            *uncertain,
            *nonzero_columns(values, DENIED, UNREACHED, COPIES, CONNECTIONS, CONNECTION_FAILURES),
            *meshed,
        )
    has_gaps = 0 < sum(metrics.meshed for metrics in values) < sum(metrics.pods or 0 for metrics in values)
    return (*NARROW, *nonzero_columns(values, DENIED, UNREACHED), *((MESHED,) if has_gaps else ()))
