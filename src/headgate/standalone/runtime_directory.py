"""The private directory with the sockets of one headgate, and the directories that killed headgates left.

A directory belongs to one state directory. Its file `owner` names that state directory and carries a shared flock, which
headgate and each Envoy that it starts hold for as long as they run. A directory whose lock is free has no live owner.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headgate.errors import ProxyError

OWNER = "owner"
SOCKET_PATH_BYTES = 107
LONGEST_SOCKET_NAME = 32
_FALLBACK = Path("/tmp")  # noqa: S108 - owner and mode are checked


class Claim(NamedTuple):
    """A directory that this process owns; `lock` is the open file that each Envoy inherits."""

    directory: Path
    lock: int


def runtime_directory(state: Path, environ: Mapping[str, str]) -> Path:
    """Return a private directory (0700) for the sockets of `state`, the same one each time, with a short path.

    A unix socket's path has 107 bytes; state directories may be longer than that. Raises ProxyError when another user
    owns the directory.
    """
    digest = hashlib.sha256(os.fsencode(state.resolve())).hexdigest()[:12]
    name = f"{_prefix()}{digest}"
    directory = _base(environ, len(name)) / name
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if not _is_private(directory):
        raise ProxyError(f"{directory} is not a directory that only you can open: remove it, or set XDG_RUNTIME_DIR")
    return directory


@contextmanager
def claimed(state: Path, environ: Mapping[str, str]) -> Iterator[Claim]:
    """Own the directory of `state` for the body, and remove it afterwards. Raises ProxyError as `runtime_directory`."""
    lock = None
    while lock is None:  # `remove_unused` of another start may remove the directory before the lock is held
        directory = runtime_directory(state, environ)
        lock = _lock_shared(directory / OWNER)
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, os.fsencode(state.resolve()), 0)
        yield Claim(directory, lock)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def remove_unused(environ: Mapping[str, str]) -> list[Path]:
    """Remove the directories of this user that killed headgates left and no Envoy uses any more; return them."""
    bases = dict.fromkeys((Path(environ.get("XDG_RUNTIME_DIR", "")), _FALLBACK))
    found = sorted(path for base in bases if base.is_absolute() for path in base.glob(f"{_prefix()}*"))
    return [directory for directory in found if _remove_if_unused(directory)]


def _prefix() -> str:
    return f"headgate-{os.geteuid()}-"


def _base(environ: Mapping[str, str], name_bytes: int) -> Path:
    named = Path(environ.get("XDG_RUNTIME_DIR", ""))
    room = SOCKET_PATH_BYTES - LONGEST_SOCKET_NAME - name_bytes - 2
    fits = named.is_absolute() and len(os.fsencode(named)) <= room
    return named if fits and named.is_dir() and os.access(named, os.W_OK) else _FALLBACK


def _is_private(directory: Path) -> bool:
    status = directory.lstat()
    return status.st_uid == os.geteuid() and status.st_mode & 0o170777 == 0o040700


def _lock_shared(path: Path) -> int | None:
    """Return the open, locked file; None when it was removed before the lock was held."""
    with contextlib.suppress(FileNotFoundError):
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)
    return None


def _remove_if_unused(directory: Path) -> bool:
    with contextlib.suppress(OSError):  # another start removes it, or it has no owner
        if not _is_private(directory):
            return False
        lock = os.open(directory / OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory)
        finally:
            os.close(lock)
        return True
    return False
