"""The proxies that the wait methods of `LiveState` wait for."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec import structs
from tests.make.values import compiled
from tests.plane.live_states import GATEWAY, connect, live_state_of

from headgate.compiler.snapshot import Snapshot
from headgate.plane.live_state import LiveState

SIDECAR = "sidecar/default/web"


@pytest.fixture
def live_state() -> LiveState:
    """The live state of a control plane that has compiled an empty store and has a settled gateway."""
    return live_state_of(Snapshot())


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


async def test_the_end_of_a_pod_waits_until_its_endpoint_is_compiled(live_state: LiveState) -> None:
    """A pod may end that was ready only for a moment: proxies would get its endpoint later."""
    live_state.feed.snapshot.set(Snapshot(1))
    assert not await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))
    live_state.loop.compiled.set(structs.replace(compiled(), revision=1))
    assert await is_over(lambda: live_state.wait_unrouted("10.1.0.1"))
    metadata = {"name": "web", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}}
    endpoints = [{"addresses": ["10.1.0.1"], "conditions": {"ready": True}}]
    head = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata}
    await live_state.store.create({**head, "addressType": "IPv4", "endpoints": endpoints, "ports": []})
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
