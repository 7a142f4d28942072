"""The objects of Gateways on a real API server without controllers and nodes, written with headgate's own permissions."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.cluster.conftest import ADMIN, Cluster, started
from tests.pods.gateway_api import gateway_api_definitions

from headgate.admission.sidecar_containers import SidecarOptions
from headgate.kinds import GATEWAY
from headgate.kubernetes.client import Client, path_of
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.gateways import GatewayProxies
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import Values, manifests
from headgate.kubernetes.names import NAME, NAMESPACE
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import ClusterStore
from headgate.resources.gateway import proxy_name
from headgate.resources.meta import Key
from headgate.resources.registry import find

INSTALLED = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server of its own: the other tests delete the namespace headgate-system."""
    with started(tmp_path_factory.mktemp("gateways")) as found:
        yield found


class World:
    """The controller of Gateways with headgate's ServiceAccount, and a namespace for a Gateway `edge`."""

    def __init__(self, cluster: Cluster, store: ClusterStore) -> None:
        self.cluster = cluster
        self.store = store
        self.proxies = GatewayProxies(store, SidecarOptions(image="headgate:1", xds="headgate:15010"))
        self.namespace = f"shop{next(_numbers)}"
        cluster.namespace(self.namespace)

    async def reconcile(self, **spec: Any) -> None:
        """Write the Gateway; let the controller read it."""
        listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
        path = f"/apis/{GATEWAY}/v1/namespaces/{self.namespace}/gateways"
        body = {
            "apiVersion": f"{GATEWAY}/v1",
            "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": self.namespace},
            "spec": {"gatewayClassName": "headgate", "listeners": listeners, **spec},
        }
        self._apply(f"{path}/edge", body)
        await self.proxies.reconcile()
        await self.proxies.reconcile()  # the first one creates the Service, the second one reads its address

    async def parameters(self, **data: str) -> None:
        """Write the ConfigMap with the parameters of the Gateway; let the controller read them."""
        metadata = {
            "name": "edge",
            "namespace": self.namespace,
            "labels": {"headgate.dev/gateway-parameters": "true"},
        }
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        self._apply(f"/api/v1/namespaces/{self.namespace}/configmaps/edge", body)
        await self.reconcile(
            infrastructure={"parametersRef": {"group": "", "kind": "ConfigMap", "name": "edge"}},
        )

    def _apply(self, path: str, body: Any) -> None:
        kind = "application/apply-patch+yaml"
        status, answer = self.cluster.call("PATCH", f"{path}?fieldManager=user&force=true", body, content_type=kind)
        assert status in {200, 201}, answer

    def get(self, group: str, kind: str) -> Any:
        """Return an object of the Gateway, which the controller itself may not read."""
        known = find(group, kind)
        assert known
        status, found = self.cluster.call("GET", path_of(known, NAMESPACE, proxy_name(self.namespace, "edge")))
        assert status == 200, found
        return found

    async def service(self) -> Any:
        """Return `spec` of the Gateway's Service."""
        return (self.get("", "Service"))["spec"]

    async def addresses(self) -> list[str]:
        """Return the addresses in the Gateway's status."""
        found = await self.store.get(Key(GATEWAY, "Gateway", self.namespace, "edge"))
        return [item["value"] for item in found["status"]["addresses"]]


@pytest_asyncio.fixture
async def world(cluster: Cluster, tmp_path: Path) -> AsyncIterator[World]:
    cluster.api(ADMIN)  # writes the token and the CA that InCluster reads
    async with Client(InCluster(cluster.environment, cluster.root / ADMIN)) as client:
        wanted = [item for item in manifests(Values(image="headgate:1")) if item["kind"] in INSTALLED]
        _ = [outcome async for outcome in Installer(client).apply([*wanted, *gateway_api_definitions()])]
    spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = cluster.make(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}/token", spec)
    (tmp_path / "token").write_text(made["status"]["token"])
    (tmp_path / "ca.crt").write_bytes((cluster.root / "api.crt").read_bytes())
    async with Client(InCluster(cluster.environment, tmp_path)) as client:
        versions = ServedVersions(client)
        while (GATEWAY, "Gateway") not in versions.current.get():
            await versions.refresh()
        yield World(cluster, ClusterStore(client, versions))


async def test_a_gateway_gets_its_objects_with_the_permissions_of_the_installation(world: World) -> None:
    await world.parameters(
        replicas="2", serviceAnnotations='example.com/internal: "true"', resources="limits: {memory: 64Mi}"
    )
    deployment, budget = (
        world.get("apps", "Deployment"),
        world.cluster.call("GET", "/apis/policy/v1beta1/poddisruptionbudgets")[1],
    )
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"memory": "64Mi"}}
    assert proxy_name(world.namespace, "edge") in [item["metadata"]["name"] for item in budget["items"]]
    assert (world.get("", "Service"))["metadata"]["annotations"]["example.com/internal"] == "true"
    assert await world.addresses() == [(await world.service())["clusterIP"]]


async def test_the_type_of_the_service_changes_to_a_load_balancer_and_back(world: World) -> None:
    await world.reconcile()
    address = (await world.service())["clusterIP"]
    await world.parameters(serviceType="LoadBalancer")
    found = await world.service()
    assert (found["type"], found["clusterIP"]) == ("LoadBalancer", address)
    assert found["ports"][0]["nodePort"]
    await world.parameters()
    found = await world.service()
    assert (found["type"], found["clusterIP"]) == ("ClusterIP", address)
    assert "nodePort" not in found["ports"][0]


async def test_the_number_of_replicas_stays_when_its_parameter_is_removed(world: World) -> None:
    """An autoscaler or a user may change the number from then on."""
    await world.parameters(replicas="3")
    await world.parameters()
    assert (world.get("apps", "Deployment"))["spec"]["replicas"] == 3


async def test_the_service_gets_the_first_requested_address_that_the_api_server_accepts(world: World) -> None:
    """The feature GatewayStaticAddresses of the Gateway API."""
    outside, free = {"value": "192.0.2.1"}, {"type": "IPAddress", "value": "10.0.0.77"}
    await world.reconcile(addresses=[outside, free])
    assert await world.addresses() == ["10.0.0.77"]
    await world.reconcile(addresses=[{"value": "10.0.0.78"}])  # a clusterIP can't change
    assert await world.addresses() == ["10.0.0.77"]
    await world.reconcile(listeners=[{"name": "http", "port": 8081, "protocol": "HTTP"}])
    assert await world.addresses() == ["10.0.0.77"]
    assert [item["port"] for item in (await world.service())["ports"]] == [8081]


async def test_a_load_balancer_gets_the_requested_address(world: World) -> None:
    await world.parameters(serviceType="LoadBalancer")
    reference = {"group": "", "kind": "ConfigMap", "name": "edge"}
    await world.reconcile(infrastructure={"parametersRef": reference}, addresses=[{"value": "192.0.2.1"}])
    assert (await world.service())["loadBalancerIP"] == "192.0.2.1"
    await world.reconcile(infrastructure={"parametersRef": reference})
    assert "loadBalancerIP" not in await world.service()


async def test_config_maps_without_the_label_are_not_read(world: World) -> None:
    await world.parameters()
    listed = (await world.store.list("", "ConfigMap")).items
    assert {item["metadata"]["labels"]["headgate.dev/gateway-parameters"] for item in listed} == {"true"}
