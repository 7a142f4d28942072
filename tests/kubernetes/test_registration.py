"""The registration of the active control plane: its label, the CA bundles, and the roots for sidecars."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headgate.errors import NotFound
from headgate.kubernetes import registration as module
from headgate.kubernetes.client import AccessDenied
from headgate.kubernetes.install.manifests import Values, manifests
from headgate.kubernetes.options import Options
from headgate.kubernetes.registration import Registration
from headgate.latest import Latest, until
from headgate.model.identities import Credential, PrivateText
from headgate.objects.ports import Store
from headgate.options import MeshOptions
from headgate.plane.feed import snapshot_of
from headgate.resources.registry import key_of
from headgate.standalone.store.memory import MemoryStore

PODS = "/api/v1/namespaces/headgate-system/pods"
POD, OTHER_POD = f"{PODS}/headgate-1", f"{PODS}/headgate-2"
APIS = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.inspect.headgate.dev"
INJECTION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/headgate"
SPLITS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trafficsplits.split.smi-spec.io"


class FakeClient:
    """An API server's objects by path, and the number of writes."""

    def __init__(self, objects: dict[str, Any]) -> None:
        self.objects = objects
        self.writes: Latest[int] = Latest(0)
        self.denied: set[str] = set()

    async def get(self, path: str, labelSelector: str = "") -> Any:  # noqa: N803 - the API server's name
        if path in self.denied:
            raise AccessDenied(403, "forbidden")
        if path == PODS:
            pods = (self.objects[pod] for pod in (POD, OTHER_POD))
            label = labelSelector.partition("=")[0]
            return {"items": [pod for pod in pods if label in pod["metadata"].get("labels", {})]}
        if path not in self.objects:
            raise NotFound(path)
        return self.objects[path]

    async def version(self, path: str) -> str:
        return str((await self.get(path))["metadata"].get("resourceVersion", ""))

    async def put(self, path: str, obj: Any) -> Any:
        version = str(self.writes.get() + 1)
        self.objects[path] = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
        self.writes.set(self.writes.get() + 1)
        return self.objects[path]

    async def merge(self, path: str, patch: Any) -> Any:
        labels = {**self.objects[path]["metadata"].get("labels", {}), **patch["metadata"]["labels"]}
        self.objects[path]["metadata"]["labels"] = {name: value for name, value in labels.items() if value is not None}
        self.writes.set(self.writes.get() + 1)
        return self.objects[path]


@pytest.fixture
async def client() -> FakeClient:
    """A fake API server with the replica's pod and one object for each place of a CA bundle."""
    paths = {"MutatingWebhookConfiguration": INJECTION, "APIService": APIS, "CustomResourceDefinition": SPLITS}
    found: dict[str, Any] = {f"{PODS}/{name}": {"metadata": {"name": name}} for name in ("headgate-1", "headgate-2")}
    for item in manifests(Values(image="headgate:1")):
        path = paths.get(item["kind"])
        if path and path.endswith(f"/{item['metadata']['name']}"):
            found[path] = item
    assert len(found) == 5
    return FakeClient(found)


def credential(roots: str) -> Credential:
    return Credential(chain="", key=PrivateText(""), roots=roots)


@contextlib.asynccontextmanager
async def running(
    client: FakeClient,
    store: Store,
    roots: Latest[Credential],
    *pods: Any,
    custom_metrics: bool = False,
    serves: bool = True,
) -> AsyncIterator[Latest[str]]:
    """Run the registration of a replica that serves; yield the roots that all clients trust."""
    options = Options(
        pod="headgate-1", image="headgate:1", mesh=MeshOptions(custom_metrics=custom_metrics), volume_seconds=0
    )
    trusted = Latest("")
    registration = Registration(store, client, options, roots, trusted)  # type: ignore[arg-type]
    if serves:
        registration.serve()
    snapshot = Latest(snapshot_of({key_of(pod): pod for pod in pods}))
    task = asyncio.create_task(registration.run(snapshot))  # type: ignore[arg-type]
    yield trusted
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def bundles(client: FakeClient) -> list[str]:
    places = [hook["clientConfig"] for hook in client.objects[INJECTION]["webhooks"]]
    places += [client.objects[APIS]["spec"], client.objects[SPLITS]["spec"]["conversion"]["webhook"]["clientConfig"]]
    return [base64.b64decode(place["caBundle"]).decode() for place in places]


async def test_the_active_replica_is_labeled_and_its_ca_is_trusted(client: FakeClient) -> None:
    async with running(client, MemoryStore(), Latest(credential("ROOTS"))):
        await until(lambda: client.writes.get() == 4, client.writes)
    assert client.objects[POD]["metadata"]["labels"] == {"headgate.dev/active": "true"}
    assert set(bundles(client)) == {"ROOTS"}


