"""The Deployments and Services of Gateways on a cluster, and the addresses in the statuses of Gateways."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

import pytest
from msgspec import structs
from tests.make.objects import Object, config_map, gateway, listener, namespace, obj

from headgate.admission.sidecar_containers import SidecarOptions
from headgate.backoff import LONGEST_S
from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.errors import Cause, Denied, Invalid, NotFound, StoreError, Unavailable
from headgate.kinds import GATEWAY
from headgate.kubernetes.gateways import GatewayProxies
from headgate.latest import Latest, until
from headgate.objects.ports import follow, version_of
from headgate.plane.feed import snapshot_of
from headgate.resources.gateway_api.proxies import proxy_name
from headgate.resources.meta import Key
from headgate.resources.registry import key_of
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore

DEADLINE_S = 60
SYSTEM = "headgate-system"
EDGE = proxy_name("shop", "edge")
OPTIONS = SidecarOptions(image="headgate:1", xds="headgate:15010")
EDGE_KEY = Key(GATEWAY, "Gateway", "shop", "edge")
SERVICE, DEPLOYMENT = Key("", "Service", SYSTEM, EDGE), Key("apps", "Deployment", SYSTEM, EDGE)
BUDGET, PARAMETERS = Key("policy", "PodDisruptionBudget", SYSTEM, EDGE), Key("", "ConfigMap", "shop", "edge")


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    for name in ("shop", SYSTEM):
        await store.create(namespace(name))
    return store


@pytest.fixture
def proxies(store: MemoryStore) -> GatewayProxies:
    return GatewayProxies(store, OPTIONS)


def edge(*ports: int, name: str = "edge", **spec: Any) -> Object:
    """Return a Gateway of the namespace `shop` with HTTP listeners."""
    return gateway(name, *(listener(port, f"http-{port}") for port in ports), namespace="shop", **spec)


def with_parameters(addresses: Sequence[Mapping[str, str]] = (), **infrastructure: Any) -> dict[str, Any]:
    """Return a Gateway that refers to the ConfigMap of `parameters`."""
    reference = {"group": "", "kind": "ConfigMap", "name": "edge"}
    return edge(80, addresses=list(addresses), infrastructure={"parametersRef": reference, **infrastructure})


async def parameters(store: MemoryStore, **data: str) -> None:
    """Create or replace the ConfigMap with the parameters of the Gateway."""
    labels = {"headgate.dev/gateway-parameters": "true"}
    await store.apply(config_map("edge", data, namespace="shop", labels=labels), manager="user")


async def replicas(store: MemoryStore, number: int | None = None) -> int:
    """Return the number of replicas of the Deployment; set it first, if a number is given, as `kubectl scale` does."""
    deployment = await store.get(DEPLOYMENT)
    if number is not None:
        deployment = await store.update({**deployment, "spec": {**deployment["spec"], "replicas": number}})
    found: int = deployment["spec"].get("replicas", 1)
    return found


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
    await store.create(edge(80, 8443))
    await proxies.reconcile()
    ports = (await store.get(SERVICE))["spec"]["ports"]
    assert [(item["port"], item["targetPort"]) for item in ports] == [(80, 61080), (8443, 8443)]
    template = (await store.get(DEPLOYMENT))["spec"]["template"]
    assert template["metadata"]["annotations"] == {"headgate.dev/proxy-of-gateway": "shop/edge"}
    assert template["spec"]["serviceAccountName"] == "gateway"
    assert (await store.get(SERVICE))["spec"]["selector"].items() <= template["metadata"]["labels"].items()


async def test_a_udp_listener_has_a_udp_port_in_the_service_also_beside_a_tcp_listener(store, proxies):
    listeners = (listener(53, "dns", protocol="UDP"), listener(53, "dns-tcp", protocol="TCP"))
    await store.create(gateway("edge", *listeners, namespace="shop"))
    await proxies.reconcile()
    ports = (await store.get(SERVICE))["spec"]["ports"]
    assert [(item["name"], item["port"], item["targetPort"], item["protocol"]) for item in ports] == [
        ("port-53", 53, 61053, "TCP"),
        ("udp-53", 53, 61053, "UDP"),
    ]


async def test_the_proxy_of_a_gateway_reports_to_the_collector_of_the_installation(store, proxies):
    """A change to the collector replaces the pods."""
    await store.create(edge(80))
    await proxies.reconcile()

    async def variables() -> Mapping[str, str]:
        (container,) = (await store.get(DEPLOYMENT))["spec"]["template"]["spec"]["containers"]
        return {item["name"]: item.get("value", "") for item in container["env"]}

    assert "HEADGATE_OTLP_COLLECTOR" not in await variables()
    await GatewayProxies(store, structs.replace(OPTIONS, collector="collector.monitoring:4317")).reconcile()
    assert (await variables())["HEADGATE_OTLP_COLLECTOR"] == "collector.monitoring:4317"


async def test_the_address_is_that_of_the_load_balancer_and_else_the_cluster_ip(store, proxies):
    await store.create(edge(80))
    await proxies.reconcile()
    assert await addresses(store) == []
    await assign(store)
    await proxies.reconcile()
    assert await addresses(store) == ["10.96.0.7"]
    await assign(store, loadBalancer={"ingress": [{"ip": "192.0.2.1"}, {"hostname": "edge.example"}]})
    await proxies.reconcile()
    assert await addresses(store) == ["192.0.2.1", "edge.example"]


@pytest.mark.parametrize(
    ("kind", "field"), [("ClusterIP", "clusterIP"), ("NodePort", "clusterIP"), ("LoadBalancer", "loadBalancerIP")]
)
async def test_the_service_gets_the_requested_address(store, proxies, kind, field):
    await parameters(store, serviceType=kind)
    await store.create(with_parameters(addresses=[{"value": "10.96.0.9"}]))
    await proxies.reconcile()
    assert (await store.get(SERVICE))["spec"][field] == "10.96.0.9"


async def test_the_service_gets_the_first_requested_address_that_the_api_server_accepts(store, proxies, monkeypatch):
    """The feature GatewayStaticAddresses of the Gateway API."""
    apply = store.apply

    async def rejecting(config, **options):
        if config["spec"].get("clusterIP") == "192.0.2.1":
            raise Invalid(Cause("spec.clusterIP", "provided IP is not in the valid range"))
        return await apply(config, **options)

    monkeypatch.setattr(store, "apply", rejecting)
    await store.create(edge(80, addresses=[{"value": "192.0.2.1"}, {"type": "IPAddress", "value": "10.96.0.9"}]))
    await proxies.reconcile()
    assert (await store.get(SERVICE))["spec"]["clusterIP"] == "10.96.0.9"


async def test_a_gateway_with_an_unsupported_address_gets_no_service(store, proxies):
    """Otherwise its Service would have a clusterIP, which can't change to a requested one later."""
    await store.create(edge(80, addresses=[{"type": "Hostname", "value": "edge.example"}]))
    await proxies.reconcile()
    assert (await store.list("", "Service")).items == []


