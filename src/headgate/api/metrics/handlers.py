"""The metrics API (R80 to R102): TrafficMetrics of resources and of their edges, from the counts of proxies.

It is read-only. The embedded API serves it on one machine, and `api.aggregated_server` behind APIServices in a cluster.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headgate.api import responses
from headgate.api.metrics.groups import SPLITS, self_link, traffic_metrics
from headgate.api.metrics.query import MetricsPath, grouping, has_uncertainty, window, window_end
from headgate.api.metrics.tables import table
from headgate.api.selectors import field_selector, label_selector, label_selector_object
from headgate.api.status import ApiError, method_not_allowed, not_found
from headgate.errors import NoCounts, StoreError, TelemetryError
from headgate.objects.ports import Lister
from headgate.plane.object_graphs import ObjectGraphs
from headgate.resources.meta import Value
from headgate.resources.metrics import (
    TRAFFIC_METRICS_LIST,
    MetricsMetadata,
    Reference,
    TrafficMetrics,
    TrafficMetricsList,
)
from headgate.settings import DEFAULTS, Settings
from headgate.telemetry.answers.answers import Answers, Row, Selects, Traffic, everything
from headgate.telemetry.answers.object_graph import ObjectGraph, ObjectInfo
from headgate.telemetry.answers.peer_groups import Grouping
from headgate.telemetry.answers.uncertainty import Uncertainty, uncertainty_of
from headgate.telemetry.counters.flows import Reading, Source

_YIELD_ROWS = 500  # Number of rows that are computed before other asyncio tasks run.
_YIELD_UNCERTAIN_ROWS = 50  # The same for uncertainties, of which each takes 0.1 ms.
_WINDOWS = 4  # Number of windows whose indexes are cached.


class _Result(Value, frozen=True, kw_only=True):
    """The rows of a response, computed from `reading`. `many` is False for a single object.

    `uncertainties` has an item for each row, or none if the query does not request them.
    """

    path: MetricsPath
    rows: Sequence[Row]
    reading: Reading
    many: bool
    uncertainties: Sequence[Uncertainty | None] = ()
    selector: Mapping[str, Any] = {}


class MetricsApi:
    """The handler of requests for traffic metrics. It answers 501 without a `source`."""

    def __init__(self, objects: Lister, source: Source | None, *, settings: Settings = DEFAULTS) -> None:
        self._object_graphs = ObjectGraphs(objects, settings)
        self._source = source
        self._traffic: dict[float, Traffic] = {}
        self._answers: dict[str, tuple[Traffic, ObjectGraph, Answers]] = {}

    async def answer(self, request: Request, path: MetricsPath) -> Response:
        """Answer one request. Raises ApiError."""
        query = request.query_params
        if request.method != "GET":
            raise method_not_allowed("metrics support get and list")
        if responses.query_flag(query, "watch"):
            raise method_not_allowed("metrics do not support watch; use get or list")
        form = responses.negotiate(request.headers.get("accept", ""), responses.SHAPES)
        result = await self._result(query, path)
        body = _shaped(result, query, form) if form.shape else _plain(result)
        return responses.json_response(body, warnings=result.reading.cut)

    async def _result(self, query: Mapping[str, str], path: MetricsPath) -> _Result:
        reading, answers = await self.answers(path.ref.kind, window(query), window_end(query))
        alone = bool(path.ref.name) and not path.edges and path.plural != SPLITS
        rows = await collect(_rows(answers, path, selection(query), grouping(query)))
        if not rows and path.ref.name and not path.edges:
            raise not_found(path.plural, path.group.name, path.ref.name)
        labels = query.get("labelSelector")
        return _Result(
            path=path,
            rows=rows,
            reading=reading,
            many=not alone,
            uncertainties=await _uncertainties(rows) if has_uncertainty(query) else (),
            selector=label_selector_object(labels) if labels and not alone else {},
        )

    async def answers(self, kind: str, seconds: float, end: float | None = None) -> tuple[Reading, Answers]:
        """Return the Reading of the last `seconds`, or of those before `end`, and the answers about objects of a kind.

        Raises ApiError 404, 501, 503.
        """
        reading = await self._read(seconds, end)
        world = await self._graph(kind)
        if end is not None:  # not cached: an earlier window is rarely requested again, and its flows take megabytes
            return reading, Answers(Traffic(reading.flows, reading.arrived), world)
        return reading, self._cached_answers(self._indexed(seconds, reading), world, kind)

    async def _read(self, seconds: float, end: float | None) -> Reading:
        if self._source is None:
            raise ApiError(501, "no proxies report traffic to this server; use `headgate up`")
        try:
            return await self._source.read(seconds, end)
        except NoCounts as error:
            raise ApiError(404, str(error)) from error
        except TelemetryError as error:
            raise ApiError(503, f"traffic metrics are unavailable: {error}") from error

    def _indexed(self, window: float, reading: Reading) -> Traffic:
        """Return the indexed flows of a Reading. The index is cached while `reading.flows` is the same object."""
        cached = self._traffic.pop(window, None)
        traffic = cached if cached and cached.flows is reading.flows else Traffic(reading.flows, reading.arrived)
        self._traffic[window] = traffic
        if len(self._traffic) > _WINDOWS:
            del self._traffic[next(iter(self._traffic))]
        return traffic

    async def _graph(self, kind: str) -> ObjectGraph:
        try:
            return await self._object_graphs.graph(kind)
        except StoreError as error:
            raise ApiError(503, f"can't read the objects: {error}") from error

    def _cached_answers(self, traffic: Traffic, world: ObjectGraph, kind: str) -> Answers:
        before = self._answers.get(kind)
        if before is None or before[0] is not traffic or before[1] is not world:
            before = self._answers[kind] = traffic, world, Answers(traffic, world)
        return before[2]


def _rows(answers: Answers, path: MetricsPath, selects: Selects, grouping: Grouping) -> Iterable[Row]:
    """Return the rows of a path. Raises ApiError 404."""
    ref = path.ref
    if path.plural == SPLITS:
        return answers.splits(ref.namespace, lambda thing: ref.name in ("", thing.ref.name) and selects(thing))
    if not ref.name:
        return answers.all(ref.kind, ref.namespace, selects)
    row = answers.one(ref)
    if row is None:
        raise not_found(path.plural, path.group.name, path.ref.name)
    return answers.edges(ref, grouping, selects) if path.edges else [row]


async def collect(rows: Iterable[Row]) -> Sequence[Row]:
    """Collect all rows and let other tasks run in between."""
    collected: list[Row] = []
    for row in rows:
        collected.append(row)
        if not len(collected) % _YIELD_ROWS:
            await asyncio.sleep(0)
    return collected


async def _uncertainties(rows: Sequence[Row]) -> Sequence[Uncertainty | None]:
    """Return the uncertainty of each row, and let other tasks run in between."""
    uncertainties: list[Uncertainty | None] = []
    for row in rows:
        uncertainties.append(uncertainty_of(row.sum.counts))
        if not len(uncertainties) % _YIELD_UNCERTAIN_ROWS:
            await asyncio.sleep(0)
    return uncertainties


def selection(query: Mapping[str, str]) -> Selects:
    """Return a predicate for the query's selectors. They filter items but change no metric (R94). Raises ApiError 400."""
    tests = [label_selector(text) for text in (query.get("labelSelector"),) if text]
    tests += [field_selector(text) for text in (query.get("fieldSelector"),) if text]

    def selects(thing: ObjectInfo) -> bool:
        obj = {"metadata": {"name": thing.ref.name, "namespace": thing.ref.namespace, "labels": thing.labels}}
        return all(test(obj) for test in tests)

    return selects if tests else everything


def _plain(result: _Result) -> TrafficMetrics | TrafficMetricsList:
    group, plural, ref, edges = result.path
    items = traffic_metrics(group, plural, result.rows, result.reading, result.uncertainties)
    if not result.many:
        return items[0]
    return TrafficMetricsList(
        kind=TRAFFIC_METRICS_LIST,
        api_version=group.api_version,
        metadata=MetricsMetadata(self_link=self_link(group, plural, ref, edges=edges)),
        resource=Reference(kind=ref.kind, namespace=ref.namespace, name=ref.name),
        items=tuple(items),
        selector=result.selector,
    )


def _shaped(result: _Result, query: Mapping[str, str], form: responses.Representation) -> dict[str, Any]:
    """Return the result as a Table or as metadata only. Raises ApiError 406, 400."""
    api = responses.table_version(form)
    items = traffic_metrics(result.path.group, result.path.plural, result.rows, result.reading, result.uncertainties)
    if form.shape == "Table":
        return table(result.rows, items, result.reading.window, include=responses.included_object(query), api=api)
    if not result.many:
        return responses.partial_metadata(items[0].metadata, api)
    return responses.partial_metadata_list([metrics.metadata for metrics in items], api)
