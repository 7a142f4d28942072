"""Envoy as a supervised program: its bootstrap, its readiness, its errors, and its token for the mesh.

The next headgate adopts an Envoy with the same binary, bootstrap and flags, and replaces any other Envoy.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from headgate.atomic_file import write_private
from headgate.backoff import Backoff, exact
from headgate.envoy.bootstrap import bootstrap, token_source, with_mark
from headgate.envoy.collector_export import with_collector
from headgate.errors import ProxyError
from headgate.inotify import message_from_envoy
from headgate.latest import Latest
from headgate.option import HostPort
from headgate.resources.meta import Value
from headgate.standalone.isolation import Isolation
from headgate.standalone.processes import Launch, StartError
from headgate.standalone.proxies.admin import Admin
from headgate.standalone.proxies.envoy_flags import EnvoyFlags
from headgate.standalone.supervisor import Program, ProgramRecord, Supervisor
from headgate.xds.authentication import LocalTokens

LOG = "envoy.log"
SEARCHED_LINES = 40  # the number of last log lines in which headgate searches for the reason of an exit
_ERROR = re.compile(r"\]\[(critical|error)\]\[|^error: ")
# the prefix of a log line: time, thread, level, component, and source location
_PREFIX = re.compile(r"^(\[[^\]]*\])+ (\[[^\]]*\] )?|^error: ")
STEADY_S = 30.0
"""An Envoy that ran this long was healthy, so the pauses before restarts begin again with the shortest."""
LONGEST_PAUSE_S = 5.0  # the longest pause before a restart
ABORTED = 128 + signal.SIGABRT  # the exit code after a failed assertion in Envoy
TERM_S = 5.0  # Seconds between SIGTERM and SIGKILL.
RECORD = "envoy.json"
_TOKEN, _TOKEN_SOURCE = "credentials/token", "credentials/token.json"
"""Files in the Envoy's directory. Envoy watches their directory, so nothing else may be written there: in the same directory
as its log, each line at log level debug would wake Envoy, which would log a line."""


DEFAULT_FLAGS = EnvoyFlags()


class EnvoyState(Value, frozen=True, kw_only=True):
    """The state of the process. `pid` is 0 while it does not run; `failure` describes its last exit."""

    pid: int = 0
    adopted: bool = False
    restarts: int = 0
    failure: str = ""


class EnvoyProcess:
    """Supervises one Envoy from `start` to `stop` and restarts it when it exits. `state` is the process's state."""

    def __init__(
        self, binary: Path, bootstrap: bytes, *, directory: Path, admin: Path, flags: EnvoyFlags = DEFAULT_FLAGS
    ) -> None:
        """Create the supervisor of an Envoy, without starting Envoy.

        `bootstrap` is JSON. `admin` is the unix socket of Envoy's admin interface. `directory` contains the record of
        the process, the bootstrap and the log.
        """
        self.state: Latest[EnvoyState] = Latest(EnvoyState())
        self.admin = Admin(admin)
        self.isolation: Isolation | None = None  # of the next start
        self.log = directory / LOG
        self._binary = binary
        self._bootstrap = bootstrap
        self._directory = directory
        self._flags = flags
        self._logged = 0  # the size of the log when Envoy was started or adopted
        self._watching: asyncio.Task[int | None] | None = None
        self._supervisor = Supervisor(
            Program(
                record=directory / RECORD,
                prepare=self._prepare,
                begun=self._begun,
                failed=self._failed,
                ended=self._ended,
                fingerprint=self._digest,
            ),
            Backoff(longest_s=LONGEST_PAUSE_S, steady_s=STEADY_S),
        )

    async def start(self) -> None:
        """Adopt the running Envoy or start one, and restart it after each exit.

        Raises ProxyError when the binary can't be run, OSError when its files can't be written.
        """
        if not self._watching and not await self.recover():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                await self._supervisor.start()
            except (FileNotFoundError, StartError) as error:
                raise ProxyError(f"can't start Envoy: {error}") from error
            self._watching = asyncio.create_task(self._supervisor.run(), name="envoy")

    async def recover(self) -> bool:
        """Adopt and supervise the running Envoy; return whether there is one to adopt."""
        adopted = await self._adopt()
        if adopted:
            self._watching = asyncio.create_task(self._supervisor.run(), name="envoy")
        return adopted

    async def ready(self, timeout: float = 20.0) -> None:  # noqa: ASYNC109 - it raises an error with the reason
        """Wait until Envoy has its first configuration and is ready for traffic.

        Raises ProxyError with an error from Envoy's log when Envoy exits first, or after `timeout` seconds.
        """
        loop, pauses = asyncio.get_running_loop(), Backoff(first_s=0.02, longest_s=0.5, growth=1.2, draw=exact)
        deadline = loop.time() + timeout
        before = self.state.get().restarts
        while not await self._answers("/ready"):
            state = self.state.get()
            if state.failure and (state.restarts > before or not state.pid):
                raise ProxyError(state.failure)
            if loop.time() > deadline:
                raise ProxyError(f"Envoy is not ready after {timeout:g} s{self._last_error()}")
            # Only /ready shows the readiness. When many Envoys start at once, each takes longer, and fixed pauses would take the
            # processor time that the Envoys need.
            await asyncio.sleep(pauses.next_pause())

    def detach(self) -> None:
        """Stop supervising Envoy and let it run, for the next headgate to adopt."""
        if self._watching:
            self._watching.cancel()
            self._watching = None
        self._supervisor.detach()

    async def stop(self) -> None:
        """Stop Envoy, even if it is detached or from an earlier headgate: SIGTERM, then SIGKILL after `TERM_S`."""
        if self._watching:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
            self._watching = None
        await self._supervisor.end(TERM_S)
        self.state.set(EnvoyState(restarts=self.state.get().restarts))

    async def _prepare(self) -> tuple[Launch, Path]:
        path = self._directory / "bootstrap.json"
        write_private(path, self._bootstrap, durable=False)
        self._logged = self._log_size()
        command = (str(self._binary), "-c", str(path), *self._flags.arguments())
        launch = Launch(command=command, env=dict(os.environ), pass_fds=self._flags.pass_fds, isolation=self.isolation)
        return launch, self.log

    async def _begun(self, record: ProgramRecord) -> None:
        self.state.set(msgspec.structs.replace(self.state.get(), pid=record.identity.pid, adopted=False))

    async def _failed(self, _error: Exception, _pause: float) -> None:
        """Keep the reason of the exit in `state`. The start may fail while the binary is replaced or the disk is full."""

    async def _ended(self, code: int | None, _pause: float) -> bool:
        restarts = self.state.get().restarts + 1
        self.state.set(EnvoyState(restarts=restarts, failure=f"Envoy {_exit_text(code)}{self._last_error(code)}"))
        return True

    async def _adopt(self) -> bool:
        """Adopt the Envoy of an earlier headgate if binary, bootstrap and flags are the same; else stop it."""
        record = self._supervisor.adopt()
        if not record or not self._supervisor.process:
            return False
        # Without its admin socket, which may have been removed, an Envoy can't be supervised. An Envoy that is too busy to
        # answer now still serves, and ending it would lose requests.
        if record.fingerprint != self._digest() or not await self.admin.listens():
            await self._supervisor.end(TERM_S)
            return False
        self._logged = self._log_size()
        self.state.set(EnvoyState(pid=record.identity.pid, adopted=True))
        return True

    async def _answers(self, path: str) -> bool:
        try:
            await self.admin.get(path)
        except ProxyError:
            return False
        return True

    def _digest(self) -> str:
        status = self._binary.stat()
        parts: Sequence[object] = (
            self._binary.resolve(),
            status.st_size,
            status.st_mtime_ns,
            self._flags.arguments(),  # no pass_fds: their numbers differ between starts
            hashlib.sha256(self._bootstrap).hexdigest(),
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def _last_error(self, code: int | None = None) -> str:
        """Return the last error that Envoy has logged since its start or adoption, and the path of the log.

        When a signal ended Envoy, the last lines are a backtrace. Then only the limit of inotify instances is reported.
        """
        try:
            content = self.log.read_bytes()
        except OSError:
            content = b""
        lines = content[self._logged :].decode(errors="replace").splitlines()
        if code == ABORTED and (message := message_from_envoy(lines, "this machine")):
            return f": {message} (its log is {self.log})"
        logged = [line for line in lines[-SEARCHED_LINES:] if line.strip()] if code is None or code <= 128 else []
        errors = [line for line in logged if _ERROR.search(line)] or logged
        text = f": {_PREFIX.sub('', errors[-1]).strip()}" if errors else ""
        return f"{text} (its log is {self.log})"


class MeshEnvoySettings(NamedTuple):
    """Settings of all Envoys of a mesh on one machine.

    Each Envoy inherits the file descriptors `pass_fds`. With a `collector`, it also sends its metrics to the collector.
    `mark` is that of its packets to upstreams, 0 for none.
    """

    binary: Path
    xds_socket: Path
    tokens: LocalTokens
    pass_fds: tuple[int, ...] = ()
    collector: HostPort | None = None
    mark: int = 0


class MeshEnvoy(EnvoyProcess):
    """An Envoy of the mesh. It authenticates to the xDS server with a token that this class writes and renews."""

    def __init__(
        self, settings: MeshEnvoySettings, node: str, directory: Path, admin: Path, *, concurrency: int = 1
    ) -> None:
        content = bootstrap(
            node_id=node,
            xds_socket=str(settings.xds_socket),
            admin_socket=str(admin),
            token=str(directory / _TOKEN_SOURCE),
        )
        flags = EnvoyFlags(concurrency=concurrency, pass_fds=settings.pass_fds)
        super().__init__(
            settings.binary,
            with_mark(with_collector(content, settings.collector), settings.mark),
            directory=directory,
            admin=admin,
            flags=flags,
        )
        self._node = node
        self._tokens = settings.tokens

    async def start(self) -> None:
        """Write a new token, then start as `EnvoyProcess.start` does."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._directory / _TOKEN).parent.mkdir(mode=0o700, exist_ok=True)
        write_private(self._directory / _TOKEN_SOURCE, token_source(str(self._directory / _TOKEN)), durable=False)
        self.renew()
        await super().start()

    async def stop(self) -> None:
        """Stop Envoy and remove its token."""
        await super().stop()
        (self._directory / _TOKEN).unlink(missing_ok=True)

    def renew(self) -> None:
        """Write a new token. Raises OSError."""
        self._tokens.write(self._node, self._directory / _TOKEN)

    async def renewals(self) -> AsyncIterator[tuple[OSError, float]]:
        """Renew the token at half of its lifetime, until canceled.

        Yield each error and the seconds until the next attempt.
        """
        pause = half_s = self._tokens.lifetime.total_seconds() / 2
        backoff = Backoff(longest_s=half_s / 20)
        while True:
            await asyncio.sleep(pause)
            try:
                self.renew()
                pause = half_s
                backoff.reset()
            except OSError as error:
                pause = backoff.next_pause()
                yield error, pause


def _exit_text(code: int | None) -> str:
    """Describe an exit code: a code above 128 means a signal, None an unknown code."""
    if code is None:
        return "ended"
    if code <= 128:
        return f"ended with exit code {code}"
    try:
        return f"ended with signal {code - 128}, {signal.Signals(code - 128).name}"
    except ValueError:
        return f"ended with signal {code - 128}"
