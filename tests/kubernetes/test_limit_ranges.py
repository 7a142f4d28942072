"""The LimitRanges that injection reads follow those that are stored."""

import asyncio
from collections.abc import Callable

from tests.decoding import admit
from tests.make.objects import namespace

from headgate.kubernetes.limit_ranges import FollowedLimitRanges
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


async def test_limit_ranges_of_a_namespace_are_read_when_they_change_and_forgotten_when_they_are_deleted() -> None:
    store, followed = MemoryStore(admit=admit), FollowedLimitRanges()
    await store.create(namespace("shop"))
    await store.create(limit_range("b", "1Gi"))
    following = asyncio.create_task(followed.run(store))
    await until(lambda: len(followed("shop")) == 1)
    await store.create(limit_range("a", "2Gi"))
    await until(lambda: len(followed("shop")) == 2)
    assert [obj["metadata"]["name"] for obj in followed("shop")] == ["a", "b"]
    before = followed("shop")
    assert list(followed("other")) == []
    await store.delete(Key("", "LimitRange", "shop", "b"))
    await until(lambda: [obj["metadata"]["name"] for obj in followed("shop")] == ["a"])
    assert [obj["metadata"]["name"] for obj in before] == ["a", "b"]  # a thread may still read it
    following.cancel()
