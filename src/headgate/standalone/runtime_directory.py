"""Creates the private runtime directory for a headgate's sockets, and removes the directories of killed headgates.

The file `owner` in a runtime directory has the path of the state directory to which it belongs. Headgate and each of its
Envoys hold a shared flock on that file while they run. Without such a lock, the directory is unused.
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
SOCKET_PATH_BYTES = 107  # The limit of Linux for the path of a unix socket.
LONGEST_SOCKET_NAME = 32  # The limit for the names of the sockets in the directory, in bytes.
_FALLBACK = Path("/tmp")  # noqa: S108 - `_is_private` checks owner and mode


class Claim(NamedTuple):
    """A runtime directory in use by this process. `lock` is the descriptor of the locked file; each Envoy inherits it."""

    directory: Path
    lock: int


def runtime_directory(state: Path, environ: Mapping[str, str]) -> Path:
    """Create and return the private runtime directory (0700) of the state directory `state`.

    Its path is the same at each start. It is short, because the path of a unix socket has at most 107 bytes. Raises
    ProxyError when other users can open the directory.
    """
    digest = hashlib.sha256(os.fsencode(state.resolve())).hexdigest()[:12]
    name = f"{_prefix()}{digest}"
    directory = _base(environ, len(name)) / name
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if not _is_private(directory):
        raise ProxyError(
            f"the runtime directory {directory} must belong to uid {os.geteuid()} and have mode 0700; remove it, or set "
            "XDG_RUNTIME_DIR"
        )
    return directory


@contextmanager
def claimed(state: Path, environ: Mapping[str, str]) -> Iterator[Claim]:
    """Create and lock the runtime directory of `state`; remove it at the end of the context. Raises ProxyError."""
    lock = None
    while lock is None:  # `remove_unused` of another headgate may remove the directory before it is locked
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
    """Remove this user's runtime directories that no headgate and no Envoy uses; return them."""
    bases = dict.fromkeys((Path(environ.get("XDG_RUNTIME_DIR", "")), _FALLBACK))
    directories = sorted(path for base in bases if base.is_absolute() for path in base.glob(f"{_prefix()}*"))
    return [directory for directory in directories if _remove_if_unused(directory)]


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
    """Set a shared lock on a file; return its descriptor, None if the file was removed before it was locked."""
    with contextlib.suppress(FileNotFoundError):
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)
    return None


def _remove_if_unused(directory: Path) -> bool:
    with contextlib.suppress(OSError):  # the directory is in use, already removed, or without the file `owner`
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
