"""Traffic graphs of a running control plane: one graph for all requests of a Reading, new ones after changes (R110)."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.api.metrics.metrics_world import END, FLOWS, stored
from tests.api.running_plane import RunningPlane

from headgate.errors import HeadgateError
from headgate.latest import Latest
from headgate.plane.traffic_graphs import TrafficGraphs
from headgate.resources.traffic_graphs import SERVICES, WORKLOADS
from headgate.telemetry.answers.failing_traffic import failing_traffic
from headgate.telemetry.counters.flows import Reading


class SteadySource:
    """A source whose Reading changes only when `read_again` is called."""

    def __init__(self) -> None:
        self.read_again()

    def read_again(self) -> None:
        self._reading = Reading(end=END, window=30.0, flows=FLOWS)

    async def read(self, seconds: float, end: float | None = None) -> Reading:
        assert (seconds, end) == (30.0, None)
        return self._reading


class SlowSource(SteadySource):
    """A source that does not answer requests for other windows."""

    async def read(self, seconds: float, end: float | None = None) -> Reading:
        if seconds != 30.0 or end:
            await asyncio.Event().wait()
        return await super().read(seconds)


class AnySource(SteadySource):
    """A source with the same flows in each window."""

    async def read(self, seconds: float, end: float | None = None) -> Reading:
        return Reading(end=end or END, window=seconds, flows=FLOWS)


class PairSource(SteadySource):
    """A source that answers only when two windows are requested at once. `recent` ends the read of the shorter one."""

    def __init__(self, recent: Exception | None = None) -> None:
        super().__init__()
        self._recent = recent
        self._requested = asyncio.Barrier(2)

    async def read(self, seconds: float, end: float | None = None) -> Reading:
        await self._requested.wait()
        if seconds == 30.0:
            return self._reading
        if self._recent:
            raise self._recent
        return Reading(end=end or END, window=seconds, flows=FLOWS)


@pytest_asyncio.fixture
async def plane() -> AsyncIterator[RunningPlane]:
    running = RunningPlane(await stored())
    await running.live_state.wait_compiled()
    yield running
    running.stop()


async def test_requests_for_one_reading_share_a_graph_until_counts_or_objects_change(plane: RunningPlane) -> None:
    source, store = SteadySource(), plane.live_state.store
    graphs = TrafficGraphs(plane.live_state, store, source, Latest({}))
    first, workloads = await graphs.graphs((SERVICES, WORKLOADS), "", 30.0)
    assert [graph.metadata.name for graph in (first, workloads)] == [SERVICES, WORKLOADS]
    assert [len(split.backends) for split in first.status.splits] == [2]
    assert (await graphs.graphs((SERVICES,), "", 30.0))[0] is first
    (part,) = await graphs.graphs((SERVICES,), "default", 30.0)
    assert (part.metadata.namespace, part.status.edges) == ("default", first.status.edges)
    source.read_again()
    second = (await graphs.graphs((SERVICES,), "", 30.0))[0]
    assert second is not first
    assert second == first


async def test_a_graph_does_not_wait_for_the_counts_of_another_window(plane: RunningPlane) -> None:
    graphs = TrafficGraphs(plane.live_state, plane.live_state.store, SlowSource(), Latest({}))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        slow = group.create_task(graphs.graphs((SERVICES,), "", 60.0))
        await asyncio.sleep(0)
        assert len(await graphs.graphs((SERVICES,), "", 30.0)) == 1
        slow.cancel()


async def test_failing_traffic_needs_no_reading_of_the_last_seconds(plane: RunningPlane) -> None:
    """Both windows are read at once, because each read of a Prometheus takes time."""
    async with asyncio.timeout(60):
        rows = [
            await TrafficGraphs(plane.live_state, plane.live_state.store, source, Latest({})).failing()
            for source in (PairSource(), PairSource(HeadgateError("no answer")))
        ]
    assert rows[0]
    assert rows[1] == rows[0]


async def test_a_search_for_failing_traffic_outlives_its_request_and_is_shared(
    plane: RunningPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread can't be stopped: a second one beside it would make both slower."""
    may_end, began, searches = threading.Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def slow_search(*arguments: Any) -> Any:
        searches.append(arguments)
        loop.call_soon_threadsafe(began.set)
        may_end.wait()
        return failing_traffic(*arguments)

    monkeypatch.setattr("headgate.plane.traffic_graphs.failing_traffic", slow_search)
    graphs = TrafficGraphs(plane.live_state, plane.live_state.store, AnySource(), Latest({}))
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            first = group.create_task(graphs.failing())
            await began.wait()
            first.cancel()
            later = [group.create_task(graphs.failing()) for _ in range(3)]
            await asyncio.wait([first])
            may_end.set()
    finally:
        may_end.set()
    assert first.cancelled()
    assert len(searches) == 1
    assert all(task.result() is later[0].result() for task in later)
    assert await graphs.failing() == later[0].result()
    assert len(searches) == 2
