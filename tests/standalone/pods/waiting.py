"""How tests wait for what becomes of a store's objects."""

import asyncio
from collections.abc import Callable
from typing import Any

from headgate.standalone.store.memory import MemoryStore


async def until(store: MemoryStore, holds: Callable[[], Any], seconds: float) -> Any:
    """Wait until `holds` (a coroutine function) returns something true, looking again after every change."""
    async with asyncio.timeout(seconds):
        since = store.revision
        if found := await holds():
            return found
        async for _ in store.watch(since):
            if found := await holds():
                return found
    raise AssertionError
