"""What the status writer writes, when, and for which objects: a real store, loop and fleet, with proxies that answer by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from tests.compiler.pods import obj, pod, service
from tests.identity.world import Signs, Time
from tests.xds.client import Client

from headgate.envoy.config import ROUTES
from headgate.envoy.view import Node
from headgate.errors import NotFound, Unavailable
from headgate.identity.credentials import Credentials
from headgate.kinds import SPLIT
from headgate.latest import Latest, until
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Change, Ports, follow
from headgate.plane.feed import Feed
from headgate.plane.loop import HostProxies, Loop
from headgate.plane.status import writer
from headgate.plane.status.writer import StatusWriter
from headgate.resources.decode import check
from headgate.resources.meta import Object
from headgate.resources.registry import Key, key_of
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.fleet import Fleet

GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
SIDECAR = "sidecar/default/client"
WEB, OTHER = Key(SPLIT, "TrafficSplit", "default", "web"), Key(SPLIT, "TrafficSplit", "default", "other")
DEADLINE_S = 20
Status = Mapping[str, Any]


def split(name: str, **weights: int) -> Object:
    backends = [{"service": service, "weight": weight} for service, weight in weights.items()]
    return obj("TrafficSplit", name, spec={"service": name, "backends": backends})


class Disk:
    """A journal that keeps nothing, on a disk that may be full."""

    def __init__(self) -> None:
        self.is_full = False

    def load(self) -> tuple[int, Sequence[Object]]:
        return 0, ()

    def check(self) -> None:
        """Do nothing."""

    def append(self, changes: Sequence[Change]) -> None:
        if self.is_full and any("status" in change.object for change in changes):
            raise Unavailable("the disk is full")


class World:
    """A control plane without a server; `clients` are the proxies that are connected."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.store, self.fleet = MemoryStore(journal=self.disk), Fleet()
        self.credentials = Credentials(Signs(Time()), Time().schedule())
        self.feed = Feed(self.store)
        self.loop = Loop(self.feed.snapshot, self.fleet, HostProxies([GATEWAY]), Settings(), self.credentials)
        self.status = StatusWriter(
            Ports(self.store, EventRecorder(self.store, "headgate"), Latest(value=True)),
            self.loop,
            self.fleet,
            Latest({}),
        )
        self.clients: dict[str, Client] = {}

    async def write(self, *objects: Object) -> None:
        """Create objects, or replace them; return when they are compiled."""
        for item in objects:
            try:
                old = await self.store.get(key_of(item))
                await self.store.update({**item, "metadata": {**old["metadata"], **item["metadata"]}})
            except NotFound:
                await self.store.create(item)
            if "status" in item:
                await self.store.update(item, subresource="status")
        await self.built()

    async def built(self) -> None:
        """Wait until what is stored is compiled."""
        await self.feed.wait_until_current()
        await until(self._is_built, self.loop.compiled)

    def _is_built(self) -> bool:
        compiled, snapshot = self.loop.compiled.get(), self.feed.snapshot.get()
        return compiled is not None and snapshot is not None and compiled.revision == snapshot.revision

    async def connect(self, *nodes: str) -> None:
        """Let proxies connect, and hold what they are sent."""
        for node_id in nodes:
            await until(lambda node_id=node_id: node_id in self.fleet.proxies, self.loop.compiled)
            config = self.fleet.proxies[node_id].config
            await until(lambda config=config: config.get() is not None, config)
            self.clients[node_id] = Client(self.fleet.proxies[node_id])
        self.take(*nodes)

    def take(self, *nodes: str, **options: Any) -> None:
        """Let proxies take what they are sent."""
        for node_id in nodes or self.clients:
            self.clients[node_id].take(**options)
            self.fleet.notify()

    async def programmed(self, key: Key, wanted: Callable[[Status], bool]) -> tuple[str, str]:
        """Wait for a status; return status and message of its condition Programmed."""
        async with asyncio.timeout(DEADLINE_S):
            async with aclosing(follow(self.store, key.group, key.kind)) as steps:
                async for _ in steps:
                    if wanted(found := (await self.store.get(key)).get("status") or {}):
                        break
        return next((item["status"], item["message"]) for item in found["conditions"] if item["type"] == "Programmed")

    async def events(self, name: str, reason: str) -> list[str]:
        found = (await self.store.list("", "Event")).items
        return [one["message"] for one in found if (one["involvedObject"]["name"], one["reason"]) == (name, reason)]


