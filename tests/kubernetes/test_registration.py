"""The registration of the active control plane: its label, the CA bundles, and the roots for sidecars."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headgate.errors import NotFound
from headgate.kubernetes import registration as module
from headgate.kubernetes.install.manifests import Values, manifests
from headgate.kubernetes.options import Options
from headgate.kubernetes.registration import Registration
from headgate.latest import Latest, until
from headgate.model.identities import Credential, PrivateText
from headgate.objects.ports import Store
from headgate.plane.feed import snapshot_of
from headgate.resources.registry import key_of
from headgate.standalone.store.memory import MemoryStore

POD = "/api/v1/namespaces/headgate-system/pods/headgate-1"
APIS = "/apis/apiregistration.k8s.io/v1/apiservices/v1.inspect.headgate.dev"
INJECTION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/headgate"
SPLITS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trafficsplits.split.smi-spec.io"


class FakeClient:
    """An API server's objects by path, and the number of writes."""

    def __init__(self, objects: dict[str, Any]) -> None:
        self.objects = objects
        self.writes: Latest[int] = Latest(0)

    async def get(self, path: str) -> Any:
        if path not in self.objects:
            raise NotFound(path)
        return self.objects[path]

    async def put(self, path: str, obj: Any) -> Any:
        self.objects[path] = obj
        self.writes.set(self.writes.get() + 1)
        return obj

    async def merge(self, path: str, patch: Any) -> Any:
        self.objects[path]["metadata"].setdefault("labels", {}).update(patch["metadata"]["labels"])
        self.writes.set(self.writes.get() + 1)
        return self.objects[path]


@pytest.fixture
async def client() -> FakeClient:
    """The objects of an installation, of which three are enough to see each place of a bundle."""
    paths = {"MutatingWebhookConfiguration": INJECTION, "APIService": APIS, "CustomResourceDefinition": SPLITS}
    found: dict[str, Any] = {POD: {"metadata": {"name": "headgate-1"}}}
    for item in manifests(Values(image="headgate:1")):
        path = paths.get(item["kind"])
        if path and path.endswith(f"/{item['metadata']['name']}"):
            found[path] = item
    assert len(found) == 4
    return FakeClient(found)


def credential(roots: str) -> Credential:
    return Credential(chain="", key=PrivateText(""), roots=roots)


@contextlib.asynccontextmanager
async def running(client: FakeClient, store: Store, roots: Latest[Credential], *pods: Any) -> AsyncIterator[None]:
    options = Options(pod="headgate-1", image="headgate:1")
    registration = Registration(store, client, options, roots)  # type: ignore[arg-type]
    snapshot = Latest(snapshot_of({key_of(pod): pod for pod in pods}))
    task = asyncio.create_task(registration.run(snapshot))  # type: ignore[arg-type]
    yield
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
        del client.objects[APIS]["spec"]["caBundle"]  # as an upgrade may do
        await until(lambda: client.writes.get() == 8, client.writes)
        assert set(bundles(client)) == {"OLD NEW"}


@pytest.mark.parametrize(("service", "writes"), [("headgate", 5), ("adapter", 4)])
async def test_the_bundle_of_custom_metrics_is_written_only_if_headgate_serves_them(
    client: FakeClient, service: str, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTORE_S", 0)
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.custom.metrics.k8s.io"
    spec = {"group": "custom.metrics.k8s.io", "service": {"namespace": "headgate-system", "name": service}}
    client.objects[path] = {"kind": "APIService", "metadata": {}, "spec": spec}
    async with running(client, MemoryStore(), Latest(credential("ROOTS"))):
        await until(lambda: client.writes.get() == writes, client.writes)
        for _ in range(50):
            await asyncio.sleep(0)
    assert client.writes.get() == writes
    assert ("caBundle" in client.objects[path]["spec"]) == (service == "headgate")


async def test_namespaces_with_sidecars_get_the_roots(client: FakeClient) -> None:
    store = MemoryStore()
    pods = []
    for namespace, annotations in (("shop", {"headgate.dev/sidecar": "transparent"}), ("plain", {})):
        await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        metadata = {"name": "web", "namespace": namespace, "annotations": annotations}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "a"}]}})
    async with running(client, store, Latest(credential("ROOTS")), *pods):
        await until(lambda: client.writes.get() == 4, client.writes)
        found = (await store.list("", "ConfigMap")).items
    assert [(item["metadata"]["namespace"], item["data"]) for item in found] == [("shop", {"roots.pem": "ROOTS"})]
