"""Objects through the ports of `objects.ports`, on a real API server: reads, watches, writes, and kinds that appear."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cluster.api_server import APPLY, READY_S, UNPRIVILEGED, KubeApiServer
from tests.cluster.installation import VALUES, on_this_machine
from tests.make.objects import Object, config_map, container, deployment, obj, with_spec
from tests.waiting import until

from headgate.errors import AlreadyExists, Conflict, Gone, Invalid, NotFound, Unavailable
from headgate.kubernetes import store as cluster_store
from headgate.kubernetes.client import Client, WatchEvent
from headgate.kubernetes.install.custom_resources import custom_resource_definitions, mesh_kinds, without_rules
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import ClusterStore
from headgate.objects.ports import Change, Relist, follow
from headgate.plane.workload_readiness import workload_counts
from headgate.resources.kind import Kind
from headgate.resources.meta import Key

_numbers = itertools.count(1)
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBHOOK = {"service": {"namespace": "none", "name": "none", "port": 443}}


class StoreInNamespace:
    """A store and a namespace of its own."""

    def __init__(self, cluster: KubeApiServer, client: Client, versions: ServedVersions) -> None:
        self.cluster = cluster
        self.versions = versions
        self.client = client
        self.store = ClusterStore(client, versions)
        self.namespace = f"store{next(_numbers)}"
        cluster.namespace(self.namespace)

    def config_map(self, name: str, **data: str) -> Object:
        return config_map(name, data, namespace=self.namespace)

    def key(self, name: str) -> Key:
        return Key("", "ConfigMap", self.namespace, name)


@pytest_asyncio.fixture
async def own(cluster: KubeApiServer) -> AsyncIterator[StoreInNamespace]:
    async with cluster.client() as client:
        versions = ServedVersions(client)
        await versions.refresh()
        yield StoreInNamespace(cluster, client, versions)


async def test_a_created_object_is_read_replaced_and_deleted(own: StoreInNamespace) -> None:
    created = await own.store.create(own.config_map("one", a="1"))
    assert created["metadata"]["uid"]
    assert (await own.store.get(own.key("one")))["data"] == {"a": "1"}
    replaced = await own.store.update({**created, "data": {"a": "2"}})
    assert replaced["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        await own.store.update({**created, "data": {"a": "3"}})
    with pytest.raises(Conflict):
        await own.store.delete(own.key("one"), uid="another")
    await own.store.delete(own.key("one"))
    with pytest.raises(NotFound):
        await own.store.get(own.key("one"))


async def test_errors_of_writes_have_the_types_of_the_port(own: StoreInNamespace) -> None:
    await own.store.create(own.config_map("one"))
    with pytest.raises(AlreadyExists):
        await own.store.create(own.config_map("one"))
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await own.store.create(own.config_map("No_Name"))
    with pytest.raises(NotFound):
        await own.store.update(own.config_map("two"))


async def test_a_dry_run_stores_nothing(own: StoreInNamespace) -> None:
    await own.store.create(own.config_map("one"), dry_run=True)
    with pytest.raises(NotFound):
        await own.store.get(own.key("one"))


async def test_an_applied_object_has_the_manager_as_owner(own: StoreInNamespace) -> None:
    applied = await own.store.apply(own.config_map("one", a="1"), manager="tester")
    assert [entry["manager"] for entry in applied["metadata"]["managedFields"]] == ["tester"]
    again = await own.store.apply(own.config_map("one", a="1"), manager="tester")
    assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]


async def test_a_list_longer_than_a_chunk_is_complete_and_sorted(
    own: StoreInNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_store, "CHUNK", 3)
    for number in range(8):
        await own.store.create(own.config_map(f"map-{number}"))
    listing = await own.store.list("", "ConfigMap", own.namespace)
    assert [item["metadata"]["name"] for item in listing.items if item["metadata"]["name"].startswith("map-")] == [
        f"map-{number}" for number in range(8)
    ]
    assert {item["kind"] for item in listing.items} == {"ConfigMap"}


async def test_config_maps_of_all_namespaces_have_the_data_that_headgate_uses(own: StoreInNamespace) -> None:
    """The certificates of authorities, and the parameters of Gateways."""
    labels = {"headgate.dev/gateway-parameters": "true"}
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    created = [
        own.config_map("parameters", replicas="3")
        | {"metadata": {"name": "parameters", "namespace": own.namespace, "labels": labels}},
        config_map("authorities", {"ca.crt": "PEM", "more": "x"}, namespace=own.namespace, annotations=annotations),
        own.config_map("settings", more="x"),
    ]
    for item in created:
        await own.store.create(item)
    listing = await own.store.list("", "ConfigMap")
    listed = {
        item["metadata"]["name"]: item for item in listing.items if item["metadata"]["namespace"] == own.namespace
    }
    used = {"parameters": {"replicas": "3"}, "authorities": {"ca.crt": "PEM"}, "settings": {}}
    assert {name: listed[name]["data"] for name in used} == used
    assert not listed["authorities"]["metadata"].keys() & {"annotations", "managedFields"}
    stored = await own.store.get(own.key("authorities"))
    await own.store.update({**stored, "data": {"ca.crt": "other PEM", "more": "y"}})
    async with contextlib.aclosing(own.store.watch("", "ConfigMap", since=listing.version)) as changes:
        async for change in changes:
            if change.key == own.key("authorities"):
                break
    assert change.object["data"] == {"ca.crt": "other PEM"}
    assert change.object["metadata"]["resourceVersion"] > stored["metadata"]["resourceVersion"]


async def test_a_watch_continues_at_the_version_of_a_list(own: StoreInNamespace) -> None:
    listing = await own.store.list("", "ConfigMap", own.namespace)
    created = await own.store.create(own.config_map("one", a="1"))
    await own.store.update({**created, "data": {"a": "2"}})
    await own.store.delete(own.key("one"))
    changes = await _first(3, own.store.watch("", "ConfigMap", own.namespace, since=listing.version))
    assert [change.type for change in changes] == ["ADDED", "MODIFIED", "DELETED"]
    assert {change.key for change in changes} == {own.key("one")}
    assert changes[1].object["data"] == {"a": "2"}


async def test_a_watch_goes_on_after_the_server_has_ended_it(
    own: StoreInNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It misses no change between the two requests."""
    monkeypatch.setattr(cluster_store, "WATCH_S", 3)  # the server ends each watch after 3 s
    listing = await own.store.list("", "ConfigMap", own.namespace)
    original = own.client.watch_at
    requests = 0

    async def watch_after_a_change(*arguments: Any, **options: Any) -> AsyncIterator[WatchEvent]:
        nonlocal requests
        await own.store.create(own.config_map(f"map-{requests}"))
        requests += 1
        async with contextlib.aclosing(original(*arguments, **options)) as events:
            async for event in events:
                yield event

    monkeypatch.setattr(own.client, "watch_at", watch_after_a_change)
    changes = await _first(2, own.store.watch("", "ConfigMap", own.namespace, since=listing.version))
    assert [change.key.name for change in changes] == ["map-0", "map-1"]
    assert requests >= 2  # more if a watch ends before the server has sent its change


