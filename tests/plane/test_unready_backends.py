"""Why pods behind an explained request are not ready, from the objects of a store."""

import pytest
from tests.make import objects
from tests.make.objects import Object
from tests.make.values import compiled, snapshot

from headgate.compiler.explain_request import explain_request
from headgate.errors import Unavailable
from headgate.objects.ports import Listing
from headgate.plane.unready_backends import unready_messages
from headgate.plane.workload_readiness import STARTING_S
from headgate.resources.meta import epoch_seconds
from headgate.resources.request_spec import RequestSpec
from headgate.standalone.store.memory import MemoryStore

FAILED: Object = {"message": "Readiness probe failed: HTTP status 404"}
MESH = (
    *objects.backed_service("website", ("", "127.9.9.1"), selector={"app": "website"}),
    *objects.backed_service("v1", ("", "127.9.9.2"), selector={"app": "v1"}),
    objects.service("v2", 8080, selector={"app": "v2"}),
    objects.split("website", {"v1": 1, "v2": 1}),
)


class Unlisted(MemoryStore):
    """A store whose pods can't be listed."""

    async def list(self, *_: str) -> Listing:
        raise Unavailable("forbidden")


async def messages(store: MemoryStore, url: str) -> list[str]:
    """Explain a request, and return what is said about pods that are not ready, without the workload."""
    events = []
    for name in ("website", "v1", "v2", "other"):
        pod = objects.pod(f"{name}-1", labels={"app": name}, containers=[objects.container("app")])
        created = await store.create(pod)
        unready = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
        await store.update({**created, "status": {"conditions": unready}}, subresource="status")
        events.append({**FAILED, "involvedObject": {"uid": created["metadata"]["uid"]}})
    now = epoch_seconds(created["metadata"]["creationTimestamp"]) + STARTING_S + 1
    explained = explain_request(compiled(*MESH), snapshot(*MESH), RequestSpec(url=url))
    lines = await unready_messages(store, snapshot(*MESH), explained, events, now)
    return [line.partition(" pods ready: ")[2] for line in lines]


@pytest.mark.parametrize("url", ["http://v2:8080/", "http://website:8080/"])
async def test_the_pods_of_a_backend_without_a_ready_endpoint_are_named(url: str) -> None:
    """A split leaves such a backend out, so its share does not name it. The pods of ready backends are left out."""
    expected = "pod v2-1: the readiness probe failed: HTTP status 404"
    assert await messages(MemoryStore(), url) == [expected]


async def test_a_backend_with_a_ready_endpoint_needs_no_reason() -> None:
    assert await messages(MemoryStore(), "http://v1:8080/") == []


async def test_without_the_permission_to_list_pods_nothing_is_said() -> None:
    assert await messages(Unlisted(), "http://v2:8080/") == []
