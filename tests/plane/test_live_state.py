"""Questions about a headgate that runs: who is waited for, and who is not."""

import asyncio
from collections.abc import Callable

import pytest
from tests.compiler.pods import compiled
from tests.identity.world import Signs, Time

from headgate.compiler.snapshot import Snapshot
from headgate.envoy.config import CLUSTER
from headgate.envoy.view import Node
from headgate.identity.credentials import Credentials
from headgate.latest import Latest
from headgate.plane.feed import Feed
from headgate.plane.live_state import LiveState
from headgate.plane.loop import HostProxies, Loop
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.fleet import Fleet
from headgate.xds.session import Session

GATEWAY, SIDECAR = "gateway", "sidecar/default/web"


@pytest.fixture
def live_state() -> LiveState:
    """A machine whose gateway holds everything, and that has compiled nothing but an empty store."""
    store, fleet = MemoryStore(), Fleet()
    feed = Feed(store)
    loop = Loop(
        Latest(None), fleet, HostProxies([Node(id=GATEWAY)]), Settings(), Credentials(Signs(Time()), Time().schedule())
    )
    found = LiveState(store, feed, loop, fleet)
    feed.snapshot.set(Snapshot())
    loop.compiled.set(compiled())
    connect(fleet, GATEWAY)
    return found


def connect(fleet: Fleet, node: str, *, told: bool = True) -> None:
    proxy = fleet.expect(node)
    session = Session()
    session.shelves[CLUSTER].wildcard = True  # it has asked for its clusters
    proxy.attach(session, lambda _ending: None)
    if told:
        proxy.config.set({})


async def is_over(begun: Callable[[], object]) -> bool:
    """Say whether a wait is over as soon as everything has happened that was to happen."""
    waiting = asyncio.ensure_future(begun())  # type: ignore[arg-type,var-annotated]
    for _ in range(10):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    return done


async def test_a_proxy_that_never_connects_is_waited_for_by_nobody(live_state: LiveState) -> None:
    live_state.fleet.expect(SIDECAR)
    assert await is_over(live_state.wait_distributed)
    assert await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))


async def test_a_pod_ends_when_those_know_it_who_are_away_and_go_on_with_what_they_have(live_state: LiveState) -> None:
    """After a restart of headgate its proxies come back one after the other; until then they send where they always did."""
    live_state.fleet.expect(SIDECAR)
    live_state.fleet.recall()
    assert await is_over(live_state.wait_distributed)
    assert not await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))
    connect(live_state.fleet, SIDECAR)
    assert await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))
    sidecar = live_state.fleet.proxies[SIDECAR]
    assert sidecar.session
    sidecar.detach(sidecar.session)
    assert not await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))


async def test_nothing_is_in_force_before_the_gateway_is_there(live_state: LiveState) -> None:
    connect(live_state.fleet, SIDECAR)
    gateway = live_state.fleet.proxies[GATEWAY]
    assert gateway.session
    gateway.detach(gateway.session)
    assert not await is_over(live_state.wait_distributed)
    assert not await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))


async def test_one_that_waits_for_its_configuration_is_waited_for(live_state: LiveState) -> None:
    connect(live_state.fleet, SIDECAR, told=False)
    assert not await is_over(live_state.wait_distributed)
    assert not await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))


async def test_one_whose_certificate_nobody_signs_is_a_finding_and_holds_nobody_up(live_state: LiveState) -> None:
    """But what it brought along it may still use: a pod waits for it before it ends."""
    connect(live_state.fleet, SIDECAR, told=False)
    live_state.loop.credentials.faults.set({SIDECAR: "the authority is away"})
    assert await is_over(live_state.wait_distributed)
    assert not await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))
    assert [str(item.about) for item in live_state.findings()] == ["Pod default/web"]
