"""Processes that outlive headgate. Each process leads its own session.

A later headgate finds a process by its pid and start time.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import NamedTuple

from msgspec.structs import replace

from headgate.errors import HeadgateError
from headgate.resources.core.pod import ProcessIdentity
from headgate.resources.meta import Value
from headgate.standalone.isolation import Isolation, LaunchFailure, launcher_command, read_failure
from headgate.standalone.user_namespace import capable_programs, is_entered

_LISTEN = "0A"  # the state of a listening socket in /proc/net/tcp
_ENVIRON_ATTEMPTS, _ENVIRON_PAUSE_S = 100, 0.001
_CREDENTIALS = ("Uid", "Gid", "Groups")  # in /proc/PID/status; the second user and group are the effective ones
KILL_WAIT = 5.0  # seconds to wait after SIGKILL; a process that takes longer is blocked in the kernel


class StartError(HeadgateError):
    """A program can't be started. The message has the reason."""


class Launch(Value, frozen=True, kw_only=True):
    """A program to start: its arguments, environment and working directory (empty for the current one).

    `pass_fds` has file descriptors that the program inherits, under the same numbers. `stdin` is the path of a named pipe; without
    one, stdin is empty. With `isolation`, the program has mounts and a user of its own.
    """

    command: tuple[str, ...]
    env: dict[str, str]
    cwd: str = ""
    pass_fds: tuple[int, ...] = ()
    stdin: str = ""
    isolation: Isolation | None = None


class _Child(subprocess.Popen[bytes]):
    """A child process that may outlive headgate."""

    def __del__(self) -> None:
        """Suppress the warning of the base class about a running child."""


