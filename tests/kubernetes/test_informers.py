"""Lists of objects that watches keep up to date."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.make.objects import Object, container, deployment, endpoint_slice, pod

from headgate.errors import Unavailable
from headgate.kubernetes import informers as module
from headgate.kubernetes.informers import Informers
from headgate.objects.ports import Lister, Listing, Reader
from headgate.plane.probe_failures import probe_failures
from headgate.plane.workload_readiness import workload_counts
from headgate.resources.meta import Key
from headgate.standalone.store.memory import MemoryStore


def full_pod(name: str) -> Object:
    """Return a pod with fields that metrics need, and some that they do not need."""
    app = container("app", env=[{"name": "A", "value": "1"}], ports=[{"name": "http", "containerPort": 80}])
    return pod(
        name,
        "10.0.0.1",
        account="web",
        containers=[app],
        labels={"app": "web"},
        metadata={"managedFields": [{"manager": "m"}]},
        nodeName="one",
        volumes=[{"name": "v"}],
    )


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@contextlib.asynccontextmanager
async def following(reader: Reader) -> AsyncIterator[Informers]:
    """Yield informers, whose watches end with the context."""
    before = asyncio.all_tasks()
    async with asyncio.TaskGroup() as tasks:
        yield Informers(reader, tasks)
        for task in asyncio.all_tasks() - before:
            task.cancel()


async def names(lister: Lister) -> list[str]:
    return [item["metadata"]["name"] for item in (await lister.list("", "Pod")).items]


async def test_a_list_follows_the_changes_of_its_kind(store: MemoryStore) -> None:
    await store.create(full_pod("b"))
    async with following(store) as informers, asyncio.timeout(60):
        assert await names(informers) == ["b"]
        await store.create(full_pod("a"))
        while await names(informers) != ["a", "b"]:
            await asyncio.sleep(0)
        await store.delete(Key("", "Pod", "default", "b"))
        while await names(informers) != ["a"]:
            await asyncio.sleep(0)


async def test_an_unchanged_object_is_the_same_in_each_list(store: MemoryStore) -> None:
    """The metrics API uses the identity of objects to reuse results."""
    await store.create(full_pod("a"))
    async with following(store) as informers:
        (first,), (second,) = [(await informers.list("", "Pod")).items for _ in range(2)]
    assert first is second


async def test_the_pods_that_a_deployment_lacks_are_counted(store: MemoryStore) -> None:
    full = deployment("web", container("app"), replicas=3)
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    await store.create({**full, "status": {"conditions": [failure]}})
    await store.update({**full, "status": {"conditions": [failure]}}, subresource="status")
    async with following(store) as informers:
        deployments = (await informers.list("apps", "Deployment")).items
    counts = workload_counts((), deployments, now=0)
    assert (counts.ready, counts.wanted) == (0, 3)
    assert [row.message for row in counts.unready] == ["FailedCreate: exceeded quota"]


async def test_the_nodes_that_a_daemon_set_lacks_are_counted(store: MemoryStore) -> None:
    agent = {**deployment("agent", container("app")), "kind": "DaemonSet"}
    await store.create(agent)
    await store.update({**agent, "status": {"desiredNumberScheduled": 2}}, subresource="status")
    async with following(store) as informers:
        counts = workload_counts((), (await informers.list("apps", "DaemonSet")).items, now=0)
    assert (counts.ready, counts.wanted) == (0, 2)


async def test_only_hand_written_slices_are_listed_with_endpoints(store: MemoryStore) -> None:
    """Metrics use those of Services without a selector; those of selectors would be most of the memory."""
    manager = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
    await store.create(endpoint_slice("web", ["10.0.0.1"], {"": 80}, labels=manager))
    await store.create(endpoint_slice("written", ["10.0.0.1"], {"": 80}))
    async with following(store) as informers:
        listed = (await informers.list("discovery.k8s.io", "EndpointSlice")).items
    assert {item["metadata"]["name"]: len(item["endpoints"]) for item in listed} == {"web": 0, "written": 1}


async def test_a_listed_pod_has_the_fields_that_metrics_need(store: MemoryStore) -> None:
    await store.create(full_pod("a"))
    await store.update(full_pod("a"), subresource="status")
    async with following(store) as informers:
        (found,) = (await informers.list("", "Pod")).items
    assert found["metadata"]["labels"] == {"app": "web"}
    assert "managedFields" not in found["metadata"]
    assert found["status"]["podIP"] == "10.0.0.1"
    ports = [{"ports": [{"name": "http", "containerPort": 80}]}]
    assert found["spec"] == {"nodeName": "one", "serviceAccountName": "web", "containers": ports}


class Unreachable(MemoryStore):
    """A store whose API server does not answer."""

    async def list(self, *_: str) -> Listing:
        """Wait forever."""
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_list_fails_while_the_api_server_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.01)
    async with following(Unreachable()) as informers:
        with pytest.raises(Unavailable, match="kind Pod could not be read"):
            await informers.list("", "Pod")


@pytest.mark.parametrize("ready", [True, False])
async def test_only_pods_that_are_not_ready_are_listed_with_their_probes(store: MemoryStore, *, ready: bool) -> None:
    """The status of the mesh names the probe that fails; the probes of all pods would only be memory."""
    app = container("app", readinessProbe={"tcpSocket": {"port": 80}})
    stored = await store.create(pod("web", containers=[app]))
    conditions = [{"type": kind, "status": str(ready)} for kind in ("Ready", "ContainersReady")]
    running = {"name": "app", "ready": ready, "started": True, "state": {"running": {}}}
    status = {"conditions": conditions, "containerStatuses": [running]}
    await store.update({**stored, "status": status}, subresource="status")
    async with following(store) as informers:
        (listed,) = (await informers.list("", "Pod")).items
    assert ("readinessProbe" in listed["spec"]["containers"][0]) is not ready
    assert [entry["ready"] for entry in listed["status"]["containerStatuses"]] == [ready]


def test_events_keep_only_what_names_a_failed_probe() -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "web.1", "namespace": "default", "annotations": {"x": "y" * 1000}},
        "regarding": {"uid": "1", "namespace": "default"},
        "reason": "Unhealthy",
        "note": "Readiness probe failed: " + "x" * 1000,
        "deprecatedLastTimestamp": "2026-01-01T00:00:00Z",
    }
    reduced = module._reduced(event)
    assert len(str(reduced)) < 900
    unready = {"conditions": [{"type": "ContainersReady", "status": "False"}]}
    web = pod("web", metadata={"uid": "1"}, status=unready)
    assert probe_failures([web], [reduced], 2e9) == probe_failures([web], [event], 2e9) != {}


async def test_many_events_of_one_namespace_do_not_take_the_place_of_others(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_EVENTS", 8)
    monkeypatch.setattr(module, "_KEPT_EVENTS", 6)

    for name in ("quiet", "flood"):
        await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def write(namespace: str, numbers: range) -> None:
        for number in numbers:
            await store.create(
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": f"event-{number}", "namespace": namespace},
                    "reason": "Unhealthy",
                    "lastTimestamp": f"2026-01-01T00:00:{number:02}Z",
                }
            )

    await write("quiet", range(2))
    await write("flood", range(20, 30))
    async with following(store) as informers, asyncio.timeout(60):

        async def kept() -> list[str]:
            events = (await informers.list("", "Event")).items
            return [f"{event['metadata']['namespace']}/{event['metadata']['name']}" for event in events]

        newest = [f"flood/event-{number}" for number in range(26, 30)]
        assert await kept() == [*newest, "quiet/event-0", "quiet/event-1"]
        await write("flood", range(30, 33))  # the third one is above the limit again
        while "flood/event-32" not in await kept():
            await asyncio.sleep(0)
        assert await kept() == [
            *(f"flood/event-{number}" for number in range(29, 33)),
            "quiet/event-0",
            "quiet/event-1",
        ]
