"""Reports as proxies send them: OpenTelemetry's ExportMetricsServiceRequest, read into the values of series.

A report has the cumulative values of all live series of one proxy, or a part of them when they are many. What has another
name or shape than headgate's own series is somebody else's, and left out.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from headgate.envoy.reporting import BOUNDS, NODE, OVERFLOW
from headgate.envoy.telemetry import PREFIX
from headgate.errors import TelemetryError
from headgate.telemetry import wire

METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_PREFIXES = f"{PREFIX}.", OVERFLOW
_BOUNDS = struct.pack(f"<{len(BOUNDS)}d", *BOUNDS)
_COUNTS = 8 * (len(BOUNDS) + 1)  # bytes of a histogram's counts
_NANOSECONDS = 1e17  # Envoy writes the start in microseconds; a value from here on is in nanoseconds (1973, or 5138)


class Series(NamedTuple):
    """What tells a series of a process from its others. `attributes` are `KeyValue`s as they came, one after the other.

    A process writes them in one way, always. Reading them is for whoever hears of a series first (`pairs`): there are tens
    of thousands of values a second, and all but a few are of series that are known.
    """

    name: str
    attributes: bytes = b""

    def pairs(self) -> dict[str, str]:
        """Return the attributes and their values, those that are text."""
        return wire.pairs(self.attributes)


class Sample(NamedTuple):
    """A series as it is. A histogram has `buckets` too, by `BOUNDS`, as long `lanes`: cumulative counts have no end."""

    series: Series
    value: int
    buckets: int = 0


class Report(NamedTuple):
    """What one proxy said at once. `start` tells one process of a proxy from the next; 0 when nothing is told about it.

    Both times are seconds since the epoch, by the proxy's clock.
    """

    node: str
    start: float
    time: float
    samples: Sequence[Sample]


def read_report(data: bytes) -> Report:
    """Read a message. Raises TelemetryError when it is none, or does not say whose it is."""
    try:
        message = wire.request().FromString(data)
    except DecodeError as error:
        raise TelemetryError(f"a report that is no ExportMetricsServiceRequest: {error}") from error
    nodes = {
        item.value.string_value
        for part in message.resource_metrics
        for item in part.resource.attributes
        if item.key == NODE
    }
    if len(nodes) != 1:
        raise TelemetryError(f"a report that names {len(nodes)} proxies: its resource has one attribute {NODE!r}")
    samples: list[Sample] = []
    start = time = 0
    for name, kind, point in _points(message):
        time = time or point.time_unix_nano  # the same everywhere in a message
        if name.startswith(_PREFIXES) and (sample := _sample(name, kind, point)):
            start = start or point.start_time_unix_nano
            samples.append(sample)
    return Report(nodes.pop(), start / (1e9 if start > _NANOSECONDS else 1e6), time / 1e9, samples)


def _points(message: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield name, kind and value of everything that is in a message."""
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
