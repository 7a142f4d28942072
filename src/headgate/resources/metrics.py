"""Types of TrafficMetrics, for the metrics API and its clients (004, R83 to R95).

Values are quantities: `10m` with the unit `seconds` equals `10` with the unit `ms`.
"""

from collections.abc import Mapping
from typing import Any

from headgate.resources.meta import Input

TRAFFIC_METRICS, TRAFFIC_METRICS_LIST = "TrafficMetrics", "TrafficMetricsList"
P99, P90, P50 = (f"p{share}_response_latency" for share in (99, 90, 50))
STDDEV, SUCCESS_RATE = "stddev_response_latency", "success_rate"
SUCCESS, FAILURE = "success_count", "failure_count"
COPIES, FAILED_COPIES = "copy_count", "copy_failure_count"
CONNECTIONS, FAILED_CONNECTIONS = "connection_count", "connection_failure_count"
DENIED, DENIED_CONNECTIONS = "denied_count", "connection_denied_count"
CALLED = "called_count"
UNREACHED = "unreached_count"


class Reference(Input, frozen=True, kw_only=True, gc=False):
    """A reference to a resource.

    As the peer of an edge it may be empty (all peers), or have only a namespace or only a kind (R88).
    """

    kind: str = ""
    namespace: str = ""
    name: str = ""


class MetricsMetadata(Input, frozen=True, kw_only=True, gc=False):
    """`metadata` of TrafficMetrics, which are computed for each request and never stored."""

    name: str = ""
    namespace: str = ""
    self_link: str = ""
    creation_timestamp: str = ""
    labels: Mapping[str, str] = {}


class MetricsSecurity(Input, frozen=True, kw_only=True, gc=False):
    """The number of an edge's requests and connections (`exchanged`), and how many of them used mutual TLS (`secured`).

    `clients` and `servers` have SPIFFE IDs.
    """

    exchanged: int
    secured: int
    clients: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


class MetricsMesh(Input, frozen=True, kw_only=True, gc=False):
    """The current number of a resource's pods, and how many of them have a sidecar."""

    pods: int
    meshed: int


class MetricsEdge(Input, frozen=True, kw_only=True, gc=False):
    """The peer of a resource. `copy` marks mirrored requests, which are counted separately (D22)."""

    direction: str
    resource: Reference
    side: str = ""
    copy: bool = False
    security: MetricsSecurity | None = None


class MetricInterval(Input, frozen=True, kw_only=True, gc=False):
    """A confidence interval of 99 %. Its ends are quantities in the metric's unit; `high` is empty if it is infinite."""

    low: str
    high: str = ""


class Metric(Input, frozen=True, kw_only=True, gc=False):
    """One metric; its value is a quantity."""

    name: str
    value: str
    unit: str = ""
    interval: MetricInterval | None = None


class MetricsBackend(Input, frozen=True, kw_only=True, gc=False):
    """The backend of a TrafficSplit that the metrics are about. `apex` is the root Service."""

    apex: str
    name: str
    weight: int


class TrafficMetrics(Input, frozen=True, kw_only=True, gc=False):
    """The metrics of traffic between `resource` and `edge.resource` in the `window` before `timestamp`."""

    kind: str
    api_version: str
    metadata: MetricsMetadata
    resource: Reference
    edge: MetricsEdge
    timestamp: str
    window: str
    metrics: tuple[Metric, ...]
    backend: MetricsBackend | None = None
    mesh: MetricsMesh | None = None


class TrafficMetricsList(Input, frozen=True, kw_only=True):
    """A response of the metrics API.

    `resource` is the requested resource or kind (R93, R95), `selector` the request's label selector (R94).
    """

    kind: str
    api_version: str
    metadata: MetricsMetadata
    resource: Reference
    items: tuple[TrafficMetrics, ...]
    selector: Mapping[str, Any] = {}