async def test_a_version_before_the_changes_that_the_server_keeps_is_gone(own: StoreInNamespace) -> None:
    """A kind that is new on the server has no changes before its definition."""
    kind = next(kind for kind in mesh_kinds() if kind.kind == "HTTPRouteGroup")
    await own.store.list(kind.group, kind.kind)
    with pytest.raises(Gone):
        await _first(1, own.store.watch(kind.group, kind.kind, since="1"))


async def test_only_secrets_with_certificates_are_read(own: StoreInNamespace) -> None:
    """headgate reads the certificates of Gateways, and no other Secrets."""
    for name, kind, data in (("plain", "Opaque", {}), ("web", "kubernetes.io/tls", {"tls.crt": "", "tls.key": ""})):
        await own.store.create(obj("Secret", name, namespace=own.namespace, type=kind, data=data))
    listing = await own.store.list("", "Secret", own.namespace)
    assert [item["metadata"]["name"] for item in listing.items] == ["web"]


async def test_a_missing_permission_is_unavailable_and_names_the_verb(
    own: StoreInNamespace, cluster: KubeApiServer
) -> None:
    async with cluster.client(UNPRIVILEGED) as client:
        store = ClusterStore(client, own.versions)
        with pytest.raises(Unavailable, match='cannot list resource "configmaps"'):
            await store.list("", "ConfigMap", own.namespace)


