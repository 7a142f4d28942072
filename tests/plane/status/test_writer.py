"""The status writer with a real store, loop and fleet; tests make each proxy answer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from tests.identity.fakes import FakeIssuer, Time
from tests.make.objects import backed_service, meshed_pod, obj, split
from tests.xds.client import XdsClient

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, StatusCondition
from headgate.envoy.config import ROUTES
from headgate.envoy.view import Node
from headgate.errors import NotFound, Unavailable
from headgate.identity.credentials import Credentials
from headgate.kinds import SPLIT
from headgate.latest import Latest, until
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Change, Ports, follow
from headgate.plane import proxy_status
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import Feed
from headgate.plane.loop import Loop
from headgate.plane.status import finding_events, slices, takeover, work_queue, writer
from headgate.plane.status.writer import CountedStates, StatusWriter
from headgate.resources.decode import check
from headgate.resources.meta import Object
from headgate.resources.registry import Key, key_of
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.fleet import Fleet

GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
SIDECAR = "sidecar/default/client"
WEB, OTHER = Key(SPLIT, "TrafficSplit", "default", "web"), Key(SPLIT, "TrafficSplit", "default", "other")
DEADLINE_S = 60
Status = Mapping[str, Any]


class Disk:
    """A journal that stores nothing; tests can make its disk full."""

    def __init__(self) -> None:
        self.is_full = False

    def load(self) -> tuple[int, Sequence[Object]]:
        return 0, ()

    def check(self) -> None:
        """Report no fault of the disk."""

    def append(self, changes: Sequence[Change]) -> None:
        if self.is_full and any("status" in change.object for change in changes):
            raise Unavailable("the disk is full")


class StatusRig:
    """A control plane without a server; `clients` has the connected proxies."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.disk = Disk()
        self.store, self.fleet = store or MemoryStore(journal=self.disk), Fleet()
        self.credentials = Credentials(FakeIssuer(Time()), Time().schedule())
        self.feed = Feed(self.store)
        self.loop = Loop(self.feed.snapshot, self.fleet, HostProxies([GATEWAY]), Settings(), self.credentials)
        self.of_host: Latest[tuple[Finding, ...]] = Latest(())
        self.compared: Latest[Mapping[Key, tuple[StatusCondition, ...]]] = Latest({})
        self.status = StatusWriter(
            Ports(self.store, EventRecorder(self.store, "headgate"), Latest(value=True), findings=[self.of_host]),
            self.loop,
            self.fleet,
            CountedStates(Latest({}), self.compared, Latest({})),
            self.feed,
        )
        self.clients: dict[str, XdsClient] = {}

    async def write(self, *objects: Object) -> None:
        """Create or replace objects, and wait until they are compiled."""
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
        """Wait until all stored objects are compiled."""
        await self.feed.wait_until_current()
        await until(self._is_built, self.loop.compiled)

    def _is_built(self) -> bool:
        compiled, snapshot = self.loop.compiled.get(), self.feed.snapshot.get()
        return compiled is not None and snapshot is not None and compiled.revision == snapshot.revision

    async def connect(self, *nodes: str) -> None:
        """Connect proxies, which acknowledge all resources that they receive."""
        for node_id in nodes:
            await until(lambda node_id=node_id: node_id in self.fleet.proxies, self.loop.compiled)
            config = self.fleet.proxies[node_id].config
            await until(lambda config=config: config.get() is not None, config)
            self.clients[node_id] = XdsClient(self.fleet.proxies[node_id])
        self.take(*nodes)

    def take(self, *nodes: str, **options: Any) -> None:
        """Make proxies answer all responses that they receive."""
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
    """Return a predicate for statuses of a generation: the message of the condition Programmed contains `text`."""

    def found(status: Status) -> bool:
        messages = [item["message"] for item in status.get("conditions", ()) if item["type"] == "Programmed"]
        return status.get("observedGeneration") == generation and text in messages

    return found


ALL, ONE = "2 of 2 proxies have the configuration", f"1 of 2 proxies have the configuration; waiting for {SIDECAR}"


