"""Tasks that run beside everything else, from the start of headgate to its end."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class Background:
    """Tasks that run until headgate ends; when one fails, headgate ends and the error is raised."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task beside the others."""
        self._tasks.append(self._group.create_task(work, name=name))

    def cancel(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def background() -> AsyncIterator[Background]:
    """Run tasks until the context ends; what one of them raised ends it."""
    async with asyncio.TaskGroup() as group:
        tasks = Background(group)
        yield tasks
        tasks.cancel()
