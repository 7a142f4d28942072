"""The ConfigMap with the roots of sidecars: which namespaces get it, when it is written, and what other clients do to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from headgate.compiler.snapshot import Snapshot
from headgate.errors import Cause, Invalid, Unavailable
from headgate.kubernetes.sidecar_roots import NamespacesWithProxies, SidecarRoots
from headgate.latest import Latest, until
from headgate.model.identities import Credential, PrivateText
from headgate.plane.feed import snapshot_of
from headgate.resources.meta import Key
from headgate.resources.registry import key_of
from headgate.standalone.store.memory import MemoryStore


class CountingStore(MemoryStore):
    """Counts the applied ConfigMaps. The next `failures` of them fail. Applying waits until `answers` is set."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.applied: Latest[int] = Latest(0)
        self.answers = asyncio.Event()
        self.answers.set()
        self._failures = failures

    async def apply(self, *arguments: Any, **options: Any) -> Any:
        await self.answers.wait()
        if self._failures:
            self._failures -= 1
            raise Unavailable("denied")
        try:
            return await super().apply(*arguments, **options)
        finally:
            self.applied.set(self.applied.get() + 1)


class ImmutableStore(CountingStore):
    """Rejects the first update of a ConfigMap, as an API server does if the ConfigMap is immutable."""

    async def apply(self, config: Any, **options: Any) -> Any:
        if (await self.list("", "ConfigMap")).items:
            raise Invalid(Cause("data", "field is immutable when `immutable` is set"))
        return await super().apply(config, **options)


def namespace(name: str, **metadata: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


def pod(place: str, sidecar: str = "transparent", name: str = "web") -> dict[str, Any]:
    metadata = {"name": name, "namespace": place, "annotations": {"headgate.dev/sidecar": sidecar} if sidecar else {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "a"}]}}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": data}


def credential(roots: str) -> Credential:
    return Credential(chain="", key=PrivateText(""), roots=roots)


def snapshot(*objects: Any) -> Snapshot:
    return snapshot_of({key_of(one): one for one in objects})