@asynccontextmanager
async def running(*parts: Feed | Credentials | Loop | StatusWriter) -> AsyncIterator[None]:
    """Run parts of a rig during the block."""
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for further answers and proxies, which every test here has several times."""
    monkeypatch.setattr(writer, "ANSWER_QUIET_SECONDS", 0.02)
    monkeypatch.setattr(work_queue, "MEMBERSHIP_QUIET_SECONDS", 0.02)


@pytest.fixture
async def rig() -> AsyncIterator[StatusRig]:
    found = StatusRig()
    services = [
        item for name in ("web", "other", "v1", "v2") for item in backed_service(name, ("", f"10.1.0.{len(name)}"))
    ]
    async with running(found.feed, found.credentials, found.loop, found.status):
        await found.write(
            *services,
            meshed_pod("client", "10.1.0.9"),
            split("web", {"v1": 9, "v2": 1}),
            split("other", {"v1": 1, "v2": 1}),
        )
        await found.connect(GATEWAY.id, SIDECAR)
        for key in (WEB, OTHER):
            await found.programmed(key, says(ALL))
        async with asyncio.timeout(DEADLINE_S):
            while not found.status.is_idle:  # the full pass after the connections counts as a computation too
                await asyncio.sleep(0.01)
        yield found


@pytest.fixture
async def successor(rig: StatusRig) -> AsyncIterator[StatusRig]:
    """The next process of the control plane, to which the proxies still have to reconnect."""
    found = StatusRig(rig.store)
    async with running(found.feed, found.credentials, found.loop):
        await found.built()
        found.fleet.assume_configured()
        async with running(found.status):
            yield found


async def test_a_new_process_changes_no_status_while_proxies_reconnect(successor: StatusRig) -> None:
    version, computed = (await successor.store.get(OTHER))["metadata"]["resourceVersion"], successor.status.computed
    await until_computed(computed, OTHER, 1)
    await successor.connect(GATEWAY.id, SIDECAR)
    await until_computed(computed, OTHER, 2)
    assert (await successor.store.get(OTHER))["metadata"]["resourceVersion"] == version


async def until_computed(computed: Mapping[Key, int], key: Key, times: int) -> None:
    """Wait until the status of an object has been computed this many times."""
    async with asyncio.timeout(DEADLINE_S):
        while computed[key] < times:
            await asyncio.sleep(0.01)


async def test_a_new_process_writes_the_status_of_a_changed_object_while_proxies_reconnect(
    successor: StatusRig,
) -> None:
    await successor.write(split("web", {"v1": 8, "v2": 2}))
    message = f"0 of 2 proxies have the configuration; waiting for gateway, {SIDECAR}"
    assert await successor.programmed(WEB, says(message, 2)) == ("False", message)


async def test_a_new_process_waits_for_the_proxy_of_a_deleted_pod(
    rig: StatusRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each proxy is disconnected at first; this one may reconnect too, and serves with old configuration until then."""
    monkeypatch.setattr(proxy_status, "REPORT_SECONDS", 3600.0)
    monkeypatch.setattr(takeover, "TAKEOVER_SECONDS", 3600.0)
    await delete_client(rig)
    following = StatusRig(rig.store)
    async with running(following.feed, following.credentials, following.loop):
        await following.built()
        following.fleet.assume_configured()
        async with running(following.status):
            await following.write(split("web", {"v1": 8, "v2": 2}))
            await following.connect(GATEWAY.id)
            state, message = await following.programmed(WEB, lambda status: status.get("observedGeneration") == 2)
            assert (state, message.endswith(SIDECAR)) == ("False", True)  # with the gateway, if it is written before


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait for proxies that have to reconnect."""
    monkeypatch.setattr(takeover, "TAKEOVER_SECONDS", 0.0)


@pytest.mark.usefixtures("impatience")
async def test_a_proxy_that_does_not_reconnect_to_a_new_process_is_named(successor: StatusRig) -> None:
    await successor.connect(GATEWAY.id)
    assert await successor.programmed(OTHER, says(ONE)) == ("False", ONE)


async def test_the_condition_names_lagging_proxies_until_every_proxy_has_acknowledged(rig: StatusRig) -> None:
    await rig.write(split("web", {"v1": 8, "v2": 2}))
    rig.take(GATEWAY.id)
    assert await rig.programmed(WEB, says(ONE, 2)) == ("False", ONE)
    assert await rig.events("web", "WeightsChanged") == []
    rig.take(SIDECAR)
    assert await rig.programmed(WEB, says(ALL, 2)) == ("True", ALL)


async def test_new_weights_cause_an_event_when_every_proxy_has_acknowledged(rig: StatusRig) -> None:
    assert await rig.events("web", "Programmed") == ["every proxy applies these shares: port 8080: v1 90%, v2 10%"]
    for generation, weight in enumerate((2, 3), start=2):
        await rig.write(split("web", {"v1": 10 - weight, "v2": weight}))
        rig.take()
        await rig.programmed(WEB, says(ALL, generation))
    await recorded(rig, "web", "WeightsChanged", "every proxy applies these shares: port 8080: v1 70%, v2 30%")
    assert len(await rig.events("web", "WeightsChanged")) == 2


async def recorded(rig: StatusRig, name: str, reason: str, message: str) -> None:
    """Wait until an Event about an object with this reason and message is stored."""
    async with asyncio.timeout(DEADLINE_S):
        async with aclosing(follow(rig.store, "", "Event")) as steps:
            async for _ in steps:
                if message in await rig.events(name, reason):
                    break


async def test_findings_of_the_host_cause_one_event_and_one_when_they_are_resolved(rig: StatusRig) -> None:
    computed = rig.status.computed[OTHER]
    rig.of_host.set((Finding(WEB, Reason.NO_RESOURCES, "", "exceeded quota: small"),))
    await recorded(rig, "web", "NoResources", "exceeded quota: small")
    rig.of_host.set(())
    message = "the cluster accepts the objects of the proxies now"
    await recorded(rig, "web", "NoResourcesResolved", message)
    assert len(await rig.events("web", "NoResources")) == 1
    assert rig.status.computed[OTHER] == computed


async def test_a_backend_that_got_endpoints_since_the_observation_causes_no_event(
    rig: StatusRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next observation waits for a proxy that has not answered."""
    monkeypatch.setattr(finding_events, "SOON_S", 3600.0)
    service, ready = backed_service("v2", ("", "10.1.0.2"), selector={"app": "v2"})
    await rig.write(service, {**ready, "endpoints": []})
    rig.take()
    await rig.programmed(WEB, lambda status: "NoReadyEndpoints" in str(status))
    monkeypatch.setattr(writer, "ANSWER_QUIET_SECONDS", 3600.0)
    monkeypatch.setattr(writer, "MAX_WAIT_SECONDS", 3600.0)
    await rig.write(ready)
    monkeypatch.setattr(finding_events, "SOON_S", 0.0)
    await until_computed(rig.status.computed, WEB, rig.status.computed[WEB] + 2)
    assert not await rig.events("web", "NoReadyEndpoints")


