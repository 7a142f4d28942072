"""Objects through the ports of `objects.ports`, on a real API server: reads, watches, writes, and kinds that appear."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cluster.conftest import ADMIN, READY_S, Cluster, started

from headgate.errors import AlreadyExists, Conflict, Gone, Invalid, NotFound, Unavailable
from headgate.kubernetes import store as cluster_store
from headgate.kubernetes.client import Client, WatchEvent
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.install.custom_resources import custom_resource_definitions, mesh_kinds
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import ClusterStore
from headgate.objects.ports import Change, Relist, follow
from headgate.resources.meta import Key
from headgate.resources.registry import Kind

_numbers = itertools.count(1)
SPLIT = "split.smi-spec.io"
WEBHOOK = {"service": {"namespace": "none", "name": "none", "port": 443}}


class World:
    """A store and a namespace of its own."""

    def __init__(self, cluster: Cluster, client: Client, versions: ServedVersions) -> None:
        self.cluster = cluster
        self.versions = versions
        self.client = client
        self.store = ClusterStore(client, versions)
        self.namespace = f"store{next(_numbers)}"
        cluster.namespace(self.namespace)

    def config_map(self, name: str, **data: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    def key(self, name: str) -> Key:
        return Key("", "ConfigMap", self.namespace, name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server of this file: its tests define kinds, and other tests define those that these tests need to be missing."""
    with started(tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest_asyncio.fixture
async def world(cluster: Cluster) -> AsyncIterator[World]:
    cluster.api(ADMIN)  # writes the token and the CA that InCluster reads
    async with Client(InCluster(cluster.environment, cluster.root / ADMIN)) as client:
        versions = ServedVersions(client)
        await versions.refresh()
        yield World(cluster, client, versions)


async def test_a_created_object_is_read_replaced_and_deleted(world: World) -> None:
    created = await world.store.create(world.config_map("one", a="1"))
    assert created["metadata"]["uid"]
    assert (await world.store.get(world.key("one")))["data"] == {"a": "1"}
    replaced = await world.store.update({**created, "data": {"a": "2"}})
    assert replaced["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        await world.store.update({**created, "data": {"a": "3"}})
    with pytest.raises(Conflict):
        await world.store.delete(world.key("one"), uid="another")
    await world.store.delete(world.key("one"))
    with pytest.raises(NotFound):
        await world.store.get(world.key("one"))


async def test_errors_of_writes_have_the_types_of_the_port(world: World) -> None:
    await world.store.create(world.config_map("one"))
    with pytest.raises(AlreadyExists):
        await world.store.create(world.config_map("one"))
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await world.store.create(world.config_map("No_Name"))
    with pytest.raises(NotFound):
        await world.store.update(world.config_map("two"))


async def test_a_dry_run_stores_nothing(world: World) -> None:
    await world.store.create(world.config_map("one"), dry_run=True)
    with pytest.raises(NotFound):
        await world.store.get(world.key("one"))


async def test_an_applied_object_has_the_manager_as_owner(world: World) -> None:
    applied = await world.store.apply(world.config_map("one", a="1"), manager="tester")
    assert [entry["manager"] for entry in applied["metadata"]["managedFields"]] == ["tester"]
    again = await world.store.apply(world.config_map("one", a="1"), manager="tester")
    assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]


async def test_a_list_longer_than_a_chunk_is_complete_and_sorted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_store, "CHUNK", 3)
    for number in range(8):
        await world.store.create(world.config_map(f"map-{number}"))
    listing = await world.store.list("", "ConfigMap", world.namespace)
    assert [item["metadata"]["name"] for item in listing.items if item["metadata"]["name"].startswith("map-")] == [
        f"map-{number}" for number in range(8)
    ]
    assert {item["kind"] for item in listing.items} == {"ConfigMap"}


async def test_a_watch_continues_at_the_version_of_a_list(world: World) -> None:
    listing = await world.store.list("", "ConfigMap", world.namespace)
    created = await world.store.create(world.config_map("one", a="1"))
    await world.store.update({**created, "data": {"a": "2"}})
    await world.store.delete(world.key("one"))
    changes = await _first(3, world.store.watch("", "ConfigMap", world.namespace, since=listing.version))
    assert [change.type for change in changes] == ["ADDED", "MODIFIED", "DELETED"]
    assert {change.key for change in changes} == {world.key("one")}
    assert changes[1].object["data"] == {"a": "2"}


