"""Read the changes that a store delivers to watchers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from headgate.objects.ports import Change, Reader, Relist, follow_all
from headgate.resources.registry import KINDS
from headgate.standalone.store.memory import MemoryStore

T = TypeVar("T")


async def changes_after(store: MemoryStore, version: str | int) -> list[Change]:
    """Return the changes of all kinds that a watch delivers without waiting, in the order of the writes."""
    changes = [
        change for kind in KINDS for change in await _available(store.watch(kind.group, kind.kind, since=str(version)))
    ]
    return sorted(changes, key=lambda change: int(change.version))


async def _available(watch: AsyncIterator[Change]) -> list[Change]:
    delivered: list[Change] = []
    while True:
        step = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)  # a stored change is delivered within one turn of the event loop
        if not step.done():
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
            return delivered
        delivered.append(step.result())


def every_step(reader: Reader) -> AsyncGenerator[Relist | Change]:
    """List the objects of all kinds, then watch all kinds; yield each list and each change."""
    return follow_all(reader, ((kind.group, kind.kind) for kind in KINDS))


async def until(reader: Reader, holds: Callable[[], Awaitable[T | None]], seconds: float) -> T:
    """Call `holds`, a coroutine function, after every change; return its first true result."""
    async with asyncio.timeout(seconds), aclosing(every_step(reader)) as steps:
        async for _ in steps:
            if result := await holds():
                return result
    raise AssertionError("the changes of a store have ended")
