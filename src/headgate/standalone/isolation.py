"""What separates a program from the other programs of the machine: its mounts, its user, its network and its limits.

A mount namespace shows files at paths of the program's own, and the machine sees none of them. The kernel removes the
namespace with its last process, so nothing is left behind when headgate is killed. Root enters one directly; other users
enter a user namespace first, which some machines do not allow.
"""

import asyncio
import contextlib
import json
import os
import stat
import sys
import tempfile
from asyncio.subprocess import DEVNULL
from pathlib import Path

import msgspec

from headgate.resources.meta import Value
from headgate.standalone import isolation_launcher

LAUNCHER = isolation_launcher.__file__


class MountPoint(Value, frozen=True, kw_only=True):
    """A file or directory of this machine, `source`, that a program sees at `path`. `field` is the user's, for messages."""

    path: str
    source: str
    field: str
    read_only: bool = False


class Isolation(Value, frozen=True, kw_only=True):
    """The mounts, user and groups of a program. Without a user and groups, it has those of headgate.

    `staging` is an empty directory, needed for mounts. With `join`, the program enters the mounts and the network of the process
    with this ID instead of its own. `network` is the path of a network namespace to enter, and `hostname` the name of the
    machine that the program sees in it; empty: those of the machine. With `drops_capabilities`, the program gets none of the
    capabilities of the launcher, except with `marks_packets` that for SO_MARK (socket(7)). `control_groups` has the directories of
    those that it enters.
    """

    mounts: tuple[MountPoint, ...] = ()
    staging: str = ""
    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] | None = None
    join: int = 0
    network: str = ""
    hostname: str = ""
    marks_packets: bool = False
    drops_capabilities: bool = False
    control_groups: tuple[str, ...] = ()

    def may_enter(self, directory: Path) -> bool:
        """Return whether the program may enter a directory of this machine, by its mode if the program has a user of its own."""
        if self.user is None and not self.drops_capabilities:
            return os.access(directory, os.X_OK, effective_ids=True)
        status, user = directory.stat(), os.geteuid() if self.user is None else self.user
        if user == 0 and not self.drops_capabilities:
            return True
        if status.st_uid == user:
            return bool(status.st_mode & stat.S_IXUSR)
        main = os.getegid() if self.group is None else self.group
        groups = {main, *(os.getgroups() if self.groups is None else self.groups)}
        return bool(status.st_mode & (stat.S_IXGRP if status.st_gid in groups else stat.S_IXOTH))


class LaunchFailure(Value, frozen=True, array_like=True):
    """What the launcher could not do: `stage` is limits, network, mounts, user, directory or command; the remaining fields are of its error."""

    stage: str
    errno: int
    filename: str
    message: str

    def describe(self) -> str:
        """Return what failed, for the stages limits, network, mounts and user."""
        problem = os.strerror(self.errno)
        if self.stage == "limits":
            return (
                f"resources.limits: headgate can't put the container into its control group {self.filename}: {problem}"
            )
        if self.stage == "network":
            return f"headgate can't enter the network of the pod: {problem}"
        if self.stage == "user":
            return f"securityContext: headgate can't change to the user and groups of the container: {problem}"
        return f"headgate can't mount {self.message}: {problem}"


def launcher_command(isolation: Isolation, command: tuple[str, ...], *, directory: str, pipe: int) -> tuple[str, ...]:
    """Return the command that executes `command` in isolation. A failure is written to `pipe`, which it must inherit."""
    settings = json.dumps({**msgspec.to_builtins(isolation), "directory": directory})
    return (sys.executable, "-I", "-S", LAUNCHER, str(pipe), settings, *command)


def read_failure(pipe: int) -> LaunchFailure | None:
    """Read the failure from a pipe whose other end is closed, or closes when the program is executed, and close the pipe."""
    with open(pipe, "rb") as file:
        text = file.read()
    return msgspec.json.decode(text, type=LaunchFailure) if text else None


class MountSupport:
    """Whether this machine lets headgate mount the volumes of containers. It is tried once, when it matters first."""

    def __init__(self) -> None:
        self._fault: str | None = None
        self._trying = asyncio.Lock()

    async def fault(self) -> str:
        """Return why mounts are not possible; an empty text if they are."""
        async with self._trying:
            if self._fault is None:
                self._fault = await _try_mounts()
            return self._fault


async def _try_mounts() -> str:
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-")))
        for name in ("source", "staging"):
            (directory / name).mkdir()
        mount = MountPoint(
            path="/headgate-volume", source=str(directory / "source"), field="volumeMounts", read_only=True
        )
        isolation = Isolation(mounts=(mount,), staging=str(directory / "staging"))
        reading, writing = os.pipe()
        try:
            command = launcher_command(isolation, ("true",), directory="/", pipe=writing)
            process = await asyncio.create_subprocess_exec(
                *command, pass_fds=(writing,), stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
            )
        finally:
            os.close(writing)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            os.close(reading)
            process.kill()
            await process.wait()
            raise
        failure = read_failure(reading)
    if failure:
        return failure.describe()
    return "" if code == 0 else f"the attempt to mount a directory ended with exit code {code}"