async def test_an_unchanged_gateway_causes_no_write(store, proxies):
    await store.create(edge(80))
    await proxies.reconcile()
    before = [version_of(await store.get(key)) for key in (SERVICE, DEPLOYMENT)]
    await proxies.reconcile()
    assert [version_of(await store.get(key)) for key in (SERVICE, DEPLOYMENT)] == before


async def test_a_new_listener_changes_the_service_and_keeps_the_number_of_replicas(store, proxies):
    created = await store.create(edge(80))
    await proxies.reconcile()
    await replicas(store, 3)
    await store.update({**created, "spec": edge(80, 81)["spec"]})
    await proxies.reconcile()
    assert [item["port"] for item in (await store.get(SERVICE))["spec"]["ports"]] == [80, 81]
    assert await replicas(store) == 3


async def test_parameters_set_the_deployment_and_the_service(store, proxies):
    await parameters(
        store,
        replicas="3",
        serviceType="LoadBalancer",
        serviceAnnotations='example.com/internal: "true"',
        resources="requests: {cpu: 200m}",
    )
    await store.create(with_parameters())
    await proxies.reconcile()
    deployment, service = await store.get(DEPLOYMENT), await store.get(SERVICE)
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "200m"}}
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["metadata"]["annotations"]["example.com/internal"] == "true"