async def test_a_watch_goes_on_after_the_server_has_ended_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It misses no change between the two requests."""
    monkeypatch.setattr(cluster_store, "WATCH_S", 3)  # the server ends each watch after 3 s
    listing = await world.store.list("", "ConfigMap", world.namespace)
    original = world.client.watch_at
    requests = 0

    async def watch_after_a_change(*arguments: Any, **options: Any) -> AsyncIterator[WatchEvent]:
        nonlocal requests
        await world.store.create(world.config_map(f"map-{requests}"))
        requests += 1
        async with contextlib.aclosing(original(*arguments, **options)) as events:
            async for event in events:
                yield event

    monkeypatch.setattr(world.client, "watch_at", watch_after_a_change)
    changes = await _first(2, world.store.watch("", "ConfigMap", world.namespace, since=listing.version))
    assert [change.key.name for change in changes] == ["map-0", "map-1"]
    assert requests >= 2  # more if a watch ends before the server has sent its change


async def test_a_version_before_the_changes_that_the_server_keeps_is_gone(world: World) -> None:
    """A kind that is new on the server has no changes before its definition."""
    kind = next(kind for kind in mesh_kinds() if kind.kind == "HTTPRouteGroup")
    await define(world, kind)
    await world.store.list(kind.group, kind.kind)
    with pytest.raises(Gone):
        await _first(1, world.store.watch(kind.group, kind.kind, since="1"))


async def test_only_secrets_with_certificates_are_read(world: World) -> None:
    """headgate reads the certificates of Gateways, and no other Secrets."""
    for name, kind, data in (("plain", "Opaque", {}), ("web", "kubernetes.io/tls", {"tls.crt": "", "tls.key": ""})):
        metadata = {"name": name, "namespace": world.namespace}
        await world.store.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": data}
        )
    listing = await world.store.list("", "Secret", world.namespace)
    assert [item["metadata"]["name"] for item in listing.items] == ["web"]


async def test_a_missing_permission_is_unavailable_and_names_the_verb(world: World, cluster: Cluster) -> None:
    cluster.api("token-without-permissions")
    async with Client(InCluster(cluster.environment, cluster.root / "token-without-permissions")) as client:
        store = ClusterStore(client, world.versions)
        with pytest.raises(Unavailable, match='cannot list resource "configmaps"'):
            await store.list("", "ConfigMap", world.namespace)


async def test_a_kind_is_followed_when_its_definition_appears(world: World) -> None:
    """Without CustomResourceDefinitions the kind has no objects; later its objects are listed and watched."""
    kind = next(kind for kind in mesh_kinds() if kind.kind == "UDPRoute")
    assert kind in world.versions.missing
    steps = follow(world.store, kind.group, kind.kind)
    assert await anext(steps) == Relist(())
    following = asyncio.ensure_future(anext(steps))
    await asyncio.sleep(0)
    await define(world, kind)
    async with asyncio.timeout(READY_S):
        assert isinstance(await following, Relist)
    body = {
        "apiVersion": kind.hub,
        "kind": kind.kind,
        "metadata": {"name": "dns", "namespace": world.namespace},
        "spec": {"matches": {"ports": [53]}},
    }
    async with asyncio.timeout(READY_S):
        await world.store.create(body)
        change = await anext(steps)
    assert isinstance(change, Change)
    assert change.key == Key(kind.group, kind.kind, world.namespace, "dns")
    await steps.aclose()


async def test_a_kind_without_definition_can_not_be_written(world: World) -> None:
    body = {"apiVersion": f"{SPLIT}/v1alpha4", "kind": "TrafficSplit", "metadata": {"name": "a", "namespace": "b"}}
    with pytest.raises(NotFound, match="does not serve trafficsplits"):
        await world.store.create(body)


async def define(world: World, kind: Kind) -> None:
    """Create the definition of a kind, and wait until the server serves the kind."""
    (definition,) = custom_resource_definitions([kind], WEBHOOK)
    world.cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    async with asyncio.timeout(READY_S):
        while kind in world.versions.missing:
            await asyncio.sleep(0.1)  # the API server has no event for a newly served kind
            await world.versions.refresh()


async def _first(number: int, changes: AsyncIterator[Change]) -> list[Change]:
    found: list[Change] = []
    async with asyncio.timeout(READY_S), contextlib.aclosing(changes):  # type: ignore[type-var]  # it is a generator
        async for change in changes:
            found.append(change)
            if len(found) == number:
                break
    return found


async def test_only_the_metadata_of_workloads_is_read(world: World) -> None:
    """Metrics need their labels and owners; the specs of all ReplicaSets of a cluster are large."""
    before = await world.store.list("apps", "Deployment", world.namespace)
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": world.namespace, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    await world.store.create(deployment)
    async with contextlib.aclosing(
        world.store.watch("apps", "Deployment", world.namespace, since=before.version)
    ) as changes:
        change = await anext(changes)
    (listed,) = (await world.store.list("apps", "Deployment", world.namespace)).items
    for found in (change.object, listed):
        assert (found["apiVersion"], found["kind"], found["metadata"]["labels"]) == ("apps/v1", "Deployment", labels)
        assert "spec" not in found
