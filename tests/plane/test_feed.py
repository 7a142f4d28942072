"""Changes to objects make a new snapshot, except for status changes of a running pod."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.decoding import admit
from tests.make.objects import namespace

from headgate.backoff import Backoff
from headgate.compiler.compile import Compiler
from headgate.compiler.reasons import Reason
from headgate.compiler.snapshot import Snapshot
from headgate.errors import NotFound, Unavailable
from headgate.objects.ports import Listing
from headgate.plane.feed import Feed
from headgate.resources.core.pod import MeshPod
from headgate.resources.meta import Key, Object
from headgate.resources.registry import POD, SERVICE
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore

KEY = POD.key("default", "web")
WEB: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
    "spec": {"serviceAccountName": "web", "containers": [{"name": "web", "ports": [{"containerPort": 8080}]}]},
}
RUNNING = {"phase": "Running", "podIP": "127.0.0.9"}


class Followed:
    """A store that a feed follows."""

    def __init__(self) -> None:
        self.store = MemoryStore(admit=admit)
        self.feed = Feed(self.store, {(KEY.group, KEY.kind)})

    async def snapshot(self) -> Snapshot:
        """Return the first snapshot that includes all objects that are stored now."""
        async with asyncio.timeout(60):
            await self.feed.wait_until_current()
        snapshot = self.feed.snapshot.get()
        assert snapshot
        return snapshot

    async def set_status(self, **status: Any) -> Snapshot:
        await self.store.update({**await self.store.get(KEY), "status": status}, subresource="status")
        return await self.snapshot()


@pytest.fixture
async def followed() -> AsyncIterator[Followed]:
    followed = Followed()
    await followed.store.create(WEB)
    task = asyncio.create_task(followed.feed.run())
    yield followed
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_the_wait_for_stored_objects_outlasts_an_overloaded_api_server(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "next_pause", lambda _backoff: 0.01)
    failures = iter([Unavailable("the API server is overloaded")] * 3)
    read = followed.store.list

    async def overloaded(group: str, kind: str, namespace: str = "") -> Listing:
        for failure in failures:
            raise failure
        return await read(group, kind, namespace)

    monkeypatch.setattr(followed.store, "list", overloaded)
    assert (await followed.snapshot()).pods
    assert next(failures, None) is None


async def test_an_object_that_changed_lately_is_read_without_a_request(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await followed.snapshot()
    stored = await followed.store.get(KEY)

    async def missing(key: Key) -> Object:
        raise NotFound(str(key))

    monkeypatch.setattr(followed.store, "get", missing)
    assert await followed.feed.read(KEY) == stored
    written = {**stored, "status": RUNNING}
    followed.feed.record_write(await followed.feed.read(KEY), written)
    assert await followed.feed.read(KEY) == written
    followed.feed.record_write(stored, stored)  # a watch event came before the response to this write
    assert await followed.feed.read(KEY) == written
    followed.feed.forget(KEY)
    with pytest.raises(NotFound):
        await followed.feed.read(KEY)


async def test_a_compilation_changes_no_published_snapshot(followed: Followed) -> None:
    """The feed gives the indexes of a published snapshot to the next one, while a thread compiles."""
    published = await followed.snapshot()
    before = dict(vars(published))
    Compiler().compile(published, Settings())
    assert vars(published) == before


async def test_status_changes_of_a_running_pod_make_no_snapshot(followed: Followed) -> None:
    first = await followed.set_status(**RUNNING)
    statuses = [{"name": "web", "ready": True, "restartCount": 3, "state": {"running": {}}}]
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    assert await followed.set_status(**RUNNING, containerStatuses=statuses, conditions=conditions) is first
    assert await followed.set_status(**RUNNING, containerStatuses=[{**statuses[0], "ready": False}]) is first
    assert await followed.set_status(**RUNNING, initContainerStatuses=statuses) is first


@pytest.mark.parametrize("status", [{**RUNNING, "podIP": "127.0.0.10"}, {**RUNNING, "phase": "Failed"}])
async def test_a_new_address_or_the_end_of_a_pod_makes_a_snapshot(followed: Followed, status: dict[str, Any]) -> None:
    first = await followed.set_status(**RUNNING)
    second = await followed.set_status(**status)
    assert second is not first
    pod = second.objects[KEY]
    assert isinstance(pod, MeshPod)
    assert (pod.status.pod_ip, pod.status.phase) == (status["podIP"], status["phase"])


async def test_a_change_keeps_what_was_found_about_objects_of_other_kinds(followed: Followed) -> None:
    """With 10,000 pods, each reader of a new snapshot would go through all of them."""
    pods = (await followed.snapshot()).pods
    await followed.store.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {}})
    snapshot = await followed.snapshot()
    assert list(snapshot.services) == ["default/web"]
    assert snapshot.pods is pods
    assert (await followed.set_status(**RUNNING)).pods is not pods


async def test_a_snapshot_has_labels_account_and_ports_of_a_pod(followed: Followed) -> None:
    pod = (await followed.snapshot()).objects[KEY]
    assert isinstance(pod, MeshPod)
    assert pod.metadata.labels == {"app": "web"}
    assert pod.spec.service_account_name == "web"
    assert pod.spec.containers[0].ports
    assert pod.spec.containers[0].ports[0].container_port == 8080


async def test_a_wait_for_a_write_ends_when_the_object_has_changed_again_or_was_deleted(followed: Followed) -> None:
    first = await followed.store.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {}}
    )
    async with asyncio.timeout(60):
        await followed.feed.wait_for_object(first)
        labels = {"metadata": {**first["metadata"], "labels": {"a": "b"}}}
        second = await followed.store.update({**first, **labels})
        await followed.feed.wait_for_object(second)
        await followed.feed.wait_for_object(first)
        await followed.store.delete(SERVICE.key("default", "web"))
        await followed.feed.wait_until_current()
        await followed.feed.wait_for_object(second)
    snapshot = followed.feed.snapshot.get()
    assert snapshot
    assert not snapshot.services


@pytest.mark.parametrize(
    ("field", "key", "value"),
    [("annotations", "headgate.dev/proxy-memory", "much"), ("labels", "headgate.dev/inject", "maybe")],
)
async def test_a_wrong_annotation_or_injection_label_of_a_namespace_has_no_effect_and_its_labels_count(
    field: str, key: str, value: str
) -> None:
    """A Namespace may be older than the mesh, and its labels select it for Gateways."""
    store = MemoryStore()
    feed = Feed(store)
    labels = {"team": "web"}
    wrong = {"labels": labels, field: {key: value, **(labels if field == "labels" else {})}}
    await store.create(namespace("shop", **wrong))
    following = asyncio.create_task(feed.run())
    async with asyncio.timeout(60):
        await feed.wait_until_current()
    following.cancel()
    snapshot = feed.snapshot.get()
    assert snapshot
    about = Key("", "Namespace", "", "shop")
    assert snapshot.objects[about].metadata.labels.items() >= labels.items()
    (finding,) = Compiler().compile(snapshot, Settings()).report.findings
    assert (finding.about, finding.reason, finding.field) == (about, Reason.FIELD_IGNORED, f"metadata.{field}.{key}")
    assert finding.message.endswith("it has no effect")
