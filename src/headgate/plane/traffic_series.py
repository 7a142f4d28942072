"""Answers with the traffic of an object over time: reads stored windows, the objects, and weights from the history."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headgate.errors import NotFound
from headgate.history.records import object_in
from headgate.history.revisions import Log, RecordedRevision
from headgate.kinds import SPLIT as SPLIT_GROUP
from headgate.kinds import names_of
from headgate.latest import Latest
from headgate.objects.ports import Lister
from headgate.plane.object_graphs import ObjectGraphs, object_info
from headgate.resources.inspect import ObjectName
from headgate.resources.meta import Key, epoch_seconds, precise_timestamp
from headgate.resources.pod_owners import Ref
from headgate.resources.traffic_series import BackendWeight, TrafficSeries, TrafficSeriesStatus, WeightChange
from headgate.settings import Settings
from headgate.telemetry.answers.object_graph import SERVICE, SPLIT, ObjectGraph
from headgate.telemetry.answers.traffic_series import SeriesSums
from headgate.telemetry.counters.blocks import UNCOUNTED, flows_of, read_block, uncounted_seconds
from headgate.telemetry.counters.stored_windows import ChosenWindows
from headgate.telemetry.windows import Windows, messages

_MOST_ANSWERS = 10  # the number of answers that are shared; a long one takes megabytes


class SeriesQuery(NamedTuple):
    """A query for the series of an object: its times in seconds since the epoch, and the length of a step in seconds."""

    ref: Ref
    start: float
    end: float
    step: float


class _Answer(NamedTuple):
    """A series, and what it was made from: the objects, the history, and windows until `end`."""

    graph: ObjectGraph
    log: Log | None
    end: float
    series: TrafficSeries


class SeriesReader:
    """Reads the series of objects. `history` has the recorded revisions, None before they are loaded.

    Equal queries share an answer until the next window ends: many pages that show an object cost as much as one.
    """

    def __init__(self, windows: Windows, objects: Lister, history: Latest[Log | None], settings: Settings) -> None:
        self._windows = windows
        self._objects = ObjectGraphs(objects, settings)
        self._history = history
        self._settings = settings
        self._answers: dict[SeriesQuery, _Answer] = {}

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return self._windows.now()

    async def read(self, query: SeriesQuery) -> TrafficSeries:
        """Return the series of an object. Raises NotFound without the object, NoCounts, StoreError."""
        ref = query.ref
        graph = await self._objects.graph(ref.kind)
        if graph.find(ref) is None:
            raise NotFound(f"{ref.kind} {ref} not found; only objects that exist now have a series")
        log, end = self._history.get(), self._windows.stored_end()
        answer = self._answers.pop(query, None)
        if answer is None or answer.graph is not graph or answer.log is not log or answer.end != end:
            series = await self._windows.reads.shared(
                (query, id(graph), id(log), end), lambda: self._read(query, graph, log)
            )
            answer = _Answer(graph, log, end, series)
        self._answers[query] = answer
        if len(self._answers) > _MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        return answer.series

    async def _read(self, query: SeriesQuery, graph: ObjectGraph, log: Log | None) -> TrafficSeries:
        ref = query.ref
        sums, reads = SeriesSums(ref, query.step), self._windows.reads
        for chosen in await self._windows.choose(query.start, query.end):
            await reads.in_thread(_add_windows, sums, chosen, graph)
        points, backends = await reads.in_thread(lambda: (sums.points(), sums.backends()))
        notes = dict(sums.notes())
        if uncounted := uncounted_seconds(sums.windows):
            notes[UNCOUNTED] = notes.get(UNCOUNTED, 0) + uncounted
        return TrafficSeries(
            metadata=ObjectName(name=f"{ref.kind.lower()}.{ref.name}", namespace=ref.namespace),
            object=Key(names_of(ref.kind).group, ref.kind, ref.namespace, ref.name),
            status=TrafficSeriesStatus(
                start_time=precise_timestamp(sums.windows[0].start),
                end_time=precise_timestamp(sums.windows[-1].end),
                step_milliseconds=round(query.step * 1000),
                points=points,
                backends=backends,
                weights=tuple(_weights(log, query, self._settings)),
                messages=messages(notes),
            ),
        )


def _add_windows(sums: SeriesSums, chosen: ChosenWindows, graph: ObjectGraph) -> None:
    """Add windows in the thread of reads: with 20,000 flows, to find their series takes 0.25 s.

    This reader has its own graphs. The event loop only calls `find`, whose indexes are equal in both threads.
    """
    sums.assign(flows_of(chosen.block).values(), graph)
    sums.add(read_block(chosen.block, chosen.indexes, sums.selects))


def _weights(log: Log | None, query: SeriesQuery, settings: Settings) -> Iterator[WeightChange]:
    """Yield the weights that split a Service at the start, and their changes until the end."""
    if log is None or query.ref.kind != SERVICE:
        return
    earlier: dict[Key, WeightChange] = {}
    changes: list[WeightChange] = []
    for change in _weight_changes(log, query.ref, settings):
        seconds = epoch_seconds(change.record_time or "")
        if seconds <= query.start:
            earlier[change.object] = change
        elif seconds <= query.end:
            changes.append(change)
    yield from (change for change in earlier.values() if change.backends)
    yield from changes


def _weight_changes(log: Log, service: Ref, settings: Settings) -> Iterator[WeightChange]:
    """Yield the weights in TrafficSplits that split a Service, oldest first; those before the first revision have no time."""
    last: dict[Key, tuple[BackendWeight, ...]] = {}
    steps: list[tuple[int, str | None, Iterable[tuple[Key, bytes | None]]]] = [
        (log.base_number, None, log.base.items())
    ]
    steps += [timed for step in log.revisions for timed in _timed_contents(step)]
    for number, time, contents in steps:
        for key, content in contents:
            if (key.group, key.kind, key.namespace) != (SPLIT_GROUP, SPLIT, service.namespace):
                continue
            weights = () if content is None else _weights_in(key, content, service, settings)
            if weights != last.get(key, ()):
                last[key] = weights
                yield WeightChange(object=key, record_time=time, revision=number, backends=weights)


def _timed_contents(step: RecordedRevision) -> Iterator[tuple[int, str, Iterable[tuple[Key, bytes | None]]]]:
    """Yield the contents of a revision with their time; each write of a combined revision has its own."""
    if step.reason != "ControllerWrote":
        yield step.number, step.time, [(change.key, change.content) for change in step.changes]
        return
    writes = [(write.time, change.key, write.content) for change in step.changes for write in change.every_write]
    for time, key, content in sorted(writes, key=lambda write: write[0]):
        yield step.number, time, [(key, content)]


def _weights_in(key: Key, content: bytes, service: Ref, settings: Settings) -> tuple[BackendWeight, ...]:
    """Return the weights in a TrafficSplit; none if it splits another Service."""
    split = object_info(Ref(SPLIT, key.namespace, key.name), object_in(content), settings)
    if split.apex[0] != str(service):
        return ()
    return tuple(BackendWeight(service=backend.service, weight=backend.weight) for backend in split.backends)
