"""A cell that holds the latest value; how tasks tell each other what is current (ARCHITECTURE.md, rule 2)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

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
        if value is self._value or value == self._value:
            return
        self._value = value
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def changes(self) -> AsyncIterator[T]:
        """Yield the current value, then each newer one; values between two reads are skipped."""
        seen = -1
        while True:
            while seen == self._version:
                await self._changed.wait()
            seen = self._version
            yield self._value
