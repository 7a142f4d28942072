"""Logs of local pods: files that the processes write themselves, so that they survive headgate.

`STATE/pods/NAMESPACE_NAME_UID/CONTAINER/` holds `current.log`, its older part `current.log.1`, and `previous.log` of
the run before. A log that has grown too long is copied aside and emptied; lines written in that moment may be lost.
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

MAX_LOG_BYTES = 10 << 20  # bytes
_CHUNK = 1 << 16
_LAST_WORDS = 1 << 14  # bytes: a long stack trace
_POLL = 0.2  # seconds between looks at a log that is followed
_CURRENT, _PREVIOUS = "current.log", "previous.log"
_OLDER = ".1"  # behind the name of the log


def pod_directory(state: Path, key: Key, uid: str) -> Path:
    """Return where everything of a pod is; neither namespaces nor names hold a `_`."""
    return state / "pods" / f"{key.namespace}_{key.name}_{uid}"


def begin_log(directory: Path) -> Path:
    """Put the log of the run before aside and return the path of the new one."""
    current = directory / _CURRENT
    (directory / f"{_CURRENT}{_OLDER}").unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        current.replace(directory / _PREVIOUS)
    return current


def last_output_matches(directory: Path, pattern: re.Pattern[bytes]) -> bool:
    """Whether the last words of a container's run match a pattern."""
    try:
        with (directory / _CURRENT).open("rb") as log:
            log.seek(-min(_LAST_WORDS, log.seek(0, os.SEEK_END)), os.SEEK_END)
            return pattern.search(log.read()) is not None
    except OSError:
        return False


def rotate_logs(state: Path, *, largest: int = MAX_LOG_BYTES) -> None:
    """Move the content of each log beyond `largest` bytes to a file beside it: of containers, sidecars and the gateway.

    The process continues to write to the same file: it appends, so the file has no hole.
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
    """Return the paths below a directory; unlike `Path.glob`, this ignores directories that are removed meanwhile."""
    return [root / path for path in glob.glob(pattern, root_dir=root)]  # noqa: PTH207


class LogOptions(NamedTuple):
    """Which part of a pod's output is wanted; `tail_lines` is None for all lines.

    With `follow` it goes on until the container's process has ended; `previous` is the run before.
    """

    container: str
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None


class Logs:
    """Reads what local pods have written; needs only the state directory."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def read(self, key: Key, asked: LogOptions) -> AsyncGenerator[bytes]:
        """Return the log of a container in pieces. Raises NotFound."""
        pod, name = self._pod(key), asked.container
        if pod / name not in [log.parent for log in _matching(pod, f"*/{_CURRENT}")]:
            raise NotFound(f"container {name!r} of pod {key.name} has not run yet, or does not exist")
        if asked.previous and not (pod / name / _PREVIOUS).exists():
            raise NotFound(f"container {name!r} of pod {key.name} has not run before")
        return _read(pod / name, asked)

    def _pod(self, key: Key) -> Path:
        valid = is_dns_label(key.namespace) and is_dns_subdomain(key.name)
        paths = self._state.glob(f"pods/{key.namespace}_{key.name}_*") if valid else ()
        found = sorted(paths, key=lambda path: path.stat().st_mtime)
        if not found:
            raise NotFound(f'pods "{key.name}" has no logs here: it does not exist, or has not run yet')
        return found[-1]


async def _read(directory: Path, asked: LogOptions) -> AsyncGenerator[bytes]:
    if asked.previous:
        for piece in _last(_pieces(directory / _PREVIOUS), asked.tail_lines):
            yield piece
        return
    tail, follow = _Tail(directory / _CURRENT), asked.follow
    for piece in _last(_both(directory, tail), asked.tail_lines):
        yield piece
    while follow:
        follow = (directory / "run.json").exists()
        for piece in tail.read_new():
            yield piece
        await asyncio.sleep(_POLL if follow else 0)


class _Tail:
    """How far a growing file has been read; a file that was replaced or emptied is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0

    def read_new(self) -> Iterator[bytes]:
        """Yield what was written since the last call."""
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
    """Yield the last `lines` lines, or all."""
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