def says(text: str, generation: int = 1) -> Callable[[Status], bool]:
    """Say whether a status is of a generation, and its condition Programmed has a message."""

    def found(status: Status) -> bool:
        messages = [item["message"] for item in status.get("conditions", ()) if item["type"] == "Programmed"]
        return status.get("observedGeneration") == generation and text in messages

    return found


ALL, ONE = "2 of 2 proxies hold it", f"1 of 2 proxies hold it; waiting for {SIDECAR}"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    work = (found.feed, found.credentials, found.loop, found.status)
    tasks = [asyncio.create_task(part.run()) for part in work]
    services = [item for name in ("web", "other", "v1", "v2") for item in service(name, ("", f"10.1.0.{len(name)}"))]
    await found.write(*services, pod("client", "10.1.0.9"), split("web", v1=9, v2=1), split("other", v1=1, v2=1))
    await found.connect(GATEWAY.id, SIDECAR)
    for key in (WEB, OTHER):
        await found.programmed(key, says(ALL))
    yield found
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_it_is_programmed_when_every_proxy_holds_it_and_says_who_lags_until_then(world: World) -> None:
    await world.write(split("web", v1=8, v2=2))
    world.take(GATEWAY.id)
    assert await world.programmed(WEB, says(ONE, 2)) == ("False", ONE)
    assert await world.events("web", "WeightsChanged") == []
    world.take(SIDECAR)
    assert await world.programmed(WEB, says(ALL, 2)) == ("True", ALL)


async def test_new_weights_are_an_event_once_every_proxy_holds_them(world: World) -> None:
    assert await world.events("web", "Programmed") == ["every proxy holds port 8080: v1 90%, v2 10%"]
    for generation, weight in enumerate((2, 3), start=2):
        await world.write(split("web", v1=10 - weight, v2=weight))
        world.take()
        await world.programmed(WEB, says(ALL, generation))
    await recorded(world, "web", "WeightsChanged", "every proxy holds port 8080: v1 70%, v2 30%")
    assert len(await world.events("web", "WeightsChanged")) == 2


async def recorded(world: World, name: str, reason: str, message: str) -> None:
    """Wait for an Event."""
    async with asyncio.timeout(DEADLINE_S):
        async with aclosing(follow(world.store, "", "Event")) as steps:
            async for _ in steps:
                if message in await world.events(name, reason):
                    break


async def test_an_object_that_nothing_touched_is_not_judged(world: World) -> None:
    """A change of one weight, and every proxy's answer to it."""
    judged = world.status.judged[OTHER]
    for generation, weight in enumerate(range(2, 6), start=2):
        await world.write(split("web", v1=10 - weight, v2=weight))
        world.take(GATEWAY.id)
        await world.programmed(WEB, says(ONE, generation))
        world.take(SIDECAR)
        await world.programmed(WEB, says(ALL, generation))
    assert world.status.judged[OTHER] == judged
    assert world.status.judged[WEB] >= 8


async def test_a_proxy_that_leaves_or_comes_counts_for_every_object(world: World) -> None:
    world.clients.pop(SIDECAR).leave()
    world.fleet.notify()
    for key in (WEB, OTHER):
        assert await world.programmed(key, says(ONE)) == ("False", ONE)
    await world.connect(SIDECAR)
    for key in (WEB, OTHER):
        await world.programmed(key, says(ALL))
    await world.write(pod("more", "10.1.0.10"))
    await world.connect("sidecar/default/more")
    for key in (WEB, OTHER):
        await world.programmed(key, says("3 of 3 proxies hold it"))


async def test_a_proxy_that_comes_in_the_middle_of_a_round_makes_another_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SLICE_SECONDS", 0.0)  # one object at a time
    world.clients.pop(SIDECAR).leave()
    world.fleet.notify()
    async with aclosing(follow(world.store, SPLIT, "TrafficSplit")) as steps:
        async for step in steps:
            if isinstance(step, Change):
                break
    await world.connect(SIDECAR)
    for key in (WEB, OTHER):
        await world.programmed(key, says(ALL))


async def test_a_pod_that_is_gone_counts_no_more(world: World) -> None:
    await world.store.delete(key_of(pod("client", "")))
    for key in (WEB, OTHER):
        await world.programmed(key, says("1 of 1 proxies hold it"))


async def test_endpoints_that_change_are_waited_for_where_they_are_used(world: World) -> None:
    """The report says the same, but the proxies get another resource."""
    await world.write(*service("v1", ("", "10.1.0.77")))
    world.take(GATEWAY.id)
    for key in (WEB, OTHER):
        await world.programmed(key, says(ONE))
    world.take(SIDECAR)
    for key in (WEB, OTHER):
        await world.programmed(key, says(ALL))


