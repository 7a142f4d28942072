"""The resource `trafficseries`: the traffic of an object over time, from the stored windows of the last day."""

from headgate.api.inspect.resource import InspectCall, InspectResource
from headgate.api.metrics.query import time_in
from headgate.api.status import ApiError
from headgate.durations import seconds
from headgate.kinds import METRICS_KINDS
from headgate.plane.traffic_series import SeriesQuery
from headgate.resources.pod_owners import Ref
from headgate.resources.traffic_series import TrafficSeries
from headgate.telemetry.counters.stored_windows import SHORT_S

DEFAULT_SPAN_S = 900.0
_KINDS = {names.singular: names.kind for names in METRICS_KINDS if names.namespaced}


async def _get(call: InspectCall) -> TrafficSeries:
    """Return the series for the parameters `start`, `end` and `step`. Raises ApiError 400, 404, 501."""
    reader = call.inspector.series
    if reader is None:
        raise ApiError(501, "no proxies report traffic to this server; use `headgate up`")
    return await reader.read(_query(call, reader.now()))


def _query(call: InspectCall, now: float) -> SeriesQuery:
    step = _step(call.query.get("step", ""))
    start, end = time_in(call.query, "start"), time_in(call.query, "end")
    end = now if end is None else end
    start = end - DEFAULT_SPAN_S if start is None else start
    first, last = start // step * step, end // step * step
    if first >= last:
        raise ApiError(400, f"start: Invalid value: must be before the end by at least a step of {step:g} s")
    return SeriesQuery(_ref(call), first, last, step)


def _step(text: str) -> float:
    try:
        step = seconds(text) if text else float(SHORT_S)
    except ValueError as error:
        raise ApiError(400, f"step: Invalid value: {error}") from None
    if step < SHORT_S or step % SHORT_S:
        raise ApiError(
            400, f"step: Invalid value: {text!r}: must be a multiple of {SHORT_S}s, the shortest stored window"
        )
    return step


def _ref(call: InspectCall) -> Ref:
    kind, _, name = call.path.name.partition(".")
    if kind not in _KINDS or not name:
        raise ApiError(
            404,
            f"a series has a name like service.website or {'.NAME, '.join(sorted(_KINDS))}.NAME, not {call.path.name!r}",
        )
    return Ref(_KINDS[kind], call.path.namespace, name)


TRAFFIC_SERIES = InspectResource("trafficseries", "TrafficSeries", TrafficSeries, get=_get)
