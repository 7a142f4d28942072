"""Parse the metrics of TrafficMetrics objects, and format them (004; R83, R84, R103)."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from headgate import formatting
from headgate.cli.traffic.colors import Color
from headgate.durations import seconds
from headgate.errors import HeadgateError
from headgate.quantity import parse_quantity

_UNITS = {"": 1.0, "seconds": 1.0, "s": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6}


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic of an edge or a resource in `window` seconds.

    `denied` are requests that TrafficTargets do not allow; they are neither successes nor failures. `copies` are requests to
    mirrors, counted separately (D22). `connections` are TCP connections of ports that are not HTTP, including
    `denied_connections`; `connection_failures` are connections that reached no server (R98). `unreached` are requests and
    connections that the resource itself sent, and that reached no pod. `called` is the number
    of requests that named the receiving Service itself. `p50` to `p99` are latencies in seconds.

    `weight` is the weight of a TrafficSplit's backend. `pods` is the number of pods of a resource, and `meshed` the number
    of pods with a sidecar. `stddev` is the standard deviation of latencies in seconds. `intervals` has the confidence intervals
    of `success`, `p50`, `p90` and `p99`. Fields that the API does not return are None.
    """

    success: int = 0
    failure: int = 0
    denied: int = 0
    copies: int = 0
    connections: int = 0
    connection_failures: int = 0
    denied_connections: int = 0
    unreached: int = 0
    called: int | None = None
    window: float = 0.0
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    weight: int | None = None
    pods: int | None = None
    meshed: int = 0
    stddev: float | None = None
    intervals: Mapping[str, tuple[float, float]] = {}

    @property
    def requests(self) -> int:
        """Return the number of requests, including failed ones."""
        return self.success + self.failure

    @property
    def denied_total(self) -> int:
        """Return the number of denied requests and connections."""
        return self.denied + self.denied_connections

    @property
    def is_denied(self) -> bool:
        """Return whether all requests and connections were denied."""
        return bool(self.denied_total) and not self.requests and self.connections == self.denied_connections

    @property
    def is_partly_denied(self) -> bool:
        """Return whether some requests or connections were denied, and others were not."""
        return bool(self.denied_total) and not self.is_denied

    @property
    def color(self) -> Color:
        """Return the color: failures take precedence over denials."""
        return "failing" if self.failure or self.connection_failures else "denied" if self.denied_total else ""

    @property
    def rps(self) -> float | None:
        """Return requests per second; None without requests."""
        return self.requests / self.window if self.requests and self.window > 0 else None

    @property
    def share(self) -> float | None:
        """Return the share of successful requests, from 0 to 1; None without requests."""
        return self.success / self.requests if self.requests else None


def parse_metrics(document: Mapping[str, Any]) -> Metrics:
    """Return the metrics of a TrafficMetrics object. Raises HeadgateError when a value can't be parsed."""
    values = {str(metric.get("name")): _value(metric) for metric in document.get("metrics") or ()}
    copied = bool((document.get("edge") or {}).get("copy"))
    mesh = document.get("mesh") or {}
    counts = Metrics(
        success=int(values.get("success_count", 0)),
        failure=int(values.get("failure_count", 0)),
        denied=int(values.get("denied_count", 0)),
        copies=int(values.get("copy_count", 0)),
        connections=int(values.get("connection_count", 0)),
        connection_failures=int(values.get("connection_failure_count", 0)),
        denied_connections=int(values.get("connection_denied_count", 0)),
        unreached=int(values.get("unreached_count", 0)),
        called=int(values["called_count"]) if "called_count" in values else None,
        window=parse_window(document),
        weight=(document.get("backend") or {}).get("weight"),
        pods=mesh.get("pods"),
        meshed=mesh.get("meshed") or 0,
    )
    if copied and not counts.requests:  # an edge with mirrored requests only, so `success` and `failure` count these
        failed = int(values.get("copy_failure_count", 0))
        counts = msgspec.structs.replace(counts, success=counts.copies - failed, failure=failed)
    if not counts.requests:
        return counts
    return msgspec.structs.replace(
        counts,
        stddev=values.get("stddev_response_latency"),
        intervals=_intervals(document),
        **{share: values.get(f"{share}_response_latency") for share in ("p50", "p90", "p99")},
    )


def _intervals(document: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the intervals by the first word of their metric's name: `success`, `p99`. An absent end is infinite."""
    return {
        str(metric.get("name")).partition("_")[0]: (
            _value({**metric, "value": interval.get("low")}),
            _value({**metric, "value": interval["high"]}) if interval.get("high") else math.inf,
        )
        for metric in document.get("metrics") or ()
        if (interval := metric.get("interval"))
    }


def _value(metric: Mapping[str, Any]) -> float:
    unit = str(metric.get("unit") or "")
    try:
        return float(parse_quantity(str(metric.get("value", "")))) * _UNITS[unit]
    except (ValueError, KeyError) as error:
        raise HeadgateError(
            f"the metric {metric.get('name')!r} of the API can't be parsed: {metric.get('value')!r} {unit}".rstrip()
        ) from error


def parse_window(document: Mapping[str, Any]) -> float:
    """Return the window of an item in seconds. Raises HeadgateError when it can't be parsed."""
    try:
        return seconds(str(document.get("window") or ""))
    except ValueError as error:
        raise HeadgateError(f"the window of the API's metrics can't be parsed: {error}") from error


def percent(metrics: Metrics) -> str:
    """Format the share of successful requests: `99.99%`."""
    return formatting.percent(metrics.success, metrics.failure)


def success_interval(metrics: Metrics) -> str:
    """Format the interval of the success rate, rounded outwards: `98.21-99.97%`."""
    if "success" not in metrics.intervals:
        return formatting.NONE
    low, high = metrics.intervals["success"]
    return f"{math.floor(low * 10_000) / 100:.2f}-{math.ceil(high * 10_000) / 100:.2f}%"


def latency_interval(share: str, metrics: Metrics) -> str:
    """Format the interval of a percentile (`p99`): `8.6ms-11ms`, or `>8.6ms` without a limit."""
    if share not in metrics.intervals:
        return formatting.NONE
    low, high = metrics.intervals[share]
    if math.isinf(high):
        return f">{formatting.latency(low)}"
    return f"{formatting.latency(low)}-{formatting.latency(high)}"


def rate(metrics: Metrics) -> str:
    """Format requests per second: `1.8rps`."""
    return formatting.rate(metrics.requests, metrics.window)
