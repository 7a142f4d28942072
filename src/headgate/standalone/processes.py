"""Processes that outlive headgate: started in a session of their own, found again by pid and start time."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from headgate.errors import HeadgateError
from headgate.resources.meta import Value
from headgate.resources.pods import ProcessIdentity

KILL_WAIT = 5.0  # seconds in which a killed process must be gone; longer means that the kernel holds it


class StartError(HeadgateError):
    """A program can't be started, and why."""


class Launch(Value, frozen=True, kw_only=True):
    """What to run: program and arguments, environment, directory ("" for the present one).

    `pass_fds` are open files that the program inherits, under the same numbers.
    """

    command: tuple[str, ...]
    env: dict[str, str]
    cwd: str = ""
    pass_fds: tuple[int, ...] = ()


class _Child(subprocess.Popen[bytes]):
    """A child that may outlive us, so it is no mistake to forget it while it runs."""

    def __del__(self) -> None:
        """Say nothing, where the base class warns."""


class Process:
    """A live process that leads its session; ours, or adopted from an earlier headgate."""

    def __init__(self, identity: ProcessIdentity, pidfd: int, child: _Child | None = None) -> None:
        self.identity = identity
        self._pidfd = pidfd
        self._child = child
        self._exit: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(pidfd, self._ended)

    async def exited(self) -> int | None:
        """Wait for the end; return the exit code (128 + signal as shells have it), None for an adopted process."""
        return await asyncio.shield(self._exit)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it has started in its group; nothing when they are gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.identity.pid, number)

    async def end(self, grace: float) -> bool:
        """Ask it to end, kill it after `grace` seconds; whether it is gone."""
        self.signal(signal.SIGTERM)
        if await self._gone_within(grace):
            return True
        self.signal(signal.SIGKILL)
        return await self._gone_within(KILL_WAIT)

    def detach(self) -> None:
        """Stop watching; the process lives on."""
        if not self._exit.done():
            self._unwatch()
            self._exit.cancel()

    async def _gone_within(self, seconds: float) -> bool:
        done, _ = await asyncio.wait([self._exit], timeout=seconds)
        return bool(done)

    def _ended(self) -> None:
        # What the program left running in its group ends with it, as in a container. The zombie still holds the
        # group's number, so nobody else's can be meant.
        self.signal(signal.SIGKILL)
        self._unwatch()
        code = self._child.wait() if self._child else None
        self._exit.set_result(128 - code if code is not None and code < 0 else code)

    def _unwatch(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)


def spawn(launch: Launch, log: Path) -> Process:
    """Start a program; its output goes straight to the end of the file `log`. Raises StartError."""
    try:
        with open(log, "ab", opener=_private) as output:
            child = _Child(
                launch.command,
                env=launch.env,
                cwd=launch.cwd or None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=launch.pass_fds,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        raise StartError(start_fault(launch, error)) from error
    return Process(_identity(child.pid), os.pidfd_open(child.pid), child)


def adopt(identity: ProcessIdentity) -> Process | None:
    """Watch a process that an earlier headgate started; None when it is gone."""
    pidfd = _open(identity)
    return None if pidfd is None else Process(identity, pidfd)


async def until_gone(identity: ProcessIdentity) -> None:
    """Wait until somebody else's process has ended. Nothing is done to it, whatever becomes of the wait."""
    pidfd = _open(identity)
    if pidfd is None:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def own_identity() -> ProcessIdentity:
    """Return what this process itself is known by."""
    return _identity(os.getpid())


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a program needs of headgate's own environment; tokens and proxies of the user's shell stay out."""
    return {name: value for name, value in environ.items() if name in _KEPT or name.startswith("LC_")}


_KEPT = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"})


def _open(identity: ProcessIdentity) -> int | None:
    """Return a file descriptor of a live process; None when it is gone."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except OSError:
        return None
    # With its file descriptor open, the pid can't become another process' any more: now look whose it is.
    if _identity(identity.pid) == identity and next(iter(_stat(identity.pid)), "Z") != "Z":  # a zombie
        return pidfd
    os.close(pidfd)
    return None


def _identity(pid: int) -> ProcessIdentity:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    fields = _stat(pid)
    return ProcessIdentity(pid=pid, started=int(fields[19]) if fields else 0, boot=boot)


def _stat(pid: int) -> Sequence[str]:
    """Return /proc/PID/stat from its third field on; empty when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ()
    return text.rpartition(")")[2].split()  # the name before may hold spaces and brackets


def start_fault(launch: Launch, error: OSError | ValueError) -> str:
    """Say why a program could not be started, with the field to mend."""
    program = launch.command[0]
    path = launch.env.get("PATH", "")
    # A directory of PATH that may not be searched looks like a program that may not be run.
    missing = "/" not in program and isinstance(error, PermissionError) and shutil.which(program, path=path) is None
    if isinstance(error, FileNotFoundError) and launch.cwd and error.filename == launch.cwd:
        return f"workingDir: there is no directory {launch.cwd} on this machine"
    if missing or isinstance(error, FileNotFoundError):
        return f"command: there is no program {program!r} on this machine (PATH is {path})"
    if isinstance(error, PermissionError):
        return f"command: {program!r} may not be run; make it executable"
    return f"command: {program!r} can't be run: {error}"


def missing_program(launch: Launch) -> str:
    """Return why a program would not start on this machine, without starting it; empty when it is there."""
    program = launch.command[0]
    place = str(Path(launch.cwd or ".").absolute() / program) if "/" in program else program
    if shutil.which(place, path=launch.env.get("PATH", "")):
        return ""
    there = "/" in program and Path(place).exists()
    return start_fault(launch, PermissionError() if there else FileNotFoundError()).removeprefix("command: ")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
