"""Child processes that execute commands: the parent names a method of an object in the child, and gets its result."""

import asyncio
import gc
import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import uvloop

from headgate.event_loop import GC_THRESHOLDS

_SPAWN = multiprocessing.get_context("spawn")


class Child:
    """A process with one object that `make(tasks, *arguments)` returns there. It executes one command at a time."""

    def __init__(self, make: Callable[..., object], *arguments: object) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process: SpawnProcess = _SPAWN.Process(target=_run, args=(theirs, make, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the object and return its result. Raises EOFError if the process ends instead."""
        self._pipe.send((method, *arguments))
        return self._pipe.recv()

    def kill(self) -> None:
        """Kill the process; the kernel closes its connections."""
        self._process.kill()
        self._process.join()


def _run(pipe: Connection, make: Callable[..., object], *arguments: object) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    gc.set_threshold(*GC_THRESHOLDS)
    uvloop.run(_execute(pipe, make, *arguments))


async def _execute(pipe: Connection, make: Callable[..., object], *arguments: object) -> None:
    arrived = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), arrived.set)  # a thread in `recv` would outlive a failed task
    async with asyncio.TaskGroup() as tasks:
        target = make(tasks, *arguments)
        while True:
            await arrived.wait()
            arrived.clear()
            if pipe.poll():
                method, *given = pipe.recv()
                result = getattr(target, method)(*given)
                pipe.send(await result if asyncio.iscoroutine(result) else result)
