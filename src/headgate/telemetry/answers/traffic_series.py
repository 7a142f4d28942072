"""The traffic of an object over time, from stored windows: sums by step, for the object and for each backend of its calls."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headgate.resources.meta import precise_timestamp
from headgate.resources.pod_owners import Ref
from headgate.resources.traffic_series import BackendSeries, ResponseCount, TrafficPoint
from headgate.telemetry.answers.answers import SHARES, Answers, Traffic
from headgate.telemetry.answers.object_graph import SERVICE, ObjectGraph
from headgate.telemetry.counters.blocks import StoredWindow, WindowCounts
from headgate.telemetry.counters.counts import Counts, is_failure
from headgate.telemetry.counters.flows import Flow
from headgate.telemetry.counters.histogram import percentiles

_ONE_REQUEST = Counts.of({0: 1})
_NOTHING = Counts()


class _Series(NamedTuple):
    """A series to which a flow adds: that of the object, with an empty `backend`, or that of a backend."""

    backend: str
    copy: bool


class SeriesSums:
    """The sums of an object's flows by step of `step` seconds. A step begins at a multiple of its length.

    `windows` has the windows that were added. A window belongs to the step of its middle.
    """

    def __init__(self, ref: Ref, step: float) -> None:
        self._ref = ref
        self._step = step
        self._series_of: dict[Flow, Sequence[_Series]] = {}
        self._ends: dict[int, tuple[float, float]] = {}
        self._sums: dict[_Series, dict[int, Counts]] = {}
        self.windows: list[StoredWindow] = []

    def assign(self, flows: Iterable[Flow], graph: ObjectGraph) -> None:
        """Find the series to which flows add, by the objects in `graph`, before windows with these flows are added."""
        new = dict.fromkeys((flow for flow in flows if flow not in self._series_of), _ONE_REQUEST)
        received = {flow for flow, _ in Answers(Traffic(new), graph).received_flows(self._ref)}
        for flow in new:
            self._series_of[flow] = [
                *([_Series("", flow.copy)] if flow in received else ()),
                *([_Series(flow.backend, copy=False)] if self._is_call(flow) and flow.backend else ()),
            ]

    def selects(self, flow: Flow) -> bool:
        """Return whether a flow adds to a series."""
        return bool(self._series_of[flow])

    def add(self, windows: Iterable[WindowCounts]) -> None:
        """Add the selected flows of windows, oldest first."""
        for window, counts_of in windows:
            self.windows.append(window)
            step = int(window.middle // self._step)
            self._ends[step] = self._ends.get(step, (window.start, 0.0))[0], window.end
            for flow, counts in counts_of.items():
                for series in self._series_of[flow]:
                    sums = self._sums.setdefault(series, {})
                    before = sums.get(step)
                    sums[step] = before.plus(counts) if before else counts

    def points(self) -> tuple[TrafficPoint, ...]:
        """Return the points of the object."""
        return tuple(self._points(""))

    def backends(self) -> tuple[BackendSeries, ...]:
        """Return the points of each backend that answered calls to a Service, sorted by name."""
        names = sorted({series.backend for series in self._sums if series.backend})
        return tuple(BackendSeries(service=name, points=tuple(self._points(name))) for name in names)

    def notes(self) -> Mapping[str, int]:
        """Return the numbers of events that made counts incomplete."""
        notes: Counter[str] = Counter()
        for window in self.windows:
            notes.update(window.notes)
        return notes

    def _is_call(self, flow: Flow) -> bool:
        return self._ref.kind == SERVICE and not flow.copy and flow.service == str(self._ref)

    def _points(self, backend: str) -> Iterator[TrafficPoint]:
        users, copies = (self._sums.get(_Series(backend, copy), {}) for copy in (False, True))
        for step, (start, end) in sorted(self._ends.items()):
            yield _point(start, end, users.get(step, _NOTHING), copies.get(step, _NOTHING))


def _point(start: float, end: float, counts: Counts, copies: Counts) -> TrafficPoint:
    latencies = percentiles(counts.latency, SHARES) or (None, None, None)
    p50, p90, p99 = (None if seconds is None else round(seconds * 1e6) for seconds in latencies)
    return TrafficPoint(
        start_time=precise_timestamp(start),
        end_time=precise_timestamp(end),
        requests=counts.success + counts.failure + counts.denied,
        failures=counts.failure,
        denied=counts.denied,
        client_errors=counts.client_errors,
        connections=counts.connections,
        failed_connections=counts.unreached,
        denied_connections=counts.denied_connections,
        copies=copies.success + copies.failure,
        failed_copies=copies.failure,
        p50_microseconds=p50,
        p90_microseconds=p90,
        p99_microseconds=p99,
        responses=tuple(
            ResponseCount(response_class=name, count=count, failure=is_failure(name)) for name, count in counts.classes
        ),
    )
