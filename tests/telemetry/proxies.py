"""Simulated proxies that report cumulative series, with flushes and evictions as measured with Envoy 1.40."""

from collections.abc import Iterable, Sequence
from typing import Any

from headgate.envoy import pb
from headgate.envoy.stats_sink import BOUNDS
from headgate.telemetry.counters.histogram import bucket_of
from headgate.telemetry.reports.otlp import ProxyReport, Series, SeriesSample

START = 1_800_000_000.0
FLUSH = 2.0  # Seconds between reports.
ABSENCES = 5  # The number of reports between two evictions of idle series.


class ReportingProxy:
    """One process of a proxy. `flush` makes the report of the next two seconds."""

    def __init__(
        self,
        node: str = "sidecar/default/client",
        start: float = START,
        *,
        number: int = 0,
        reports_per_eviction: int = ABSENCES,
    ) -> None:
        """`number` is the number of flushes since the start of the process."""
        self.node, self.start = node, start
        self._flushes, self._reports_per_eviction = number, reports_per_eviction
        self._values: dict[Series, int] = {}
        self._used: set[Series] = set()
        self._seen: set[Series] = set()

    @property
    def now(self) -> float:
        """The time of the last flush."""
        return self.start + self._flushes * FLUSH

    def count(self, name: str, number: int = 1) -> None:
        """Increase a counter."""
        series = series_of("mesh.connections", cluster="outbound/default/web/8080", pod=name)
        self._values[series] = self._values.get(series, 0) + number
        self._used.add(series)
        self._seen.add(series)

    def reset(self) -> None:
        """Reset all counters, as `POST /reset_counters` does."""
        self._values = dict.fromkeys(self._values, 0)

    def flush(self) -> ProxyReport:
        """Return the next report; evict idle series after every few reports."""
        self._flushes += 1
        samples = [SeriesSample(series, self._values[series]) for series in sorted(self._seen)]
        if self._flushes % self._reports_per_eviction == 0:
            self._values = {series: self._values[series] for series in self._used}
            self._used.clear()
            self._seen.clear()
        return ProxyReport(self.node, self.start, self.now, samples)


def series_of(name: str, **attributes: str) -> Series:
    """Return the identity of a series."""
    return Series(name, b"".join(item.SerializeToString() for item in _attributes(attributes)))


def counter(name: str, value: int, **attributes: str) -> pb.Metric:
    """Return a counter as Envoy sends it."""
    point = pb.NumberDataPoint(attributes=_attributes(attributes), as_int=value, **_times())
    return pb.Metric(name=name, sum=pb.Metric(name=name).sum.__class__(data_points=[point]))


def histogram(name: str, microseconds: Iterable[int], bounds: Sequence[float] = BOUNDS, **attributes: str) -> pb.Metric:
    """Return a histogram as Envoy sends it."""
    counts = [0] * (len(bounds) + 1)
    for latency in microseconds:
        counts[bucket_of(latency)] += 1
    point = pb.HistogramDataPoint(
        attributes=_attributes(attributes), count=sum(counts), bucket_counts=counts, explicit_bounds=bounds, **_times()
    )
    return pb.Metric(name=name, histogram=pb.Metric(name=name).histogram.__class__(data_points=[point]))


def message(*metrics: pb.Metric, nodes: Sequence[str] = ("sidecar/default/client",)) -> bytes:
    """Return an encoded report."""
    scope = pb.ScopeMetrics(metrics=metrics)
    part = pb.ResourceMetrics(scope_metrics=[scope])
    part.resource.attributes.extend(_attributes({"telemetry.sdk.name": "envoy"}))
    for node in nodes:
        part.resource.attributes.extend(_attributes({"node": node}))
    return pb.ExportMetricsServiceRequest(resource_metrics=[part]).SerializeToString()


def _attributes(attributes: dict[str, str]) -> list[pb.KeyValue]:
    """Encode attributes; the backend is a part of the cluster (`traffic_stats.split_backend`)."""
    sent = {name: text for name, text in attributes.items() if name != "backend"}
    if "cluster" in sent:
        sent["cluster"] += f" {attributes.get('backend', '')}"
    return [pb.KeyValue(key=key, value=pb.AnyValue(string_value=text)) for key, text in sent.items()]


def _times() -> dict[str, Any]:
    return {"start_time_unix_nano": int(START * 1e6), "time_unix_nano": int((START + 2) * 1e9)}
