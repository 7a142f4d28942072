"""The configurations that the loop publishes (R70), and changes that coalesce while proxies have not answered."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.identity.fakes import FakeIssuer, Time
from tests.make.objects import meshed_pod
from tests.xds.client import XdsClient, outdate

from headgate.compiler.snapshot import Snapshot
from headgate.envoy.config import CLUSTER, Encoded
from headgate.identity.credentials import Credentials
from headgate.latest import Latest, until
from headgate.plane import loop
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import snapshot_of
from headgate.plane.loop import Distribution, Loop
from headgate.resources.meta import Key
from headgate.settings import Settings
from headgate.xds.fleet import EndReason, Fleet, FleetProxy
from headgate.xds.session import Session

SIDECAR = "sidecar/default/web"


class LoopRig:
    """A running loop, with one pod."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.credentials = Credentials(FakeIssuer(Time()), Time().schedule())
        self.snapshot: Latest[Snapshot | None] = Latest(None)
        self.active = Latest(True)
        self.loop = Loop(self.snapshot, self.fleet, HostProxies(), Settings(), self.credentials)

    def place(self, uid: str, *, account: str, address: str = "10.1.0.1") -> None:
        """Replace the pod by a pod with this UID, in one snapshot."""
        found = meshed_pod("web", address, account=account, mode="explicit")
        found["metadata"]["uid"] = uid
        self.snapshot.set(snapshot_of({Key("", "Pod", "default", "web"): found}))

    def addresses(self) -> set[str]:
        """Return the addresses of the pods in the last build."""
        compiled = self.loop.compiled.get()
        return {workload.address for workload in compiled.mesh.workloads} if compiled else set()

    async def proxy(self, *, besides: FleetProxy | None = None) -> FleetProxy:
        """Wait until the pod has a proxy that is configured and is not `besides`; return that proxy."""
        await until(
            lambda: self._is_replaced(besides), self.loop.compiled, self.credentials.current, self.fleet.change_count
        )
        while self.fleet.proxies[SIDECAR].config.get() is None:
            await self.fleet.proxies[SIDECAR].config.next_change().wait()
        return self.fleet.proxies[SIDECAR]

    def _is_replaced(self, besides: FleetProxy | None) -> bool:
        return SIDECAR in self.fleet.proxies and self.fleet.proxies[SIDECAR] is not besides


@pytest.fixture
async def rig() -> AsyncIterator[LoopRig]:
    found = LoopRig()
    tasks = [asyncio.create_task(found.credentials.run()), asyncio.create_task(found.loop.run(found.active))]
    yield found
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("account", ["web", "admin"])
async def test_a_pod_that_replaces_one_of_the_same_name_must_authenticate_and_gets_its_own_key(
    rig: LoopRig, account: str
) -> None:
    """The pod is replaced between two builds. The old pod's stream must not get the new pod's secrets."""
    rig.place("1", account="web")
    before = await rig.proxy()
    key = rig.credentials.current.get()[SIDECAR].key
    endings: list[EndReason] = []
    before.attach(Session(), endings.append)
    rig.place("2", account=account)
    after = await rig.proxy(besides=before)
    assert endings == [EndReason.REMOVED]
    assert before.config.get() is None
    assert after.session is None
    given = rig.loop.credential_of(SIDECAR)
    assert given
    assert given.key != key


async def test_the_same_pod_at_another_address_keeps_its_stream(rig: LoopRig) -> None:
    rig.place("1", account="web")
    before = await rig.proxy()
    config = before.config.get()
    before.attach(Session(), lambda _ending: pytest.fail("the loop ended the stream of the proxy"))
    rig.place("1", account="web", address="10.1.0.2")
    while before.config.get() is config:
        await before.config.next_change().wait()
    assert rig.fleet.proxies[SIDECAR] is before


async def test_changes_coalesce_while_a_proxy_has_not_acknowledged_the_last_change(
    rig: LoopRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("INTERVAL_PER_PROXY_S", "MAX_INTERVAL_S"):
        monkeypatch.setattr(loop, bound, 60.0)
    rig.place("1", account="web")
    proxy = await rig.proxy()
    client = XdsClient(proxy)
    client.take()
    before = proxy.config.get()
    rig.place("1", account="web", address="10.1.0.2")
    while (in_flight := proxy.config.get()) is before:
        await proxy.config.next_change().wait()
    rig.place("1", account="web", address="10.1.0.3")
    snapshot = rig.snapshot.get()
    assert snapshot
    for _ in range(3):  # three compilations take longer than the loop needs to publish a build
        await asyncio.to_thread(rig.loop.compile, snapshot)
    assert proxy.config.get() is in_flight
    client.take()
    rig.fleet.notify()
    while proxy.config.get() is in_flight:
        await proxy.config.next_change().wait()


def test_a_change_is_mostly_distributed_when_half_of_the_proxies_have_acknowledged() -> None:
    fleet = Fleet()
    clients = [_client(fleet, f"sidecar/{number}") for number in range(4)]
    proxies = [client.proxy for client in clients]
    distribution = Distribution()
    for _ in range(2):  # proxies that have not answered the last change also count for the next change
        distribution.begin(proxies)
        for proxy in proxies:
            outdate(proxy, CLUSTER, "one")
        assert not distribution.is_mostly_done()
    clients[0].take()
    assert not distribution.is_mostly_done()
    clients[1].take()
    assert distribution.is_mostly_done()


def test_disconnected_and_new_proxies_do_not_delay_the_next_build() -> None:
    fleet = Fleet()
    away, new = _client(fleet, "away"), _client(fleet, "new", is_served=False)
    away.leave()
    distribution = Distribution()
    distribution.begin([away.proxy, new.proxy])
    assert distribution.is_mostly_done()


def _client(fleet: Fleet, name: str, *, is_served: bool = True) -> XdsClient:
    """Connect a proxy with one cluster in its configuration, which it has acknowledged if `is_served`."""
    proxy = fleet.expect(name)
    proxy.config.set({CLUSTER: {"one": Encoded(b"", "1")}})
    client = XdsClient(proxy)
    if is_served:
        client.take()
    return client


async def test_a_standby_builds_at_once_when_it_becomes_active(rig: LoopRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it combines changes: it serves no proxy."""
    monkeypatch.setattr(loop, "STANDBY_PAUSE_S", 300)
    rig.active.set(False)
    for address in ("10.1.0.1", "10.1.0.2"):
        rig.place("1", account="web", address=address)
        await until(lambda: rig.loop.compiled.get() is not None, rig.loop.compiled)
    rig.active.set(True)
    await until(lambda: rig.addresses() == {"10.1.0.2"}, rig.loop.compiled)
