"""Answers with traffic graphs: reads the counts of a window and the objects, and shares each graph among its requests."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from headgate.errors import HeadgateError
from headgate.latest import Latest
from headgate.objects.ports import Lister
from headgate.plane.live_state import LiveState
from headgate.plane.mirror_comparison import Verdicts
from headgate.plane.object_graphs import SLICE, ObjectGraphs
from headgate.resources.mesh_status import FailingTraffic
from headgate.resources.pod_owners import DEPLOYMENT, POD
from headgate.resources.traffic_graphs import TrafficGraph
from headgate.telemetry.answers.divided_traffic import MeshFacts
from headgate.telemetry.answers.failing_traffic import failing_traffic
from headgate.telemetry.answers.object_graph import SERVICE, ObjectGraph
from headgate.telemetry.answers.traffic_graph import in_namespace, traffic_graph
from headgate.telemetry.counters.flows import Reading, Source

_KINDS = (POD, "ReplicaSet", "Job", "ReplicationController", SLICE, SERVICE, DEPLOYMENT, "StatefulSet", "DaemonSet")
_FAILING_S = 30.0  # the default window of graphs
_RECENT_S = 10.0  # two reports of a proxy on a cluster
_MADE = 4  # the number of graphs that are shared: two of two windows


class _Made(NamedTuple):
    """A graph of the whole mesh, and what it is made from."""

    reading: Reading
    world: ObjectGraph
    facts: MeshFacts
    graph: TrafficGraph


class TrafficGraphs:
    """Makes traffic graphs. Requests for one graph of one Reading share it, and so do the graphs of its namespaces."""

    def __init__(self, live_state: LiveState, objects: Lister, source: Source, verdicts: Latest[Verdicts]) -> None:
        self._live_state = live_state
        self._objects = ObjectGraphs(objects, live_state.loop.settings)
        self._source = source
        self._verdicts = verdicts
        self._made: dict[tuple[str, float], _Made] = {}
        self._making = asyncio.Lock()
        self._search: asyncio.Task[tuple[FailingTraffic, ...]] | None = None

    async def graphs(self, names: Sequence[str], namespace: str, seconds: float) -> tuple[TrafficGraph, ...]:
        """Return the graphs `names` of the last `seconds`: of a namespace, or of the mesh. Raises HeadgateError."""
        return tuple([await self._graph(name, namespace, seconds) for name in names])

    async def failing(self) -> tuple[FailingTraffic, ...]:
        """Return the traffic of the last 30 s that fails. Raises HeadgateError.

        Requests share a search while it runs: its thread does not end with a request that is canceled.
        """
        if self._search is None or self._search.done():
            reading, recent = await asyncio.gather(self._source.read(_FAILING_S), self._recent())
            async with self._making:
                world = await self._objects.graph_of(_KINDS)
            if self._search is None or self._search.done():  # another request may have started one meanwhile
                search = self._find_failing(reading, recent, world)
                self._search = asyncio.create_task(search, name="search for failing traffic")
        return await asyncio.shield(self._search)

    async def _recent(self) -> Reading | None:
        """Return the reading that shows recoveries. The list does not need it."""
        try:
            return await self._source.read(_RECENT_S)
        except HeadgateError:
            return None

    async def _find_failing(
        self, reading: Reading, recent: Reading | None, world: ObjectGraph
    ) -> tuple[FailingTraffic, ...]:
        async with self._making:
            compiled = self._live_state.loop.compiled.get()
            mesh = compiled.mesh if compiled else None
            return await asyncio.to_thread(failing_traffic, reading, world, mesh, recent)

    async def _graph(self, name: str, namespace: str, seconds: float) -> TrafficGraph:
        reading = await self._source.read(seconds)  # a Prometheus may take seconds, in which other graphs are made
        async with self._making:
            made = await self._of_mesh(name, seconds, reading)
            if not namespace:
                return made.graph
            return await asyncio.to_thread(in_namespace, made.graph, namespace, made.world, made.facts)

    async def _of_mesh(self, name: str, seconds: float, reading: Reading) -> _Made:
        world = await self._objects.graph_of(_KINDS)
        made = self._made.pop((name, seconds), None)
        compiled = self._live_state.loop.compiled.get()
        if (
            made is None
            or made.reading is not reading
            or made.world is not world
            or made.facts.compiled is not compiled
        ):
            facts = MeshFacts(compiled, self._live_state.findings_of(), self._verdicts.get())
            # 20,000 flows take 0.2 s, so they must not block the event loop.
            graph = await asyncio.to_thread(traffic_graph, name, reading, world, facts)
            made = _Made(reading, world, facts, graph)
        self._made[name, seconds] = made
        if len(self._made) > _MADE:
            del self._made[next(iter(self._made))]
        return made