async def test_the_status_of_an_unaffected_object_is_not_computed(rig: StatusRig) -> None:
    """One weight changes, and every proxy acknowledges the change."""
    computed = rig.status.computed[OTHER]
    for generation, weight in enumerate(range(2, 6), start=2):
        await rig.write(split("web", {"v1": 10 - weight, "v2": weight}))
        rig.take(GATEWAY.id)
        await rig.programmed(WEB, says(ONE, generation))
        rig.take(SIDECAR)
        await rig.programmed(WEB, says(ALL, generation))
    assert rig.status.computed[OTHER] == computed
    assert rig.status.computed[WEB] >= 8


async def test_a_proxy_that_connects_or_disconnects_changes_the_counts_of_every_object(rig: StatusRig) -> None:
    rig.clients.pop(SIDECAR).leave()
    rig.fleet.notify()
    for key in (WEB, OTHER):
        assert await rig.programmed(key, says(ONE)) == ("False", ONE)
    await rig.connect(SIDECAR)
    for key in (WEB, OTHER):
        await rig.programmed(key, says(ALL))
    await rig.write(meshed_pod("more", "10.1.0.10"))
    await rig.connect("sidecar/default/more")
    for key in (WEB, OTHER):
        await rig.programmed(key, says("3 of 3 proxies have the configuration"))


async def delete_client(rig: StatusRig) -> None:
    """Begin to delete the pod of the sidecar; it stays."""
    pod = meshed_pod("client", "10.1.0.9")
    held = {**pod["metadata"], "finalizers": ["example.org/held"]}
    await rig.write({**pod, "metadata": held})
    await rig.store.delete(key_of(pod))
    await rig.built()


