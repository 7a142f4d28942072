"""The LimitRanges and ResourceQuotas that injection reads follow those that are stored."""

import asyncio
from collections.abc import Callable

from tests.decoding import admit
from tests.make.objects import namespace

from headgate.kubernetes.namespace_limits import FollowedLimits
from headgate.resources.meta import Key, Object
from headgate.standalone.store.memory import MemoryStore

TIMEOUT_S = 20


def limit_range(name: str, memory: str) -> Object:
    limits = [{"type": "Container", "max": {"memory": memory}}]
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"limits": limits},
    }


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0)


def quota(name: str, pods: str) -> Object:
    metadata = {"name": name, "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": pods}}}


async def test_limit_ranges_of_a_namespace_are_read_when_they_change_and_forgotten_when_they_are_deleted() -> None:
    store, followed = MemoryStore(admit=admit), FollowedLimits()
    await store.create(namespace("shop"))
    await store.create(limit_range("b", "1Gi"))
    following = asyncio.create_task(followed.run(store))
    await until(lambda: len(followed("shop").ranges) == 1)
    await store.create(limit_range("a", "2Gi"))
    await until(lambda: len(followed("shop").ranges) == 2)
    assert [obj["metadata"]["name"] for obj in followed("shop").ranges] == ["a", "b"]
    before = followed("shop").ranges
    assert list(followed("other").ranges) == []
    await store.delete(Key("", "LimitRange", "shop", "b"))
    await until(lambda: [obj["metadata"]["name"] for obj in followed("shop").ranges] == ["a"])
    assert [obj["metadata"]["name"] for obj in before] == ["a", "b"]  # a thread may still read it
    following.cancel()


async def test_a_changed_quota_replaces_the_earlier_one_and_no_limit_range() -> None:
    store, followed = MemoryStore(admit=admit), FollowedLimits()
    await store.create(namespace("shop"))
    await store.create(limit_range("a", "1Gi"))
    created = await store.create(quota("small", "1"))
    following = asyncio.create_task(followed.run(store))
    await until(lambda: len(followed("shop").ranges) == len(followed("shop").quotas) == 1)
    await store.update({**created, "spec": {"hard": {"pods": "2"}}})
    await until(lambda: [obj["spec"]["hard"]["pods"] for obj in followed("shop").quotas] == ["2"])
    await store.delete(Key("", "ResourceQuota", "shop", "small"))
    await until(lambda: not followed("shop").quotas)
    assert len(followed("shop").ranges) == 1
    following.cancel()
