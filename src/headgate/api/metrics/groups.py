"""The API groups that serve metrics: the same counts in the formats of three specifications (D20)."""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import structs

from headgate import durations
from headgate.kinds import METRICS_KINDS, names_of
from headgate.resources import metrics as shapes
from headgate.resources.kind import api_version
from headgate.resources.meta import Value, timestamp
from headgate.resources.metrics import (
    Metric,
    MetricInterval,
    MetricsBackend,
    MetricsEdge,
    MetricsMetadata,
    Reference,
    TrafficMetrics,
)
from headgate.resources.pod_owners import POD, Ref
from headgate.telemetry.answers.answers import Row, Statistics
from headgate.telemetry.answers.object_graph import CLUSTER_SCOPED, SPLIT
from headgate.telemetry.answers.uncertainty import Interval, Uncertainty
from headgate.telemetry.counters.flows import Reading

KINDS: Mapping[str, str] = {names.plural: names.kind for names in METRICS_KINDS}
SPLITS = names_of(SPLIT).plural
EDGES = "edges"
_SIZES = (("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9))
_DIGITS = 3  # significant digits of a latency; the histogram buckets are 5 % to 10 % wide
_EXACT = 1e-6
_MILLION = 1_000_000


class MetricsGroup(Value, frozen=True, kw_only=True):
    """An API group that serves metrics. Latencies are in `unit`; `per_second` is the number of units in a second.

    `all_received` is the direction of the edge that sums all received traffic (R87). With `sides`, the field
    `side` of an edge names the proxy that measured the traffic: `client` or `server`. With `splits`, the group has the
    resource `trafficsplits`.
    """

    name: str
    version: str
    unit: str = "seconds"
    per_second: int = 1
    all_received: str = "to"
    sides: bool = False
    splits: bool = False

    @property
    def api_version(self) -> str:
        """The `apiVersion` of the group's objects."""
        return api_version(self.name, self.version)

    @property
    def kinds(self) -> Mapping[str, str]:
        """The kinds of the group's resources by plural."""
        return {**KINDS, SPLITS: SPLIT} if self.splits else KINDS


METRICS_GROUPS: Mapping[tuple[str, str], MetricsGroup] = {
    (group.name, group.version): group
    for group in (
        MetricsGroup(name="traffic.metrics.k8s.io", version="v1beta1"),
        MetricsGroup(name="mesh.metrics.k8s.io", version="v1beta1"),
        MetricsGroup(
            name="metrics.smi-spec.io",
            version="v1alpha1",
            unit="ms",
            per_second=1000,
            all_received="from",
            sides=True,
            splits=True,
        ),
    )
}
"""Metrics groups by name and version."""


def distinct_kind(kind: str) -> str:
    """Return the kind of a resource in aggregated discovery, such as `DeploymentTrafficMetrics`.

    kubectl maps a resource to its kind and the kind back to a resource. If all resources had the kind of the specification,
    `kubectl get deployments.traffic.metrics.k8s.io` would request the last resource of the list. Pods keep TrafficMetrics,
    the kind of all objects, because one resource must have it.
    """
    return shapes.TRAFFIC_METRICS if kind == POD else f"{kind}{shapes.TRAFFIC_METRICS}"


def is_cluster_scoped(plural: str) -> bool:
    """Return whether a resource is cluster-scoped."""
    return KINDS.get(plural) in CLUSTER_SCOPED


def self_link(group: MetricsGroup, plural: str, ref: Ref, *, edges: bool = False) -> str:
    """Return the path of a resource; when `ref` has no name, the path for all resources of its kind."""
    namespace = f"/namespaces/{ref.namespace}" if ref.namespace else ""
    name = f"/{ref.name}" if ref.name else ""
    return f"/apis/{group.name}/{group.version}{namespace}/{plural}{name}{f'/{EDGES}' if edges else ''}"


def traffic_metrics(
    group: MetricsGroup,
    plural: str,
    rows: Sequence[Row],
    reading: Reading,
    uncertainties: Sequence[Uncertainty | None] = (),
) -> list[TrafficMetrics]:
    """Convert rows to TrafficMetrics of a group's resource `plural`, with the uncertainty of each row if there is one."""
    time, window, version = timestamp(reading.end), durations.formatted(reading.window), group.api_version
    latencies = _latencies(group)
    return [
        TrafficMetrics(
            kind=shapes.TRAFFIC_METRICS,
            api_version=version,
            metadata=_metadata(group, plural, row, time),
            resource=_reference(row.about),
            edge=_edge(group, row),
            backend=MetricsBackend(apex=row.apex, name=row.backend.name, weight=row.backend.weight)
            if row.backend
            else None,
            timestamp=time,
            window=window,
            metrics=_metrics(latencies, row, uncertainty),
            mesh=row.mesh,
        )
        for row, uncertainty in zip(rows, uncertainties or [None] * len(rows), strict=True)
    ]


def _metadata(group: MetricsGroup, plural: str, row: Row, time: str) -> MetricsMetadata:
    return MetricsMetadata(
        name=row.about.name,
        namespace=row.about.namespace,
        labels={} if row.edge.peer else row.labels,  # for an edge, `row.labels` has the labels of the peer
        self_link=self_link(group, plural, row.about, edges=row.edge.peer is not None),
        creation_timestamp=time,
    )


def _reference(ref: Ref) -> Reference:
    return Reference(kind=ref.kind, namespace=ref.namespace, name=ref.name)


def _edge(group: MetricsGroup, row: Row) -> MetricsEdge:
    edge = row.edge
    if edge.peer is None:
        return _received(group, of_split=row.backend is not None)
    side = ("client" if edge.direction == "to" else "server") if group.sides else ""
    resource = _reference(edge.peer)
    return MetricsEdge(direction=edge.direction, side=side, resource=resource, copy=edge.copy, security=row.security)


@functools.cache
def _received(group: MetricsGroup, *, of_split: bool) -> MetricsEdge:
    side = "client" if of_split else "server"
    return MetricsEdge(direction=group.all_received, side=side if group.sides else "", resource=Reference())


def _metrics(latencies: "_Latencies", row: Row, uncertainty: Uncertainty | None) -> tuple[Metric, ...]:
    """Convert the counts of a row. Latencies are 0 without requests; optional metrics are omitted when they are 0.

    An edge of mirrored copies has their latencies, although they are neither success nor failure (D22).
    """
    counts = row.sum.counts
    p50, p90, p99 = row.exchanged.latencies or (0.0, 0.0, 0.0)
    metrics = (
        latencies[shapes.P99, p99],
        latencies[shapes.P90, p90],
        latencies[shapes.P50, p50],
        _count(shapes.SUCCESS, counts.success),
        _count(shapes.FAILURE, counts.failure),
        *_optional_metrics(counts, row.sum.copies),
        *((_count(shapes.UNREACHED, row.unreached),) if row.unreached else ()),
        *((_count(shapes.CALLED, row.called),) if row.called is not None else ()),
    )
    return (*latencies.with_uncertainty(metrics, counts, uncertainty),) if uncertainty else metrics


def _optional_metrics(counts: Statistics, copies: Statistics) -> Iterator[Metric]:
    """Yield the metrics of denied requests, TCP connections and mirrored requests (D22)."""
    if counts.denied:
        yield _count(shapes.DENIED, counts.denied)
    if counts.denied_connections:
        yield _count(shapes.DENIED_CONNECTIONS, counts.denied_connections)
    if counts.connections or counts.unreached:
        yield _count(shapes.CONNECTIONS, counts.connections)
        yield _count(shapes.FAILED_CONNECTIONS, counts.unreached)
    if copies.success or copies.failure:
        yield _count(shapes.COPIES, copies.success + copies.failure)
        yield _count(shapes.FAILED_COPIES, copies.failure)


@functools.lru_cache(10_000)
def _count(name: str, count: int) -> Metric:
    return Metric(name=name, value=str(count))


class _Latencies(dict[tuple[str, float], Metric]):
    """A cache of a group's latency metrics by name and seconds. It stays small, because all latencies are bounds of histogram buckets."""

    def __init__(self, group: MetricsGroup) -> None:
        self._group = group

    def __missing__(self, key: tuple[str, float]) -> Metric:
        name, seconds = key
        metric = self[key] = Metric(name=name, unit=self._group.unit, value=self._quantity(seconds))
        return metric

    def with_uncertainty(
        self, metrics: Iterable[Metric], counts: Statistics, uncertainty: Uncertainty
    ) -> Iterator[Metric]:
        """Yield the metrics of a row with the intervals of latencies, and then the standard deviation and success rate."""
        names = (shapes.P50, shapes.P90, shapes.P99) if uncertainty.latencies else ()
        intervals = dict(zip(names, uncertainty.latencies, strict=True))
        for metric in metrics:
            interval = intervals.get(metric.name)
            yield structs.replace(metric, interval=self._interval(interval)) if interval else metric
        if intervals:
            deviation = round(uncertainty.deviation, 9)  # without the error of floating point, of equal latencies
            yield Metric(name=shapes.STDDEV, unit=self._group.unit, value=self._quantity(deviation))
        low, high = uncertainty.success_rate.low, uncertainty.success_rate.high
        yield Metric(
            name=shapes.SUCCESS_RATE,
            value=_millionths(counts.success * _MILLION // (counts.success + counts.failure)),
            interval=MetricInterval(
                low=_millionths(math.floor(low * _MILLION)), high=_millionths(math.ceil(high * _MILLION))
            ),
        )

    def _interval(self, interval: Interval) -> MetricInterval:
        high = "" if math.isinf(interval.high) else self._quantity(interval.high)
        return MetricInterval(low=self._quantity(interval.low), high=high)

    def _quantity(self, seconds: float) -> str:
        return quantity(seconds * self._group.per_second)


_latencies = functools.cache(_Latencies)


def _millionths(number: int) -> str:
    """Format a number of millionths exactly as a Kubernetes quantity: `999870u`, `90m`, `1`."""
    if not number % _MILLION:
        return str(number // _MILLION)
    return f"{number}u" if number % 1000 else f"{number // 1000}m"


def quantity(value: float) -> str:
    """Format a number of 0 or more as a Kubernetes quantity with three significant digits: `10500u`, `12m`, `3`."""
    rounded = float(f"{value:.{_DIGITS}g}")
    for suffix, size in _SIZES:
        scaled = rounded / size
        if math.isclose(scaled, round(scaled), rel_tol=_EXACT):
            return f"{round(scaled)}{suffix}"
    return f"{round(rounded * 1e9)}n"
