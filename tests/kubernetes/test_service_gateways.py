"""The objects of gateways behind Services on a cluster, and the EndpointSlices that lead clients to them (R32, D23)."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.make.objects import endpoint_slice, namespace, obj, port, with_spec

from headgate.admission.sidecar_containers import SidecarOptions
from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.errors import Cause, Invalid
from headgate.kubernetes.service_gateways import READY, ProxyImages, ServiceGateways, requested_in
from headgate.latest import Latest, until
from headgate.objects.events import EventRecorder
from headgate.plane.feed import COMPILED, Feed, snapshot_of
from headgate.resources.gateway_api.proxies import proxy_name
from headgate.resources.meta import Key, Object
from headgate.resources.registry import key_of
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore

SYSTEM = "headgate-system"
ASKING = {"headgate.dev/gateway": "envoy"}
PROXY = proxy_name("shop", "web", of="service")
WEB, DEPLOYMENT = Key("", "Service", "shop", "web"), Key("apps", "Deployment", SYSTEM, PROXY)
SLICE = Key("discovery.k8s.io", "EndpointSlice", "shop", "web-headgate-gateway")


class RecordingStore(MemoryStore):
    """A store that remembers the keys of deleted objects in order."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[Key] = []

    async def delete(self, key: Key, **options: Any) -> Object:
        self.deleted.append(key)
        return await super().delete(key, **options)


class ServiceGatewayRig:
    """The objects of a cluster, and the controller of gateways. `settle` reconciles until nothing changes."""

    def __init__(self) -> None:
        self.store = RecordingStore()
        self.gateways = self.controller()

    def controller(self, *, nginx: str = "") -> ServiceGateways:
        """Return a controller; `nginx` is the image that the operator has named."""
        images = ProxyImages(SidecarOptions(image="headgate:1", xds="headgate:15010"), nginx)
        return ServiceGateways(self.store, EventRecorder(self.store, "headgate"), images)

    async def settle(self) -> None:
        for _ in range(3):
            stored = [item for kind in COMPILED for item in (await self.store.list(kind.group, kind.kind)).items]
            snapshot = snapshot_of({key_of(item): item for item in stored})
            await self.gateways.reconcile(requested_in(compile_mesh(snapshot, Settings()), snapshot))

    async def serve(
        self, *, selector: Mapping[str, str] | None = None, annotations: Mapping[str, str] = ASKING
    ) -> None:
        """Create the Service `web`, or change its selector and annotations."""
        selecting = {"selector": selector} if selector else {}
        spec = {"clusterIP": "10.96.0.7", "ports": [port(80, "http"), port(9090, "grpc")], **selecting}
        web = with_spec("Service", "web", spec, {"namespace": "shop", "annotations": annotations})
        if await self.find(WEB) is None:
            await self.store.create(web)
        else:
            await self.store.update(web)

    async def run_pod(self, *, ready: bool) -> None:
        """Run a pod of the Deployment, as Kubernetes does."""
        template = (await self.store.get(DEPLOYMENT))["spec"]["template"]
        proxy = obj("Pod", "proxy-1", namespace=SYSTEM, metadata=template["metadata"], spec=template["spec"])
        if await self.find(key_of(proxy)) is None:
            await self.store.create(proxy)
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = {"podIP": "10.244.0.9", "phase": "Running", "conditions": conditions}
        await self.store.update({**proxy, "status": status}, subresource="status")

    async def select_pods(self) -> None:
        """Write the EndpointSlice of pods that the Service selects, as Kubernetes does."""
        await self.store.create(endpoint_slice("web", ["10.244.0.1"], {"http": 8080}, name="web-1", namespace="shop"))

    async def find(self, key: Key) -> Object | None:
        found = (await self.store.list(key.group, key.kind, key.namespace)).items
        return next((item for item in found if key_of(item) == key), None)

    async def ready(self) -> list[bool] | None:
        """Return which endpoints of the gateway are ready; None if clients are not led to it."""
        found = await self.find(SLICE)
        return [item["conditions"]["ready"] for item in found["endpoints"]] if found else None

    async def deployments(self) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.store.list("apps", "Deployment")).items]


@pytest.fixture
async def rig() -> ServiceGatewayRig:
    rig = ServiceGatewayRig()
    for name in ("shop", SYSTEM):
        await rig.store.create(namespace(name))
    return rig


async def test_clients_are_led_to_a_gateway_when_its_pod_is_ready(rig: ServiceGatewayRig) -> None:
    """The pods listen on ports that need no privilege."""
    await rig.serve()
    await rig.settle()
    template = (await rig.store.get(DEPLOYMENT))["spec"]["template"]
    assert template["metadata"]["annotations"] == {"headgate.dev/proxy-of-service": "shop/web"}
    assert template["spec"]["serviceAccountName"] == "gateway"
    assert await rig.ready() is None
    await rig.run_pod(ready=False)
    await rig.settle()
    assert await rig.ready() is None
    await rig.run_pod(ready=True)
    await rig.settle()
    found = await rig.store.get(SLICE)
    assert [(item["name"], item["port"]) for item in found["ports"]] == [("http", 61080), ("grpc", 9090)]
    assert [item["addresses"] for item in found["endpoints"]] == [["10.244.0.9"]]
    events = [item for item in (await rig.store.list("", "Event")).items if item["reason"] == READY]
    assert [item["involvedObject"]["name"] for item in events] == ["web"]
    await rig.run_pod(ready=False)
    await rig.settle()
    assert await rig.ready() == [False]


