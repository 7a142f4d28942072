"""The nginx of one Service as a supervised program: its configuration, its check, its start and its end."""

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

from headgate.backoff import Backoff, until_done
from headgate.errors import HeadgateError, ProxyError
from headgate.latest import Latest
from headgate.proxy_programs.files import activate, write_files
from headgate.proxy_programs.nginx import PID_FILE, Nginx, has_started
from headgate.render.output import Rendered
from headgate.standalone.address_pool import GUARD_PORT
from headgate.standalone.isolation import Isolation
from headgate.standalone.network.namespaces import NetworkNamespace
from headgate.standalone.processes import Launch, Process, inherited
from headgate.standalone.supervisor import Program, ProgramRecord, Supervisor

DIRECTORY = "nginx"
"""The directory in the state directory with one directory for each Service: `NAMESPACE_NAME`."""
RECORD, LOG = "nginx.json", "nginx.log"
STEADY_S = 30.0
"""An nginx that ran this long was healthy, so the pauses before restarts begin again with the shortest."""
FREE_S = 5.0  # seconds to wait until another process has closed the addresses
STOPPED_S = 60.0
"""The seconds in which nginx must close its addresses: without processor time, it has its requests in flight until it runs again."""
QUIT_S = 5.0  # seconds in which nginx may complete its requests after it has closed its addresses, before SIGKILL
_POLL_S = 0.01


class Listening(NamedTuple):
    """The configuration of nginx, and the address and ports on which it listens."""

    rendered: Rendered
    address: str
    ports: tuple[int, ...]

    def is_free(self, node: NetworkNamespace | None) -> bool:
        """Return whether no process listens on the ports, in the network `node`."""
        return all(_is_free(self.address, port, node) for port in self.ports)


class NginxProgram(NamedTuple):
    """The program, the file descriptors that its processes inherit, and the network in which it listens: by default the machine's."""

    path: str
    pass_fds: tuple[int, ...] = ()
    node: NetworkNamespace | None = None


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
        self._supervisor = Supervisor(
            Program(
                record=directory / RECORD,
                prepare=self._prepare,
                begun=self._begun,
                failed=self._failed,
                ended=self._ended,
                reload=self._reload,
            ),
            Backoff(steady_s=STEADY_S),
        )
        self._supervisor.adopt()
        self.serves: Latest[bool] = Latest(self._supervisor.process is not None)
        self._has_begun = self.serves.get()
        self._current: Listening | None = None

    async def run(self, ended: Callable[[], Awaitable[None]]) -> None:
        """Follow `wanted` until no nginx is wanted or left. `ended` is called when nginx has closed its addresses for that."""
        while True:
            if self.wanted.get():
                await self._keep()
            await until_done(lambda: self._quit(ended), "", on=(HeadgateError, OSError))
            if self.wanted.get() is None:
                return

    async def end(self) -> None:
        """Let nginx complete its requests, and end it."""
        if process := self._supervisor.process:
            await _close_addresses(process)
        await self._supervisor.end(QUIT_S, request=signal.SIGQUIT)

    async def _keep(self) -> None:
        """Keep nginx running as `wanted` says, until none is wanted."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._supervisor.run())
            async for listening in self.wanted.changes():
                if listening is None:
                    self._supervisor.leave()
                    return
                self._supervisor.change()

    def _listening(self) -> Listening:
        if (listening := self.wanted.get()) is None:
            raise ProxyError("no nginx is wanted")
        return listening

    async def _prepare(self) -> tuple[Launch, Path]:
        listening, pid_file = self._listening(), self._directory / PID_FILE
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        pid_file.unlink(missing_ok=True)
        write_files(listening.rendered, self._directory)
        nginx, main = Nginx(self._program.path), Path(listening.rendered.main)
        if fault := await self._in_network(lambda: nginx.check(self._directory, main)):
            raise ProxyError(f"the configuration is not valid: {fault}")
        await _until(
            lambda: listening.is_free(self._program.node), FREE_S
        )  # the gateway closes its sockets after its answer
        self._current, self._has_begun = listening, False
        command = (*nginx.command(self._directory, main), "-g", _directives())
        isolation = Isolation(network=self._program.node.path) if self._program.node else None
        launch = Launch(
            command=command, env=inherited(os.environ), pass_fds=self._program.pass_fds, isolation=isolation
        )
        return launch, self._directory / LOG

    async def _begun(self, _record: ProgramRecord) -> None:
        process = self._supervisor.process
        while process and not has_started(self._directory):  # nginx writes it when it listens on all ports
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await process.exited()
                    return
        self._has_begun = True
        self.serves.set(value=True)
        self.failure.set("")

    async def _reload(self) -> None:
        listening = self._listening()
        if not self._current or listening.rendered.files != self._current.rendered.files:
            nginx = Nginx(self._program.path)
            if failure := await self._in_network(lambda: activate(listening.rendered, self._directory, nginx)):
                raise ProxyError(failure)
        self._current = listening
        self.failure.set("")

    async def _in_network(self, work: Callable[[], str]) -> str:
        """Run a function in a thread, in the network in which nginx listens: its check of a configuration binds the addresses."""
        node = self._program.node
        return await (asyncio.to_thread(node.run, work) if node else asyncio.to_thread(work))

    async def _failed(self, error: Exception, _pause: float) -> None:
        self.failure.set(str(error))

    async def _ended(self, _code: int | None, _pause: float) -> bool:
        self.failure.set(f"nginx {'ended' if self._has_begun else 'did not start'}{self._last_line()}")
        return True

    async def _quit(self, ended: Callable[[], Awaitable[None]]) -> None:
        """Let nginx close its addresses, let the gateway listen there, and then end nginx."""
        self.serves.set(value=False)
        if process := self._supervisor.process:
            await _close_addresses(process)
            await ended()
            await self.end()
        self._current = None
        self.failure.set("")
        shutil.rmtree(self._directory, ignore_errors=True)

    def _last_line(self) -> str:
        """Return the last line of the log as the end of a message."""
        log = self._directory / LOG
        try:
            lines = log.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return f": {lines[-1]} (its log is {log})" if lines else ""


def _directives() -> str:
    """Return the directives on the command line. Workers of root are root too: only root reads the state directory."""
    return "daemon off;" + ("" if os.geteuid() else f" user {pwd.getpwuid(0).pw_name};")


def _is_free(address: str, port: int, node: NetworkNamespace | None) -> bool:
    create = node.create_socket if node else socket.socket
    with create(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


async def _close_addresses(process: Process) -> None:
    """Let nginx close its addresses, and then complete its requests."""
    process.signal(signal.SIGQUIT)
    await _until(lambda: process.listening_ports() <= {GUARD_PORT}, STOPPED_S)


async def _until(condition: Callable[[], bool], limit_s: float) -> None:
    """Wait until a condition holds, for a limited time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while not condition() and loop.time() < deadline:  # noqa: ASYNC110 - no event shows that a socket is closed
        await asyncio.sleep(_POLL_S)
