"""Reads the reports of proxies: OpenTelemetry's ExportMetricsServiceRequest.

A report has the cumulative values of all live series of one proxy, or of a part of them if they are many. Series that are not
headgate's own, by name or shape, are left out.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from headgate.envoy.stats_sink import BOUNDS, NODE, STATS_OVERFLOW
from headgate.envoy.traffic_stats import PREFIX
from headgate.errors import TelemetryError
from headgate.telemetry.reports import otlp_messages

METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_PREFIXES = f"{PREFIX}.", STATS_OVERFLOW
_BOUNDS = struct.pack(f"<{len(BOUNDS)}d", *BOUNDS)
_COUNTS = 8 * (len(BOUNDS) + 1)  # bytes of a histogram's counts
_NANOSECONDS = 1e17  # Envoy writes the start in microseconds; a value from here on is in nanoseconds (1973, or 5138)


class Series(NamedTuple):
    """The identity of a series within a process. `attributes` are encoded `KeyValue`s, one after the other.

    A process always encodes them in the same way. They are decoded (`pairs`) only when a series is new: nearly all of the
    tens of thousands of values a second belong to known series.
    """

    name: str
    attributes: bytes = b""

    def pairs(self) -> dict[str, str]:
        """Return the attributes whose values are text."""
        return otlp_messages.pairs(self.attributes)


class Sample(NamedTuple):
    """The value of a series. A histogram has `buckets` too, wide packed counters by `BOUNDS`: cumulative counts have no end."""

    series: Series
    value: int
    buckets: int = 0


class Report(NamedTuple):
    """The values that a proxy sent in one message. `start` identifies the process of the proxy; 0 in a report without series.

    Both times are seconds since the epoch, by the proxy's clock.
    """

    node: str
    start: float
    time: float
    samples: Sequence[Sample]


def read_report(data: bytes) -> Report:
    """Read a message. Raises TelemetryError if it is malformed, or does not name one proxy."""
    try:
        message = otlp_messages.request().FromString(data)
    except DecodeError as error:
        raise TelemetryError(f"a report that is no ExportMetricsServiceRequest: {error}") from error
    node = reporting_node(message.resource_metrics, NODE)
    samples: list[Sample] = []
    start = time = 0
    for name, kind, point in _points(message):
        time = time or point.time_unix_nano  # the same everywhere in a message
        if name.startswith(_PREFIXES) and (sample := _sample(name, kind, point)):
            start = start or point.start_time_unix_nano
            samples.append(sample)
    return Report(node, start / (1e9 if start > _NANOSECONDS else 1e6), time / 1e9, samples)


def reporting_node(parts: Iterable[Any], attribute: str) -> str:
    """Return the node id in an attribute of the resources of a message. Raises TelemetryError if there is not just one."""
    nodes: set[str] = {
        item.value.string_value for part in parts for item in part.resource.attributes if item.key == attribute
    }
    if len(nodes) != 1:
        raise TelemetryError(f"a report that names {len(nodes)} proxies: its resource has one attribute {attribute!r}")
    return nodes.pop()


def _points(message: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield name, kind and data point of each value in a message."""
    for part in message.resource_metrics:
        for scope in part.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                if kind in {"sum", "histogram", "gauge"}:
                    name = metric.name
                    for point in getattr(metric, kind).data_points:
                        yield name, kind, point


def _sample(name: str, kind: str, point: Any) -> Sample | None:
    if kind == "sum" and point.as_int >= 0:
        return Sample(Series(name, b"".join(point.attributes)), point.as_int)
    if kind == "histogram":
        counts = point.bucket_counts
        if len(counts) == _COUNTS and point.explicit_bounds == _BOUNDS:
            return Sample(Series(name, b"".join(point.attributes)), point.count, int.from_bytes(counts, "little"))
    return None
