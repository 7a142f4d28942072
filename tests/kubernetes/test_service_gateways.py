"""The objects of gateways behind Services on a cluster, and the EndpointSlices that lead clients to them (R32, D23)."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headgate.admission.sidecar_containers import SidecarOptions
from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.errors import Cause, Invalid
from headgate.kubernetes.service_gateways import READY, ProxyImages, ServiceGateways, asked_in
from headgate.latest import Latest, until
from headgate.objects.events import EventRecorder
from headgate.plane.feed import COMPILED, Feed, snapshot_of
from headgate.resources.gateway import proxy_name
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


class World:
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
            await self.gateways.reconcile(asked_in(compile_mesh(snapshot, Settings()), snapshot))

    async def serve(
        self, *, selector: Mapping[str, str] | None = None, annotations: Mapping[str, str] = ASKING
    ) -> None:
        """Create the Service `web`, or change its selector and annotations."""
        ports = [{"name": "http", "port": 80}, {"name": "grpc", "port": 9090}]
        spec = {"clusterIP": "10.96.0.7", "ports": ports, **({"selector": selector} if selector else {})}
        metadata = {"name": "web", "namespace": "shop", "annotations": annotations}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
        if await self.find(WEB) is None:
            await self.store.create(service)
        else:
            await self.store.update(service)

    async def run_pod(self, *, ready: bool) -> None:
        """Run a pod of the Deployment, as Kubernetes does."""
        template = (await self.store.get(DEPLOYMENT))["spec"]["template"]
        metadata = {"name": "proxy-1", "namespace": SYSTEM, **template["metadata"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        if await self.find(key_of(pod)) is None:
            await self.store.create(pod)
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = {"podIP": "10.244.0.9", "phase": "Running", "conditions": conditions}
        await self.store.update({**pod, "status": status}, subresource="status")

    async def select_pods(self) -> None:
        """Write the EndpointSlice of pods that the Service selects, as Kubernetes does."""
        labels = {"kubernetes.io/service-name": "web"}
        metadata = {"name": "web-1", "namespace": "shop", "labels": labels}
        ports, endpoints = [{"name": "http", "port": 8080}], [{"addresses": ["10.244.0.1"]}]
        body = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata}
        await self.store.create({**body, "addressType": "IPv4", "ports": ports, "endpoints": endpoints})

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
async def world() -> World:
    world = World()
    for name in ("shop", SYSTEM):
        await world.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return world


async def test_clients_are_led_to_a_gateway_when_its_pod_is_ready(world: World) -> None:
    """The pods listen on ports that need no privilege."""
    await world.serve()
    await world.settle()
    template = (await world.store.get(DEPLOYMENT))["spec"]["template"]
    assert template["metadata"]["annotations"] == {"headgate.dev/gateway-service": "shop/web"}
    assert template["spec"]["serviceAccountName"] == "gateway"
    assert await world.ready() is None
    await world.run_pod(ready=False)
    await world.settle()
    assert await world.ready() is None
    await world.run_pod(ready=True)
    await world.settle()
    found = await world.store.get(SLICE)
    assert [(item["name"], item["port"]) for item in found["ports"]] == [("http", 61080), ("grpc", 9090)]
    assert [item["addresses"] for item in found["endpoints"]] == [["10.244.0.9"]]
    events = [item for item in (await world.store.list("", "Event")).items if item["reason"] == READY]
    assert [item["involvedObject"]["name"] for item in events] == ["web"]
    await world.run_pod(ready=False)
    await world.settle()
    assert await world.ready() == [False]


async def test_a_gateway_that_no_object_asks_for_is_deleted_after_its_clients_are_led_away(world: World) -> None:
    await world.serve()
    await world.settle()
    await world.run_pod(ready=True)
    await world.settle()
    await world.serve(annotations={})
    world.store.deleted.clear()
    await world.settle()
    assert [key for key in world.store.deleted if key in (SLICE, DEPLOYMENT)] == [SLICE, DEPLOYMENT]
    assert (await world.store.list("policy", "PodDisruptionBudget")).items == []


async def test_a_service_with_a_selector_leads_clients_to_the_selected_pods(world: World) -> None:
    """The gateway runs, so that the selector can be removed without a failed request."""
    await world.serve(selector={"app": "web"})
    await world.settle()
    await world.run_pod(ready=True)
    await world.settle()
    assert await world.deployments() == [PROXY]
    assert await world.ready() is None
    await world.serve()
    await world.settle()
    assert await world.ready() == [True]


async def test_a_selector_leads_clients_away_from_the_gateway_when_it_selects_pods(world: World) -> None:
    await world.serve()
    await world.settle()
    await world.run_pod(ready=True)
    await world.settle()
    await world.serve(selector={"app": "web"})
    await world.settle()
    assert await world.ready() == [True]
    await world.select_pods()
    await world.settle()
    assert await world.ready() is None


async def test_a_gateway_with_nginx_needs_the_image_of_an_operator_and_has_no_identity(world: World) -> None:
    await world.serve(annotations={"headgate.dev/gateway": "nginx"})
    await world.settle()
    assert await world.deployments() == []
    (finding,) = world.gateways.findings.get()
    assert "headgate install with --nginx-image" in finding.message
    world.gateways = world.controller(nginx="headgate-nginx:1")
    await world.settle()
    assert world.gateways.findings.get() == ()
    pod = (await world.store.get(DEPLOYMENT))["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "default"
    assert [(item["image"], item["command"]) for item in pod["containers"]] == [
        ("headgate-nginx:1", ["headgate", "gateway", "nginx"])
    ]


async def test_a_canary_asks_for_a_gateway_of_its_root_service(world: World) -> None:
    await world.serve(annotations={})
    canary = {
        "apiVersion": "headgate.dev/v1beta1",
        "kind": "Canary",
        "metadata": {"name": "my-canary", "namespace": "shop", "annotations": ASKING},
        "spec": {"service": "web", "backends": [{"service": "web-next", "weight": "100m"}]},
    }
    await world.store.create(canary)
    await world.settle()
    assert await world.deployments() == [PROXY]
    await world.store.delete(key_of(canary))
    await world.settle()
    assert await world.deployments() == []


async def test_a_deployment_without_a_ready_pod_is_reported_to_the_object_that_asks(world: World) -> None:
    await world.serve()
    await world.settle()
    deployment = await world.store.get(DEPLOYMENT)
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    await world.store.update({**deployment, "status": {"conditions": [condition]}}, subresource="status")
    await world.settle()
    (finding,) = world.gateways.findings.get()
    assert (finding.about, finding.reason.value) == (WEB, "GatewayNotReady")


async def test_an_object_that_the_api_server_rejects_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def rejecting(_config: Object, **_options: Any) -> Object:
        raise Invalid(Cause("spec", "too large"))

    monkeypatch.setattr(world.store, "apply", rejecting)
    await world.serve()
    await world.settle()
    (finding,) = world.gateways.findings.get()
    assert "Correct the value in the Service" in finding.message


async def test_changes_of_services_and_pods_are_followed(world: World) -> None:
    """Another control plane takes over then, and deletes nothing."""

    async def wait(key: Key) -> None:
        while await world.find(key) is None:
            await asyncio.sleep(0.01)

    async with following(world.store) as (compiled, snapshot):
        async with running(world.gateways.run(compiled, snapshot)):
            await world.serve()
            await wait(DEPLOYMENT)
            await world.run_pod(ready=True)
            await wait(SLICE)
        await until(lambda: bool(snapshot.get() and snapshot.get().gateway_slices), snapshot)
        world.store.deleted.clear()
        async with running(world.controller().run(compiled, snapshot)):
            await world.store.delete(SLICE)
            await wait(SLICE)
    assert world.store.deleted == [SLICE]


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
