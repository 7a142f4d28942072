"""Writes metrics in Prometheus' text format 0.0.4, and defines the families of the mesh's traffic.

Names and labels follow Linkerd and Istio (docs/tasks/prometheus.md). Values are totals since headgate started; queries in
Prometheus choose the window.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from math import inf
from typing import Literal, NamedTuple

from headgate.telemetry.counters import counts, packed_counters
from headgate.telemetry.counters.counts import NO_RESPONSE, class_index
from headgate.telemetry.counters.histogram import BOUNDS_US
from headgate.telemetry.prometheus.totals import Labels, Total, Totals

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LE_US: tuple[int, ...] = tuple(step * 10**zeros for zeros in range(1, 7) for step in (10, 20, 30, 50))[:-1]
"""Upper bounds of the histogram buckets in `/metrics`, in microseconds.

They are a subset of `BOUNDS_US`, so counts are exact.
"""
REQUESTS = "headgate_requests_total"
LATENCY = "headgate_request_duration_seconds"
COPIES = "headgate_copies_total"
OPENED = "headgate_tcp_connections_opened_total"
FAILED = "headgate_tcp_connections_failed_total"
DENIED = "headgate_tcp_connections_denied_total"
SENT = "headgate_tcp_sent_bytes_total"
RECEIVED = "headgate_tcp_received_bytes_total"
INCOMPLETE = "headgate_traffic_incomplete_total"
STARTED = "headgate_traffic_start_time_seconds"
SUCCESS, FAILURE = "success", "failure"
_SHOWN = tuple(bisect_left(BOUNDS_US, bound) for bound in LE_US)  # the index in `BOUNDS_US` of each exposed bound
_MIDDLE_US = tuple((low + high) / 2 for low, high in zip((0, *BOUNDS_US), (*BOUNDS_US, BOUNDS_US[-1]), strict=True))
# `/metrics` has these response classes even at zero: rate() ignores the first value of a series, so it would miss a first failure.
_USUAL, _USUAL_GRPC = ("2xx", "5xx", counts.DENIED), ("grpc-0", "grpc-14", counts.DENIED)
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Line(NamedTuple):
    """One value of a family. `suffix` follows the name in a histogram (`_bucket`).

    `more` has labels of this line only.
    """

    value: float
    labels: Labels = ()
    suffix: str = ""
    more: Labels = ()


class Family(NamedTuple):
    """A metric family: all values of one metric name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    lines: Iterable[Line]


def written(families: Iterable[Family]) -> Iterator[str]:
    """Yield the text format line by line, without families that have no values."""
    for family in families:
        first = True
        for line in family.lines:
            if first:
                yield f"# HELP {family.name} {_escaped_help(family.help)}\n# TYPE {family.name} {family.kind}\n"
                first = False
            yield f"{family.name}{line.suffix}{_braces(line)} {_number(line.value)}\n"


def histogram(bounds: Iterable[float], buckets: Iterable[int], total: float, labels: Labels = ()) -> Iterator[Line]:
    """Yield a histogram's lines.

    `buckets` has counts per bound, and one for larger values; `total` is the sum of the values.
    """
    count = 0
    for bound, count in zip((*bounds, inf), accumulate(buckets), strict=True):
        yield Line(count, labels, "_bucket", (("le", _number(bound)),))
    yield Line(total, labels, "_sum")
    yield Line(count, labels, "_count")


def traffic(totals: Totals) -> Iterator[Family]:
    """Yield the families of the mesh's traffic."""
    rows = totals.rows()

    def over(lines: Callable[[Total], Iterator[Line]]) -> Iterator[Line]:
        return (line for row in rows for line in lines(row))

    yield Family(REQUESTS, "counter", "Requests by source, destination and response class.", over(_requests))
    yield Family(LATENCY, "histogram", "Duration of requests, measured by the client's proxy.", over(_latency))
    yield Family(COPIES, "counter", "Mirrored copies of requests.", over(_copies))
    for name, index, text in (
        (OPENED, counts.CONNECTIONS, "Connections that reached a server, on ports that are not HTTP."),
        (FAILED, counts.UNREACHED, "Connections that reached no server, on ports that are not HTTP."),
        (DENIED, counts.DENIED_CONNECTIONS, "Opened connections that access rules denied."),
        (SENT, counts.SENT, "Bytes from client to server, counted when a connection ends."),
        (RECEIVED, counts.RECEIVED, "Bytes from server to client, counted when a connection ends."),
    ):
        yield Family(name, "counter", text, over(_of_connections(index)))
    notes = (Line(count, (("what", what),)) for what, count in sorted(totals.notes.items()))
    yield Family(INCOMPLETE, "counter", "Events that make the traffic counts incomplete, by kind.", notes)
    by = "pod" if totals.by_pod else "workload"
    yield Family(
        STARTED,
        "gauge",
        "When counting of traffic started, in seconds since the epoch.",
        [Line(totals.started, (("by", by),))],
    )


def class_index_of(response_class: str) -> int:
    """Return the index in `Counts` of the counter of a response class, such as 2xx, none, grpc-14 or denied."""
    if response_class == counts.DENIED:
        return counts.DENIED_REQUESTS
    if response_class.startswith("grpc-"):
        return class_index(200, response_class.removeprefix("grpc-"))
    return class_index(0 if response_class == NO_RESPONSE else int(response_class[0]) * 100)


@lru_cache(64)
def classification(response_class: str) -> str:
    """Return whether a response class is `success`, `failure` (D22) or `denied` by access rules."""
    if response_class == counts.DENIED:
        return counts.DENIED
    return FAILURE if counts.is_failure(response_class) else SUCCESS


def _requests(total: Total) -> Iterator[Line]:
    if total.copy:
        return
    classes = dict(total.counts.classes)
    if classes:
        answered = classes.keys() - {counts.DENIED}
        is_grpc = bool(answered) and all(name.startswith("grpc-") for name in answered)
        classes = dict.fromkeys(_USUAL_GRPC if is_grpc else _USUAL, 0) | classes
    for name, count in sorted(classes.items()):
        more = ("response_class", name), ("classification", classification(name))
        yield Line(count, total.labels, more=more)


def _latency(total: Total) -> Iterator[Line]:
    if total.copy or not total.latency:
        return
    by_bucket = packed_counters.by_index(total.latency, packed_counters.WIDE)
    buckets = [0] * (len(LE_US) + 1)
    for bucket, count in by_bucket.items():
        buckets[bisect_left(_SHOWN, bucket)] += count
    seconds = sum(_MIDDLE_US[bucket] * count for bucket, count in by_bucket.items()) / 1e6
    yield from histogram((bound / 1e6 for bound in LE_US), buckets, round(seconds, 6), total.labels)


def _copies(total: Total) -> Iterator[Line]:
    success, failure = total.counts.success, total.counts.failure
    if total.copy and (success or failure):
        for name, count in ((SUCCESS, success), (FAILURE, failure)):
            yield Line(count, total.labels, more=(("classification", name),))


def _of_connections(index: int) -> Callable[[Total], Iterator[Line]]:
    def lines(total: Total) -> Iterator[Line]:
        count = total.counts.count(index)
        if count and not total.copy:
            yield Line(count, total.labels)

    return lines


def _braces(line: Line) -> str:
    inside = ",".join(filter(None, (_text(line.labels), _text(line.more))))
    return f"{{{inside}}}" if inside else ""


@lru_cache(20_000)
def _text(labels: Labels) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)


def _number(value: float) -> str:
    if value == inf:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)


def _escaped_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
