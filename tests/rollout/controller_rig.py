"""Run the rollout controller on a store in memory, with requests and acknowledgments of tests."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests import virtual_time
from tests.make.objects import port as service_port
from tests.make.objects import service
from tests.make.rollouts import state_of

from headgate.compiler.snapshot import Snapshot
from headgate.errors import Gone, NotFound, Unavailable
from headgate.latest import Latest, until
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Change, Ports, follow
from headgate.plane.feed import snapshot_of
from headgate.resources.meta import Key, Object
from headgate.resources.registry import ROUTE_GROUP, TRAFFIC_SPLIT, key_of
from headgate.resources.smi.split_fields import MIRROR
from headgate.rollout.controller import RolloutController
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow, Peer
from headgate.telemetry.increments import Increments

POD = Peer(pod="default/client")


class FlakyStore(MemoryStore):
    """A store whose next writes of a status of a Canary fail, whose updates wait while it is slow, and whose watches can break."""

    failing = 0

    def __init__(self) -> None:
        super().__init__()
        self._broken: Latest[bool] = Latest(value=False)
        self.slow: Latest[bool] = Latest(value=False)

    async def update(self, obj: Object, **options: Any) -> Object:
        if self.failing and obj["kind"] == "Canary" and options.get("subresource"):
            self.failing -= 1
            raise Unavailable("the API server does not answer")
        await until(lambda: not self.slow.get(), self.slow)
        return await super().update(obj, **options)

    async def watch(self, group: str, kind: str, namespace: str = "", *, since: str) -> AsyncGenerator[Change]:
        async with contextlib.aclosing(super().watch(group, kind, namespace, since=since)) as changes:
            async for change in changes:
                if self._broken.get():
                    await until(lambda: not self._broken.get(), self._broken)
                    raise Gone("the watch has expired")
                yield change

    @asynccontextmanager
    async def broken_watches(self) -> AsyncIterator[None]:
        """Report no changes meanwhile; readers must list again afterwards."""
        self._broken.set(True)
        yield
        await asyncio.sleep(1)
        self._broken.set(False)


def request_of(command: str) -> Object:
    """Return the request in `ACTION/ID`."""
    action, _, number = command.partition("/")
    return {"action": action, "id": number}


class RolloutRig:
    """A store, the requests, and proxies that acknowledge each split at once while `acknowledging` is set."""

    def __init__(self) -> None:
        self.store = FlakyStore()
        self.increments = Increments()
        self.snapshot: Latest[Snapshot | None] = Latest(None)
        self.acknowledging = asyncio.Event()
        self.acknowledging.set()
        self.writes = 0

    @asynccontextmanager
    async def replica(self) -> AsyncIterator[None]:
        """Run a control plane's rollout controller; it is killed at the end."""
        ports = Ports(self.store, EventRecorder(self.store, "headgate"), Latest(value=True))
        clock = asyncio.get_running_loop().time
        controller = RolloutController(
            ports, self.increments, self.snapshot, "cluster.local", clock=lambda: 1000 + clock()
        )
        tasks = [asyncio.create_task(controller.run()), asyncio.create_task(self._acknowledge())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def create(self, obj: Object) -> Key:
        return key_of(await self.store.create(obj))

    async def serve(self, *names: str) -> None:
        """Create Services, and let the compiler know them."""
        for name in names:
            await self.store.create(service(name, service_port(8080, "http", app="http")))
        await self.know()

    async def know(self) -> None:
        """Let the compiler know the stored Services."""
        known = {key_of(obj): obj for obj in (await self.store.list("", "Service")).items}
        self.snapshot.set(snapshot_of(known, 1))

    async def status(self, key: Key) -> Mapping[str, Any]:
        found: Mapping[str, Any] = (await self.store.get(key)).get("status") or {}
        return found

    async def conditions(self, key: Key) -> set[str]:
        return {f"{item['type']}={item['status']}" for item in (await self.status(key))["conditions"]}

    async def weights(self, name: str = "website") -> Mapping[str, int] | None:
        try:
            split = await self.store.get(TRAFFIC_SPLIT.key("default", name))
        except NotFound:
            return None
        return {backend["service"]: backend["weight"] for backend in split["spec"]["backends"]}

    async def events(self) -> list[str]:
        return [event["reason"] for event in (await self.store.list("", "Event")).items]

    async def match(self) -> tuple[Object, Object] | None:
        """Return the group and the split of a step with matches; None without them."""
        kinds = ROUTE_GROUP, TRAFFIC_SPLIT
        try:
            group, split = [await self.store.get(kind.key("default", "website-match")) for kind in kinds]
        except NotFound:
            return None
        return group["spec"], split["spec"]

    async def mirror(self) -> str | None:
        """Return the annotation of the split with the copies of its canary."""
        split = await self.store.get(TRAFFIC_SPLIT.key("default", "website"))
        found: str | None = split["metadata"]["annotations"].get(MIRROR)
        return found

    async def command(self, key: Key, command: str) -> None:
        """Write a request of a user, `ACTION/ID`, to a Canary."""
        obj = await self.store.get(key)
        await self.store.update({**obj, "spec": {**obj["spec"], "request": request_of(command)}})

    async def until_state(self, key: Key, state: str) -> None:
        """Wait until the status has a state. The time of a real webhook passes meanwhile."""
        while state_of(await self.status(key)) != state:
            await asyncio.sleep(0.01)

    async def load(self, seconds: int, copies: Counts | None = None, **backends: Counts) -> None:
        """Send requests, and copies by the owned split for v2, in each of a few seconds."""
        for _ in range(seconds):
            if copies:
                flow = Flow(source=POD, destination=POD, service="default/v2", backend="default/v2", copy=True)
                self.increments.add(flow, copies, "default/website")
            for backend, counts in backends.items():
                self.increments.add(
                    Flow(source=POD, destination=POD, service="default/website", backend=f"default/{backend}"), counts
                )
            await asyncio.sleep(1)

    async def _acknowledge(self) -> None:
        async for step in follow(self.store, TRAFFIC_SPLIT.group, TRAFFIC_SPLIT.kind):
            await self.acknowledging.wait()
            for obj in [step.object] if isinstance(step, Change) else step.items:
                generation = obj["metadata"]["generation"]
                condition = {"type": "Programmed", "status": "True", "observedGeneration": generation}
                status = {
                    "conditions": [
                        {
                            **condition,
                            "reason": "Programmed",
                            "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z",
                        }
                    ]
                }
                with contextlib.suppress(NotFound):
                    await self.store.update({**obj, "status": status}, subresource="status")


def run(scenario: Callable[[RolloutRig], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario with a rig in virtual time."""
    virtual_time.run(scenario(RolloutRig()))
