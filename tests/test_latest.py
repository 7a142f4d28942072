"""Readers of a Latest receive the newest value and wake only when the value changes."""

import asyncio

from headgate.latest import Latest


async def test_a_reader_gets_the_current_value_and_then_each_newer_one() -> None:
    cell = Latest(1)
    changes = cell.changes()
    assert await anext(changes) == 1
    waiting = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    assert not waiting.done()
    cell.set(2)
    assert await waiting == 2


async def test_a_slow_reader_skips_to_the_newest_value() -> None:
    cell = Latest(0)
    changes = cell.changes()
    assert await anext(changes) == 0
    for value in range(1, 10):
        cell.set(value)
    assert await anext(changes) == 9
    assert cell.get() == 9


async def test_setting_an_equal_value_wakes_no_reader() -> None:
    cell = Latest([1])
    changes = cell.changes()
    await anext(changes)
    waiting = asyncio.ensure_future(anext(changes))
    first = cell.get()
    cell.set([1])
    await asyncio.sleep(0)
    assert not waiting.done()
    assert cell.get() is first
    cell.set([2])
    assert await waiting == [2]


async def test_a_new_value_wakes_every_reader() -> None:
    cell = Latest(0)
    readers = [cell.changes() for _ in range(3)]
    for reader in readers:
        await anext(reader)
    waiting = [asyncio.ensure_future(anext(reader)) for reader in readers]
    await asyncio.sleep(0)
    cell.set(1)
    assert await asyncio.gather(*waiting) == [1, 1, 1]
