"""The state directory: closed to other users, locked by one headgate at a time, with the API's token in it."""

import fcntl
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from headgate.api.certificate import KEY
from headgate.atomic_file import write_private
from headgate.errors import HeadgateError
from headgate.standalone.options import Options
from headgate.standalone.runtime_info import read_runtime_info

LOCK = "lock"
TOKEN = "token"  # noqa: S105  # a file's name
_OTHER_USERS = stat.S_IRWXG | stat.S_IRWXO
_RENEWED = {TOKEN: "the API's token", KEY: "the API's private key"}
_REFUSED = frozenset({"token-secret"})  # its reader refuses it: a copy of it can sign tokens of proxies

log = logging.getLogger(__name__)


def state_directory(options: Options, stack: AsyncExitStack) -> Path:
    """Make and lock the state directory, closed to other users.

    An ephemeral one is removed at the end, unless it existed before. Raises HeadgateError.
    """
    new = not options.state.exists()
    try:
        options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HeadgateError(
            f"the state directory {options.state} can't be created: {error.strerror}; name another with --state"
        ) from error
    if options.ephemeral and new:
        stack.callback(shutil.rmtree, options.state, ignore_errors=True)
    for message in restrict_to_owner(options.state):
        log.warning("%s", message)
    stack.enter_context(lock(options.state))
    return options.state


def restrict_to_owner(state: Path) -> list[str]:
    """Give the state directory mode 0700 and its files 0600; return a message for each change.

    Raises HeadgateError for a directory of another user, or an open one that holds files of other programs.
    """
    status = state.stat()
    if status.st_uid != os.geteuid():
        raise HeadgateError(
            f"the state directory {state} belongs to another user (uid {status.st_uid}); that user could read all "
            "Secrets and keys in it. Name a directory of your own with --state"
        )
    messages: list[str] = []
    if mode := _open_mode(status.st_mode):
        # State directories below it are headgate's own: `make run` keeps those of the examples below `.headgate`.
        if not (state / LOCK).exists() and not all((path / LOCK).exists() for path in state.iterdir()):
            raise HeadgateError(
                f"{state} is open to other users (mode {mode}) and holds files that are not headgate's; "
                "name a directory of its own with --state"
            )
        state.chmod(0o700)
        if _open_mode(state.stat().st_mode):
            raise HeadgateError(
                f"the file system of {state} keeps no modes, so other users can read the state directory; "
                "name one on another file system with --state"
            )
        messages.append(f"The state directory {state} was open to other users (mode {mode}); its mode is 0700 now.")
    return [*messages, *_closed_files(state)]


def _closed_files(state: Path) -> Iterator[str]:
    for path in sorted(state.iterdir()):
        status = path.lstat()
        mode = _open_mode(status.st_mode)
        if not mode or not stat.S_ISREG(status.st_mode) or path.name in _REFUSED:
            continue
        if what := _RENEWED.get(path.name):
            path.unlink()
            yield (
                f"{path}, {what}, could be read by other users (mode {mode}); headgate makes a new one. "
                f"Copies of the old kubeconfig no longer work; use {state / 'kubeconfig'}."
            )
        else:
            path.chmod(0o600)
            yield f"{path} could be read by other users (mode {mode}); its mode is 0600 now."


def _open_mode(mode: int) -> str:
    """Return the mode as octal digits when group or other users have a right; empty when they have none."""
    return f"{stat.S_IMODE(mode):04o}" if mode & _OTHER_USERS else ""


@contextmanager
def lock(state: Path) -> Iterator[None]:
    """Keep other headgates off a state directory until the end, however that comes. Raises HeadgateError."""
    with os.fdopen(os.open(state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = read_runtime_info(state)
            who = f" (process {other.pid})" if other else ""
            raise HeadgateError(
                f"a headgate{who} runs with the state directory {state} already; stop it, or name another with --state"
            ) from None
        yield


def read_token(state: Path) -> str:
    """Return the API's token, made once for a state directory, so that a kubeconfig stays good across restarts."""
    path = state / TOKEN
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32).encode())
    return path.read_text()
