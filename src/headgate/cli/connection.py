"""Find the running headgate that a command connects to, by a kubeconfig or by a state directory on this machine."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from headgate.cli.arguments import DEFAULT_STATE
from headgate.errors import Unavailable
from headgate.kubernetes.client import Client, ErrorHints
from headgate.kubernetes.credentials import Kubeconfig
from headgate.standalone.runtime_info import RuntimeInfo, read_runtime_info

_START = "start headgate with `headgate up DIR`, or set --state to its state directory"
LOCAL_ONLY = ". This command needs a headgate on this machine; it does not work with one in a cluster"
_HINTS = ErrorHints(unreachable=_START, refused="the kubeconfig may be from an earlier `headgate up`")
_CLUSTER_HINTS = ErrorHints(
    unreachable="check the cluster that the kubeconfig names, or on one machine start headgate with `headgate up DIR`",
    refused="log in again, or use another kubeconfig; that of an earlier `headgate up` is not valid anymore",
    names_rule=True,
)


def default_state() -> Path:
    """Return the default of --state: $HEADGATE_STATE, which `source STATE/env` sets, else `.headgate`."""
    return Path(os.environ.get("HEADGATE_STATE") or DEFAULT_STATE)


def find_runtime_info(state: Path | None) -> RuntimeInfo | None:
    """Return the addresses of the headgate that runs with a state directory (default: `default_state()`), or None."""
    found = read_runtime_info(state or default_state())
    return found if found and _runs(found.pid) else None


def surviving_processes(state: Path | None) -> tuple[str, ...]:
    """Return a description of each process that a killed headgate with this state directory left running.

    Call it outside an event loop. It is empty while a headgate runs there.
    """
    directory = (state or default_state()).absolute()
    if find_runtime_info(state) or not directory.is_dir():
        return ()
    # Imported here, because only commands that find no headgate need the runtime of pods.
    from headgate.standalone.gateway import GATEWAY
    from headgate.standalone.pods.leftovers import survivors

    return asyncio.run(survivors(directory, GATEWAY))


def survivors_text(processes: Sequence[str]) -> str:
    """Return the sentence about the processes that a killed headgate left."""
    from headgate.plane.status.conditions import few

    subject = (
        "a process of a killed headgate still runs"
        if len(processes) == 1
        else (f"{len(processes)} processes of a killed headgate still run")
    )
    return f"{subject} ({few(processes)}): `headgate up` adopts what is left, `headgate down` stops it"


def runtime_info(state: Path | None, *, hint: str = LOCAL_ONLY) -> RuntimeInfo:
    """Return the addresses of the headgate that runs with a state directory. Raises Unavailable when none runs.

    The error ends with `hint`; by default, it says that the command can't use a headgate in a cluster.
    """
    found = find_runtime_info(state)
    if found is None:
        raise Unavailable(f"no headgate runs with the state directory {state or default_state()}: {_START}{hint}")
    return found


def find_api(kubeconfig: Path | None, state: Path | None) -> Client:
    """Return a client of the API, found by --kubeconfig, else --state, $KUBECONFIG, `default_state()`, or ~/.kube/config.

    Raises Unavailable when no headgate runs there, HeadgateError when the kubeconfig is invalid.
    """
    paths = [Path(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    users = Path.home() / ".kube" / "config"
    if kubeconfig is not None:
        return _client([kubeconfig], _CLUSTER_HINTS)
    if state is None and any(path.exists() for path in paths):
        return _client(paths, _CLUSTER_HINTS)
    found = find_runtime_info(state)
    if found is None and state is None and not os.environ.get("HEADGATE_STATE") and (paths or users.exists()):
        return _client(paths or [users], _CLUSTER_HINTS)
    return _client([Path((found or runtime_info(state, hint="")).kubeconfig)], _HINTS)


def _client(paths: Sequence[Path], hints: ErrorHints) -> Client:
    try:
        return Client(Kubeconfig(paths), hints)
    except Unavailable as error:
        raise Unavailable(f"{error}: {hints.unreachable}") from error


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process belongs to another user
        return True
    return True
