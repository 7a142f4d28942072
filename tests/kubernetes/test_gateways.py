"""The Deployments and Services of Gateways on a cluster, and the addresses in the statuses of Gateways."""

from typing import Any

import pytest

from headgate.admission.sidecar_containers import SidecarOptions
from headgate.kinds import GATEWAY
from headgate.kubernetes.gateways import GatewayProxies
from headgate.objects.ports import version_of
from headgate.resources.gateway import proxy_name
from headgate.resources.meta import Key
from headgate.standalone.store.memory import MemoryStore

SYSTEM = "headgate-system"
EDGE = proxy_name("shop", "edge")
SERVICE, DEPLOYMENT = Key("", "Service", SYSTEM, EDGE), Key("apps", "Deployment", SYSTEM, EDGE)


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    for name in ("shop", SYSTEM):
        await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return store


@pytest.fixture
def proxies(store: MemoryStore) -> GatewayProxies:
    return GatewayProxies(store, SidecarOptions(image="headgate:1", xds="headgate:15010"))


def gateway(*ports: int, class_name: str = "headgate") -> dict[str, Any]:
    listeners = [{"name": f"http-{port}", "port": port, "protocol": "HTTP"} for port in ports]
    return {
        "apiVersion": f"{GATEWAY}/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "shop"},
        "spec": {"gatewayClassName": class_name, "listeners": listeners},
    }


async def assign(store: MemoryStore, **status: Any) -> None:
    """Give the Service of the Gateway a clusterIP and a status, as the cluster does."""
    service = await store.get(SERVICE)
    service = await store.update({**service, "spec": {**service["spec"], "clusterIP": "10.96.0.7"}})
    if status:
        await store.update({**service, "status": status}, subresource="status")


async def addresses(store: MemoryStore) -> list[str]:
    status = (await store.get(Key(GATEWAY, "Gateway", "shop", "edge"))).get("status") or {}
    return [item["value"] for item in status.get("addresses", ())]


async def test_a_gateway_gets_pods_and_a_service_with_the_ports_of_its_listeners(store, proxies):
    """The pods listen on ports that need no privilege."""
    await store.create(gateway(80, 8443))
    await proxies.reconcile()
    ports = (await store.get(SERVICE))["spec"]["ports"]
    assert [(item["port"], item["targetPort"]) for item in ports] == [(80, 61080), (8443, 8443)]
    template = (await store.get(DEPLOYMENT))["spec"]["template"]
    assert template["metadata"]["annotations"] == {"headgate.dev/gateway": "shop/edge"}
    assert template["spec"]["serviceAccountName"] == "gateway"
    assert (await store.get(SERVICE))["spec"]["selector"].items() <= template["metadata"]["labels"].items()


async def test_the_address_is_that_of_the_load_balancer_and_else_the_cluster_ip(store, proxies):
    await store.create(gateway(80))
    await proxies.reconcile()
    assert await addresses(store) == []
    await assign(store)
    await proxies.reconcile()
    assert await addresses(store) == ["10.96.0.7"]
    await assign(store, loadBalancer={"ingress": [{"ip": "192.0.2.1"}, {"hostname": "edge.example"}]})
    await proxies.reconcile()
    assert await addresses(store) == ["192.0.2.1", "edge.example"]


async def test_an_unchanged_gateway_causes_no_write(store, proxies):
    await store.create(gateway(80))
    await proxies.reconcile()
    before = [version_of(await store.get(key)) for key in (SERVICE, DEPLOYMENT)]
    await proxies.reconcile()
    assert [version_of(await store.get(key)) for key in (SERVICE, DEPLOYMENT)] == before


async def test_a_new_listener_changes_the_service_and_keeps_the_number_of_replicas(store, proxies):
    created = await store.create(gateway(80))
    await proxies.reconcile()
    deployment = await store.get(DEPLOYMENT)
    await store.update({**deployment, "spec": {**deployment["spec"], "replicas": 3}})
    await store.update({**created, "spec": gateway(80, 81)["spec"]})
    await proxies.reconcile()
    assert [item["port"] for item in (await store.get(SERVICE))["spec"]["ports"]] == [80, 81]
    assert (await store.get(DEPLOYMENT))["spec"]["replicas"] == 3


async def test_the_objects_of_a_deleted_gateway_are_deleted_and_other_services_remain(store, proxies):
    created = await store.create(gateway(80))
    other = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "headgate", "namespace": SYSTEM}}
    await store.create({**other, "spec": {"ports": [{"port": 443}]}})
    await proxies.reconcile()
    await store.delete(Key(GATEWAY, "Gateway", "shop", "edge"), uid=created["metadata"]["uid"])
    await proxies.reconcile()
    assert [item["metadata"]["name"] for item in (await store.list("", "Service")).items] == ["headgate"]
    assert (await store.list("apps", "Deployment")).items == []


async def test_a_gateway_of_another_class_gets_no_proxy(store, proxies):
    await store.create(gateway(80, class_name="other"))
    await proxies.reconcile()
    assert (await store.list("", "Service")).items == []


def test_names_are_valid_and_differ_for_gateways_whose_joined_names_are_equal():
    assert proxy_name("a-b", "c") != proxy_name("a", "b-c")
    long = proxy_name("n" * 63, "g" * 63)
    assert len(long) <= 63
    assert long.startswith("gateway-nnn")
    assert "." not in proxy_name("shop", "edge.example")
