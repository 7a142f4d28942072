"""TrafficMetrics as numbers, and numbers as people read them (004; R83, R84, R103)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate import formatting
from headgate.durations import seconds
from headgate.errors import HeadgateError
from headgate.plugin.colors import Color
from headgate.quantity import parse_quantity

_UNITS = {"": 1.0, "seconds": 1.0, "s": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6}


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """What went over an edge, or into a resource, in `window` seconds. Latencies are seconds, None where none is told.

    Copies of requests are counted apart from them (D22), and so are connections of ports that are not HTTP; `unreached` are
    those that no server took (R98). `denied` are requests that access rules refused, which are neither successes nor
    failures; `denied_connections` are some of the connections. `called` is how many named the Service that received
    them, None where the API does not say it.

    Of a backend of a TrafficSplit there is the `weight`. A resource has so many `pods` (None where the API does not say it),
    `meshed` of them with a sidecar.
    """

    success: int = 0
    failure: int = 0
    denied: int = 0
    copies: int = 0
    connections: int = 0
    connection_failures: int = 0
    denied_connections: int = 0
    called: int | None = None
    window: float = 0.0
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    weight: int | None = None
    pods: int | None = None
    meshed: int = 0

    @property
    def requests(self) -> int:
        """All requests, failed ones too."""
        return self.success + self.failure

    @property
    def refused(self) -> int:
        """All requests and connections that access rules refused."""
        return self.denied + self.denied_connections

    @property
    def is_denied(self) -> bool:
        """Whether access rules refused everything that there was."""
        return bool(self.refused) and not self.requests and self.connections == self.denied_connections

    @property
    def color(self) -> Color:
        """How it is shown: failures first."""
        return "failing" if self.failure or self.connection_failures else "refused" if self.refused else ""

    @property
    def rps(self) -> float | None:
        """Requests per second; None without any."""
        return self.requests / self.window if self.requests and self.window > 0 else None

    @property
    def share(self) -> float | None:
        """The share that succeeded, of 1; None without requests."""
        return self.success / self.requests if self.requests else None


def parse_metrics(item: Mapping[str, Any]) -> Metrics:
    """Read the metrics of a TrafficMetrics object. Raises HeadgateError when they are no numbers."""
    values = {str(one.get("name")): _value(one) for one in item.get("metrics") or ()}
    copied = bool((item.get("edge") or {}).get("copy"))
    mesh = item.get("mesh") or {}
    counts = Metrics(
        success=int(values.get("success_count", 0)),
        failure=int(values.get("failure_count", 0)),
        denied=int(values.get("denied_count", 0)),
        copies=int(values.get("copy_count", 0)),
        connections=int(values.get("connection_count", 0)),
        connection_failures=int(values.get("connection_failure_count", 0)),
        denied_connections=int(values.get("connection_denied_count", 0)),
        called=int(values["called_count"]) if "called_count" in values else None,
        window=parse_window(item),
        weight=(item.get("backend") or {}).get("weight"),
        pods=mesh.get("pods"),
        meshed=mesh.get("meshed") or 0,
    )
    if copied and not counts.requests:  # an edge of copies alone says how many there were
        failed = int(values.get("copy_failure_count", 0))
        counts = msgspec.structs.replace(counts, success=counts.copies - failed, failure=failed)
    if not counts.requests:
        return counts
    return msgspec.structs.replace(
        counts, **{share: values.get(f"{share}_response_latency") for share in ("p50", "p90", "p99")}
    )


def _value(metric: Mapping[str, Any]) -> float:
    unit = str(metric.get("unit") or "")
    try:
        return float(parse_quantity(str(metric.get("value", "")))) * _UNITS[unit]
    except (ValueError, KeyError) as error:
        raise HeadgateError(
            f"the API's metric {metric.get('name')!r} can't be read: {metric.get('value')!r} {unit}".rstrip()
        ) from error


def parse_window(item: Mapping[str, Any]) -> float:
    """Return the window of an item's numbers in seconds. Raises HeadgateError."""
    try:
        return seconds(str(item.get("window") or ""))
    except ValueError as error:
        raise HeadgateError(f"the API's window can't be read: {error}") from error


def percent(metrics: Metrics) -> str:
    """Write the share that succeeded."""
    return formatting.percent(metrics.success, metrics.failure)


def rate(metrics: Metrics) -> str:
    """Write requests per second."""
    return formatting.rate(metrics.requests, metrics.window)
