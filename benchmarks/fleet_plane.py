"""The control plane process of `benchmarks/fleet.py`: store, feed, loop, certificates, statuses and gRPC server.

The process has the parts of `headgate up` without Envoys, workloads and the HTTP API.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import build
from benchmarks.pods import APPLICATION_PORT, PORT, meshed
from tests.delivery import is_programmed
from tests.make import objects
from tests.make.objects import Object

from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.keys import FileKeyStore
from headgate.latest import Latest
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Ports
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import Feed
from headgate.plane.live_state import LiveState
from headgate.plane.loop import Loop
from headgate.plane.status.writer import CountedStates, StatusWriter
from headgate.plane.trust import Trust
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.authentication import LocalTokens
from headgate.xds.fleet import Fleet, FleetProxy
from headgate.xds.server import XdsServer

ENDPOINTS = 10  # endpoints of each Service
TICK_S = 0.01


def mesh(services: int, proxies: int) -> Iterator[Object]:
    """Yield Services with ten endpoints each; one in ten has a split.

    The first endpoints are pods with transparent sidecars.
    """
    for item in build.services(services):
        name = item["metadata"]["name"]
        if item["kind"] == "EndpointSlice":
            number = int(name.removeprefix("service-"))
            addresses = [f"10.{place}.{number // 250}.{number % 250 + 1}" for place in range(ENDPOINTS)]
            pods = [f"{name}-{place}" if number + place * services < proxies else "" for place in range(ENDPOINTS)]
            item["endpoints"] = list(map(objects.endpoint, addresses, pods))
            for pod, address in zip(filter(None, pods), addresses, strict=False):
                yield meshed(pod, address, {PORT: APPLICATION_PORT}, "transparent")
        yield item


def node_ids(services: int, proxies: int) -> list[str]:
    """Return the node IDs of the proxies of a mesh."""
    return [f"sidecar/default/service-{number % services}-{number // services}" for number in range(proxies)]


class Plane:
    """A control plane that serves on a unix socket in a directory."""

    def __init__(self, tasks: asyncio.TaskGroup, directory: Path, secret: bytes) -> None:
        logging.disable()  # the fleet's counts replace the log messages
        self._socket = directory / "xds.sock"
        self._secret = secret
        self._tasks = tasks
        self._store = MemoryStore()
        self._fleet = Fleet()
        self._feed = Feed(self._store)
        issuer = EmbeddedIssuer(FileKeyStore(directory / "authority"), Settings().trust_domain, clock=time.time)
        trust = Trust(issuer, Settings())
        self._loop = Loop(self._feed.snapshot, self._fleet, HostProxies(), Settings(), trust.credentials)
        self._live_state = LiveState(self._store, self._feed, self._loop, self._fleet)
        self._trust = trust
        self._late = 0.0

    async def start(self, services: int, proxies: int) -> dict[str, list[str]]:
        """Build a mesh and serve it; return the resource names to which proxies may subscribe, by type."""
        for item in mesh(services, proxies):
            await self._store.create(item)
            if "status" in item:
                await self._store.update(item, subresource="status")
        ports = Ports(self._store, EventRecorder(self._store, "headgate"), Latest(value=True))
        counted = CountedStates(Latest({}), Latest({}), Latest({}))
        status = StatusWriter(ports, self._loop, self._fleet, counted, self._feed)
        fleet_known = asyncio.Event()
        trust = self._trust.run(ports, self._loop, self._fleet, fleet_known)
        for work in (self._feed.run(), trust, self._loop.run(), status.run(), self._tick()):
            self._tasks.create_task(work)
        await self._live_state.wait_compiled()
        while any(proxy.config.get() is None for proxy in self._fleet.proxies.values()):
            await asyncio.sleep(TICK_S)
        self._fleet.assume_configured()
        fleet_known.set()
        self._server = XdsServer(self._fleet, LocalTokens(self._secret))
        await self._server.start(f"unix:{self._socket}")
        config = next(iter(self._fleet.proxies.values())).config.get() or {}
        return {type_url: list(resources) for type_url, resources in config.items()}

    async def _tick(self) -> None:
        """Record for how long the event loop was blocked."""
        while True:
            due = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self._late = max(self._late, time.monotonic() - due)

    async def write(self, number: int, weight: int) -> tuple[float, int]:
        """Change a weight of a split; return the time of the write and the split's generation."""
        key = TRAFFIC_SPLIT.key("default", f"service-{number}")
        obj = await self._store.get(key)
        began = time.monotonic()
        stored = await self._store.update({**obj, "spec": build.weighted(number, weight)["spec"]})
        return began, int(stored["metadata"]["generation"])

    async def programmed(self, number: int, generation: int) -> float:
        """Wait until a split's status says that every proxy applies a generation; return `time.monotonic()`."""
        key, version = TRAFFIC_SPLIT.key("default", f"service-{number}"), str(self._store.revision)
        if is_programmed(await self._store.get(key), generation):
            return time.monotonic()
        async for change in self._store.watch(key.group, key.kind, since=version):
            if change.key == key and is_programmed(change.object, generation):
                break
        return time.monotonic()

    async def settled(self) -> float:
        """Wait until every proxy is in sync and every split is programmed; return the time (`time.monotonic`)."""
        late: FleetProxy | None = None
        while late := self._fleet.find(lambda proxy: not proxy.settled(), late):
            await self._fleet.change_count.next_change().wait()
        for obj in (await self._store.list(*_SPLIT)).items:
            await self.programmed(_number(obj["metadata"]["name"]), obj["metadata"]["generation"])
        return time.monotonic()

    async def storm(self, writes: int, seconds: float) -> dict[str, float]:
        """Change weights of splits at a steady rate; return CPU seconds, and seconds until all changes are active."""
        splits = [obj["metadata"]["name"] for obj in (await self._store.list(*_SPLIT)).items]
        began, used = time.monotonic(), time.process_time()
        for count in range(writes):
            number = _number(splits[count % len(splits)])
            await self.write(number, count * 7 % 99 + 1)
            await asyncio.sleep(max(0.0, began + (count + 1) * seconds / writes - time.monotonic()))
        spent, middle = time.process_time() - used, time.monotonic()
        await self.settled()
        return {"processor": spent, "wall": middle - began, "after": time.monotonic() - middle}

    def begin(self) -> dict[str, float]:
        """Reset the peak memory and the longest time that the event loop was blocked; return the result of `usage`."""
        self._late = 0.0
        Path("/proc/self/clear_refs").write_text("5")
        return self.usage()

    def usage(self) -> dict[str, float]:
        """Return CPU seconds, MB of memory, counts of the fleet, and the longest time that the event loop was blocked."""
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return {
            "processor": time.process_time(),
            "memory": int(status["VmRSS"].split()[0]) / 1000,
            "peak": int(status["VmHWM"].split()[0]) / 1000,
            "streams": self._fleet.counts["streams"],
            "answers": self._fleet.counts["acks"] + self._fleet.counts["nacks"],
            "nacks": self._fleet.counts["nacks"],
            "overdue": self._fleet.counts["overdue"],
            "held up": self._late,
        }


_SPLIT = (TRAFFIC_SPLIT.group, TRAFFIC_SPLIT.kind)


def _number(name: str) -> int:
    return int(name.removeprefix("service-"))
