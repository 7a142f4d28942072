"""Commands in the containers of local pods, for `kubectl exec`: their processes, standard streams and terminals.

A command has the environment, working directory, mounts and user of its container. It leads its own session, as containers do, and what
it leaves in its process group ends with it.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import termios
from collections.abc import Callable, Coroutine
from functools import partial
from signal import SIGHUP, SIGKILL
from typing import Any, NamedTuple

from msgspec.structs import replace

from headgate.errors import HeadgateError
from headgate.standalone.pods.runs import Run
from headgate.standalone.processes import (
    Launch,
    Process,
    StandardFiles,
    StartError,
    identity_of,
    missing_program,
    start,
    until_gone,
)

STDOUT, STDERR = 1, 2
_READ_BYTES = 32 << 10  # the size of a message in the server of Kubernetes
_GRACE_S = 2.0  # the time between SIGHUP and SIGKILL for a command whose client has gone
_HANGUP_S = 0.5  # the time in which the kernel hangs up the terminal of a session whose leader has exited
_END_OF_INPUT = b"\x04"  # Ctrl-D: a terminal can't be closed in one direction
# A session without a terminal gets its first opened terminal as the controlling terminal, unless O_NOCTTY is set (tty(4)).
_TERMINAL_SHELL = 'terminal=$1; shift; exec "$@" <>"$terminal" >&0 2>&0'


class NotRunning(HeadgateError):
    """The container has no running process."""


class ContainerCommand(NamedTuple):
    """A command, and which of its standard streams are connected to the client. With `tty`, stdout and stderr are one."""

    words: tuple[str, ...]
    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False


def check_running(run: Run) -> None:
    """Check that a container runs. Raises NotRunning with what it does instead."""
    if not (run.live and run.state.pid):  # a process that has just started has no pid in the state yet
        name, state = run.settings.container.name, run.state
        raise NotRunning(f"container {name} does not run: it is {state.phase} ({state.message or state.reason})")


async def start_command(run: Run, command: ContainerCommand) -> "RunningCommand":
    """Start a command in a running container. Raises NotRunning, ConfigError and StartError."""
    check_running(run)
    container_process = identity_of(run.state.pid)
    launch = replace(await run.command_launch(), command=command.words)
    if launch.isolation is None and (fault := missing_program(launch)):  # else `executed` sees the mounts
        raise StartError(fault)
    started = _on_terminal(launch) if command.tty else _on_pipes(launch, command)
    started.end_with(until_gone(container_process))
    try:
        await started.executed()
    except BaseException:
        await started.end()
        raise
    return started


class RunningCommand:
    """The process of a command. `stdin` and `outputs` have non-blocking file descriptors; `outputs` has them by stream."""

    def __init__(self, process: Process, stdin: int | None, outputs: dict[int, int], *, tty: bool) -> None:
        self._process = process
        self._stdin = stdin
        self._outputs = outputs
        self._tty = tty
        self._exit = asyncio.ensure_future(process.exited())
        self._container: asyncio.Task[None] | None = None
        for file in self._files():
            os.set_blocking(file, False)

    @property
    def streams(self) -> tuple[int, ...]:
        """The streams that `read` accepts."""
        return tuple(self._outputs)

    async def executed(self) -> None:
        """Wait until the command is executed. Raises StartError."""
        await self._process.executed()

    def end_with(self, gone: Coroutine[Any, Any, None]) -> None:
        """Kill the command when its container has ended."""
        self._container = asyncio.ensure_future(gone)
        self._container.add_done_callback(self._kill)

    def _kill(self, gone: asyncio.Task[None]) -> None:
        if not gone.cancelled():
            self._process.signal(SIGKILL)

    async def exited(self) -> int:
        """Wait for the exit; return the exit code."""
        return await asyncio.shield(self._exit) or 0

    async def read(self, stream: int) -> bytes:
        """Return the next output of a stream: as much as there is, at most 32 KiB; empty at its end."""
        file = self._outputs[stream]
        while True:
            has_exited = self._exit.done()
            try:
                return os.read(file, _READ_BYTES)
            except BlockingIOError:
                # What a process wrote is in the pipe when it has exited. A process that has left the group may keep it open.
                if has_exited and not (self._tty and await self._until_readable(file, _HANGUP_S)):
                    return b""
            except OSError:  # EIO: no process has the terminal any more
                return b""
            if not has_exited:
                await self._until_readable(file, None)

    async def write(self, data: bytes) -> None:
        """Write to stdin, as fast as the command reads. Data for a command that has closed its stdin is dropped."""
        while data and self._stdin is not None and not self._exit.done():
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await self._until_ready(partial(loop.add_writer, self._stdin), partial(loop.remove_writer, self._stdin))
            except OSError:  # EPIPE, or EIO of a terminal
                return

    async def close_stdin(self) -> None:
        """Let the command read the end of its input."""
        if self._tty:
            await self.write(_END_OF_INPUT)
        elif self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal."""
        if self._tty:
            fcntl.ioctl(self._outputs[STDOUT], termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def end(self) -> None:
        """End the command if it still runs, and close its files."""
        if not self._exit.done():
            await self._process.end(_GRACE_S, request=SIGHUP)
        if self._container:
            self._container.cancel()
        for file in self._files():
            os.close(file)
        self._outputs, self._stdin = {}, None

    def _files(self) -> set[int]:
        return {*self._outputs.values(), *([] if self._stdin is None else [self._stdin])}

    async def _until_readable(self, file: int, seconds: float | None) -> bool:
        """Wait until a file can be read, or the command exits; return whether one of them is so in time."""
        loop = asyncio.get_running_loop()
        return await self._until_ready(partial(loop.add_reader, file), partial(loop.remove_reader, file), seconds)

    async def _until_ready(
        self, add: Callable[[Callable[[], None]], None], remove: Callable[[], object], seconds: float | None = None
    ) -> bool:
        is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        add(lambda: None if is_ready.done() else is_ready.set_result(None))
        ends: list[asyncio.Future[Any]] = [] if self._exit.done() else [self._exit]
        try:
            done, _ = await asyncio.wait([is_ready, *ends], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            remove()
        return bool(done)


def _on_pipes(launch: Launch, command: ContainerCommand) -> RunningCommand:
    """Start a command with a pipe for each connected stream, and /dev/null for each other one."""
    with contextlib.ExitStack() as given, contextlib.ExitStack() as kept:
        outputs: dict[int, int] = {}
        files = [subprocess.DEVNULL] * 3
        stdin = None
        if command.stdin:
            files[0], stdin = os.pipe()
            given.callback(os.close, files[0])
            kept.callback(os.close, stdin)
        for stream, connected in ((STDOUT, command.stdout), (STDERR, command.stderr)):
            if connected:
                outputs[stream], files[stream] = os.pipe()
                given.callback(os.close, files[stream])
                kept.callback(os.close, outputs[stream])
        started = RunningCommand(start(launch, StandardFiles(*files)), stdin, outputs, tty=False)
        kept.pop_all()
        return started


def _on_terminal(launch: Launch) -> RunningCommand:
    """Start a command on a new terminal, which it controls."""
    shell = shutil.which("sh")
    if shell is None:
        raise StartError("a terminal needs the program sh; run kubectl exec without -t")
    with contextlib.ExitStack() as given, contextlib.ExitStack() as kept:
        master, slave = os.openpty()
        kept.callback(os.close, master)
        given.callback(os.close, slave)
        if launch.isolation and launch.isolation.user is not None:
            os.fchown(slave, launch.isolation.user, -1)
        words = (shell, "-c", _TERMINAL_SHELL, shell, os.ttyname(slave), *launch.command)
        env = {"TERM": "xterm", **launch.env}
        process = start(replace(launch, command=words, env=env), StandardFiles(slave, slave, slave))
        kept.pop_all()
    return RunningCommand(process, master, {STDOUT: master}, tty=True)