class Process:
    """A live process that leads its session: a child, or a process adopted from an earlier headgate.

    With `ends_group`, the rest of its process group ends with it, as in a container.
    """

    def __init__(self, identity: ProcessIdentity, pidfd: int, child: _Child | None = None) -> None:
        self.identity = identity
        self.ends_group = True
        self._pidfd = pidfd
        self._child = child
        self._launch: Launch | None = None
        self._pipe = -1  # where the launcher of an isolated program reports a failure
        self._exit: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(pidfd, self._ended)

    def watch_launcher(self, launch: Launch, pipe: int) -> None:
        """Let `executed` read the launcher's failure from a pipe."""
        self._launch, self._pipe = launch, pipe

    def forget_launcher(self) -> None:
        """Close the pipe of the launcher, whose failure does not matter."""
        if self._launch is not None:
            self._launch = None
            os.close(self._pipe)

    async def executed(self) -> None:
        """Wait until the program is executed, which takes a moment for an isolated program. Raises StartError."""
        if self._launch is None:
            return
        launch, self._launch = self._launch, None
        try:
            await _readable(self._pipe)
        except asyncio.CancelledError:
            os.close(self._pipe)
            raise
        failure = read_failure(self._pipe)
        if failure is None:
            return
        await self.exited()
        raise StartError(launch_fault(launch, failure))

    async def exited(self) -> int | None:
        """Wait for the exit; return the exit code (128 + signal, as in shells), None for an adopted process."""
        return await asyncio.shield(self._exit)

    def signal(self, number: Signals) -> None:
        """Send a signal to the process group, if it still exists."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.identity.pid, number)

    async def end(self, grace: float, *, request: Signals = SIGTERM) -> bool:
        """Send the signal `request`, and SIGKILL after `grace` seconds; return whether the process has exited."""
        self.signal(request)
        if await self._gone_within(grace):
            return True
        self.signal(SIGKILL)
        return await self._gone_within(KILL_WAIT)

    def listening_ports(self) -> frozenset[int]:
        """Return the TCP ports on which the process or a child of it listens."""
        ports = _listening_ports(self.identity.pid)
        pids = (self.identity.pid, *_children(self.identity.pid))
        return frozenset(ports[link] for pid in pids for link in _open_files(pid) if link in ports)

    def detach(self) -> None:
        """Stop watching the process and let it run."""
        self.forget_launcher()
        if not self._exit.done():
            self._unwatch()
            self._exit.cancel()

    async def _gone_within(self, seconds: float) -> bool:
        done, _ = await asyncio.wait([self._exit], timeout=seconds)
        return bool(done)

    def _ended(self) -> None:
        if self.ends_group:  # the kernel can't have reused the group's number, because the leader is still a zombie
            self.signal(SIGKILL)
        self._unwatch()
        code = self._child.wait() if self._child else None
        self._exit.set_result(128 - code if code is not None and code < 0 else code)

    def _unwatch(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)


class StandardFiles(NamedTuple):
    """The stdin, stdout and stderr of a program: file descriptors, or `subprocess.DEVNULL`."""

    stdin: int
    stdout: int
    stderr: int


def accept_quit() -> None:
    """Let programs receive SIGQUIT although a shell started headgate as a background job, for which shells ignore it.

    A program inherits an ignored signal, and a script can't even set a trap for it. A handler ends with the start of a program.
    """
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, lambda *_: None)


def spawn(launch: Launch, log: Path) -> Process:
    """Start a program; its output is appended to the file `log`. Await its `executed` if it is isolated. Raises StartError."""
    try:
        # Opened for writing too, a pipe needs no writer to be opened, and does not end when a writer closes it.
        with (
            Path(launch.stdin or os.devnull).open("rb+", buffering=0) as stdin,
            open(log, "ab", opener=_private) as output,
        ):
            return start(launch, StandardFiles(stdin.fileno(), output.fileno(), output.fileno()))
    except OSError as error:
        raise StartError(start_fault(launch, error)) from error


def start(launch: Launch, files: StandardFiles) -> Process:
    """Start a program with these standard files. Await its `executed` if it is isolated. Raises StartError."""
    if launch.isolation is None:
        return _start(launch, files)
    reading, writing = os.pipe()
    isolation = replace(launch.isolation, drops_capabilities=is_entered())
    command = launcher_command(isolation, launch.command, directory=launch.cwd, pipe=writing)
    launcher = replace(launch, command=command, cwd="", pass_fds=(*launch.pass_fds, writing))
    try:
        with capable_programs():
            process = _start(launcher, files)
    except StartError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    process.watch_launcher(launch, reading)
    return process


def _start(launch: Launch, files: StandardFiles) -> Process:
    try:
        child = _Child(
            launch.command,
            env=launch.env,
            cwd=launch.cwd or None,
            stdin=files.stdin,
            stdout=files.stdout,
            stderr=files.stderr,
            pass_fds=launch.pass_fds,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise StartError(start_fault(launch, error)) from error
    return Process(identity_of(child.pid), os.pidfd_open(child.pid), child)


async def _readable(file: int) -> None:
    """Wait until a file has data or is at its end."""
    loop, is_readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(file, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(file)


def adopt(identity: ProcessIdentity) -> Process | None:
    """Return a process that an earlier headgate started; None when it has exited."""
    pidfd = _open(identity)
    return None if pidfd is None else Process(identity, pidfd)


def launch_beside(pid: int, directory: str) -> Launch:
    """Return the launch of a command in the container of a process: with its environment, mounts, network, user and groups.

    `directory` is the working directory. Raises OSError when the process has exited.
    """
    process = Path(f"/proc/{pid}")
    entries = (entry.partition("=") for entry in os.fsdecode(_environ(process)).split("\0"))
    env = {name: value for name, separator, value in entries if name and separator}
    rows = (row.partition(":") for row in (process / "status").read_text().splitlines())
    status = {name: [int(number) for number in text.split()] for name, _, text in rows if name in _CREDENTIALS}
    isolation = Isolation(join=pid)
    if os.geteuid() == 0:  # other users can start programs only as themselves
        user, group, groups = (status[name] for name in _CREDENTIALS)
        isolation = replace(isolation, user=user[1], group=group[1], groups=tuple(groups))
    return Launch(command=(), env=env, cwd=directory, isolation=isolation)


def _environ(process: Path) -> bytes:
    """Return the environment of a process. For a moment after a program has begun, the kernel has none of it yet."""
    for _ in range(_ENVIRON_ATTEMPTS):
        if environ := (process / "environ").read_bytes():
            return environ
        time.sleep(_ENVIRON_PAUSE_S)
    return b""


async def until_gone(identity: ProcessIdentity) -> None:
    """Wait until a process of another program has exited. A canceled wait does not affect the process."""
    pidfd = _open(identity)
    if pidfd is None:
        return
    try:
        await _readable(pidfd)  # a pidfd is readable once the process has exited
    finally:
        os.close(pidfd)


def own_identity() -> ProcessIdentity:
    """Return the identity of this process."""
    return identity_of(os.getpid())


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that programs inherit from headgate's environment: PATH, HOME and locale, but no secrets."""
    return {name: value for name, value in environ.items() if name in _KEPT or name.startswith("LC_")}


