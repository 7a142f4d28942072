"""Reads of stored windows have a thread of their own, and equal ones are shared (R85)."""

import asyncio
from collections.abc import AsyncIterator
from threading import Event, current_thread

import pytest

from headgate.errors import NoCounts
from headgate.telemetry.block_reads import BlockReads


@pytest.fixture
async def reads() -> AsyncIterator[BlockReads]:
    reads = BlockReads()
    yield reads
    reads.close()


async def test_equal_reads_that_overlap_are_done_once_and_survive_a_canceled_client(reads: BlockReads) -> None:
    begun: list[str] = []
    may_end = Event()

    async def read() -> str:
        begun.append("read")
        await reads.in_thread(may_end.wait)
        return "result"

    first, second = (asyncio.create_task(reads.shared("key", read)) for _ in range(2))
    while not begun:
        await asyncio.sleep(0)
    first.cancel()
    may_end.set()
    assert (await second, begun) == ("result", ["read"])
    assert (await reads.shared("key", read), begun) == ("result", ["read", "read"])


async def test_clients_of_a_failed_read_get_its_error_and_the_next_read_is_a_new_one(reads: BlockReads) -> None:
    async def fail() -> str:
        raise NoCounts("no counts")

    async def succeed() -> str:
        return "result"

    results = await asyncio.gather(*(reads.shared("key", fail) for _ in range(2)), return_exceptions=True)
    assert [str(result) for result in results] == ["no counts", "no counts"]
    assert await reads.shared("key", succeed) == "result"


async def test_reads_are_done_one_at_a_time_in_one_thread(reads: BlockReads) -> None:
    running: list[int] = []
    most: list[int] = []

    def work(number: int) -> str:
        running.append(number)
        most.append(len(running))
        running.remove(number)
        return current_thread().name

    names = await asyncio.gather(*(reads.in_thread(work, number) for number in range(20)))
    assert (len(set(names)), set(most)) == (1, {1})
