"""The processes that have a file open, for messages about a locked database."""

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_LONGEST_COMMAND = 80


def other_users(paths: tuple[Path, ...]) -> str:
    """Return the other processes that have one of the files open, such as `process 12 (sqlite3 objects.sqlite)`.

    Processes of other users are not visible. The result is `another process` if none is found.
    """
    files = {(status.st_dev, status.st_ino) for path in paths if (status := _status(path))}
    users = [f"process {pid} ({_command(pid)})" for pid in _pids() if pid != os.getpid() and _has_open(pid, files)]
    return " and ".join(users) or "another process"


def _pids() -> Iterator[int]:
    return (int(path.name) for path in _PROC.iterdir() if path.name.isdecimal())


def _has_open(pid: int, files: set[tuple[int, int]]) -> bool:
    try:
        handles = list((_PROC / str(pid) / "fd").iterdir())
    except OSError:  # the process has ended, or belongs to another user
        return False
    return any((status := _status(handle)) and (status.st_dev, status.st_ino) in files for handle in handles)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _command(pid: int) -> str:
    """Return the start of a process's command line in characters that a terminal may show."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return "ended"
    return ascii(words.decode(errors="replace"))[1:-1][:_LONGEST_COMMAND]
