"""Why pods behind an explained request are not ready, from the objects of a store."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.make import objects
from tests.make.objects import Object
from tests.make.values import compiled, snapshot

from headgate.compiler.explain_request import explain_request
from headgate.errors import Unavailable
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


class Pods:
    """An environment with pods and Events, which counts the reads of each."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.events: list[Object] = []
        self.reads: list[str] = []

    async def pods(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        self.reads.append("pods")
        return [*(await self.store.list("", "Pod", namespace)).items]

    async def probe_events(self) -> Sequence[Object]:
        self.reads.append("events")
        return self.events


class Unlisted(Pods):
    """An environment whose pods can't be listed."""

    async def pods(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        raise Unavailable(f"{namespace}: forbidden")


async def messages(source: Pods, url: str, mesh: Sequence[Object] = MESH) -> list[str]:
    """Explain a request, and return what is said about pods that are not ready, without the workload."""
    store = source.store
    for name in ("website", "v1", "v2", "other"):
        app = objects.container("app", readinessProbe={"httpGet": {"port": 80, "path": "/ready?token=x"}})
        pod = objects.pod(f"{name}-1", labels={"app": name}, containers=[app])
        created = await store.create(pod)
        unready = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
        await store.update({**created, "status": {"conditions": unready}}, subresource="status")
        source.events.append({**FAILED, "involvedObject": {"uid": created["metadata"]["uid"]}})
    now = epoch_seconds(created["metadata"]["creationTimestamp"]) + STARTING_S + 1
    explained = explain_request(compiled(*mesh), snapshot(*mesh), RequestSpec(url=url))
    lines = await unready_messages(source, snapshot(*mesh), explained, domain="cluster.local", now=now)
    return [line.partition(" pods ready: ")[2] for line in lines]


FAILURE = "pod v2-1: the readiness probe of container app (GET :80/ready) failed: HTTP status 404"


@pytest.mark.parametrize("url", ["http://v2:8080/", "http://website:8080/"])
async def test_the_pods_of_a_backend_without_a_ready_endpoint_are_named(url: str) -> None:
    """A split leaves such a backend out, so its share does not name it. The pods of ready backends are left out."""
    assert await messages(Pods(MemoryStore()), url) == [FAILURE]


@pytest.mark.parametrize(
    ("weights", "expected"), [({"v1": 1, "v2.default": 1}, [FAILURE]), ({"v1": 1, "v2": 0}, [])], ids=str
)
async def test_a_backend_counts_by_each_of_its_names_if_it_has_a_weight(
    weights: dict[str, int], expected: list[str]
) -> None:
    mesh = (*MESH[:-1], objects.split("website", weights))
    assert await messages(Pods(MemoryStore()), "http://website:8080/", mesh) == expected


async def test_a_backend_with_a_ready_endpoint_needs_no_reason_and_no_read() -> None:
    source = Pods(MemoryStore())
    assert await messages(source, "http://v1:8080/") == []
    assert source.reads == []


async def test_without_the_permission_to_list_pods_nothing_is_said() -> None:
    assert await messages(Unlisted(MemoryStore()), "http://v2:8080/") == []