async def test_removed_parameters_get_their_defaults_but_the_number_of_replicas_stays(store, proxies):
    await parameters(store, replicas="3", serviceType="NodePort", serviceAnnotations="example.com/a: b")
    await store.create(with_parameters())
    await proxies.reconcile()
    await parameters(store)
    await proxies.reconcile()
    service = await store.get(SERVICE)
    assert service["spec"]["type"] == "ClusterIP"
    assert "example.com/a" not in service["metadata"]["annotations"]
    assert await replicas(store) == 3
    await replicas(store, 5)
    await parameters(store, serviceType="NodePort")
    await proxies.reconcile()
    assert await replicas(store) == 5


async def test_proxies_keep_their_settings_while_a_parameter_is_invalid(store, proxies):
    await parameters(store, replicas="3", serviceType="NodePort")
    await store.create(with_parameters())
    await proxies.reconcile()
    before = [version_of(await store.get(key)) for key in (SERVICE, DEPLOYMENT, BUDGET)]
    await parameters(store, replicas="three", serviceType="NodePort")
    await proxies.reconcile()
    assert [version_of(await store.get(key)) for key in (SERVICE, DEPLOYMENT, BUDGET)] == before
    await parameters(store, replicas="4")
    await proxies.reconcile()
    assert await replicas(store) == 4


async def test_a_new_gateway_with_an_invalid_parameter_gets_no_proxy(store, proxies):
    await parameters(store, replicas="three")
    await store.create(with_parameters())
    await proxies.reconcile()
    assert (await store.list("apps", "Deployment")).items == []


async def test_labels_and_annotations_are_propagated_to_all_objects_of_a_gateway(store, proxies):
    """As for the feature GatewayInfrastructurePropagation of the Gateway API, with the label of GEP-1762."""
    labels, annotations = {"example.com/team": "web"}, {"example.com/contact": "web@example.com"}
    await parameters(store, serviceAnnotations="example.com/contact: operators")
    await store.create(with_parameters(labels=labels, annotations=annotations))
    await proxies.reconcile()
    deployment = await store.get(DEPLOYMENT)
    named = {**labels, "gateway.networking.k8s.io/gateway-name": "edge"}
    for item in (deployment, deployment["spec"]["template"], await store.get(SERVICE), await store.get(BUDGET)):
        assert named.items() <= item["metadata"]["labels"].items()
        assert annotations.items() <= item["metadata"]["annotations"].items()


async def test_one_pod_of_a_gateway_is_evicted_at_a_time(store, proxies):
    await store.create(edge(80))
    await proxies.reconcile()
    budget, template = await store.get(BUDGET), (await store.get(DEPLOYMENT))["spec"]["template"]
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


async def test_objects_that_the_api_server_rejects_do_not_stop_other_gateways(store, proxies, monkeypatch):
    await store.create(edge(80))
    other = edge(80)
    await store.create({**other, "metadata": {**other["metadata"], "name": "zone"}})
    apply = store.apply

    async def rejecting(config, **options):
        if config["metadata"]["name"] == EDGE:
            raise Invalid(Cause("spec", "too large"))
        return await apply(config, **options)

    monkeypatch.setattr(store, "apply", rejecting)
    await proxies.reconcile()
    assert [item["metadata"]["name"] for item in (await store.list("", "Service")).items] == [
        proxy_name("shop", "zone")
    ]


async def test_the_objects_of_a_deleted_gateway_are_deleted_and_other_services_remain(store, proxies):
    created = await store.create(edge(80))
    other = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "headgate", "namespace": SYSTEM}}
    await store.create({**other, "spec": {"ports": [{"port": 443}]}})
    await proxies.reconcile()
    await store.delete(Key(GATEWAY, "Gateway", "shop", "edge"), uid=created["metadata"]["uid"])
    await proxies.reconcile()
    assert [item["metadata"]["name"] for item in (await store.list("", "Service")).items] == ["headgate"]
    assert (await store.list("apps", "Deployment")).items == []
    assert (await store.list("policy", "PodDisruptionBudget")).items == []


