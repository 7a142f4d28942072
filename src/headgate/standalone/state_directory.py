"""The state directory: private to its owner, locked by one headgate at a time. It contains the API's token."""

import fcntl
import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from headgate.api.certificate import KEY
from headgate.atomic_file import write_private
from headgate.errors import HeadgateError
from headgate.formatting import pluralize
from headgate.standalone.options import MachineOptions
from headgate.standalone.runtime_info import LOCK, read_runtime_info

TOKEN = "token"  # noqa: S105  # the name of a file, not a secret
_TOKEN_BYTES = 32
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{43}")  # 32 bytes in base64
_OTHER_USERS = stat.S_IRWXG | stat.S_IRWXO
_RENEWED = {TOKEN: "the API's token", KEY: "the API's private key"}
# Files whose mode stays unchanged: `load_signing_secret` rejects a secret that other users can read.
_REFUSED = frozenset({"token-secret"})

log = logging.getLogger(__name__)


def state_directory(options: MachineOptions, stack: AsyncExitStack) -> Path:
    """Create and lock the state directory, accessible to its owner only. Raises HeadgateError.

    An ephemeral directory is removed at the end, unless it existed before.
    """
    new = not options.state.exists()
    try:
        options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HeadgateError(
            f"can't create the state directory {options.state}: {error.strerror}; choose another one with --state"
        ) from error
    if options.ephemeral and new:
        stack.callback(shutil.rmtree, options.state, ignore_errors=True)
    for message in restrict_to_owner(options.state):
        log.warning("%s", message)
    stack.enter_context(lock(options.state))
    return options.state


def restrict_to_owner(state: Path) -> list[str]:
    """Set the mode of the state directory to 0700 and of its files to 0600; return a message for each change.

    Raises HeadgateError for a directory of another user, and for a directory that is open to other users
    and has files of other programs.
    """
    status = state.stat()
    if status.st_uid != os.geteuid():
        raise HeadgateError(
            f"the state directory {state} belongs to another user (uid {status.st_uid}), and that user could read all Secrets and "
            "keys in it; choose another directory with --state"
        )
    messages: list[str] = []
    if mode := _open_mode(status.st_mode):
        # A directory that contains only state directories is headgate's too: `make run` keeps one for each example.
        if not (state / LOCK).exists() and not all((path / LOCK).exists() for path in state.iterdir()):
            raise HeadgateError(
                f"the directory {state} is open to other users (mode {mode}) and has files of other programs; "
                "choose another directory with --state"
            )
        state.chmod(0o700)
        if _open_mode(state.stat().st_mode):
            raise HeadgateError(
                f"the file system of {state} does not support file modes, so other users can read the state directory; "
                "choose a directory on another file system with --state"
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
                f"{path}, {what}, could be read by other users (mode {mode}); headgate creates a new one. "
                f"Use {state / 'kubeconfig'} from now on; copies of the old kubeconfig stop working."
            )
        else:
            path.chmod(0o600)
            yield f"{path} could be read by other users (mode {mode}); its mode is 0600 now."


def _open_mode(mode: int) -> str:
    """Return the mode in octal if the group or other users have any permission, an empty text otherwise."""
    return f"{stat.S_IMODE(mode):04o}" if mode & _OTHER_USERS else ""


@contextmanager
def lock(state: Path) -> Iterator[None]:
    """Lock a state directory for this process. Raises HeadgateError when another headgate has locked it.

    The kernel releases the lock when the process ends.
    """
    with os.fdopen(os.open(state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = read_runtime_info(state)
            process = f" (process {other.pid})" if other else ""
            raise HeadgateError(
                f"a headgate{process} runs with the state directory {state} already; stop it, or choose another directory "
                "with --state"
            ) from None
        yield


def read_token(state: Path) -> str:
    """Return the API's token. It is created once for a state directory, so a kubeconfig stays valid across restarts.

    A file with anything else than a token of headgate is replaced, with a warning: an empty token would let all users in.
    """
    path = state / TOKEN
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        stored = None
    if stored is not None and _TOKEN.fullmatch(stored):
        return stored.decode()
    if stored is not None:
        log.warning(
            "%s has no token of headgate (%s), so headgate creates a new one. Use %s from now on; copies of the old "
            "kubeconfig stop working.",
            path,
            pluralize(len(stored), "byte"),
            state / "kubeconfig",
        )
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    write_private(path, token.encode())
    return token