@pytest.fixture
def undefined(cluster: KubeApiServer) -> Iterator[Kind]:
    """A kind without definition during a test. Afterwards the API server serves it again: it takes up to a second for this."""
    kind = next(kind for kind in mesh_kinds() if kind.kind == "UDPRoute")
    path = f"{DEFINITIONS}/{kind.plural}.{kind.group}"
    (definition,) = (
        obj for obj in on_this_machine(cluster, VALUES) if obj["metadata"]["name"] == path.rpartition("/")[2]
    )
    collection = f"/apis/{kind.hub}/{kind.plural}"
    assert cluster.call("DELETE", path)[0] == 200
    until(lambda: cluster.call("GET", collection)[0] == 404, "the end of a kind", READY_S)
    yield kind
    status, answer = cluster.call(
        "PATCH", f"{path}?fieldManager=headgate-install&force=true", without_rules(definition), content_type=APPLY
    )
    assert status in {200, 201}, answer
    until(lambda: cluster.call("GET", collection)[0] == 200, "a kind again", READY_S)


async def test_a_kind_is_followed_when_its_definition_appears(own: StoreInNamespace, undefined: Kind) -> None:
    """Without CustomResourceDefinitions the kind has no objects; later its objects are listed and watched."""
    kind = undefined
    await own.versions.refresh()
    assert kind in own.versions.missing
    steps = follow(own.store, kind.group, kind.kind)
    assert await anext(steps) == Relist(())
    following = asyncio.ensure_future(anext(steps))
    await asyncio.sleep(0)
    await define(own, kind)
    async with asyncio.timeout(READY_S):
        assert isinstance(await following, Relist)
    async with asyncio.timeout(READY_S):
        await own.store.create(with_spec("UDPRoute", "dns", {"matches": {"ports": [53]}}, {"namespace": own.namespace}))
        change = await anext(steps)
    assert isinstance(change, Change)
    assert change.key == Key(kind.group, kind.kind, own.namespace, "dns")
    await steps.aclose()


async def test_a_kind_without_definition_can_not_be_written(own: StoreInNamespace, undefined: Kind) -> None:
    await own.versions.refresh()
    with pytest.raises(NotFound, match="does not serve udproutes"):
        await own.store.create(with_spec("UDPRoute", "dns", {"matches": {"ports": [53]}}, {"namespace": own.namespace}))


async def define(own: StoreInNamespace, kind: Kind) -> None:
    """Create the definition of a kind, and wait until the server serves the kind."""
    (definition,) = custom_resource_definitions([kind], WEBHOOK)
    own.cluster.make(DEFINITIONS, definition)
    async with asyncio.timeout(READY_S):
        while kind in own.versions.missing:
            await asyncio.sleep(0.1)  # the API server has no event for a newly served kind
            await own.versions.refresh()


async def _first(number: int, changes: AsyncIterator[Change]) -> list[Change]:
    found: list[Change] = []
    async with asyncio.timeout(READY_S), contextlib.aclosing(changes):  # type: ignore[type-var]  # it is a generator
        async for change in changes:
            found.append(change)
            if len(found) == number:
                break
    return found


async def test_only_the_metadata_of_workloads_is_read(own: StoreInNamespace) -> None:
    """Metrics need their labels and owners; the specs of all ReplicaSets of a cluster are large."""
    before = await own.store.list("apps", "ReplicaSet", own.namespace)
    labels = {"app": "web"}
    web = deployment("web", container(image="web"), namespace=own.namespace, metadata={"labels": labels})
    await own.store.create({**web, "kind": "ReplicaSet"})
    async with contextlib.aclosing(
        own.store.watch("apps", "ReplicaSet", own.namespace, since=before.version)
    ) as changes:
        change = await anext(changes)
    (listed,) = (await own.store.list("apps", "ReplicaSet", own.namespace)).items
    for found in (change.object, listed):
        assert (found["apiVersion"], found["kind"], found["metadata"]["labels"]) == ("apps/v1", "ReplicaSet", labels)
        assert "spec" not in found


async def test_the_status_of_the_mesh_knows_how_many_pods_a_deployment_wants(own: StoreInNamespace) -> None:
    await own.store.create(deployment("web", container(image="web"), namespace=own.namespace, replicas=3))
    deployments = (await own.store.list("apps", "Deployment", own.namespace)).items
    counts = workload_counts((), deployments, now=time.time())
    assert (counts.ready, counts.wanted) == (0, 3)
