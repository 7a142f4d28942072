"""The custom metrics API (`custom.metrics.k8s.io`), from which HorizontalPodAutoscalers read traffic metrics (R102).

The autoscaler's client (k8s.io/metrics) uses the group's preferred version, v1beta1 or v1beta2. Every supported Kubernetes knows
both, so one version is enough. The client requests each metric as a subresource, such as `pods/*/requests_per_second`, and compares values in
thousandths of the metric's unit.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from headgate.api import responses
from headgate.api.metrics.handlers import MetricsApi, collect, selection
from headgate.api.metrics.query import DEFAULT_WINDOW_S
from headgate.api.resource_attributes import ResourceAttributes
from headgate.api.selectors import label_selector, label_selector_object
from headgate.api.status import ApiError, method_not_allowed, no_such_path
from headgate.kinds import METRICS_KINDS, KindNames, names_of
from headgate.quantity import of_thousandths
from headgate.resources.kind import api_version
from headgate.resources.meta import timestamp
from headgate.resources.pod_owners import Ref
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.telemetry.answers.answers import SHARES, Answers, Row, Statistics
from headgate.telemetry.answers.object_graph import SPLIT, Backend
from headgate.telemetry.counters.flows import Reading

CUSTOM_METRICS = "custom.metrics.k8s.io", "v1beta2"
LIST = "MetricValueList"
ALL = "*"
"""The name in a path that means all objects."""
_BACKEND = "backend"

RESOURCES: Mapping[str, KindNames] = {
    f"{names.plural}.{names.group}".rstrip("."): names
    for names in (*METRICS_KINDS, names_of(SPLIT))
    if names.namespaced
}
"""The kinds with custom metrics, by the name of their resource in paths: `pods`, `deployments.apps`."""

_Measure = Callable[[Statistics, float], int | None]


def _requests_per_second(counts: Statistics, window: float) -> int:
    return round((counts.success + counts.failure) * 1000 / window)


def _success_rate(counts: Statistics, _window: float) -> int | None:
    """Return the share of successful requests, rounded down so that it is 1 only without a failure."""
    requests = counts.success + counts.failure
    return counts.success * 1000 // requests if requests else None


def _latency(index: int, counts: Statistics, _window: float) -> int:
    """Return a percentile; 0 without requests, because an autoscaler does not scale down a workload without the metric."""
    return round(counts.latencies[index] * 1e6) if counts.latencies else 0


METRICS: Mapping[str, _Measure] = {
    "requests_per_second": _requests_per_second,
    "success_rate": _success_rate,
    **{
        f"p{share * 100:.0f}_response_latency_ms": functools.partial(_latency, index)
        for index, share in enumerate(SHARES)
    },
}
"""Functions that compute a metric in thousandths from the counts of a window in seconds. None is an unknown value."""


class CustomMetricsPath(NamedTuple):
    """A parsed path: a metric for one object or, when `name` is `*`, for all objects of a kind in a namespace."""

    resource: str
    namespace: str
    name: str
    metric: str

    @property
    def attributes(self) -> ResourceAttributes:
        """The attributes for RBAC, as the API server reads them from the path: a metric is a subresource."""
        group, version = CUSTOM_METRICS
        return ResourceAttributes(
            group=group,
            version=version,
            resource=self.resource,
            subresource=self.metric,
            verb="get",
            namespace=self.namespace,
            name=self.name,
        )


def parse_path(parts: Sequence[str]) -> CustomMetricsPath:
    """Parse the path after the version: `namespaces/NAMESPACE/RESOURCE/NAME/METRIC`. Raises ApiError 404."""
    match parts:
        case ["namespaces", namespace, resource, name, metric] if namespace and name:
            pass
        case _:
            raise no_such_path()
    for what, value, served in (("resource", resource, RESOURCES), ("metric", metric, METRICS)):
        if value not in served:
            raise ApiError(404, f"{CUSTOM_METRICS[0]} has no {what} {value!r}; it serves {', '.join(sorted(served))}")
    return CustomMetricsPath(resource, namespace, name, metric)


class CustomMetricsApi:
    """The handler of requests for custom metrics, with values from the same counts as in the metrics API."""

    def __init__(self, metrics: MetricsApi) -> None:
        self._metrics = metrics

    async def answer(self, request: Request, path: CustomMetricsPath) -> Response:
        """Answer one request with a MetricValueList. Raises ApiError."""
        if request.method != "GET":
            raise method_not_allowed("custom metrics support get")
        responses.negotiate(request.headers.get("accept", ""), ())
        reading, values = await self.values(path, request.query_params)
        shared = _shared_fields(path, request.query_params, timestamp(reading.end))
        items = [
            {"describedObject": _reference(RESOURCES[path.resource], ref), **shared, "value": of_thousandths(value)}
            for ref, value in values
        ]
        body = {"kind": LIST, "apiVersion": api_version(*CUSTOM_METRICS), "metadata": {}, "items": items}
        return responses.json_response(body, warnings=reading.cut)

    async def values(
        self, path: CustomMetricsPath, query: Mapping[str, str]
    ) -> tuple[Reading, Sequence[tuple[Ref, int]]]:
        """Return the objects of a path with their values in thousandths, and the Reading that they come from.

        Raises ApiError 400, 404, 501, 503.
        """
        kind = RESOURCES[path.resource].kind
        reading, answers = await self._metrics.answers(kind, DEFAULT_WINDOW_S)
        values = [
            (row.about, value)
            for row in await collect(_rows(answers, kind, path, query))
            if (value := value_of(row, path.metric, reading.window)) is not None
        ]
        if not values and path.name != ALL:
            raise _unknown(path, query)
        return reading, values


def _shared_fields(path: CustomMetricsPath, query: Mapping[str, str], time: str) -> dict[str, Any]:
    """Return the fields that all items of a response have. Raises ApiError 400."""
    labels = query.get("metricLabelSelector")
    selector = {"selector": label_selector_object(labels)} if labels else {}
    return {"metric": {"name": path.metric, **selector}, "timestamp": time, "windowSeconds": int(DEFAULT_WINDOW_S)}


def _rows(answers: Answers, kind: str, path: CustomMetricsPath, query: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of a path. Raises ApiError 400.

    Only the metrics of TrafficSplits have a label, `backend`. A selector that requires another label selects nothing.
    """
    accepts = label_selector(labels) if (labels := query.get("metricLabelSelector")) else None

    def counted(backend: Backend | None) -> bool:
        metadata = {"labels": {_BACKEND: backend.name} if backend else {}}
        return accepts is None or accepts({"metadata": metadata})

    selects = selection(query) if path.name == ALL else lambda info: info.ref.name == path.name
    if kind == SPLIT:
        yield from answers.split_totals(path.namespace, selects, counted)
    elif counted(None):
        if path.name == ALL:
            yield from answers.all(kind, path.namespace, selects)
        elif row := answers.one(Ref(kind, path.namespace, path.name)):
            yield row


def value_of(row: Row, metric: str, window: float) -> int | None:
    """Return a metric in thousandths; None if it is unknown.

    Without requests, the traffic of an object is known only if one of its pods has a sidecar, which would report requests.
    """
    counts = row.sum.counts
    if row.mesh and not row.mesh.meshed and not counts.success + counts.failure:
        return None
    return METRICS[metric](counts, window)


def _reference(names: KindNames, ref: Ref) -> dict[str, str]:
    version = TRAFFIC_SPLIT.versions[0] if names.kind == SPLIT else "v1"
    return {
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "apiVersion": api_version(names.group, version),
    }


def _unknown(path: CustomMetricsPath, query: Mapping[str, str]) -> ApiError:
    labels = query.get("metricLabelSelector")
    selected = f" with the labels {labels}; only TrafficSplits have a label, {_BACKEND}" if labels else ""
    return ApiError(
        404,
        f"{path.resource} {path.namespace}/{path.name} has no metric {path.metric}{selected}: it does not exist, its pods have no"
        " sidecar, or there was no request",
    )
