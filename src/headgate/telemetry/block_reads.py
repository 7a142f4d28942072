"""Reads of stored windows: they share one thread, so that no number of queries delays certificates, state files or the compiler."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class BlockReads:
    """Does the work of reads in a thread of its own, one at a time. Equal reads that overlap are done once."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "stored-windows")
        self._running: dict[Hashable, asyncio.Task[Any]] = {}

    async def shared(self, key: Hashable, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a read: of the one with this `key` that runs, or else of a new one.

        A read continues if a task that waits for it is canceled.
        """
        task: asyncio.Task[T] | None = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(read())
            task.add_done_callback(lambda done: self._end(key, done))
        return await asyncio.shield(task)

    async def in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work in the thread, after all earlier work."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """End the thread after its current work, and cancel what waits for it."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _end(self, key: Hashable, done: asyncio.Task[Any]) -> None:
        del self._running[key]
        if not done.cancelled():
            done.exception()  # without a task that still waits, asyncio would log it as never retrieved
