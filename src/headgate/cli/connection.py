"""Which headgate a command asks: that of a kubeconfig, or the one with its state in a directory of this machine."""

import os
from pathlib import Path

from headgate.cli.arguments import DEFAULT_STATE
from headgate.errors import Unavailable
from headgate.kubernetes.client import Client, Hints
from headgate.kubernetes.credentials import Kubeconfig
from headgate.standalone.runtime_info import RuntimeInfo, read_runtime_info

_START = "start headgate with `headgate up DIR`, or name its state directory with --state"
_HINTS = Hints(unreachable=_START, refused="The kubeconfig may be of an earlier `headgate up`")


def default_state() -> Path:
    """Return the state directory of commands without --state: what `source STATE/env` has set, else `.headgate`."""
    return Path(os.environ.get("HEADGATE_STATE") or DEFAULT_STATE)


def find_runtime_info(state: Path | None) -> RuntimeInfo | None:
    """Return the instance whose state is in that directory, else in the default one; None when none runs there."""
    found = read_runtime_info(state or default_state())
    return found if found and _runs(found.pid) else None


def runtime_info(state: Path | None) -> RuntimeInfo:
    """Return the running instance. Raises Unavailable with what to do when there is none."""
    found = find_runtime_info(state)
    if found is None:
        raise Unavailable(f"no headgate runs with its state in {state or default_state()}: {_START}")
    return found


def find_api(kubeconfig: Path | None, state: Path | None) -> Client:
    """Return the API: by --kubeconfig, else --state, else $KUBECONFIG, else `.headgate`.

    Raises Unavailable when none of them leads anywhere, HeadgateError when the kubeconfig can't be used.
    """
    paths = [Path(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if kubeconfig is not None:
        paths = [kubeconfig]
    elif state is not None or not any(path.exists() for path in paths):
        paths = [Path(runtime_info(state).kubeconfig)]
    try:
        return Client(Kubeconfig(paths), _HINTS)
    except Unavailable as error:
        raise Unavailable(f"{error}: {_START}") from error


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        return True
    return True