async def test_a_refusal_is_told_in_envoys_words_and_the_end_of_it_too(world: World) -> None:
    await world.write(split("web", v1=8, v2=2))
    world.take(SIDECAR)
    world.take(GATEWAY.id, refuse={(ROUTES, "outbound/default/web/8080"): "no such locality"})
    text = "1 of 2 proxies hold it; gateway refused it: no such locality"
    assert await world.programmed(WEB, says(text, 2)) == ("False", text)
    await recorded(
        world, "web", "EnvoyRejected", "the proxy gateway refused outbound/default/web/8080: no such locality"
    )
    await world.write(split("web", v1=7, v2=3))
    world.take()
    await world.programmed(WEB, says(ALL, 3))
    await recorded(world, "web", "EnvoyRejectedResolved", "the edit resolved EnvoyRejected")


async def test_an_object_that_is_made_again_has_its_status_again(world: World) -> None:
    """With the same content, so that no build says anything else of it."""
    await world.store.delete(OTHER)
    await world.store.create(split("other", v1=1, v2=1))
    await world.built()
    world.take()
    await world.programmed(OTHER, says(ALL))


async def test_a_status_that_another_overwrites_is_written_again_with_the_next_build(world: World) -> None:
    obj = await world.store.get(OTHER)
    await world.store.update({**obj, "status": {"observedGeneration": 99}}, subresource="status")
    await world.write(split("web", v1=8, v2=2))
    await world.programmed(OTHER, says(ALL))


async def test_a_write_that_fails_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "AGAIN_SECONDS", 0.01)
    world.disk.is_full = True
    judged = world.status.judged[WEB]
    world.clients.pop(SIDECAR).leave()
    world.fleet.notify()
    async with asyncio.timeout(DEADLINE_S):
        while world.status.judged[WEB] < judged + 3:
            await asyncio.sleep(0)
    world.disk.is_full = False
    await world.programmed(WEB, says(ONE))


async def test_an_object_that_is_gone_is_forgotten(world: World) -> None:
    await world.store.delete(OTHER)
    await world.write(split("web", v1=8, v2=2))
    world.take()
    await world.programmed(WEB, says(ALL, 2))
    assert OTHER not in world.status.judged


STORED = {
    "Gateway": (
        {
            "gatewayClassName": "headgate",
            "listeners": [{"name": "web", "port": 8080, "protocol": "HTTP"}],
            "tls": {"frontend": {"mode": "strict"}},
            "allowedListeners": {"namespaces": "All"},
        },
        ("spec.tls.frontend.default: is missing", "spec.allowedListeners.namespaces: must be an object, not text"),
    ),
    "HTTPRoute": (
        {
            "parentRefs": [{"name": "edge"}],
            "rules": [{"backendRefs": [{"name": "web", "port": 8080}], "retry": {"attempts": "three"}}],
        },
        ("spec.rules[0].retry.attempts: must be a whole number, not text",),
    ),
}
"""What an earlier version stored, which took any content in fields that headgate does not read: spec, and its mistakes."""


async def test_mistakes_in_fields_that_are_not_read_are_named_and_stop_nothing(world: World) -> None:
    edges = [obj(kind, "edge", spec=spec) for kind, (spec, _) in STORED.items()]
    assert [check(edge, request=True).hub for edge in edges] == [None, None], "a new one is refused"
    address = {"addresses": [{"type": "IPAddress", "value": "127.9.9.9"}]}
    await world.write(*({**edge, "status": address if edge["kind"] == "Gateway" else {}} for edge in edges))
    world.take()
    for edge in edges:
        said = await accepted(world, key_of(edge))
        assert [text for text in STORED[edge["kind"]][1] if text not in said] == []
    compiled = world.loop.compiled.get()
    assert compiled
    (port,) = compiled.mesh.gateways
    assert [route.origin.name for host in port.hosts for route in host.routes if route.origin] == ["edge"]


async def accepted(world: World, key: Key) -> str:
    """Wait for the condition Accepted of an object or of its first parent; return its message when it is True."""
    async with asyncio.timeout(DEADLINE_S):
        async with aclosing(follow(world.store, key.group, key.kind)) as steps:
            async for _ in steps:
                status = (await world.store.get(key)).get("status") or {}
                conditions = (status.get("parents") or [status])[0].get("conditions") or ()
                if found := [
                    one["message"] for one in conditions if (one["type"], one["status"]) == ("Accepted", "True")
                ]:
                    return str(found[0])
    raise AssertionError("unreachable: the loop ends by returning or by the timeout")
