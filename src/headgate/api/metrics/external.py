"""The external metrics API (`external.metrics.k8s.io`): the metrics of `custom.metrics.k8s.io`, selected by labels.

Clients that know no objects read it: Flagger's provider of external metrics, and metrics of type External of autoscalers. Such a client
adds up the values of a response. So a request has to name one kind by a label: `labelSelector=deployment=website`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from headgate.api import responses
from headgate.api.metrics.custom import METRICS, RESOURCES, value_of
from headgate.api.metrics.handlers import MetricsApi, collect
from headgate.api.metrics.query import DEFAULT_WINDOW_S
from headgate.api.resource_attributes import ResourceAttributes
from headgate.api.selectors import selected_values
from headgate.api.status import ApiError, method_not_allowed, no_such_path
from headgate.quantity import of_thousandths
from headgate.resources.kind import api_version
from headgate.resources.meta import timestamp
from headgate.telemetry.answers.object_graph import SPLIT, ObjectInfo

EXTERNAL_METRICS = "external.metrics.k8s.io", "v1beta1"
LIST = "ExternalMetricValueList"
LABELS: Mapping[str, str] = {names.singular: names.kind for names in RESOURCES.values() if names.kind != SPLIT}
"""The label that has the name of an object, and its kind: `deployment`."""


class ExternalMetricsPath(NamedTuple):
    """A parsed path: a metric in a namespace."""

    namespace: str
    metric: str

    @property
    def attributes(self) -> ResourceAttributes:
        """The attributes for RBAC, as the API server reads them from the path: a metric is a resource."""
        group, version = EXTERNAL_METRICS
        return ResourceAttributes(
            group=group, version=version, resource=self.metric, verb="list", namespace=self.namespace
        )


def parse_path(parts: Sequence[str]) -> ExternalMetricsPath:
    """Parse the path after the version: `namespaces/NAMESPACE/METRIC`. Raises ApiError 404."""
    match parts:
        case ["namespaces", namespace, metric] if namespace:
            pass
        case _:
            raise no_such_path()
    if metric not in METRICS:
        raise ApiError(404, f"{EXTERNAL_METRICS[0]} has no metric {metric!r}; it serves {', '.join(sorted(METRICS))}")
    return ExternalMetricsPath(namespace, metric)


async def answer(metrics: MetricsApi, request: Request, path: ExternalMetricsPath) -> Response:
    """Answer one request with an ExternalMetricValueList, in which an object without a known value is missing. Raises ApiError."""
    if request.method != "GET":
        raise method_not_allowed("external metrics support list")
    responses.negotiate(request.headers.get("accept", ""), ())
    if request.query_params.get("watch") in {"1", "true"}:
        raise method_not_allowed("external metrics support list, and no watch")
    label, names = _selected(request.query_params.get("labelSelector", ""))

    def is_selected(info: ObjectInfo) -> bool:
        return info.ref.name in names

    reading, answers = await metrics.answers(LABELS[label], DEFAULT_WINDOW_S)
    rows = await collect(answers.all(LABELS[label], path.namespace, is_selected))
    values = ((row.about.name, value_of(row, path.metric, reading.window)) for row in rows)
    shared: Mapping[str, Any] = {
        "metricName": path.metric,
        "timestamp": timestamp(reading.end),
        "window": int(DEFAULT_WINDOW_S),
    }
    items = [
        {**shared, "metricLabels": {label: name}, "value": of_thousandths(value)}
        for name, value in values
        if value is not None
    ]
    body = {"kind": LIST, "apiVersion": api_version(*EXTERNAL_METRICS), "metadata": {}, "items": items}
    return responses.json_response(body, warnings=reading.cut)


def _selected(selector: str) -> tuple[str, frozenset[str]]:
    """Return the only label of a selector, and its values. Raises ApiError 400."""
    values = selected_values(selector) if selector else {}
    if len(values) != 1 or not values.keys() <= LABELS.keys():
        raise ApiError(
            400,
            f"the labelSelector must name objects by one of the labels {', '.join(sorted(LABELS))}, such as"
            f" deployment=website; it has {', '.join(sorted(values)) or 'no label'}",
        )
    return next(iter(values.items()))
