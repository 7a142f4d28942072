"""Logs of local pods: files that the processes write themselves, even while headgate does not run.

`STATE/pods/NAMESPACE_NAME_UID/CONTAINER/` holds `current.log`, its older part `current.log.1`, and `previous.log` of
the previous run. A log that is too long is copied and truncated; lines written at this moment may be lost.
"""

import asyncio
import contextlib
import glob
import os
import re
import shutil
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import NamedTuple

from headgate.errors import NotFound
from headgate.resources.meta import Key, is_dns_label, is_dns_subdomain
from headgate.standalone.proxies.envoy_process import LOG

MAX_LOG_BYTES = 10 << 20  # a larger log is rotated
_CHUNK = 1 << 16
_SEARCHED_BYTES = 1 << 14  # Bytes to search at the end of a log: enough for a long stack trace.
_POLL = 0.2  # Seconds between reads of a followed log.
_CURRENT, _PREVIOUS = "current.log", "previous.log"
_OLDER = ".1"  # suffix of the older part of a log


def pod_directory(state: Path, key: Key, uid: str) -> Path:
    """Return the directory of a pod. Names and namespaces can't contain `_`, so the path is unique."""
    return state / "pods" / f"{key.namespace}_{key.name}_{uid}"


def begin_log(directory: Path) -> Path:
    """Rename the log of the previous run, and return the path of the new log."""
    current = directory / _CURRENT
    (directory / f"{_CURRENT}{_OLDER}").unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        current.replace(directory / _PREVIOUS)
    return current


def last_output_matches(directory: Path, pattern: re.Pattern[bytes]) -> bool:
    """Return whether the end of a container's log matches a pattern."""
    try:
        with (directory / _CURRENT).open("rb") as log:
            log.seek(-min(_SEARCHED_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
            return pattern.search(log.read()) is not None
    except OSError:
        return False


def rotate_logs(state: Path, *, largest: int = MAX_LOG_BYTES) -> None:
    """Move each log of more than `largest` bytes to its older part: logs of containers, sidecars and the gateway.

    The process keeps the same file open in append mode, so the truncated file has no hole.
    """
    patterns = (f"pods/*/*/{_CURRENT}", f"pods/*/*/{LOG}", f"*/{LOG}")
    for log in (log for pattern in patterns for log in _matching(state, pattern)):
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > largest:
                older = log.with_name(f"{log.name}{_OLDER}")
                older.touch(mode=0o600)
                shutil.copyfile(log, older)
                os.truncate(log, 0)


def _matching(root: Path, pattern: str) -> list[Path]:
    """Return the paths below `root` that match a pattern. Unlike `Path.glob`, skip a directory that is removed."""
    return [root / path for path in glob.glob(pattern, root_dir=root)]  # noqa: PTH207


class LogOptions(NamedTuple):
    """The part of a pod's log to read. `tail_lines` is None for all lines.

    With `follow`, reading continues until the process has ended. `previous` selects the previous run.
    """

    container: str
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None


class Logs:
    """Reads the logs of local pods from the state directory."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def read(self, key: Key, options: LogOptions) -> AsyncGenerator[bytes]:
        """Return the log of a container in chunks. Raises NotFound."""
        pod, name = self._pod(key), options.container
        if pod / name not in [log.parent for log in _matching(pod, f"*/{_CURRENT}")]:
            raise NotFound(f"container {name!r} of pod {key.name} has no log: it has not run yet, or does not exist")
        if options.previous and not (pod / name / _PREVIOUS).exists():
            raise NotFound(f"container {name!r} of pod {key.name} has no previous log: it has not run before")
        return _read(pod / name, options)

    def _pod(self, key: Key) -> Path:
        valid = is_dns_label(key.namespace) and is_dns_subdomain(key.name)
        modified: dict[Path, float] = {}
        for path in _matching(self._state, f"pods/{key.namespace}_{key.name}_*") if valid else ():
            with contextlib.suppress(FileNotFoundError):  # of an earlier pod, which is being removed
                modified[path] = path.stat().st_mtime
        if not modified:
            raise NotFound(f'pods "{key.name}" has no logs on this machine: it has not run yet, or does not exist')
        return max(modified, key=modified.__getitem__)


async def _read(directory: Path, options: LogOptions) -> AsyncGenerator[bytes]:
    if options.previous:
        for piece in _last(_pieces(directory / _PREVIOUS), options.tail_lines):
            yield piece
        return
    tail, follow = _Tail(directory / _CURRENT), options.follow
    for piece in _last(_both(directory, tail), options.tail_lines):
        yield piece
    while follow:
        follow = (directory / "run.json").exists()
        for piece in tail.read_new():
            yield piece
        await asyncio.sleep(_POLL if follow else 0)


class _Tail:
    """Reads a growing file incrementally. A file that was replaced or truncated is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0

    def read_new(self) -> Iterator[bytes]:
        """Yield the bytes that were written since the last call."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset = status.st_ino, 0
            file.seek(self._offset)
            while piece := file.read(_CHUNK):
                self._offset += len(piece)
                yield piece


def _both(directory: Path, tail: _Tail) -> Iterator[bytes]:
    yield from _pieces(directory / f"{_CURRENT}{_OLDER}")
    yield from tail.read_new()


def _pieces(path: Path) -> Iterator[bytes]:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        while piece := file.read(_CHUNK):
            yield piece


def _last(pieces: Iterator[bytes], lines: int | None) -> Iterator[bytes]:
    """Yield the last `lines` lines; all if `lines` is None."""
    if lines is None:
        yield from pieces
        return
    kept: deque[bytes] = deque(maxlen=lines)
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).splitlines(keepends=True) or [b""]
        kept.extend(whole)
    if rest:
        kept.append(rest)
    yield from kept
