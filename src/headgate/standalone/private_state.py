"""The state directory belongs to one user: modes that let other users in are tightened, and exposed secrets are renewed."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from headgate.api.certificate import KEY
from headgate.errors import HeadgateError
from headgate.standalone.instance import LOCK, TOKEN

_OTHER_USERS = stat.S_IRWXG | stat.S_IRWXO
_RENEWED = {TOKEN: "the API's token", KEY: "the API's private key"}
_REFUSED = frozenset({"token-secret"})  # its reader refuses it: a copy of it can sign tokens of proxies


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
        if not (state / LOCK).exists() and any(state.iterdir()):
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
