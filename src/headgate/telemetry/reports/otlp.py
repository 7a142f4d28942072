"""Reads the proxies' metric reports: OpenTelemetry's ExportMetricsServiceRequest.

A report has the cumulative values of a proxy's live series, or of a part of them if there are many. Series that headgate did
not configure, by name or shape, are left out.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from headgate.envoy.cluster_stats import RESPONSE_SIZES
from headgate.envoy.stats_sink import BOUNDS, NODE, SIZE_BOUNDS, STATS_OVERFLOW
from headgate.envoy.traffic_stats import PREFIX
from headgate.errors import TelemetryError
from headgate.telemetry.reports import otlp_messages

METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_PREFIXES = f"{PREFIX}.", STATS_OVERFLOW
_SIZES = f"{PREFIX}.{RESPONSE_SIZES}"
_BOUNDS, _SIZE_BOUNDS = (struct.pack(f"<{len(bounds)}d", *bounds) for bounds in (BOUNDS, SIZE_BOUNDS))
_NUMBER = 8  # The size of an encoded bound or bucket count, in bytes. There is one count more than there are bounds.
# Envoy writes the start time in microseconds. Larger values are nanoseconds: 1e17 microseconds are the year 5138.
_NANOSECONDS = 1e17


class Series(NamedTuple):
    """The identity of a series within a process. `attributes` has consecutive encoded `KeyValue`s.

    A process always encodes equal attributes to equal bytes. Only a new series is decoded (`pairs`), because nearly all of the
    tens of thousands of values a second belong to known series.
    """

    name: str
    attributes: bytes = b""

    def pairs(self) -> dict[str, str]:
        """Return the attributes with text values."""
        return otlp_messages.pairs(self.attributes)


class SeriesSample(NamedTuple):
    """The value of a series. A histogram has `buckets` too: wide packed counters, for unlimited cumulative counts."""

    series: Series
    value: int
    buckets: int = 0


class ProxyReport(NamedTuple):
    """The values in one message of a proxy. `start` identifies the proxy's process; it is 0 in a report without series.

    Both times are seconds since the epoch, by the proxy's clock.
    """

    node: str
    start: float
    time: float
    samples: Sequence[SeriesSample]


def read_report(data: bytes) -> ProxyReport:
    """Decode a message. Raises TelemetryError if it is malformed, or does not name exactly one proxy."""
    try:
        message = otlp_messages.request().FromString(data)
    except DecodeError as error:
        raise TelemetryError(f"the report is not an ExportMetricsServiceRequest: {error}") from error
    node = reporting_node(message.resource_metrics, NODE)
    samples: list[SeriesSample] = []
    start = time = 0
    for name, kind, point in _points(message):
        time = time or point.time_unix_nano  # all points of a message have the same time
        if name.startswith(_PREFIXES) and (sample := _sample(name, kind, point)):
            start = start or point.start_time_unix_nano
            samples.append(sample)
    return ProxyReport(node, start / (1e9 if start > _NANOSECONDS else 1e6), time / 1e9, samples)


def reporting_node(parts: Iterable[Any], attribute: str) -> str:
    """Return the node ID in an attribute of a message's resources. Raises TelemetryError unless there is exactly one."""
    nodes: set[str] = {
        pair.value.string_value for part in parts for pair in part.resource.attributes if pair.key == attribute
    }
    if len(nodes) != 1:
        raise TelemetryError(f"the report names {len(nodes)} proxies: it needs exactly one value of {attribute!r}")
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


def _sample(name: str, kind: str, point: Any) -> SeriesSample | None:
    if kind == "sum" and point.as_int >= 0:
        return SeriesSample(Series(name, b"".join(point.attributes)), point.as_int)
    if kind == "histogram":
        counts, bounds = point.bucket_counts, _SIZE_BOUNDS if name == _SIZES else _BOUNDS
        if len(counts) == len(bounds) + _NUMBER and point.explicit_bounds == bounds:
            return SeriesSample(Series(name, b"".join(point.attributes)), point.count, int.from_bytes(counts, "little"))
    return None
