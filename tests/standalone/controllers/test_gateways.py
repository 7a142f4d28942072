"""Tests of a machine's GatewayClass, and of the addresses that Gateways get."""

import asyncio

import pytest
from tests.decoding import decode
from tests.make.objects import gateway

from headgate.objects.gateways import ensure_class
from headgate.resources.gateway_api.gateway import Gateway
from headgate.resources.meta import Key
from headgate.standalone.address_pool import AddressPool
from headgate.standalone.controllers.gateways import CLASS_DESCRIPTION, GatewayAddresses
from headgate.standalone.store.memory import MemoryStore

GROUP = "gateway.networking.k8s.io"


@pytest.fixture
def addresses() -> AddressPool:
    return AddressPool(77)


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    await ensure_class(store, CLASS_DESCRIPTION)
    return store


async def address_of(store: MemoryStore, name: str = "edge") -> str:
    found = decode(await store.get(Key(GROUP, "Gateway", "default", name)))
    assert isinstance(found, Gateway)
    return found.address


async def test_the_gateway_class_is_created_at_startup_unless_it_exists(store):
    key = Key(GROUP, "GatewayClass", "", "headgate")
    found = await store.get(key)
    assert found["spec"]["controllerName"] == "headgate.dev/gateway-controller"
    changed = await store.update({**found, "spec": {**found["spec"], "description": "ours"}})
    await ensure_class(store, CLASS_DESCRIPTION)
    assert await store.get(key) == changed


async def test_each_gateway_gets_an_address_that_survives_a_restart(store, addresses):
    for name in ("one", "two"):
        await store.create(gateway(name))
    await GatewayAddresses(store, addresses).reconcile()
    first, second = await address_of(store, "one"), await address_of(store, "two")
    assert first != second
    assert addresses.covers(first, "services")
    revision = store.revision
    await GatewayAddresses(store, AddressPool(77)).reconcile()  # after a restart of headgate
    assert store.revision == revision


async def test_a_gateway_with_an_address_outside_the_range_gets_a_new_address(store, addresses):
    await store.create(gateway("edge"))
    await GatewayAddresses(store, AddressPool(80)).reconcile()
    await GatewayAddresses(store, addresses).reconcile()
    assert addresses.covers(await address_of(store), "services")


async def test_a_requested_address_is_assigned_if_it_is_free(store, addresses):
    await store.create(gateway("one", addresses=[{"type": "IPAddress", "value": "127.77.3.4"}]))
    await store.create(gateway("two", addresses=[{"value": "127.77.3.4"}]))
    await store.create(gateway("far", addresses=[{"value": "10.0.0.1"}]))
    await GatewayAddresses(store, addresses).reconcile()
    assert [await address_of(store, name) for name in ("one", "two", "far")] == ["127.77.3.4", "", ""]


async def test_a_gateway_keeps_its_address_when_the_class_is_deleted(store, addresses):
    gateways = GatewayAddresses(store, addresses)
    await store.create(gateway("edge"))
    await gateways.reconcile()
    given = await address_of(store)
    await store.delete(Key(GROUP, "GatewayClass", "", "headgate"))
    await gateways.reconcile()
    assert addresses.owner(given) == "Gateway default/edge"


async def test_a_gateway_of_another_controller_gets_no_address(store, addresses):
    await store.create(gateway("edge", class_name="other"))
    await GatewayAddresses(store, addresses).reconcile()
    assert "status" not in await store.get(Key(GROUP, "Gateway", "default", "edge"))


async def test_the_address_of_a_deleted_gateway_is_released(store, addresses):
    gateways = GatewayAddresses(store, addresses)
    await store.create(gateway("edge"))
    await gateways.reconcile()
    given = await address_of(store)
    await store.delete(Key(GROUP, "Gateway", "default", "edge"))
    await gateways.reconcile()
    assert addresses.owner(given) == ""


async def test_a_new_gateway_gets_its_address_at_once(store, addresses):
    work = asyncio.create_task(GatewayAddresses(store, addresses).run())
    await store.create(gateway("edge"))
    async with asyncio.timeout(60):
        async for change in store.watch(GROUP, "Gateway", since=str(store.revision - 1)):
            if (change.object.get("status") or {}).get("addresses"):
                break
    assert addresses.covers(await address_of(store), "services")
    work.cancel()
