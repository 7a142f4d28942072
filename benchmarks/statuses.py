"""Measure the CPU time of the status writer, by the number of objects and proxies.

The real writer, store, fleet and sessions run; simulated proxies in this process acknowledge everything. Nearly every
Service has a split, so there are about as many statuses as Services. The CPU time of builds and sessions is excluded.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.build import weighted
from benchmarks.pods import WorkloadAuthority, mesh
from benchmarks.stream import Stream

from headgate.compiler.compile import compile_mesh
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import project, sidecar
from headgate.identity.credentials import Credentials, Schedule
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.keys import FileKeyStore
from headgate.latest import Latest
from headgate.model.routing import Workload
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Ports
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import Feed, snapshot_of
from headgate.plane.loop import Loop
from headgate.plane.status.writer import CountedStates, StatusWriter
from headgate.resources.meta import Key, Object
from headgate.resources.registry import TRAFFIC_SPLIT, key_of
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.fleet import Fleet

BATCH = 20  # proxies that acknowledge in the same turn of the event loop
QUIET_S = 1.0


class Scale(NamedTuple):
    """Pairs of a number of Services and one of proxies, and the number of changed weights.

    `later` proxies connect one by one after all other proxies.
    """

    sizes: Sequence[tuple[int, int]]
    weights: int
    later: int


USUAL = Scale(sizes=((100, 100), (300, 300)), weights=5, later=10)
SMALLEST = Scale(sizes=((3, 2),), weights=1, later=1)


class Lab:
    """A control plane that compiles when `build` is called, and its proxies."""

    def __init__(self, services: int, proxies: int) -> None:
        self._objects: dict[Key, Object] = {key_of(item): item for item in mesh(services, proxies, "transparent")}
        for number in range(services - 2):
            item = weighted(number, 90)
            self._objects[key_of(item)] = item
        self.store, self._fleet, self._memo = MemoryStore(), Fleet(), Memo()
        credentials = Credentials(
            EmbeddedIssuer(FileKeyStore(Path("unused")), "cluster.local", clock=time.time), Schedule(clock=time.time)
        )
        self._loop = Loop(Latest(None), self._fleet, HostProxies(), Settings(), credentials)
        self.writer = StatusWriter(
            Ports(self.store, EventRecorder(self.store, "headgate"), Latest(value=True)),
            self._loop,
            self._fleet,
            CountedStates(Latest({}), Latest({}), Latest({})),
            Feed(self.store),
        )
        self._authority = WorkloadAuthority()
        self._streams: dict[str, Stream] = {}
        self._workloads: Sequence[Workload] = ()
        self.spent = 0.0  # CPU seconds of everything except the writer

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Exclude the CPU time of the `with` block from the status writer's CPU time."""
        began = time.process_time()
        yield
        self.spent += time.process_time() - began

    async def fill(self) -> None:
        """Store all objects of the mesh."""
        for item in self._objects.values():
            await self.store.create(item)

    async def change(self, number: int, weight: int) -> Key:
        """Change a weight and build; return the key of the split."""
        with self.apart():
            key = key_of(item := weighted(number, weight))
            self._objects[key] = await self.store.update(item)
            self.build()
        return key

    def build(self) -> None:
        """Compile, and configure every proxy."""
        compiled = compile_mesh(snapshot_of(self._objects), Settings())
        self._memo.begin_build()
        self._workloads = compiled.mesh.workloads
        for item in self._workloads:
            node = sidecar(item)
            config = encode(project(compiled.mesh, node, self._authority.credential(item)), self._memo)
            self._fleet.expect(node.id).config.set(config)
        self._loop.compiled.set(compiled)

    async def deliver(self, first: int = 0, last: int | None = None) -> None:
        """Connect proxies, which acknowledge every response; the status writer runs in between."""
        for number, item in enumerate(self._workloads[first:last]):
            with self.apart():
                proxy = self._fleet.expect(sidecar(item).id)
                stream = self._streams.setdefault(proxy.id, Stream())
                if proxy.session is None:
                    proxy.attach(stream.session, lambda _: None)
                config = proxy.config.get()
                if config is not None:
                    stream.deliver(config)
                self._fleet.notify()
            if number % BATCH == 0:
                await asyncio.sleep(0)

    async def programmed(self, keys: Sequence[Key], message: str) -> None:
        """Wait until objects are programmed with this message."""
        for key in keys:
            while not await self._says(key, message):
                await asyncio.sleep(0.005)

    async def _says(self, key: Key, message: str) -> bool:
        obj = await self.store.get(key)
        status = obj.get("status") or {}
        if status.get("observedGeneration") != obj["metadata"]["generation"]:
            return False
        return any(item["type"] == "Programmed" and item["message"] == message for item in status["conditions"])

    @property
    def computed(self) -> int:
        """Return the number of statuses computed so far."""
        return sum(self.writer.computed.values())

    @property
    def splits(self) -> list[Key]:
        """Return the keys of all splits."""
        return [key for key in self._objects if key.group == TRAFFIC_SPLIT.group]


async def _row(services: int, proxies: int, scale: Scale) -> None:
    lab = Lab(services, proxies)
    await lab.fill()
    lab.build()
    work = asyncio.create_task(lab.writer.run())

    async def cost(number: int) -> float:
        """Return the status writer's CPU milliseconds since the last call, divided by the number of events."""
        await asyncio.sleep(QUIET_S)
        spent, lab.spent = time.process_time() - began[0] - lab.spent, 0.0
        began[0] = time.process_time()
        return 1000 * spent / number

    began = [time.process_time()]
    await lab.deliver(0, -scale.later)
    await lab.programmed(
        lab.splits, f"{proxies - scale.later} of {proxies - scale.later} proxies have the configuration"
    )
    first = await cost(proxies - scale.later)
    for later in range(scale.later, 0, -1):
        await lab.deliver(-later, 1 - later or None)
        await asyncio.sleep(0.1)
    await lab.programmed(lab.splits, f"{proxies} of {proxies} proxies have the configuration")
    further = await cost(scale.later)
    weights, waits, computed = [], [], lab.computed
    for weight in range(1, scale.weights + 1):
        key = await lab.change(0, weight)
        written = time.monotonic()
        await lab.deliver()
        await lab.programmed([key], f"{proxies} of {proxies} proxies have the configuration")
        waits.append(1000 * (time.monotonic() - written))
        weights.append(await cost(1))
    work.cancel()
    columns = (
        first,
        further,
        statistics.median(weights),
        statistics.median(waits),
        (lab.computed - computed) / scale.weights,
    )
    print(
        f"{f'{services} Services, {proxies} proxies':30} " + " ".join(f"{column:12.1f}" for column in columns),
        flush=True,
    )


async def measure(scale: Scale) -> None:
    """Print a row for each size: CPU milliseconds per proxy while all connect, per later proxy, and per change to a weight.

    The last columns are the time until the new weight is in the status, and the number of statuses computed for it.
    """
    names = ("connecting", "one more", "one weight", "programmed", "computed")
    print(f"{'milliseconds':30} " + " ".join(f"{name:>12}" for name in names))
    for services, proxies in scale.sizes:
        await _row(services, proxies, scale)