async def test_a_gateway_of_another_class_gets_no_proxy(store, proxies):
    await store.create(edge(80, class_name="other"))
    await proxies.reconcile()
    assert (await store.list("", "Service")).items == []


def test_names_are_valid_and_differ_for_gateways_whose_joined_names_are_equal():
    assert proxy_name("a-b", "c") != proxy_name("a", "b-c")
    long = proxy_name("n" * 63, "g" * 63)
    assert len(long) <= 63
    assert long.startswith("gateway-nnn")
    assert "." not in proxy_name("shop", "edge.example")


async def test_a_failure_of_one_gateway_does_not_stop_the_remaining_ones():
    class DenyingStore(MemoryStore):
        async def apply(self, config, **options):
            if "-a-" in config["metadata"]["name"]:
                raise Unavailable("denied")
            return await super().apply(config, **options)

    store = DenyingStore()
    for name in ("shop", SYSTEM):
        await store.create(namespace(name))
    for name in ("a", "edge"):
        await store.create(edge(80, name=name))
    await GatewayProxies(store, OPTIONS).reconcile()
    assert [item["metadata"]["name"] for item in (await store.list("apps", "Deployment")).items] == [EDGE]
    assert await store.get(Key(GATEWAY, "GatewayClass", "", "headgate"))


async def test_a_cancel_leaves_no_write_without_an_await():
    """Python warns of coroutines that are never awaited, and warnings are errors."""
    entered = asyncio.Event()

    class SilentStore(MemoryStore):
        async def apply(self, *_arguments, **_options):
            entered.set()
            await asyncio.Event().wait()

    store = SilentStore()
    for name in ("shop", SYSTEM):
        await store.create(namespace(name))
    await store.create(edge(80))
    proxies = GatewayProxies(store, OPTIONS)
    run = asyncio.create_task(proxies.reconcile())
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


QUOTA = 'services "gateway-shop-edge" is forbidden: exceeded quota: small, requested: count/services=1, used: count/services=2'


