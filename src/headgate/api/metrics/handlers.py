"""The metrics API (R80 to R102): TrafficMetrics of resources and of their edges, from the counts of proxies.

It is read-only. The embedded API serves it on one machine, and an APIService (`api.aggregated_server`) in a cluster.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headgate.api import responses
from headgate.api.metrics.groups import SPLITS, self_link, written
from headgate.api.metrics.query import MetricsPath, grouping, window
from headgate.api.metrics.tables import table
from headgate.api.selectors import field_selector, label_selector, label_selector_object
from headgate.api.status import ApiError, not_found
from headgate.errors import StoreError, TelemetryError
from headgate.objects.ports import Reader
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
from headgate.telemetry.answers.answers import Answers, Grouping, Row, Selects, Traffic, everything
from headgate.telemetry.answers.object_graph import ObjectInfo
from headgate.telemetry.counters.flows import Reading, Source

_BREATH = 500  # rows that are added up before other tasks get their turn
_WINDOWS = 4  # windows whose indexes are cached


class _Result(Value, frozen=True, kw_only=True):
    """The rows that answer a question, by a Reading. Unless `many`, it is one row that is no list."""

    path: MetricsPath
    rows: Sequence[Row]
    reading: Reading
    many: bool
    selector: Mapping[str, Any] = {}


class MetricsApi:
    """Answers questions about traffic. Without a source of readings it answers 501."""

    def __init__(self, objects: Reader, source: Source | None, *, settings: Settings = DEFAULTS) -> None:
        self._object_graphs = ObjectGraphs(objects, settings)
        self._source = source
        self._traffic: dict[float, Traffic] = {}
        self._answers: dict[str, tuple[Traffic, object, Answers]] = {}

    async def answer(self, request: Request, path: MetricsPath) -> Response:
        """Answer one request. Raises ApiError."""
        query = request.query_params
        if request.method != "GET":
            raise ApiError(405, f"{request.method} is not possible on metrics: they can be read with get and list only")
        if responses.query_flag(query, "watch"):
            raise ApiError(405, "metrics are counted for each request and can't be watched: get them again")
        form = responses.negotiate(request.headers.get("accept", ""), responses.SHAPES)
        found = await self._result(query, path)
        body = _shaped(found, query, form) if form.shape else _plain(found)
        return responses.json_response(body, warnings=found.reading.cut)

    async def _result(self, query: Mapping[str, str], path: MetricsPath) -> _Result:
        seconds = window(query)
        reading = await self._read(seconds)
        answers = await self._answers_on(self._indexed(seconds, reading), path.ref.kind)
        alone = bool(path.ref.name) and not path.edges and path.plural != SPLITS
        rows = await _all(_rows(answers, path, _selection(query), grouping(query)))
        if not rows and path.ref.name and not path.edges:
            raise not_found(path.plural, path.group.name, path.ref.name)
        labels = query.get("labelSelector")
        return _Result(
            path=path,
            rows=rows,
            reading=reading,
            many=not alone,
            selector=label_selector_object(labels) if labels and not alone else {},
        )

    async def _read(self, seconds: float) -> Reading:
        if self._source is None:
            raise ApiError(501, "traffic is counted by headgate's proxies, and none reports here: use `headgate up`")
        try:
            return await self._source.read(seconds)
        except TelemetryError as error:
            raise ApiError(503, f"nothing can be said about traffic now: {error}") from error

    def _indexed(self, seconds: float, reading: Reading) -> Traffic:
        """Return the flows of a Reading with their indexes, which are cached while the mapping is the same."""
        known = self._traffic.pop(seconds, None)
        traffic = known if known and known.flows is reading.flows else Traffic(reading.flows, reading.arrived)
        self._traffic[seconds] = traffic
        if len(self._traffic) > _WINDOWS:
            del self._traffic[next(iter(self._traffic))]
        return traffic

    async def _answers_on(self, traffic: Traffic, kind: str) -> Answers:
        try:
            world = await self._object_graphs.graph(kind)
        except StoreError as error:
            raise ApiError(503, f"the objects can't be read now: {error}") from error
        before = self._answers.get(kind)
        if before is None or before[0] is not traffic or before[1] is not world:
            before = self._answers[kind] = traffic, world, Answers(traffic, world)
        return before[2]


def _rows(answers: Answers, path: MetricsPath, selects: Selects, grouping: Grouping) -> Iterable[Row]:
    """Return the rows that answer a question. Raises ApiError 404."""
    ref = path.ref
    if path.plural == SPLITS:
        return answers.splits(ref.namespace, lambda thing: ref.name in ("", thing.ref.name) and selects(thing))
    if not ref.name:
        return answers.all(ref.kind, ref.namespace, selects)
    row = answers.one(ref)
    if row is None:
        raise not_found(path.plural, path.group.name, path.ref.name)
    return answers.edges(ref, grouping, selects) if path.edges else [row]


async def _all(rows: Iterable[Row]) -> Sequence[Row]:
    """Return all rows; let other tasks run in between."""
    found: list[Row] = []
    for row in rows:
        found.append(row)
        if not len(found) % _BREATH:
            await asyncio.sleep(0)
    return found


def _selection(query: Mapping[str, str]) -> Selects:
    """Read the selectors: they choose items, and change no number (R94). Raises ApiError 400."""
    tests = [label_selector(text) for text in (query.get("labelSelector"),) if text]
    tests += [field_selector(text, "") for text in (query.get("fieldSelector"),) if text]

    def selects(thing: ObjectInfo) -> bool:
        obj = {"metadata": {"name": thing.ref.name, "namespace": thing.ref.namespace, "labels": thing.labels}}
        return all(test(obj) for test in tests)

    return selects if tests else everything


def _plain(found: _Result) -> TrafficMetrics | TrafficMetricsList:
    group, plural, ref, edges = found.path
    items = written(group, plural, found.rows, found.reading)
    if not found.many:
        return items[0]
    return TrafficMetricsList(
        kind=TRAFFIC_METRICS_LIST,
        api_version=group.api_version,
        metadata=MetricsMetadata(self_link=self_link(group, plural, ref, edges=edges)),
        resource=Reference(kind=ref.kind, namespace=ref.namespace, name=ref.name),
        items=tuple(items),
        selector=found.selector,
    )


def _shaped(found: _Result, query: Mapping[str, str], form: responses.Representation) -> dict[str, Any]:
    """Return a Table, or the metadata alone. Raises ApiError 406, 400."""
    api = responses.table_version(form)
    items = written(found.path.group, found.path.plural, found.rows, found.reading)
    if form.shape == "Table":
        return table(found.rows, items, found.reading.window, include=responses.included_object(query), api=api)
    if not found.many:
        return responses.partial_metadata(items[0].metadata, api)
    return responses.partial_metadata_list([item.metadata for item in items], api)
