"""A cell that holds the latest value; how tasks tell each other what is current (ARCHITECTURE.md, rule 2)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """One value, many readers: setting an equal value is no news, and a slow reader sees only the newest."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._version = 0
        self._changed = asyncio.Event()

    def get(self) -> T:
        """Return the current value."""
        return self._value

    def set(self, value: T) -> None:
        """Make `value` current and wake the readers, unless it equals what is there."""
        if value is not self._value and value != self._value:
            self.replace(value)

    def replace(self, value: T) -> None:
        """Make `value` current and wake the readers."""
        self._value = value
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def change(self) -> asyncio.Event:
        """Return the event that the next change sets."""
        return self._changed

    async def changes(self) -> AsyncIterator[T]:
        """Yield the current value, then each newer one; values between two reads are skipped."""
        seen = -1
        while True:
            while seen == self._version:
                await self._changed.wait()
            seen = self._version
            yield self._value


async def until(condition: Callable[[], bool], *cells: Latest[Any]) -> None:
    """Wait until a condition holds; it is looked at again whenever one of the cells changes."""
    while not condition():
        await changed(*cells)


async def changed(*cells: Latest[Any]) -> None:
    """Wait until one of the cells changes."""
    await first(*(cell.change().wait() for cell in cells))


async def first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of several waits has ended, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
