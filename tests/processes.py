"""The result of a program, the path of programs, and checks of running processes, which can be suspended temporarily."""

import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SECONDS = 60.0


class Ran(NamedTuple):
    """The exit code and the output of a program that has ended."""

    code: int
    out: str
    err: str


def without_shims(path: str) -> str:
    """Return PATH without pyenv's shims. They are scripts: `python3`, which most pods run, starts in 0.12 s instead of 0.02 s."""
    rest = os.pathsep.join(place for place in path.split(os.pathsep) if not place.endswith(".pyenv/shims"))
    return rest if shutil.which("python3", path=rest) else path


def runs(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return _state(Path(f"/proc/{pid}")) != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Suspend a process (SIGSTOP) during the `with` block, which begins when all its threads have stopped."""
    os.kill(pid, signal.SIGSTOP)
    try:
        end = time.monotonic() + SECONDS
        while any(_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
            assert time.monotonic() < end, f"process {pid} did not stop"
            time.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _state(process: Path) -> str:
    return (process / "stat").read_text().rpartition(")")[2].split()[0]


def listens(pid: int, host: str, port: int) -> bool:
    """Return whether a process runs and listens on an IPv4 address."""
    wanted = f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[1] == wanted and row[3] == "0A"}  # 0A is LISTEN
    try:
        return any(str(path.readlink()) in sockets for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink())
    except (FileNotFoundError, ProcessLookupError):  # the process has ended, or has closed a file
        return False