async def test_a_disconnected_proxy_counts_until_its_pod_is_being_deleted_and_if_the_pod_stays(
    rig: StatusRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Envoy may have ended, and the kubelet reports that soon; rollouts wait for the condition.

    A kubelet that is cut off reports nothing, and the Envoy of its pod serves with old configuration.
    """
    monkeypatch.setattr(proxy_status, "REPORT_SECONDS", 3600.0)
    await rig.write(split("web", {"v1": 8, "v2": 2}))
    rig.take(GATEWAY.id)
    rig.clients.pop(SIDECAR).leave()
    rig.fleet.notify()
    assert await rig.programmed(WEB, says(ONE, 2)) == ("False", ONE)
    monkeypatch.setattr(writer, "LONGEST_WAIT_S", 0.01)
    await delete_client(rig)
    text = "1 of 1 proxies have the configuration"
    assert await rig.programmed(WEB, says(text, 2)) == ("True", text)
    monkeypatch.setattr(proxy_status, "REPORT_SECONDS", 0.0)
    assert await rig.programmed(WEB, says(ONE, 2)) == ("False", ONE)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer wait for proxies whose stream has ended, which a busy machine can't exceed."""
    monkeypatch.setattr(work_queue, "RECONNECT_SECONDS", 60.0)
    monkeypatch.setattr(work_queue, "MAX_MEMBERSHIP_SECONDS", 60.0)


@pytest.mark.usefixtures("patience")
async def test_a_proxy_that_reconnects_soon_changes_no_status(rig: StatusRig) -> None:
    """Each proxy reconnects once an hour, with a new token."""
    version, computed = (await rig.store.get(OTHER))["metadata"]["resourceVersion"], rig.status.computed[OTHER]
    rig.clients.pop(SIDECAR).leave()
    rig.fleet.notify()
    await rig.write(split("web", {"v1": 8, "v2": 2}))
    rig.take(GATEWAY.id)
    await rig.programmed(WEB, says(ONE, 2))  # so the writer has seen that the stream has ended
    await rig.connect(SIDECAR)
    await until_computed(rig.status.computed, OTHER, computed + 1)
    await rig.programmed(WEB, says(ALL, 2))
    assert (await rig.store.get(OTHER))["metadata"]["resourceVersion"] == version


async def test_statuses_do_not_wait_for_the_requests_of_each_other(
    rig: StatusRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server takes milliseconds for each request. Here, none gets an answer before both have been sent."""
    read, both = rig.store.get, asyncio.Barrier(2)

    async def slow(key: Key) -> Object:
        if key in (WEB, OTHER):
            await both.wait()
        return await read(key)

    monkeypatch.setattr(rig.store, "get", slow)
    rig.of_host.set(tuple(Finding(key, Reason.NO_RESOURCES, "", "exceeded quota") for key in (WEB, OTHER)))
    for name in ("web", "other"):
        await recorded(rig, name, "NoResources", "exceeded quota")


async def test_a_proxy_that_connects_during_a_full_pass_causes_another_full_pass(
    rig: StatusRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(writer, "CONCURRENT", 1)  # a slice writes one object
    rig.clients.pop(SIDECAR).leave()
    rig.fleet.notify()
    async with aclosing(follow(rig.store, SPLIT, "TrafficSplit")) as steps:
        async for step in steps:
            if isinstance(step, Change):
                break
    await rig.connect(SIDECAR)
    for key in (WEB, OTHER):
        await rig.programmed(key, says(ALL))


async def test_the_proxy_of_a_deleted_pod_is_no_longer_counted(rig: StatusRig) -> None:
    await rig.store.delete(key_of(meshed_pod("client", "")))
    for key in (WEB, OTHER):
        await rig.programmed(key, says("1 of 1 proxies have the configuration"))


async def test_programmed_waits_until_proxies_have_acknowledged_changed_endpoints(rig: StatusRig) -> None:
    """The proxies get new endpoints, although the report does not change."""
    await rig.write(*backed_service("v1", ("", "10.1.0.77")))
    rig.take(GATEWAY.id)
    for key in (WEB, OTHER):
        await rig.programmed(key, says(ONE))
    rig.take(SIDECAR)
    for key in (WEB, OTHER):
        await rig.programmed(key, says(ALL))


async def test_a_rejection_and_its_recovery_cause_events(rig: StatusRig) -> None:
    await rig.write(split("web", {"v1": 8, "v2": 2}))
    rig.take(SIDECAR)
    rig.take(GATEWAY.id, refuse={(ROUTES, "outbound/default/web/8080"): "no such locality"})
    text = "1 of 2 proxies have the configuration; gateway rejected the configuration: no such locality"
    assert await rig.programmed(WEB, says(text, 2)) == ("False", text)
    await recorded(
        rig, "web", "EnvoyRejected", "the proxy gateway rejected outbound/default/web/8080: no such locality"
    )
    await rig.write(split("web", {"v1": 7, "v2": 3}))
    rig.take()
    await rig.programmed(WEB, says(ALL, 3))
    await recorded(rig, "web", "EnvoyRejectedResolved", "the edit resolved EnvoyRejected")


async def test_headgate_writes_the_status_of_a_recreated_object(rig: StatusRig) -> None:
    """The recreated object has the same content, so its report does not change."""
    await rig.store.delete(OTHER)
    await rig.store.create(split("other", {"v1": 1, "v2": 1}))
    await rig.built()
    rig.take()
    await rig.programmed(OTHER, says(ALL))


async def test_a_status_overwritten_by_another_writer_is_written_again_after_the_next_build(rig: StatusRig) -> None:
    obj = await rig.store.get(OTHER)
    await rig.store.update({**obj, "status": {"observedGeneration": 99}}, subresource="status")
    await rig.write(split("web", {"v1": 8, "v2": 2}))
    await rig.programmed(OTHER, says(ALL))


async def test_a_failed_write_is_retried(rig: StatusRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.01)
    rig.disk.is_full = True
    computed = rig.status.computed[WEB]
    rig.clients.pop(SIDECAR).leave()
    rig.fleet.notify()
    async with asyncio.timeout(DEADLINE_S):
        while rig.status.computed[WEB] < computed + 3:
            await asyncio.sleep(0)
    rig.disk.is_full = False
    await rig.programmed(WEB, says(ONE))


async def test_the_writer_forgets_a_deleted_object(rig: StatusRig) -> None:
    await rig.store.delete(OTHER)
    await rig.write(split("web", {"v1": 8, "v2": 2}))
    rig.take()
    await rig.programmed(WEB, says(ALL, 2))
    assert OTHER not in rig.status.computed


EDGE = {"gatewayClassName": "headgate", "listeners": [{"name": "web", "port": 8080, "protocol": "HTTP"}]}
RULE = {"backendRefs": [{"name": "web", "port": 8080}], "retry": {"attempts": "three"}}


async def test_mistakes_in_unread_fields_are_reported_and_the_object_still_works(rig: StatusRig) -> None:
    route = obj("HTTPRoute", "edge", spec={"parentRefs": [{"name": "edge"}], "rules": [RULE]})
    assert check(route, request=True).hub is None, "a new object with the mistake is rejected"
    address = {"addresses": [{"type": "IPAddress", "value": "127.9.9.9"}]}
    await rig.write({**obj("Gateway", "edge", spec=EDGE), "status": address}, {**route, "status": {}})
    rig.take()
    message = await accepted(rig, key_of(route))
    assert "spec.rules[0].retry.attempts: must be a whole number, not text" in message
    compiled = rig.loop.compiled.get()
    assert compiled
    (port,) = compiled.mesh.gateways
    assert [route.origin.name for host in port.hosts.values() for route in host.routes if route.origin] == ["edge"]


async def accepted(rig: StatusRig, key: Key) -> str:
    """Wait for the condition Accepted of an object or of its first parent; return its message when it is True."""
    async with asyncio.timeout(DEADLINE_S):
        async with aclosing(follow(rig.store, key.group, key.kind)) as steps:
            async for _ in steps:
                status = (await rig.store.get(key)).get("status") or {}
                conditions = (status.get("parents") or [status])[0].get("conditions") or ()
                if found := [
                    one["message"] for one in conditions if (one["type"], one["status"]) == ("Accepted", "True")
                ]:
                    return str(found[0])
    raise AssertionError("unreachable: the loop ends by returning or by the timeout")
