"""The proxies that the wait methods of `LiveState` wait for."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from tests.compiler.pods import compiled
from tests.identity.world import FakeIssuer, Time

from headgate.compiler.report import Compiled
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
from headgate.xds.messages import Request
from headgate.xds.session import Session

DEADLINE_S = 60
GATEWAY, SIDECAR = "gateway", "sidecar/default/web"


@pytest.fixture
def live_state() -> LiveState:
    """The live state of a control plane that has compiled an empty store and has a settled gateway."""
    store, fleet = MemoryStore(), Fleet()
    feed = Feed(store)
    loop = Loop(
        Latest(None),
        fleet,
        HostProxies([Node(id=GATEWAY)]),
        Settings(),
        Credentials(FakeIssuer(Time()), Time().schedule()),
    )
    found = LiveState(store, feed, loop, fleet)
    feed.snapshot.set(Snapshot())
    loop.compiled.set(compiled())
    connect(fleet, GATEWAY)
    return found


def connect(fleet: Fleet, node: str, *, has_config: bool = True) -> None:
    proxy = fleet.expect(node)
    session = Session()
    session.receive(Request(CLUSTER))
    proxy.attach(session, lambda _ending: None)
    if has_config:
        proxy.config.set({})
        session.set_config({})
        (response,) = session.next_responses()
        session.receive(Request(CLUSTER, nonce=response.nonce))


async def is_over(begun: Callable[[], object]) -> bool:
    """Return whether a wait ends after a few turns of the event loop."""
    waiting = asyncio.ensure_future(begun())  # type: ignore[arg-type,var-annotated]
    for _ in range(10):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    return done


async def test_no_wait_is_delayed_by_a_proxy_that_never_connects(live_state: LiveState) -> None:
    live_state.fleet.expect(SIDECAR)
    assert await is_over(live_state.wait_distributed)
    assert await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))


async def test_the_end_of_a_pod_waits_for_disconnected_proxies_that_still_serve(live_state: LiveState) -> None:
    """After a restart of headgate, proxies reconnect one by one; until then they send to their old endpoints."""
    live_state.fleet.expect(SIDECAR)
    live_state.fleet.assume_configured()
    assert await is_over(live_state.wait_distributed)
    assert not await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))
    connect(live_state.fleet, SIDECAR)
    assert await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))
    sidecar = live_state.fleet.proxies[SIDECAR]
    assert sidecar.session
    sidecar.detach(sidecar.session)
    assert not await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))


async def test_nothing_is_distributed_before_the_gateway_connects(live_state: LiveState) -> None:
    connect(live_state.fleet, SIDECAR)
    gateway = live_state.fleet.proxies[GATEWAY]
    assert gateway.session
    gateway.detach(gateway.session)
    assert not await is_over(live_state.wait_distributed)
    assert not await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))


async def test_distribution_and_the_end_of_a_pod_wait_for_a_connected_proxy_without_configuration(
    live_state: LiveState,
) -> None:
    connect(live_state.fleet, SIDECAR, has_config=False)
    assert not await is_over(live_state.wait_distributed)
    assert not await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))


async def test_a_proxy_without_a_certificate_causes_a_finding_and_does_not_delay_distribution(
    live_state: LiveState,
) -> None:
    """The end of a pod still waits for that proxy, which may use endpoints of its old configuration."""
    connect(live_state.fleet, SIDECAR, has_config=False)
    live_state.loop.credentials.faults.set({SIDECAR: "the authority does not answer"})
    assert await is_over(live_state.wait_distributed)
    assert not await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))
    assert [str(item.about) for item in live_state.findings()] == ["Pod default/web"]


async def test_warnings_before_a_write_come_from_the_snapshot_and_change_nothing(live_state: LiveState) -> None:
    """R22: a webhook warns about an object that the store does not have yet."""
    before = live_state.loop.compiled.get()
    spec = {"service": "missing", "backends": [{"service": "one", "weight": 1}]}
    metadata = {"name": "canary", "namespace": "default"}
    split = {"apiVersion": "split.smi-spec.io/v1alpha4", "kind": "TrafficSplit", "metadata": metadata, "spec": spec}
    warnings = await live_state.warnings_before_write(split)
    assert any("Service default/missing not found" in text for text in warnings), warnings
    assert await live_state.warnings_before_write({**split, "apiVersion": "v1", "kind": "Event"}) == ()
    assert live_state.loop.compiled.get() is before


async def test_a_new_gateway_causes_no_warning_about_its_address(live_state: LiveState) -> None:
    """It gets the address after the write. Warnings about its listeners stay."""
    listeners = [{"name": "http", "port": 8080, "protocol": "HTTP"}, {"name": "ftp", "port": 8021, "protocol": "FTP"}]
    gateway = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "headgate", "listeners": listeners},
    }
    (warning,) = await live_state.warnings_before_write(gateway)
    assert warning.startswith("spec.listeners[1].protocol: headgate does not support the protocol of listener ftp")


async def test_warnings_are_computed_one_after_another(live_state: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many threads would delay the renewal of the Lease."""
    begun: list[Snapshot] = []
    first_may_end, compiled_by = threading.Event(), live_state.loop.compile

    def waiting(snapshot: Snapshot) -> Compiled:
        begun.append(snapshot)
        assert first_may_end.wait(DEADLINE_S)
        return compiled_by(snapshot)

    monkeypatch.setattr(live_state.loop, "compile", waiting)
    monkeypatch.setattr("headgate.plane.live_state.PREVIEW_S", DEADLINE_S)
    spec = {"service": "missing", "backends": [{"service": "one", "weight": 1}]}
    metadata = {"name": "canary", "namespace": "default"}
    split = {"apiVersion": "split.smi-spec.io/v1alpha4", "kind": "TrafficSplit", "metadata": metadata, "spec": spec}
    asked = [asyncio.ensure_future(live_state.warnings_before_write(split)) for _ in range(3)]
    while not begun:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(begun) == 1
    first_may_end.set()
    await asyncio.gather(*asked)
    assert len(begun) == 3
