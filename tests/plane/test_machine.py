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
from headgate.plane.loop import Known, Loop
from headgate.plane.machine import Machine
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.fleet import Fleet
from headgate.xds.session import Session

GATEWAY, SIDECAR = "gateway", "sidecar/default/web"


@pytest.fixture
def machine() -> Machine:
    """A machine whose gateway holds everything, and that has compiled nothing but an empty store."""
    store, fleet = MemoryStore(), Fleet()
    feed = Feed(store)
    loop = Loop(
        Latest(None), fleet, Known([Node(id=GATEWAY)]), Settings(), Credentials(Signs(Time()), Time().schedule())
    )
    found = Machine(store, feed, loop, fleet)
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


async def test_a_proxy_that_never_connects_is_waited_for_by_nobody(machine: Machine) -> None:
    machine.fleet.expect(SIDECAR)
    assert await is_over(machine.distributed)
    assert await is_over(lambda: machine.unrouted("10.1.0.1"))


async def test_a_pod_ends_when_those_know_it_who_are_away_and_go_on_with_what_they_have(machine: Machine) -> None:
    """After a restart of headgate its proxies come back one after the other; until then they send where they always did."""
    machine.fleet.expect(SIDECAR)
    machine.fleet.recall()
    assert await is_over(machine.distributed)
    assert not await is_over(lambda: machine.unrouted("10.1.0.1"))
    connect(machine.fleet, SIDECAR)
    assert await is_over(lambda: machine.unrouted("10.1.0.1"))
    sidecar = machine.fleet.proxies[SIDECAR]
    assert sidecar.session
    sidecar.detach(sidecar.session)
    assert not await is_over(lambda: machine.unrouted("10.1.0.1"))


async def test_nothing_is_in_force_before_the_gateway_is_there(machine: Machine) -> None:
    connect(machine.fleet, SIDECAR)
    gateway = machine.fleet.proxies[GATEWAY]
    assert gateway.session
    gateway.detach(gateway.session)
    assert not await is_over(machine.distributed)
    assert not await is_over(lambda: machine.unrouted("10.1.0.1"))


async def test_one_that_waits_for_its_configuration_is_waited_for(machine: Machine) -> None:
    connect(machine.fleet, SIDECAR, told=False)
    assert not await is_over(machine.distributed)
    assert not await is_over(lambda: machine.unrouted("10.1.0.1"))


async def test_one_whose_certificate_nobody_signs_is_a_finding_and_holds_nobody_up(machine: Machine) -> None:
    """But what it brought along it may still use: a pod waits for it before it ends."""
    connect(machine.fleet, SIDECAR, told=False)
    machine.loop.credentials.faults.set({SIDECAR: "the authority is away"})
    assert await is_over(machine.distributed)
    assert not await is_over(lambda: machine.unrouted("10.1.0.1"))
    assert [str(item.about) for item in machine.findings()] == ["Pod default/web"]
