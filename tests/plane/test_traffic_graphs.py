"""Traffic graphs of a running control plane: one graph for all requests of a Reading, new ones after changes (R110)."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from tests.api.metrics.metrics_world import END, FLOWS, stored
from tests.api.running_plane import RunningPlane

from headgate.latest import Latest
from headgate.plane.traffic_graphs import TrafficGraphs
from headgate.resources.traffic_graphs import SERVICES, WORKLOADS
from headgate.telemetry.counters.flows import Reading


class SteadySource:
    """A source whose Reading changes only when `read_again` is called."""

    def __init__(self) -> None:
        self.read_again()

    def read_again(self) -> None:
        self._reading = Reading(end=END, window=30.0, flows=FLOWS)

    async def read(self, seconds: float) -> Reading:
        assert seconds == 30.0
        return self._reading


class SlowSource(SteadySource):
    """A source that does not answer requests for other windows."""

    async def read(self, seconds: float) -> Reading:
        if seconds != 30.0:
            await asyncio.Event().wait()
        return await super().read(seconds)


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