class RejectingStore(MemoryStore):
    """A store that rejects the objects of some kinds of the Gateway shop/edge, and counts the attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.rejected: dict[str, StoreError] = {}
        self.attempts = 0

    async def apply(self, config: Any, **options: Any) -> Any:
        if config["metadata"]["name"] == EDGE and (error := self.rejected.get(config["kind"])):
            self.attempts += 1
            raise error
        return await super().apply(config, **options)


class RejectedObjects:
    """The controller with a clock of the test, and the Gateways shop/edge and shop/zone."""

    def __init__(self) -> None:
        self.store = RejectingStore()
        self.now = 0.0
        self.proxies = GatewayProxies(self.store, OPTIONS, clock=lambda: self.now)

    async def create(self) -> None:
        for name in ("shop", SYSTEM):
            await self.store.create(namespace(name))
        for name in ("edge", "zone"):
            await self.store.create(edge(80, name=name))

    async def edit(self, name: str, *ports: int) -> None:
        found = await self.store.get(Key(GATEWAY, "Gateway", "shop", name))
        await self.store.update({**found, "spec": edge(*ports)["spec"]})

    async def attempt(self, seconds: float = LONGEST_S) -> str:
        """Reconcile after a few seconds; return the reason and the message of the finding."""
        self.now += seconds
        await self.proxies.reconcile()
        (found,) = self.proxies.findings.get()
        assert found.about == EDGE_KEY
        return f"{found.reason.value}: {found.message}"

    async def ports(self, name: str) -> list[int]:
        try:
            service = await self.store.get(Key("", "Service", SYSTEM, proxy_name("shop", name)))
        except NotFound:
            return []
        return [item["port"] for item in service["spec"]["ports"]]


@pytest.fixture
async def rejecting() -> RejectedObjects:
    objects = RejectedObjects()
    await objects.create()
    return objects


@pytest.mark.parametrize(
    ("kind", "error", "expected"),
    [
        (
            "Service",
            Denied(QUOTA),
            f"NoResources: the Service {SYSTEM}/{EDGE} can't be applied: {QUOTA}. Raise the Res",
        ),
        (
            "Deployment",
            Invalid(Cause("spec", "too large.")),
            f"Deployment {SYSTEM}/{EDGE} can't be applied: spec: too large. Co",
        ),
        (
            "PodDisruptionBudget",
            Denied('webhook "x" denied the request: no'),
            "denied the request: no. Change the Gateway",
        ),
    ],
)
async def test_the_finding_has_the_servers_reason_and_the_remedy(rejecting: RejectedObjects, kind, error, expected):
    rejecting.store.rejected = {kind: error}
    assert expected in await rejecting.attempt()


async def test_a_gateway_recovers_when_the_api_server_accepts_its_objects(rejecting: RejectedObjects) -> None:
    rejecting.store.rejected = {"Service": Denied(QUOTA)}
    assert "NoResources" in await rejecting.attempt()
    assert (await rejecting.ports("edge"), await rejecting.ports("zone")) == ([], [80])
    rejecting.store.rejected = {}
    rejecting.now += LONGEST_S
    await rejecting.proxies.reconcile()
    assert rejecting.proxies.findings.get() == ()
    assert await rejecting.ports("edge") == [80]


async def test_rejected_objects_are_applied_again_after_growing_pauses_only(rejecting: RejectedObjects) -> None:
    """A change to another Gateway reconciles all of them."""
    rejecting.store.rejected = {"Deployment": Denied("no")}
    await rejecting.attempt()
    await rejecting.edit("zone", 81)
    await rejecting.attempt(0)
    assert await rejecting.ports("zone") == [81]
    assert rejecting.store.attempts == 1
    for _ in range(200):
        await rejecting.attempt(1)
    assert 10 <= rejecting.store.attempts <= 30  # after a few seconds, each pause has 10 to 20 s


async def test_an_edit_of_a_rejected_gateway_is_applied_at_once(rejecting: RejectedObjects) -> None:
    rejecting.store.rejected = {"Deployment": Denied("no")}
    await rejecting.attempt()
    await rejecting.edit("edge", 81)
    await rejecting.attempt(0)
    assert rejecting.store.attempts == 2


async def test_reverting_a_rejected_edit_restores_the_objects_that_were_accepted(rejecting: RejectedObjects) -> None:
    """The Deployment was applied before the Service was rejected."""
    await rejecting.proxies.reconcile()
    before = (await rejecting.store.get(DEPLOYMENT))["metadata"]["annotations"]
    original = await rejecting.store.get(EDGE_KEY)
    edited = edge(80, infrastructure={"annotations": {"example.com/a": "b"}})["spec"]
    await rejecting.store.update({**original, "spec": edited})
    rejecting.store.rejected = {"Service": Denied("no")}
    await rejecting.attempt()
    assert (await rejecting.store.get(DEPLOYMENT))["metadata"]["annotations"] != before
    rejecting.store.rejected = {}
    await rejecting.store.update({**await rejecting.store.get(EDGE_KEY), "spec": original["spec"]})
    await rejecting.proxies.reconcile()
    assert (await rejecting.store.get(DEPLOYMENT))["metadata"]["annotations"] == before


async def test_a_short_failure_of_the_api_server_is_no_finding(rejecting: RejectedObjects) -> None:
    rejecting.store.rejected = {"Deployment": Unavailable("etcdserver: request timed out")}
    for _ in range(2):
        rejecting.now += LONGEST_S
        await rejecting.proxies.reconcile()
        assert rejecting.proxies.findings.get() == ()
    assert "ObjectRejected" in await rejecting.attempt()


async def test_a_deleted_gateway_has_no_finding(rejecting: RejectedObjects) -> None:
    rejecting.store.rejected = {"Deployment": Denied("no")}
    await rejecting.attempt()
    await rejecting.store.delete(EDGE_KEY)
    await rejecting.proxies.reconcile()
    assert rejecting.proxies.findings.get() == ()


async def test_the_objects_of_a_deleted_gateway_are_deleted_if_its_service_was_rejected(
    rejecting: RejectedObjects,
) -> None:
    rejecting.store.rejected = {"Service": Denied("no")}
    await rejecting.attempt()
    assert await rejecting.store.get(DEPLOYMENT)
    await rejecting.store.delete(EDGE_KEY)
    await rejecting.proxies.reconcile()
    for key in (DEPLOYMENT, BUDGET):
        with pytest.raises(NotFound):
            await rejecting.store.get(key)


PODS = 'pods "gateway-shop-edge-1-x" is forbidden: exceeded quota: small, requested: pods=1'


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (PODS, f"NoResources: the Deployment {SYSTEM}/{EDGE} can't create its pods: {PODS}. Raise"),
        ("no", "ObjectRejected: "),
    ],
)
async def test_the_finding_about_rejected_pods_ends_when_a_pod_is_available(
    rejecting: RejectedObjects, message: str, expected: str
) -> None:
    await rejecting.proxies.reconcile()
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}

    async def set_status(**status: Any) -> None:
        deployment = await rejecting.store.get(DEPLOYMENT)
        await rejecting.store.update({**deployment, "status": status}, subresource="status")

    await set_status(conditions=[{"type": "Available", "status": "False"}, failure])
    assert (await rejecting.attempt()).startswith(expected)
    await set_status(conditions=[failure], availableReplicas=1)
    await rejecting.proxies.reconcile()
    assert rejecting.proxies.findings.get() == ()


async def test_the_running_controller_serves_other_gateways_and_retries_the_rejected_one() -> None:
    store = RejectingStore()
    proxies = GatewayProxies(store, OPTIONS)
    world = RejectedObjects()
    world.store, world.proxies = store, proxies
    store.rejected = {"Service": Denied("no")}
    await world.create()
    task = asyncio.create_task(proxies.run(Latest(compile_mesh(Snapshot(), Settings()))))
    async with asyncio.timeout(DEADLINE_S):
        await until(lambda: bool(proxies.findings.get()), proxies.findings)
        assert [item.about for item in proxies.findings.get()] == [EDGE_KEY]
        await world.edit("zone", 81)
        async with aclosing(follow(store, "", "Service", SYSTEM)) as steps:
            async for _ in steps:
                if await world.ports("zone") == [81]:
                    break
        assert await world.ports("edge") == []
        store.rejected = {}
        await until(lambda: not proxies.findings.get(), proxies.findings)
    assert await world.ports("edge") == [80]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_service_of_a_gateway_has_the_ports_of_its_listener_sets(store: MemoryStore) -> None:
    """Only of listeners that are served; without a compiled mesh, the Services of Gateways stay as they are."""
    proxies, compiled = GatewayProxies(store, OPTIONS), Latest[Compiled | None](None)
    own = edge(80, allowedListeners={"namespaces": {"from": "Same"}})
    broken = listener(444, "broken", protocol="HTTPS", tls={"certificateRefs": [{"name": "missing"}]})
    spec = {"parentRef": {"name": "edge"}, "listeners": [listener(81), broken]}
    team = obj("ListenerSet", "team", namespace="shop", spec=spec)
    await store.create(own)

    async def ports(*expected: int) -> None:
        async with asyncio.timeout(DEADLINE_S), aclosing(follow(store, "", "Service", SYSTEM)) as steps:
            async for _ in steps:
                with suppress(NotFound):
                    if [port["port"] for port in (await store.get(SERVICE))["spec"]["ports"]] == [*expected]:
                        break

    def mesh(*objects: Object) -> Compiled:
        return compile_mesh(snapshot_of({key_of(written): written for written in objects}), Settings())

    task = asyncio.create_task(proxies.run(compiled))
    compiled.set(mesh(own, team))
    await ports(80, 81)
    compiled.set(mesh(own))
    await ports(80)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