async def test_a_gateway_that_no_object_asks_for_is_deleted_after_its_clients_are_led_away(
    rig: ServiceGatewayRig,
) -> None:
    await rig.serve()
    await rig.settle()
    await rig.run_pod(ready=True)
    await rig.settle()
    await rig.serve(annotations={})
    rig.store.deleted.clear()
    await rig.settle()
    assert [key for key in rig.store.deleted if key in (SLICE, DEPLOYMENT)] == [SLICE, DEPLOYMENT]
    assert (await rig.store.list("policy", "PodDisruptionBudget")).items == []


async def test_a_service_with_a_selector_leads_clients_to_the_selected_pods(rig: ServiceGatewayRig) -> None:
    """The gateway runs, so that the selector can be removed without a failed request."""
    await rig.serve(selector={"app": "web"})
    await rig.settle()
    await rig.run_pod(ready=True)
    await rig.settle()
    assert await rig.deployments() == [PROXY]
    assert await rig.ready() is None
    await rig.serve()
    await rig.settle()
    assert await rig.ready() == [True]


async def test_a_selector_leads_clients_away_from_the_gateway_when_it_selects_pods(rig: ServiceGatewayRig) -> None:
    await rig.serve()
    await rig.settle()
    await rig.run_pod(ready=True)
    await rig.settle()
    await rig.serve(selector={"app": "web"})
    await rig.settle()
    assert await rig.ready() == [True]
    await rig.select_pods()
    await rig.settle()
    assert await rig.ready() is None


async def test_a_gateway_with_nginx_needs_the_image_of_an_operator_and_has_no_identity(rig: ServiceGatewayRig) -> None:
    await rig.serve(annotations={"headgate.dev/gateway": "nginx"})
    await rig.settle()
    assert await rig.deployments() == []
    (finding,) = rig.gateways.findings.get()
    assert "headgate install with --nginx-image" in finding.message
    rig.gateways = rig.controller(nginx="headgate-nginx:1")
    await rig.settle()
    assert rig.gateways.findings.get() == ()
    pod = (await rig.store.get(DEPLOYMENT))["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "default"
    assert [(item["image"], item["command"]) for item in pod["containers"]] == [
        ("headgate-nginx:1", ["headgate", "gateway", "nginx"])
    ]


async def test_a_canary_asks_for_a_gateway_of_its_root_service(rig: ServiceGatewayRig) -> None:
    await rig.serve(annotations={})
    canary = {
        "apiVersion": "headgate.dev/v1beta1",
        "kind": "Canary",
        "metadata": {"name": "my-canary", "namespace": "shop"},
        "spec": {"gateway": "Envoy", "service": "web", "backends": [{"service": "web-next", "weight": "100m"}]},
    }
    await rig.store.create(canary)
    await rig.settle()
    assert await rig.deployments() == [PROXY]
    await rig.store.delete(key_of(canary))
    await rig.settle()
    assert await rig.deployments() == []


async def test_a_deployment_without_a_ready_pod_is_reported_to_the_object_that_requests_it(
    rig: ServiceGatewayRig,
) -> None:
    await rig.serve()
    await rig.settle()
    deployment = await rig.store.get(DEPLOYMENT)
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    await rig.store.update({**deployment, "status": {"conditions": [condition]}}, subresource="status")
    await rig.settle()
    (finding,) = rig.gateways.findings.get()
    assert (finding.about, finding.reason.value) == (WEB, "GatewayNotReady")


async def test_an_object_that_the_api_server_rejects_is_reported(
    rig: ServiceGatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rejecting(_config: Object, **_options: Any) -> Object:
        raise Invalid(Cause("spec", "too large"))

    monkeypatch.setattr(rig.store, "apply", rejecting)
    await rig.serve()
    await rig.settle()
    (finding,) = rig.gateways.findings.get()
    assert "Correct the value in the Service" in finding.message


async def test_changes_of_services_and_pods_are_followed(rig: ServiceGatewayRig) -> None:
    """Another control plane takes over then, and deletes nothing."""

    async def wait(key: Key) -> None:
        while await rig.find(key) is None:
            await asyncio.sleep(0.01)

    async with following(rig.store) as (compiled, snapshot):
        async with running(rig.gateways.run(compiled, snapshot)):
            await rig.serve()
            await wait(DEPLOYMENT)
            await rig.run_pod(ready=True)
            await wait(SLICE)
        await until(lambda: bool(snapshot.get() and snapshot.get().gateway_slices), snapshot)
        rig.store.deleted.clear()
        async with running(rig.controller().run(compiled, snapshot)):
            await rig.store.delete(SLICE)
            await wait(SLICE)
    assert rig.store.deleted == [SLICE]


@asynccontextmanager
async def running(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines that never end."""
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(work) for work in works]
        yield
        for task in started:
            task.cancel()


@asynccontextmanager
async def following(store: MemoryStore) -> AsyncIterator[tuple[Latest[Compiled | None], Latest[Snapshot | None]]]:
    """Yield the compiled mesh, and the snapshot, of the current objects."""
    feed, compiled = Feed(store), Latest[Compiled | None](None)

    async def compile_each() -> None:
        async for snapshot in feed.snapshot.changes():
            if snapshot:
                compiled.set(compile_mesh(snapshot, Settings()))

    async with running(feed.run(), compile_each()):
        await until(lambda: compiled.get() is not None, compiled)
        yield compiled, feed.snapshot
