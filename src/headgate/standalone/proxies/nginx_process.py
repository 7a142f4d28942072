"""Supervises the nginx of one Service: starts, reloads and restarts it, and adopts the nginx of a killed headgate.

As Envoy does, nginx runs in its own session and logs to a file, so it survives headgate. A record in its directory identifies
the process.
"""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from headgate.atomic_file import read_json, write_private
from headgate.backoff import Backoff
from headgate.errors import HeadgateError, ProxyError
from headgate.latest import Latest, wait_for_any
from headgate.proxy_programs.files import put_in_force, write_files
from headgate.proxy_programs.nginx import PID_FILE, Nginx, has_started
from headgate.render.output import Rendered
from headgate.resources.core.pod import ProcessIdentity
from headgate.resources.meta import Value
from headgate.standalone.processes import Launch, Process, adopt, inherited, spawn

DIRECTORY = "nginx"
"""The directory in the state directory with one directory for each Service: `NAMESPACE_NAME`."""
RECORD, LOG = "nginx.json", "nginx.log"
STEADY_S = 30.0
"""An nginx that ran this long was healthy, so the pauses before restarts begin again with the shortest."""
FREE_S = 5.0  # seconds to wait until another process has closed the addresses
QUIT_S = 5.0  # seconds in which nginx may complete its requests
TERM_S = 1.0  # seconds between SIGTERM and SIGKILL
_POLL_S = 0.01


class Listening(NamedTuple):
    """The configuration of nginx, and the address and ports on which it listens."""

    rendered: Rendered
    address: str
    ports: tuple[int, ...]

    def is_free(self) -> bool:
        """Return whether no process listens on the ports."""
        return all(_is_free(self.address, port) for port in self.ports)


class NginxRecord(Value, frozen=True, kw_only=True):
    """The record by which the next headgate recognizes this nginx."""

    identity: ProcessIdentity


class NginxProgram(NamedTuple):
    """The program, and the file descriptors that its processes inherit."""

    path: str
    pass_fds: tuple[int, ...] = ()


class NginxProcess:
    """Keeps the nginx of one Service as `wanted` says: None means that no nginx runs. `failure` is empty while it does so.

    `serves` is True from its first start until none is wanted, also while it is restarted. `directory` has the configuration,
    the log and the record of the process.
    """

    def __init__(self, directory: Path, program: NginxProgram) -> None:
        self.wanted: Latest[Listening | None] = Latest(None)
        self.failure: Latest[str] = Latest("")
        self._directory = directory
        self._program = program
        self._process = surviving_nginx(directory)
        self.serves: Latest[bool] = Latest(self._process is not None)
        self._current: Listening | None = None
        self._restarts = Backoff(steady_s=STEADY_S)

    async def run(self, ended: Callable[[], Awaitable[None]]) -> None:
        """Follow `wanted` until no nginx is wanted or left. `ended` is called when nginx has closed its addresses for that."""
        failures = Backoff()
        self._restarts.begin()
        while True:
            changed, listening, pause = self.wanted.next_change(), self.wanted.get(), None
            try:
                await self._follow(listening, ended)
                self.failure.set("")
                failures.reset()
                if listening is None and self.wanted.get() is None:
                    return
            except (HeadgateError, OSError) as error:
                self.failure.set(str(error))
                pause = failures.next_pause()
            if await self._exited(changed, pause):
                self.failure.set(f"nginx ended{self._last_line()}")
                self._process = None
                await asyncio.sleep(self._restarts.next_pause())

    async def end(self) -> None:
        """Let nginx complete its requests, and end it."""
        if process := self._process:
            process.signal(signal.SIGQUIT)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUIT_S):
                    await process.exited()
            await process.end(TERM_S)
            self._process = None
        (self._directory / RECORD).unlink(missing_ok=True)

    async def _follow(self, listening: Listening | None, ended: Callable[[], Awaitable[None]]) -> None:
        """Start, reload or end nginx. Raises HeadgateError and OSError."""
        if listening is None:
            await self._quit(ended)
        elif self._process is None:
            await self._start(listening)
        elif not self._current or listening.rendered.files != self._current.rendered.files:
            nginx = Nginx(self._program.path)
            if failure := await asyncio.to_thread(put_in_force, listening.rendered, self._directory, nginx):
                raise ProxyError(failure)
        self._current = listening

    async def _start(self, listening: Listening) -> None:
        pid_file = self._directory / PID_FILE
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        pid_file.unlink(missing_ok=True)
        write_files(listening.rendered, self._directory)
        nginx = Nginx(self._program.path)
        if fault := await asyncio.to_thread(nginx.check, self._directory, Path(listening.rendered.main)):
            raise ProxyError(f"the configuration is not valid: {fault}")
        await _until(listening.is_free)  # the gateway closes its sockets after its answer
        command = (*nginx.command(self._directory, Path(listening.rendered.main)), "-g", _directives())
        launch = Launch(command=command, env=inherited(os.environ), pass_fds=self._program.pass_fds)
        process = self._process = spawn(launch, self._directory / LOG)
        write_private(self._directory / RECORD, msgspec.json.encode(NginxRecord(identity=process.identity)))
        self._restarts.begin()
        while not has_started(self._directory):  # nginx writes it when it listens on all ports
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await process.exited()
                    self._process = None
                    raise ProxyError(f"nginx did not start{self._last_line()}")
        self.serves.set(value=True)

    async def _quit(self, ended: Callable[[], Awaitable[None]]) -> None:
        """Let nginx close its addresses, let the gateway listen there, and then end nginx."""
        self.serves.set(value=False)
        if self._process and self._current:
            self._process.signal(signal.SIGQUIT)
            await _until(self._current.is_free)
            await ended()
            await self.end()
        elif self._process:  # the addresses of an adopted nginx are not known
            await self.end()
            await ended()
        shutil.rmtree(self._directory, ignore_errors=True)

    async def _exited(self, changed: asyncio.Event, pause: float | None) -> bool:
        """Wait until nginx exits, until a change, or for a pause; return whether nginx has exited."""
        process, exits = self._process, list[int | None]()

        async def exited() -> None:
            exits.append(await process.exited() if process else await asyncio.Future())

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await wait_for_any(changed.wait(), exited())
        return bool(exits)

    def _last_line(self) -> str:
        """Return the last line of the log as the end of a message."""
        log = self._directory / LOG
        try:
            lines = log.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return f": {lines[-1]} (its log is {log})" if lines else ""


def surviving_nginx(directory: Path) -> Process | None:
    """Return the running nginx that an earlier headgate started with this directory; None when it has exited."""
    record = read_json(directory / RECORD, NginxRecord)
    return adopt(record.identity) if record else None


def _directives() -> str:
    """Return the directives on the command line. Workers of root are root too: only root reads the state directory."""
    return "daemon off;" + ("" if os.geteuid() else f" user {pwd.getpwuid(0).pw_name};")


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


async def _until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, at most FREE_S."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FREE_S
    while not condition() and loop.time() < deadline:  # noqa: ASYNC110 - no event shows that a socket is closed
        await asyncio.sleep(_POLL_S)
