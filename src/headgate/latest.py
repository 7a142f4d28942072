"""A shared value that tasks can wait on: one task sets it, any number of tasks read the newest one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """A value that wakes its readers on each change. A slow reader gets only the newest value."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._version = 0
        self._changed = asyncio.Event()

    def get(self) -> T:
        """Return the current value."""
        return self._value

    def set(self, value: T) -> None:
        """Make `value` current and wake the readers. An equal value changes nothing and wakes no reader."""
        if value is not self._value and value != self._value:
            self.replace(value)

    def replace(self, value: T) -> None:
        """Make `value` current and wake the readers, without comparing it with the old value."""
        self._value = value
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def next_change(self) -> asyncio.Event:
        """Return the event that the next change sets."""
        return self._changed

    async def changes(self) -> AsyncIterator[T]:
        """Yield the current value, then the newest value after each change."""
        seen = -1
        while True:
            while seen == self._version:
                await self._changed.wait()
            seen = self._version
            yield self._value


async def until(condition: Callable[[], bool], *values: Latest[Any]) -> None:
    """Wait until a condition holds. Evaluate the condition at once, and after each change to one of the values."""
    while not condition():
        await wait_for_change(*values)


async def wait_for_change(*values: Latest[Any]) -> None:
    """Wait until one of the values changes."""
    await wait_for_any(*(value.next_change().wait() for value in values))


async def wait_for_any(*waits: Coroutine[Any, Any, object]) -> None:
    """Run coroutines until the first of them ends, then cancel the rest."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
