"""One tap: the records that it shows, its limit per second, and notices of requests left out."""

import asyncio
from contextlib import aclosing

from headgate.plane.tap.taps import LIMITED, MAX_QUEUED, SAMPLED, Tap
from headgate.plane.tap.targets import RouteTarget, TapTarget
from headgate.telemetry.reports.tap_records import TapRecord

CALLER = "spiffe://cluster.local/ns/default/sa/buyer"
OTHER = RouteTarget(kind="TrafficSplit", name="default/other")


def record(split: str = "web", peer: str = "") -> TapRecord:
    return TapRecord(node="gateway", time=1.0, route=f"TrafficSplit default/{split}", peer=peer)


def tap(limit: int, later: TapTarget | None = None) -> Tap:
    target = RouteTarget(kind="TrafficSplit", name="default/web")

    async def find() -> TapTarget:
        return later or target

    return Tap(find, target, limit)


async def test_a_tap_shows_only_records_of_its_target_in_order() -> None:
    opened = tap(limit=10)
    for split in ("web", "other", "web"):
        opened.offer(record(split))
    async with aclosing(opened.steps()) as steps:
        assert [await anext(steps) for _ in range(2)] == [record(), record()]


async def test_a_notice_counts_the_records_above_the_limit_per_second() -> None:
    """Two proxies report the requests of one second one after the other; one notice counts both."""
    opened = tap(limit=2)
    for _ in range(5):
        opened.offer(record())
    async with aclosing(opened.steps()) as steps:
        assert [await anext(steps) for _ in range(2)] == [record(), record()]
        following = asyncio.create_task(anext(steps))
        await asyncio.sleep(0)
        opened.offer(record())
        await opened.refresh()
        assert await following == (4, LIMITED)
        opened.offer(record())
        assert await anext(steps) == record()


async def test_a_slow_reader_misses_records() -> None:
    opened = tap(limit=10 * MAX_QUEUED)
    for _ in range(MAX_QUEUED + 7):
        opened.offer(record())
    await opened.refresh()
    async with aclosing(opened.steps()) as steps:
        found = [await anext(steps) for _ in range(MAX_QUEUED + 1)]
    assert found[-1] == (7, LIMITED)


async def test_a_notice_counts_requests_that_busy_proxies_did_not_record() -> None:
    opened = tap(limit=1)
    opened.note_sampled(40)
    opened.note_sampled(2)
    await opened.refresh()
    async with aclosing(opened.steps()) as steps:
        assert await anext(steps) == (42, SAMPLED)


async def test_the_target_is_updated_each_second() -> None:
    opened = tap(limit=5, later=OTHER)
    await opened.refresh()
    for split in ("web", "other"):
        opened.offer(record(split))
    async with aclosing(opened.steps()) as steps:
        assert await anext(steps) == record("other")


def test_a_tap_collects_the_callers_of_its_target() -> None:
    opened = tap(limit=0)
    opened.offer(record(peer=CALLER))
    opened.offer(record("other", peer="spiffe://cluster.local/ns/default/sa/thief"))
    assert opened.callers == {CALLER}