class World:
    """A store with the namespace `shop`, and the ConfigMaps that a control plane keeps in it."""

    def __init__(self, store: CountingStore) -> None:
        self.store = store
        self.certificate = Latest(credential("OLD"))
        self.snapshot: Latest[Snapshot | None] = Latest(snapshot(pod("shop")))
        self.roots = SidecarRoots(store, self.certificate)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.store.create(namespace("shop"))
        task = asyncio.create_task(self.roots.run(self.snapshot))
        async with asyncio.timeout(60):
            yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def settle(self) -> None:
        """Run all tasks that are ready, and those that they wake."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def applied(self, count: int) -> None:
        await until(lambda: self.store.applied.get() >= count, self.store.applied)
        await self.settle()
        assert self.store.applied.get() == count

    async def data(self) -> dict[tuple[str, str], Any]:
        items = (await self.store.list("", "ConfigMap")).items
        return {(item["metadata"]["namespace"], item["metadata"]["name"]): item["data"] for item in items}


SHOP = ("shop", "headgate-roots")


async def test_namespaces_with_sidecars_get_the_roots() -> None:
    world = World(CountingStore())
    await world.store.create(namespace("plain"))
    world.snapshot.set(snapshot(pod("shop"), pod("plain", "")))
    async with world.running():
        await world.applied(1)
        assert await world.data() == {SHOP: {"roots.pem": "OLD"}}
        assert world.roots.written.get() == "OLD"


async def test_new_roots_are_written_and_nothing_for_other_changes() -> None:
    world = World(CountingStore())
    async with world.running():
        await world.applied(1)
        world.snapshot.set(snapshot(pod("shop"), pod("shop", name="more")))
        await world.store.create(config_map("other"))
        await world.settle()
        world.certificate.set(credential("OLD NEW"))
        await world.applied(2)
        assert (await world.data())[SHOP] == {"roots.pem": "OLD NEW"}


async def test_a_replica_that_becomes_active_writes_nothing_if_all_roots_are_there() -> None:
    world = World(CountingStore())
    async with world.running():
        await world.applied(1)
    next_one = World(world.store)
    task = asyncio.create_task(next_one.roots.run(next_one.snapshot))
    await until(lambda: next_one.roots.written.get() == "OLD", next_one.roots.written)
    task.cancel()
    assert world.store.applied.get() == 1


async def test_deleted_and_edited_roots_are_restored() -> None:
    world = World(CountingStore())
    async with world.running():
        await world.applied(1)
        await world.store.delete(Key("", "ConfigMap", *SHOP))
        await world.applied(2)
        (found,) = (await world.store.list("", "ConfigMap")).items
        await world.store.update({**found, "data": {"roots.pem": "STRANGE"}})
        await world.applied(3)
        assert await world.data() == {SHOP: {"roots.pem": "OLD"}}


async def test_roots_that_other_clients_edited_are_not_written_until_they_are_restored() -> None:
    """So the time until kubelets have read the roots starts again."""
    world = World(CountingStore())
    async with world.running():
        await world.applied(1)
        assert world.roots.written.get() == "OLD"
        world.store.answers.clear()
        (found,) = (await world.store.list("", "ConfigMap")).items
        await world.store.update({**found, "data": {"roots.pem": "STRANGE"}})
        await until(lambda: not world.roots.written.get(), world.roots.written)
        world.store.answers.set()
        await until(lambda: world.roots.written.get() == "OLD", world.roots.written)


async def test_an_immutable_config_map_is_replaced() -> None:
    world = World(ImmutableStore())
    await world.store.create(namespace("shop"))
    await world.store.create(config_map("headgate-roots", **{"roots.pem": "STRANGE"}))
    task = asyncio.create_task(world.roots.run(world.snapshot))
    await world.applied(1)
    assert await world.data() == {SHOP: {"roots.pem": "OLD"}}
    task.cancel()


async def test_a_terminating_namespace_gets_no_roots_until_it_is_created_again() -> None:
    world = World(CountingStore())
    ending = namespace("shop", deletionTimestamp="2026-01-01T00:00:00Z")
    world.snapshot.set(snapshot(pod("shop"), ending))
    async with world.running():
        await until(lambda: world.roots.written.get() == "OLD", world.roots.written)
        assert await world.data() == {}
        world.snapshot.set(snapshot(pod("shop"), namespace("shop")))
        await world.applied(1)


async def test_roots_of_a_namespace_that_does_not_exist_yet_are_written_after_the_next_change() -> None:
    """The snapshot has a pod of a deleted namespace, which is created again."""
    world = World(CountingStore())
    world.snapshot.set(snapshot(pod("later")))
    async with world.running():
        await world.applied(1)
        assert world.roots.written.get() == "OLD"
        await world.store.create(namespace("later"))
        world.snapshot.set(snapshot(pod("later"), namespace("later")))
        await world.applied(2)
        assert await world.data() == {("later", "headgate-roots"): {"roots.pem": "OLD"}}


async def test_a_failed_write_is_repeated() -> None:
    world = World(CountingStore(failures=2))
    async with world.running():
        await world.applied(1)
        assert await world.data() == {SHOP: {"roots.pem": "OLD"}}


def test_the_namespaces_are_found_again_only_after_a_change_of_a_pod_or_a_namespace() -> None:
    def after(last: Snapshot, *objects: Any) -> Snapshot:
        return snapshot_of({key_of(obj): obj for obj in objects}).following(last)

    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}, "spec": {}}
    shop, other = pod("shop"), pod("other")
    namespaces = NamespacesWithProxies()
    first = after(Snapshot(), shop)
    found = namespaces.of(first)
    assert found == ["shop"]
    second = after(first, shop, service)
    assert namespaces.of(second) is found
    third = after(second, shop, other, pod("plain", sidecar=""), service)
    assert namespaces.of(third) == ["other", "shop"]
    ending = namespace("shop", deletionTimestamp="2026-01-01T00:00:00Z")
    assert namespaces.of(after(third, shop, other, ending)) == ["other"]
