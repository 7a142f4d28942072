"""Supervises a program of this machine: starts, watches, restarts, reloads and ends it, and adopts that of a killed headgate.

The program runs in its own session and logs to a file, so it survives headgate. A private record in a file identifies the
process for the next headgate. Envoy, nginx and the containers of pods are each a `Program`; the rest is the same for all.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from headgate.atomic_file import read_json, write_private
from headgate.backoff import Backoff
from headgate.errors import HeadgateError
from headgate.resources.core.pod import ProcessIdentity
from headgate.resources.meta import Value
from headgate.standalone.processes import Launch, Process, StartError, adopt, spawn


class ProgramRecord(Value, frozen=True, kw_only=True):
    """The record by which the next headgate recognizes a process.

    `fingerprint` stands for everything that a process must have been started with to be adopted. `started_at` is in
    seconds since the epoch.
    """

    identity: ProcessIdentity
    fingerprint: str = ""
    restarts: int = 0
    started_at: float = 0.0


def surviving(record: Path) -> Process | None:
    """Return the running process of a record, which this or an earlier headgate has started; None when it has exited."""
    last = read_json(record, ProgramRecord)
    return adopt(last.identity) if last else None


async def _nothing_to_reload() -> None:
    """Reload a program that reads its files only when it starts."""


async def _exit_of(process: Process) -> int | None:
    return await process.exited()


class Program(NamedTuple):
    """What distinguishes a program for its supervisor. `record` is the file with the record of its process.

    - `prepare` writes its files; it returns how to start it, and its log.
    - `begun` is called with the record of a started process. It returns when the program serves, or has exited.
    - `failed` is called with the error of a start or reload, and the seconds until the next attempt.
    - `ended` is called with an exit code (None for an adopted process), and the seconds until the restart. It returns
      whether the program is to be restarted.
    - `fingerprint` returns that of a process to start.
    - `reload` activates changed files in the running process.
    - `durable` says whether the record must outlast a power failure, so that the program is not run a second time after it.
    - `exited` waits for the exit of a process, and does what accompanies it until then, such as probes.

    `prepare` and `reload` raise HeadgateError and OSError when they fail.
    """

    record: Path
    prepare: Callable[[], Awaitable[tuple[Launch, Path]]]
    begun: Callable[[ProgramRecord], Awaitable[None]]
    failed: Callable[[Exception, float], Awaitable[None]]
    ended: Callable[[int | None, float], Awaitable[bool]]
    fingerprint: Callable[[], str] = str
    reload: Callable[[], Awaitable[None]] = _nothing_to_reload
    exited: Callable[[Process], Awaitable[int | None]] = _exit_of
    durable: bool = False


class Supervisor:
    """Keeps a program running while `run` runs. `process` is its process: started, or adopted if `adopted` is set."""

    def __init__(self, program: Program, backoff: Backoff) -> None:
        self.process: Process | None = None
        self.adopted = False
        self._program = program
        self._backoff = backoff
        self._restarts = 0
        self._wakes = asyncio.Event()  # set by `change` and `leave`
        self._changed = False
        self._leaves = False

    def adopt(self) -> ProgramRecord | None:
        """Adopt the process of an earlier headgate. Return its record, also when it has exited; None without a record.

        If its fingerprint is another one than that of a new process, the caller ends it.
        """
        last = read_json(self._program.record, ProgramRecord)
        if last:
            self.process = adopt(last.identity)
            self.adopted = self.process is not None
            self._restarts = last.restarts + (0 if self.process else 1)
        return last

    async def start(self) -> None:
        """Start the program; return when it serves. Raises HeadgateError and OSError."""
        await self._program.begun(await self._spawn())

    async def run(self) -> int | None:
        """Keep the program running until `ended` says otherwise; return the last exit code. Return None after `leave`."""
        while not self._leaves:
            pause = await self._follow()
            for code in await self._exit_codes(pause):
                self._forget()
                pause = self._backoff.next_pause()
                if not await self._program.ended(code, pause):
                    return code
                self._restarts += 1
                await self._exit_codes(pause)
        self._leaves = False
        return None

    def change(self) -> None:
        """Reload the program; if it does not run, start it without a further pause."""
        self._changed = True
        self._wakes.set()

    def leave(self) -> None:
        """Let `run` return after the start or reload that it may be in. The process keeps running."""
        self._leaves = True
        self._wakes.set()

    async def end(self, grace: float, *, request: signal.Signals = signal.SIGTERM) -> bool:
        """End the process, also a detached one or that of an earlier headgate: `request`, then SIGKILL after `grace` seconds.

        Return whether it is gone.
        """
        process = self.process or surviving(self._program.record)
        gone = not process or await process.end(grace, request=request)
        if gone:
            self._forget()
        return gone

    def detach(self) -> None:
        """Leave the process to the next headgate."""
        if self.process:
            self.process.detach()
            self.process = None

    async def _follow(self) -> float | None:
        """Start the program if it does not run; reload it after a change. If that fails, return the pause before the next attempt."""
        self._wakes.clear()
        changed, self._changed = self._changed, False
        record = None
        try:
            if self.process is None:
                self._backoff.begin()
                record = await self._spawn()
            elif changed:
                self._backoff.begin()
                await self._program.reload()
        except (HeadgateError, OSError) as error:
            self._changed = True
            pause = self._backoff.next_pause()
            await self._program.failed(error, pause)
            return pause
        if record:
            await self._program.begun(record)
        return None

    async def _spawn(self) -> ProgramRecord:
        launch, log = await self._program.prepare()
        fingerprint = self._program.fingerprint()
        process = spawn(launch, log)
        record = ProgramRecord(
            identity=process.identity, fingerprint=fingerprint, restarts=self._restarts, started_at=time.time()
        )
        try:
            write_private(self._program.record, msgspec.json.encode(record), durable=self._program.durable)
        except OSError:  # without a record the next headgate could not adopt the process
            process.signal(signal.SIGKILL)
            process.forget_launcher()
            raise
        self.process, self.adopted = process, False
        try:
            await process.executed()
        except StartError:
            self._forget()
            raise
        return record

    async def _exit_codes(self, pause: float | None) -> list[int | None]:
        """Wait for the exit of the process, for `change` or `leave`, or for a pause; return the exit code in the first case."""
        wakes = asyncio.ensure_future(self._wakes.wait())
        exits = [asyncio.ensure_future(self._program.exited(self.process))] if self.process else []
        try:
            await asyncio.wait({wakes, *exits}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            return [task.result() for task in exits if task.done()]
        finally:
            for task in (wakes, *exits):
                task.cancel()
            await asyncio.gather(wakes, *exits, return_exceptions=True)

    def _forget(self) -> None:
        self.process = None
        self._program.record.unlink(missing_ok=True)
