"""TrafficMetrics as JSON: what the metrics API answers, and what its clients read (004, R83 to R95).

Values are quantities. A latency of `10m` with the unit `seconds` is 10 ms, as is one of `10` with the unit `ms`.
"""

from collections.abc import Mapping
from typing import Any

from headgate.resources.meta import Input

TRAFFIC_METRICS, TRAFFIC_METRICS_LIST = "TrafficMetrics", "TrafficMetricsList"
P99, P90, P50 = (f"p{share}_response_latency" for share in (99, 90, 50))
SUCCESS, FAILURE = "success_count", "failure_count"
COPIES, FAILED_COPIES = "copy_count", "copy_failure_count"
CONNECTIONS, FAILED_CONNECTIONS = "connection_count", "connection_failure_count"
DENIED, DENIED_CONNECTIONS = "denied_count", "connection_denied_count"
CALLED = "called_count"


class Reference(Input, frozen=True, kw_only=True, gc=False):
    """A resource; as an edge's other end it may be empty (everybody), or have only a namespace or only a kind (R88)."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class MetricsMetadata(Input, frozen=True, kw_only=True, gc=False):
    """`metadata` of an answer, which is stored nowhere."""

    name: str = ""
    namespace: str = ""
    self_link: str = ""
    creation_timestamp: str = ""
    labels: Mapping[str, str] = {}


class MetricsSecurity(Input, frozen=True, kw_only=True, gc=False):
    """How an edge's requests and connections went: `secured` of `exchanged` by mutual TLS, between SPIFFE IDs."""

    exchanged: int
    secured: int
    clients: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


class MetricsMesh(Input, frozen=True, kw_only=True, gc=False):
    """The pods that a resource has now, and how many of them have a sidecar."""

    pods: int
    meshed: int


class MetricsEdge(Input, frozen=True, kw_only=True, gc=False):
    """The other end. `copy` marks copies of requests, which are counted apart (D22)."""

    direction: str
    resource: Reference
    side: str = ""
    copy: bool = False
    security: MetricsSecurity | None = None


class Metric(Input, frozen=True, kw_only=True, gc=False):
    """One number as a quantity."""

    name: str
    value: str
    unit: str = ""


class MetricsBackend(Input, frozen=True, kw_only=True, gc=False):
    """The leg of a TrafficSplit that an item is about."""

    apex: str
    name: str
    weight: int


class TrafficMetrics(Input, frozen=True, kw_only=True, gc=False):
    """What was exchanged between `resource` and `edge.resource` in the `window` before `timestamp`."""

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
    """Answers to one question. `resource` says which (R93, R95), `selector` which items of them show (R94)."""

    kind: str
    api_version: str
    metadata: MetricsMetadata
    resource: Reference
    items: tuple[TrafficMetrics, ...]
    selector: Mapping[str, Any] = {}
