"""Events on a real API server: those of events.k8s.io/v1 where it is served, else those of the core group."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cluster.api_server import KubeApiServer
from tests.e2e.running_mesh import KUBECTL

from headgate.kubernetes.app import _events
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import ClusterStore
from headgate.objects.events import EventRecorder
from headgate.resources.kind import Kind
from headgate.resources.meta import Key, Object
from headgate.resources.registry import CLUSTER_KINDS, EVENT

NAMESPACE = "events"
LISTED = f"/api/v1/namespaces/{NAMESPACE}/events"
CURRENT = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"


@pytest.fixture(scope="module", autouse=True)
def events_namespace(cluster: KubeApiServer) -> None:
    cluster.namespace(NAMESPACE)


@asynccontextmanager
async def recorder(
    cluster: KubeApiServer, pod: str = "headgate-1", *, kinds: Iterable[Kind] = CLUSTER_KINDS
) -> AsyncIterator[EventRecorder]:
    """The recorder of a replica on a cluster that serves these kinds."""
    async with cluster.client() as client:
        versions = ServedVersions(client, kinds)
        await versions.refresh()
        yield _events(ClusterStore(client, versions), versions, pod)


def created_service(cluster: KubeApiServer, name: str) -> Object:
    made = cluster.make(SERVICES, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})
    return {**made, "apiVersion": "v1", "kind": "Service"}


def events(cluster: KubeApiServer, about: str, path: str = LISTED) -> list[Any]:
    """Return the Events about a Service, from the list of either group."""
    field = "involvedObject" if path == LISTED else "regarding"
    return [item for item in cluster.call("GET", path)[1]["items"] if item[field]["name"] == about]


async def kubectl(cluster: KubeApiServer, *arguments: str) -> str:
    command = [KUBECTL, "--kubeconfig", str(cluster.kubeconfig()), "-n", NAMESPACE, *arguments]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    return " ".join(ran.stdout.split())


async def _repeat(recorder: EventRecorder, about: Object, times: int, message: str = "the port differs") -> None:
    for _ in range(times):
        await recorder.record(about, type="Warning", reason="PortMismatch", message=message)


async def test_a_repetition_is_a_series_that_kubectl_counts(cluster: KubeApiServer) -> None:
    birds = created_service(cluster, "birds")
    async with recorder(cluster) as found:
        await _repeat(found, birds, 1)
        assert "x1" not in await kubectl(cluster, "describe", "service", "birds")
        await _repeat(found, birds, 2)
    (event,) = events(cluster, "birds", CURRENT)
    assert event["series"]["count"] == 3
    assert event["series"]["lastObservedTime"] > event["eventTime"]
    assert (event["reportingController"], event["reportingInstance"]) == ("headgate", "headgate-1")
    assert (event["action"], event["reason"], event["note"]) == ("Reconcile", "PortMismatch", "the port differs")
    assert event["regarding"]["uid"] == birds["metadata"]["uid"]
    (same,) = events(cluster, "birds")
    assert same["metadata"]["uid"] == event["metadata"]["uid"]
    described = await kubectl(cluster, "describe", "service", "birds")
    assert "Warning PortMismatch" in described
    assert "(x3 over" in described
    assert described.endswith("headgate the port differs")
    for listing in (
        ["events", "--for", "service/birds"],
        ["get", "events", "--field-selector", "involvedObject.name=birds"],
    ):
        shown = await kubectl(cluster, *listing)
        assert shown.count("PortMismatch") == 1
        assert "Warning PortMismatch" in shown
        assert "the port differs" in shown
    assert "(x3 over" in await kubectl(cluster, "events", "--for", "service/birds")


async def test_the_next_replica_continues_the_series(cluster: KubeApiServer) -> None:
    fish = created_service(cluster, "fish")
    for pod in ("headgate-1", "headgate-2"):
        async with recorder(cluster, pod) as found:
            await _repeat(found, fish, 2)
    (event,) = events(cluster, "fish")
    assert event["series"]["count"] == 4
    assert event["reportingInstance"] == "headgate-1"


async def test_an_event_of_the_core_group_is_continued_and_not_written_twice(cluster: KubeApiServer) -> None:
    cats = created_service(cluster, "cats")
    async with recorder(cluster) as found:
        await _repeat(EventRecorder(found._store, "headgate", deletes_expired=False), cats, 2)
        await _repeat(found, cats, 2)
    (event,) = events(cluster, "cats")
    assert (event["count"], event["series"]["count"]) == (2, 4)
    assert "(x4 over" in await kubectl(cluster, "describe", "service", "cats")


async def test_texts_and_names_at_their_limits_are_accepted(cluster: KubeApiServer) -> None:
    longest = Key("", "Service", NAMESPACE, "a" * 229 + ".b")
    async with recorder(cluster, "headgate-" + "b" * 150) as found:
        await found.record(longest, type="Normal", reason="PortMismatch", message="ü" * 2000)
    (event,) = events(cluster, longest.name, CURRENT)
    assert event["note"] == "ü" * 512


async def test_an_event_about_an_object_without_a_namespace_is_in_default(cluster: KubeApiServer) -> None:
    async with recorder(cluster) as found:
        await _repeat(found, Key("gateway.networking.k8s.io", "GatewayClass", "", "headgate"), 2)
    listed = cluster.call("GET", "/api/v1/namespaces/default/events")[1]["items"]
    assert [item["count"] for item in listed if item["involvedObject"]["name"] == "headgate"] == [2]


async def test_without_events_k8s_io_an_event_of_the_core_group_is_counted(cluster: KubeApiServer) -> None:
    birds = created_service(cluster, "older")
    async with recorder(cluster, kinds=[kind for kind in CLUSTER_KINDS if kind != EVENT]) as found:
        await _repeat(found, birds, 3)
    (event,) = events(cluster, "older")
    assert event["count"] == 3
    assert "series" not in event
    assert "(x3 over" in await kubectl(cluster, "describe", "service", "older")
