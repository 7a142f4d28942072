"""Find the running headgate that a command connects to, by a kubeconfig or by a state directory on this machine."""

import os
from pathlib import Path

from headgate.cli.arguments import DEFAULT_STATE
from headgate.errors import Unavailable
from headgate.kubernetes.client import Client, ErrorHints
from headgate.kubernetes.credentials import Kubeconfig
from headgate.standalone.runtime_info import RuntimeInfo, read_runtime_info

_START = "start headgate with `headgate up DIR`, or set --state to its state directory"
_HINTS = ErrorHints(unreachable=_START, refused="the kubeconfig may be from an earlier `headgate up`")


def default_state() -> Path:
    """Return the default of --state: $HEADGATE_STATE, which `source STATE/env` sets, else `.headgate`."""
    return Path(os.environ.get("HEADGATE_STATE") or DEFAULT_STATE)


def find_runtime_info(state: Path | None) -> RuntimeInfo | None:
    """Return the addresses of the headgate that runs with a state directory (default: `default_state()`), or None."""
    found = read_runtime_info(state or default_state())
    return found if found and _runs(found.pid) else None


def runtime_info(state: Path | None) -> RuntimeInfo:
    """Return the addresses of the headgate that runs with a state directory. Raises Unavailable when none runs."""
    found = find_runtime_info(state)
    if found is None:
        raise Unavailable(f"no headgate runs with the state directory {state or default_state()}: {_START}")
    return found


def find_api(kubeconfig: Path | None, state: Path | None) -> Client:
    """Return a client of the API, found by --kubeconfig, else --state, else $KUBECONFIG, else `default_state()`.

    Raises Unavailable when no headgate runs there, HeadgateError when the kubeconfig is invalid.
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
    except PermissionError:  # the process belongs to another user
        return True
    return True
