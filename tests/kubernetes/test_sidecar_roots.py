"""The ConfigMap with the roots of sidecars: which namespaces get it, when it is written, and what other clients do to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.make.objects import Object, config_map, headgate_keys, namespace, obj, pod
from tests.make.values import snapshot

from headgate.compiler.snapshot import Snapshot
from headgate.errors import Cause, Invalid, Unavailable
from headgate.kubernetes.sidecar_roots import NamespacesWithProxies, SidecarRoots
from headgate.latest import Latest, until
from headgate.model.identities import Credential, PrivateText
from headgate.resources.meta import Key
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


def pod_with_sidecar(place: str, sidecar: str = "transparent", name: str = "web") -> Object:
    return pod(name, namespace=place, annotations=headgate_keys(sidecar_mode=sidecar) if sidecar else {})


def credential(roots: str) -> Credential:
    return Credential(chain="", key=PrivateText(""), roots=roots)


class KeptRoots:
    """A store with the namespace `shop`, and the ConfigMaps that a control plane keeps in it."""

    def __init__(self, store: CountingStore) -> None:
        self.store = store
        self.certificate = Latest(credential("OLD"))
        self.snapshot: Latest[Snapshot | None] = Latest(snapshot(pod_with_sidecar("shop")))
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
    kept = KeptRoots(CountingStore())
    await kept.store.create(namespace("plain"))
    kept.snapshot.set(snapshot(pod_with_sidecar("shop"), pod_with_sidecar("plain", "")))
    async with kept.running():
        await kept.applied(1)
        assert await kept.data() == {SHOP: {"roots.pem": "OLD"}}
        assert kept.roots.written.get() == "OLD"


async def test_new_roots_are_written_and_nothing_for_other_changes() -> None:
    kept = KeptRoots(CountingStore())
    async with kept.running():
        await kept.applied(1)
        kept.snapshot.set(snapshot(pod_with_sidecar("shop"), pod_with_sidecar("shop", name="more")))
        await kept.store.create(config_map("other", namespace="shop"))
        await kept.settle()
        kept.certificate.set(credential("OLD NEW"))
        await kept.applied(2)
        assert (await kept.data())[SHOP] == {"roots.pem": "OLD NEW"}


async def test_a_replica_that_becomes_active_writes_nothing_if_all_roots_are_there() -> None:
    kept = KeptRoots(CountingStore())
    async with kept.running():
        await kept.applied(1)
    next_one = KeptRoots(kept.store)
    task = asyncio.create_task(next_one.roots.run(next_one.snapshot))
    await until(lambda: next_one.roots.written.get() == "OLD", next_one.roots.written)
    task.cancel()
    assert kept.store.applied.get() == 1


async def test_deleted_and_edited_roots_are_restored() -> None:
    kept = KeptRoots(CountingStore())
    async with kept.running():
        await kept.applied(1)
        await kept.store.delete(Key("", "ConfigMap", *SHOP))
        await kept.applied(2)
        (found,) = (await kept.store.list("", "ConfigMap")).items
        await kept.store.update({**found, "data": {"roots.pem": "STRANGE"}})
        await kept.applied(3)
        assert await kept.data() == {SHOP: {"roots.pem": "OLD"}}


async def test_roots_that_other_clients_edited_are_not_written_until_they_are_restored() -> None:
    """So the time until kubelets have read the roots starts again."""
    kept = KeptRoots(CountingStore())
    async with kept.running():
        await kept.applied(1)
        assert kept.roots.written.get() == "OLD"
        kept.store.answers.clear()
        (found,) = (await kept.store.list("", "ConfigMap")).items
        await kept.store.update({**found, "data": {"roots.pem": "STRANGE"}})
        await until(lambda: not kept.roots.written.get(), kept.roots.written)
        kept.store.answers.set()
        await until(lambda: kept.roots.written.get() == "OLD", kept.roots.written)


async def test_an_immutable_config_map_is_replaced() -> None:
    kept = KeptRoots(ImmutableStore())
    await kept.store.create(namespace("shop"))
    await kept.store.create(config_map("headgate-roots", {"roots.pem": "STRANGE"}, namespace="shop"))
    task = asyncio.create_task(kept.roots.run(kept.snapshot))
    await kept.applied(1)
    assert await kept.data() == {SHOP: {"roots.pem": "OLD"}}
    task.cancel()


async def test_a_terminating_namespace_gets_no_roots_until_it_is_created_again() -> None:
    kept = KeptRoots(CountingStore())
    ending = namespace("shop", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    kept.snapshot.set(snapshot(pod_with_sidecar("shop"), ending))
    async with kept.running():
        await until(lambda: kept.roots.written.get() == "OLD", kept.roots.written)
        assert await kept.data() == {}
        kept.snapshot.set(snapshot(pod_with_sidecar("shop"), namespace("shop")))
        await kept.applied(1)


async def test_roots_of_a_namespace_that_does_not_exist_yet_are_written_after_the_next_change() -> None:
    """The snapshot has a pod of a deleted namespace, which is created again."""
    kept = KeptRoots(CountingStore())
    kept.snapshot.set(snapshot(pod_with_sidecar("later")))
    async with kept.running():
        await kept.applied(1)
        assert kept.roots.written.get() == "OLD"
        await kept.store.create(namespace("later"))
        kept.snapshot.set(snapshot(pod_with_sidecar("later"), namespace("later")))
        await kept.applied(2)
        assert await kept.data() == {("later", "headgate-roots"): {"roots.pem": "OLD"}}


async def test_a_failed_write_is_repeated() -> None:
    kept = KeptRoots(CountingStore(failures=2))
    async with kept.running():
        await kept.applied(1)
        assert await kept.data() == {SHOP: {"roots.pem": "OLD"}}


def test_the_namespaces_are_found_again_only_after_a_change_of_a_pod_or_a_namespace() -> None:
    def after(last: Snapshot, *objects: Any) -> Snapshot:
        return snapshot(*objects).following(last)

    service = obj("Service", "web", namespace="shop", spec={})
    shop, other = pod_with_sidecar("shop"), pod_with_sidecar("other")
    namespaces = NamespacesWithProxies()
    first = after(Snapshot(), shop)
    found = namespaces.of(first)
    assert found == ["shop"]
    second = after(first, shop, service)
    assert namespaces.of(second) is found
    third = after(second, shop, other, pod_with_sidecar("plain", sidecar=""), service)
    assert namespaces.of(third) == ["other", "shop"]
    ending = namespace("shop", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert namespaces.of(after(third, shop, other, ending)) == ["other"]