async def test_the_api_server_can_convert_objects_before_the_replica_serves(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica lists objects before it serves, and the API server may have stored them in another version."""
    monkeypatch.setattr(module, "RESTORE_S", 0)
    async with running(client, MemoryStore(), Latest(credential("ROOTS")), serves=False) as trusted:
        await until(lambda: client.writes.get() == 1, client.writes)
        for _ in range(50):
            await asyncio.sleep(0)
        assert trusted.get() == ""
    assert client.writes.get() == 1
    assert client.objects[SPLITS]["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
    assert "labels" not in client.objects[POD]["metadata"]


async def test_new_roots_and_reset_bundles_are_written_and_equal_ones_are_not(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTORE_S", 0)
    certificate = Latest(credential("OLD"))
    async with running(client, MemoryStore(), certificate):
        await until(lambda: client.writes.get() == 4, client.writes)
        for _ in range(50):
            await asyncio.sleep(0)
        assert client.writes.get() == 4
        certificate.set(credential("OLD NEW"))
        await until(lambda: client.writes.get() == 7, client.writes)
        assert set(bundles(client)) == {"OLD NEW"}
        spec = {name: value for name, value in client.objects[APIS]["spec"].items() if name != "caBundle"}
        await client.put(APIS, {**client.objects[APIS], "spec": spec})  # as an upgrade may do
        await until(lambda: client.writes.get() == 9, client.writes)
        assert set(bundles(client)) == {"OLD NEW"}


async def test_roots_are_trusted_once_they_are_in_all_bundles_and_namespaces(client: FakeClient) -> None:
    """New roots are written at once. While one write fails, they are not trusted."""
    store = MemoryStore()
    await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    metadata = {"name": "web", "namespace": "shop", "annotations": {"headgate.dev/sidecar-mode": "transparent"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "a"}]}}
    certificate = Latest(credential("OLD"))
    async with running(client, store, certificate, pod) as trusted:
        await until(lambda: trusted.get() == "OLD", trusted)
        certificate.set(credential("OLD NEW"))
        await until(lambda: trusted.get() == "OLD NEW", trusted)
        assert set(bundles(client)) == {"OLD NEW"}
        (found,) = (await store.list("", "ConfigMap")).items
        assert found["data"] == {"roots.pem": "OLD NEW"}
        client.denied = {INJECTION}
        writes = client.writes.get()
        certificate.set(credential("NEW"))
        await until(lambda: client.writes.get() == writes + 2, client.writes)
        for _ in range(50):
            await asyncio.sleep(0)
        assert trusted.get() == "OLD NEW"


@pytest.mark.parametrize(("service", "requested"), [("headgate", True), ("headgate", False), ("adapter", True)])
async def test_the_bundle_of_custom_metrics_is_written_only_if_headgate_serves_them(
    client: FakeClient, service: str, monkeypatch: pytest.MonkeyPatch, *, requested: bool
) -> None:
    is_written = requested and service == "headgate"
    writes = 5 if is_written else 4
    monkeypatch.setattr(module, "RESTORE_S", 0)
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.custom.metrics.k8s.io"
    spec = {
        "group": "custom.metrics.k8s.io",
        "version": "v1beta2",
        "service": {"namespace": "headgate-system", "name": service},
    }
    client.objects[path] = {"kind": "APIService", "metadata": {}, "spec": spec}
    async with running(client, MemoryStore(), Latest(credential("ROOTS")), custom_metrics=requested):
        await until(lambda: client.writes.get() == writes, client.writes)
        for _ in range(50):
            await asyncio.sleep(0)
    assert client.writes.get() == writes
    assert ("caBundle" in client.objects[path]["spec"]) == is_written


async def test_a_denied_write_does_not_stop_the_remaining_ones_and_is_retried_until_allowed(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTORE_S", 0)
    client.denied = {PODS, INJECTION}
    async with running(client, MemoryStore(), Latest(credential("ROOTS"))):
        await until(lambda: client.writes.get() == 2, client.writes)
        client.denied = set()
        await until(lambda: client.writes.get() == 4, client.writes)
    assert set(bundles(client)) == {"ROOTS"}


async def test_only_the_pod_of_the_active_replica_keeps_the_label(client: FakeClient) -> None:
    """The container of the other pod was killed while it was active, and runs again."""
    client.objects[OTHER_POD]["metadata"]["labels"] = {"headgate.dev/active": "true", "app": "headgate"}
    async with running(client, MemoryStore(), Latest(credential("roots"))):
        await until(lambda: client.objects[OTHER_POD]["metadata"]["labels"] == {"app": "headgate"}, client.writes)
        await until(lambda: "labels" in client.objects[POD]["metadata"], client.writes)


@pytest.mark.parametrize("serves", [True, False])
async def test_a_pod_that_is_not_ready_gets_no_conversions(client: FakeClient, *, serves: bool) -> None:
    """The endpoints of their Service are also pods that are not ready: of a failed node, or between two starts of a container."""
    client.objects[OTHER_POD]["metadata"]["labels"] = {"headgate.dev/converts": "true", "app": "headgate"}
    client.objects[POD]["metadata"]["labels"] = {"headgate.dev/converts": "true"}
    client.objects[OTHER_POD]["status"] = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    async with running(client, MemoryStore(), Latest(credential("roots")), serves=serves):
        await until(lambda: client.objects[OTHER_POD]["metadata"]["labels"] == {"app": "headgate"}, client.writes)
    assert "headgate.dev/converts" in client.objects[POD]["metadata"]["labels"]


async def test_a_standby_replica_that_is_ready_keeps_getting_conversions(client: FakeClient) -> None:
    client.objects[OTHER_POD]["metadata"]["labels"] = {"headgate.dev/converts": "true"}
    client.objects[OTHER_POD]["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    async with running(client, MemoryStore(), Latest(credential("roots"))) as trusted:
        await until(lambda: trusted.get() == "roots", trusted)
    assert client.objects[OTHER_POD]["metadata"]["labels"] == {"headgate.dev/converts": "true"}
