from typing import Any

import pytest
from tests.decoding import admitting
from tests.make.objects import obj

from headgate.errors import Invalid
from headgate.resources.decode import check
from headgate.resources.meta import Key
from headgate.standalone.address_pool import AddressPool
from headgate.standalone.controllers.services import (
    reserve_cluster_ips,
    service_admission,
    service_user,
    stored_range,
    track_cluster_ips,
)
from headgate.standalone.store.memory import MemoryStore


@pytest.fixture
def addresses() -> AddressPool:
    return AddressPool(77)


@pytest.fixture
def store(addresses: AddressPool) -> MemoryStore:
    return MemoryStore(check=check, admit=admitting(service_admission(addresses)), kept=track_cluster_ips(addresses))


def web_service(name: str = "web", **spec: Any) -> dict[str, Any]:
    """Return a Service with only the given fields, for the defaults that admission adds."""
    return obj("Service", name, spec=spec)


async def test_a_service_gets_the_defaults_of_kubernetes(store, addresses):
    stored = await store.create(web_service(ports=[{"port": 8080}], selector={"app": "web"}))
    spec = stored["spec"]
    assert addresses.covers(spec["clusterIP"], "services")
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert (spec["type"], spec["sessionAffinity"], spec["ipFamilies"]) == ("ClusterIP", "None", ["IPv4"])
    assert spec["ports"] == [{"port": 8080, "protocol": "TCP", "targetPort": 8080}]


async def test_an_update_keeps_the_cluster_ip_and_the_defaults(store):
    first = await store.create(web_service(ports=[{"port": 8080}]))
    again = await store.update(web_service(ports=[{"port": 8080}]))
    assert again["spec"] == first["spec"]
    assert again["metadata"]["generation"] == 1
    with pytest.raises(Invalid, match=r"spec.clusterIP: can't change from .*; delete the Service and create it again"):
        await store.update(web_service(clusterIP="127.77.0.9"))


@pytest.mark.parametrize("written", [{"clusterIP": "None"}, {"clusterIPs": ["None"]}])
async def test_a_headless_service_stays_headless(store, written):
    stored = await store.create(web_service(**written))
    assert stored["spec"]["clusterIP"] == "None"
    assert (await store.update(web_service(ports=[{"port": 1}])))["spec"]["clusterIP"] == "None"


async def test_an_external_name_service_has_no_cluster_ip(store):
    stored = await store.create(web_service(type="ExternalName", externalName="example.com"))
    assert "clusterIP" not in stored["spec"]


async def test_a_requested_cluster_ip_must_be_free_and_in_the_range(store):
    await store.create(web_service("a", clusterIP="127.77.0.9"))
    with pytest.raises(Invalid, match="used by Service default/a; omit the field"):
        await store.create(web_service("b", clusterIP="127.77.0.9"))
    with pytest.raises(Invalid, match=r"10.0.0.1 is not in 127.77.0.1 to 127.77.127.254; omit the field"):
        await store.create(web_service("b", clusterIP="10.0.0.1"))


async def test_an_address_is_reserved_only_for_a_stored_service(store, addresses):
    tried = await store.create(web_service("a", clusterIP="127.77.0.9"), dry_run=True)
    picked = await store.create(web_service("b"), dry_run=True)
    assert tried["spec"]["clusterIP"] == "127.77.0.9"
    assert not addresses.owner("127.77.0.9")
    assert not addresses.owner(picked["spec"]["clusterIP"])
    await store.create(web_service("c", clusterIP="127.77.0.9"))
    await store.delete(Key("", "Service", "default", "c"))
    assert (await store.create(web_service("d", clusterIP="127.77.0.9")))["spec"]["clusterIP"] == "127.77.0.9"


@pytest.mark.parametrize("spec", [{"type": "Foo"}, {"ports": {"port": 1}}, {"ports": ["http"]}, {"clusterIP": 5}])
async def test_an_invalid_field_is_rejected_with_its_path(store, spec):
    with pytest.raises(Invalid, match=r"spec\.(type|ports|ports\[0\]|clusterIP):"):
        await store.create(web_service(**spec))


async def test_a_restart_reserves_the_addresses_of_stored_services(store):
    await store.create(web_service("a", clusterIP="127.77.0.9"))
    services = (await store.list("", "Service")).items
    assert stored_range(services) == 77
    after = AddressPool(77)
    await reserve_cluster_ips(store, after)
    assert after.owner("127.77.0.9") == service_user(services[0])


async def test_services_get_new_addresses_if_another_headgate_owns_their_range(store):
    old = await store.create(web_service("a"))
    addresses = AddressPool(78)
    # headgate was restarted with another address range
    store._admit, store._kept = admitting(service_admission(addresses)), track_cluster_ips(addresses)
    await reserve_cluster_ips(store, addresses)
    new = await store.get(Key("", "Service", "default", "a"))
    assert new["spec"]["clusterIP"].startswith("127.78.")
    assert old["spec"]["clusterIP"].startswith("127.77.")


def test_a_start_claims_the_range_of_stored_pods():
    """The processes of pods can only be adopted at their old addresses."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}, "status": {"podIP": "127.83.9.1"}}
    assert stored_range([{**pod, "status": {}}, pod]) == 83
