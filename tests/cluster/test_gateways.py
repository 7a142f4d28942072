"""The objects of Gateways on a real API server without controllers and nodes, written with headgate's own permissions."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from tests.cluster.api_server import APPLY, CONTROL_PLANE, KubeApiServer
from tests.make.objects import Object, config_map, gateway, listener

from headgate.admission.sidecar_containers import SidecarOptions
from headgate.kinds import GATEWAY
from headgate.kubernetes.client import path_of
from headgate.kubernetes.gateways import WITH_PARAMETERS, GatewayProxies
from headgate.kubernetes.names import NAMESPACE
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import ClusterStore
from headgate.resources.gateway_api.proxies import proxy_name
from headgate.resources.meta import Key
from headgate.resources.registry import find

_numbers = itertools.count(1)


class GatewayController:
    """The controller of Gateways with headgate's ServiceAccount, and a namespace for a Gateway `edge`."""

    def __init__(self, cluster: KubeApiServer, store: ClusterStore) -> None:
        self.cluster = cluster
        self.store = store
        self.proxies = GatewayProxies(store, SidecarOptions(image="headgate:1", xds="headgate:15010"))
        self.namespace = f"shop{next(_numbers)}"
        cluster.namespace(self.namespace)

    async def reconcile(self, name: str = "edge", **spec: Any) -> None:
        """Write a Gateway; let the controller read it."""
        self._apply("gateways", gateway(name, namespace=self.namespace, **spec))
        await self.proxies.reconcile()
        await self.proxies.reconcile()  # the first one creates the Service, the second one reads its address

    async def parameters(self, **data: str) -> None:
        """Write the ConfigMap with the parameters of the Gateway; let the controller read them."""
        labels = {"headgate.dev/gateway-parameters": "true"}
        self._apply("configmaps", config_map("edge", data, namespace=self.namespace, labels=labels))
        await self.reconcile(
            infrastructure={"parametersRef": {"group": "", "kind": "ConfigMap", "name": "edge"}},
        )

    def _apply(self, plural: str, obj: Object) -> None:
        version = obj["apiVersion"]
        root = f"/{'apis' if '/' in version else 'api'}/{version}"
        path = f"{root}/namespaces/{self.namespace}/{plural}/{obj['metadata']['name']}?fieldManager=user&force=true"
        status, answer = self.cluster.call("PATCH", path, obj, content_type=APPLY)
        assert status in {200, 201}, answer

    def get(self, group: str, kind: str, name: str = "edge") -> Any:
        """Return an object of a Gateway, which the controller itself may not read."""
        known = find(group, kind)
        assert known
        status, found = self.cluster.call("GET", path_of(known, NAMESPACE, proxy_name(self.namespace, name)))
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
async def controller(cluster: KubeApiServer) -> AsyncIterator[GatewayController]:
    async with cluster.client(CONTROL_PLANE) as client:
        versions = ServedVersions(client)
        await versions.refresh()
        yield GatewayController(cluster, ClusterStore(client, versions, selectors=WITH_PARAMETERS))


async def test_a_gateway_gets_its_objects_with_the_permissions_of_the_installation(
    controller: GatewayController,
) -> None:
    await controller.parameters(
        replicas="2", serviceAnnotations='example.com/internal: "true"', resources="limits: {memory: 64Mi}"
    )
    deployment, budget = (
        controller.get("apps", "Deployment"),
        controller.cluster.call("GET", "/apis/policy/v1beta1/poddisruptionbudgets")[1],
    )
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"memory": "64Mi"}}
    assert proxy_name(controller.namespace, "edge") in [item["metadata"]["name"] for item in budget["items"]]
    assert (controller.get("", "Service"))["metadata"]["annotations"]["example.com/internal"] == "true"
    assert await controller.addresses() == [(await controller.service())["clusterIP"]]


async def test_gateways_with_long_names_have_objects_with_labels_of_their_own(controller: GatewayController) -> None:
    """Labels have at most 63 characters, and names of Gateways up to 253 (GEP-1762)."""
    added = {"labels": {"example.com/team": "web"}, "annotations": {"example.com/contact": "web@example.com"}}
    names = [name.ljust(length, "x") for name, length in (("a", 63), ("b", 64), ("c", 253))]
    for name in names:
        await controller.reconcile(name, infrastructure=added)
    labels = []
    for name in names:
        for kind in (("", "Service"), ("apps", "Deployment")):
            metadata = controller.get(*kind, name)["metadata"]
            assert added["labels"].items() <= metadata["labels"].items()
            assert added["annotations"].items() <= metadata["annotations"].items()
        labels.append(metadata["labels"]["gateway.networking.k8s.io/gateway-name"])
    assert labels[0] == names[0]
    assert [len(label) for label in labels] == [63] * 3
    assert [label[:54] for label in labels] == [name[:54] for name in names]


async def test_the_type_of_the_service_changes_to_a_load_balancer_and_back(controller: GatewayController) -> None:
    await controller.reconcile()
    address = (await controller.service())["clusterIP"]
    await controller.parameters(serviceType="LoadBalancer")
    found = await controller.service()
    assert (found["type"], found["clusterIP"]) == ("LoadBalancer", address)
    assert found["ports"][0]["nodePort"]
    await controller.parameters()
    found = await controller.service()
    assert (found["type"], found["clusterIP"]) == ("ClusterIP", address)
    assert "nodePort" not in found["ports"][0]


async def test_the_number_of_replicas_stays_when_its_parameter_is_removed(controller: GatewayController) -> None:
    """An autoscaler or a user may change the number from then on."""
    await controller.parameters(replicas="3")
    await controller.parameters()
    assert (controller.get("apps", "Deployment"))["spec"]["replicas"] == 3


async def test_the_service_gets_the_first_requested_address_that_the_api_server_accepts(
    controller: GatewayController,
) -> None:
    """The feature GatewayStaticAddresses of the Gateway API."""
    outside, free = {"value": "192.0.2.1"}, {"type": "IPAddress", "value": "10.0.0.77"}
    await controller.reconcile(addresses=[outside, free])
    assert await controller.addresses() == ["10.0.0.77"]
    await controller.reconcile(addresses=[{"value": "10.0.0.78"}])  # a clusterIP can't change
    assert await controller.addresses() == ["10.0.0.77"]
    await controller.reconcile(listeners=[listener(8081)])
    assert await controller.addresses() == ["10.0.0.77"]
    assert [item["port"] for item in (await controller.service())["ports"]] == [8081]


async def test_a_load_balancer_gets_the_requested_address(controller: GatewayController) -> None:
    await controller.parameters(serviceType="LoadBalancer")
    reference = {"group": "", "kind": "ConfigMap", "name": "edge"}
    await controller.reconcile(infrastructure={"parametersRef": reference}, addresses=[{"value": "192.0.2.1"}])
    assert (await controller.service())["loadBalancerIP"] == "192.0.2.1"
    await controller.reconcile(infrastructure={"parametersRef": reference})
    assert "loadBalancerIP" not in await controller.service()