_KEPT = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"})


def _open(identity: ProcessIdentity) -> int | None:
    """Return a pidfd of a live process; None when it has exited."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except OSError:
        return None
    # While the pidfd is open the kernel does not reuse the pid, so the check below is about the same process.
    if identity_of(identity.pid) == identity and next(iter(stat_fields(identity.pid)), "Z") != "Z":  # Z is a zombie
        return pidfd
    os.close(pidfd)
    return None


def identity_of(pid: int) -> ProcessIdentity:
    """Return the identity of a process; `started` is 0 when it does not exist."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    fields = stat_fields(pid)
    return ProcessIdentity(pid=pid, started=int(fields[19]) if fields else 0, boot=boot)


def stat_fields(pid: int) -> Sequence[str]:
    """Return the fields of /proc/PID/stat after the first two; empty when the process does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ()
    return text.rpartition(")")[2].split()  # the second field, the name, may contain spaces and brackets


def _children(pid: int) -> Sequence[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return ()


def _listening_ports(pid: int) -> Mapping[str, int]:
    """Return the port of each listening TCP socket in the network of a process, by the link that /proc/PID/fd has (proc(5))."""
    texts = []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):  # there is no IPv6, or the process has ended
            texts.append(Path(f"/proc/{pid}/net/{name}").read_text())
    rows = (row.split() for text in texts for row in text.splitlines()[1:])
    return {f"socket:[{row[9]}]": int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTEN}


def _open_files(pid: int) -> Iterator[str]:
    """Yield the links of a process's open files."""
    with contextlib.suppress(OSError):  # it has ended
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it is closed meanwhile
                yield str(path.readlink())


def launch_fault(launch: Launch, failure: LaunchFailure) -> str:
    """Return why an isolated program could not be started, with the field of the container to correct."""
    if failure.stage in {"limits", "network", "mounts", "user"}:
        return failure.describe()
    filename = launch.cwd if failure.stage == "directory" else launch.command[0]
    return start_fault(launch, OSError(failure.errno, os.strerror(failure.errno), filename))


def start_fault(launch: Launch, error: OSError | ValueError) -> str:
    """Return why a program could not be started, with the field of the container to correct."""
    program = launch.command[0]
    path = launch.env.get("PATH", "")
    # If a directory in PATH is unreadable, the start of a missing program raises PermissionError.
    missing = "/" not in program and isinstance(error, PermissionError) and shutil.which(program, path=path) is None
    if isinstance(error, FileNotFoundError) and launch.cwd and error.filename == launch.cwd:
        return f"workingDir: directory {launch.cwd} not found on this machine"
    if missing or isinstance(error, FileNotFoundError):
        return f"command: program {program!r} not found on this machine (PATH is {path})"
    if isinstance(error, PermissionError):
        if closed := _closed_directory(launch):
            return (
                f"command: {program!r} can't be run, because its user may not enter {closed}; "
                f"set its mode with chmod o+x, or use a program elsewhere"
            )
        return f"command: {program!r} is not executable; set its mode with chmod +x"
    return f"command: can't run {program!r}: {error}"


def _closed_directory(launch: Launch) -> str:
    """Return the first directory above a program, or above the target of a link, that its user may not enter; empty without one."""
    program, isolation = launch.command[0], launch.isolation or Isolation()
    path = Path(launch.cwd or ".").absolute() / program
    if "/" not in program or any(path.is_relative_to(mount.path) for mount in isolation.mounts):
        return ""
    above = (*reversed(path.parents), *reversed(Path(os.path.realpath(path)).parents))
    return next(
        (str(directory) for directory in above if directory.is_dir() and not isolation.may_enter(directory)), ""
    )


def missing_program(launch: Launch) -> str:
    """Check a program without starting it; return why it can't be started, an empty text if it can."""
    program = launch.command[0]
    path = str(Path(launch.cwd or ".").absolute() / program) if "/" in program else program
    if shutil.which(path, path=launch.env.get("PATH", "")):
        return ""
    exists = "/" in program and (_closed_directory(launch) or Path(path).exists())
    return start_fault(launch, PermissionError() if exists else FileNotFoundError()).removeprefix("command: ")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
