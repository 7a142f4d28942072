"""Find the API to which a command connects, by a kubeconfig or by a state directory on this machine."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headgate.cli.arguments import DEFAULT_STATE, ApiOptions
from headgate.cli.output import WrongUsage, note, usage_error
from headgate.errors import HeadgateError, Unavailable
from headgate.standalone.runtime_info import LOCK, RuntimeInfo, read_runtime_info

if TYPE_CHECKING:
    from headgate.kubernetes.client import Client
    from headgate.kubernetes.credentials import Kubeconfig

_START = "start headgate with `headgate up DIR`, or set --state to its state directory"
_CHECK_CLUSTER = "check the cluster that the kubeconfig names, or on one machine start headgate with `headgate up DIR`"
LOCAL_ONLY = ". This command needs a headgate on this machine; it does not work with one in a cluster"
_ROOTS = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
"""An environment in which OpenSSL finds no root certificates."""


def default_state() -> Path:
    """Return the default of --state: $HEADGATE_STATE, which `source STATE/env` sets, else `.headgate`."""
    return Path(os.environ.get("HEADGATE_STATE") or DEFAULT_STATE)


def find_runtime_info(state: Path | None) -> RuntimeInfo | None:
    """Return the addresses of the headgate that runs with a state directory (default: `default_state()`), or None."""
    info = read_runtime_info(state or default_state())
    return info if info and _runs(info.pid) else None


class Remains(NamedTuple):
    """A state directory with a running headgate, or with processes that a killed one left running."""

    state: Path
    running: RuntimeInfo | None
    survivors: Sequence[str]

    def text(self, option: str) -> str:
        """Return a sentence. `option` is the --state that selects the directory, empty for the default."""
        if self.running:
            return f"a headgate runs with {option} (process {self.running.pid})"
        from headgate.plane.status.conditions import few

        subject = (
            "a process of a killed headgate still runs"
            if len(self.survivors) == 1
            else f"{len(self.survivors)} processes of a killed headgate still run"
        )
        words = f" {option}" if option else ""
        names = few(self.survivors)
        return f"{subject} ({names}): `headgate up{words}` adopts what is left, `headgate down{words}` stops it"


def remains(state: Path | None) -> tuple[Remains | None, Sequence[Remains]]:
    """Return what runs with a state directory, and with the state directories in it, such as `.headgate/canary`.

    A running headgate is only reported for the latter. Call this function outside an event loop.
    """
    directory = (state or default_state()).absolute()
    own = None if find_runtime_info(directory) else _remains(directory)
    below = [_remains(path.parent) for path in sorted(directory.glob(f"*/{LOCK}"))]
    return own, [leftover for leftover in below if leftover]


def remains_texts(state: Path | None) -> list[str]:
    """Return a sentence for each state directory of `remains`."""
    directory = state or default_state()
    option = f"--state {directory}" if state else ""
    own, below = remains(state)
    return [
        *([own.text(option)] if own else []),
        *(leftover.text(f"--state {directory / leftover.state.name}") for leftover in below),
    ]


def _remains(directory: Path) -> Remains | None:
    if running := find_runtime_info(directory):
        return Remains(directory, running, ())
    # Imported here, because only commands that find no headgate need the runtime of pods.
    import asyncio

    from headgate.standalone.gateway import GATEWAY
    from headgate.standalone.pods.leftovers import survivors

    survived = asyncio.run(survivors(directory, GATEWAY)) if directory.is_dir() else ()
    return Remains(directory, None, survived) if survived else None


def runtime_info(state: Path | None, *, hint: str = LOCAL_ONLY) -> RuntimeInfo:
    """Return the addresses of the headgate that runs with a state directory. Raises Unavailable when none runs.

    The error ends with `hint`; by default, it says that the command can't use a headgate in a cluster.
    """
    info = find_runtime_info(state)
    if info is None:
        raise Unavailable(f"no headgate runs with the state directory {state or default_state()}: {_START}{hint}")
    return info


def find_api(api: ApiOptions, *, changes: bool = False) -> "Client":
    """Return a client of the API that the options select (docs/reference/command-line.md).

    By default this is the first of:

    1. the cluster of $KUBECONFIG, if one of its files exists;
    2. the headgate that runs with the state directory $HEADGATE_STATE;
    3. the headgate that runs with the state directory `.headgate`;
    4. the cluster of ~/.kube/config.

    A command that `changes` something says which API it uses. It refuses the default 3 if kubectl would use another API.
    Raises WrongUsage for this case and for options that exclude each other, Unavailable when no headgate runs there, and
    HeadgateError when the kubeconfig is invalid.
    """
    if api.state and (api.kubeconfig or api.context):
        raise usage_error("selects a headgate of this machine; leave out --kubeconfig and --context", option="--state")
    paths = _environment_paths()
    if api.kubeconfig or api.context or (api.state is None and any(path.exists() for path in paths)):
        return _client(cluster_credentials(api, changes=changes), of_cluster=True)
    running, chosen = find_runtime_info(api.state), api.state or os.environ.get("HEADGATE_STATE")
    if running is None and not chosen and (paths or _users_kubeconfig().exists()):
        return _client(cluster_credentials(api, changes=changes), of_cluster=True)
    running = running or runtime_info(api.state, hint="")
    if changes and not chosen:
        _check_unambiguous(running)
    if changes and not api.state:
        note(f"Using the headgate of {default_state()} on this machine")
    return _client(_kubeconfig([Path(running.kubeconfig)]), of_cluster=False)


def cluster_credentials(api: ApiOptions, *, changes: bool) -> "Kubeconfig":
    """Return the kubeconfig and context that the options select. A command that `changes` something names the default.

    Raises Unavailable if there is no such file, HeadgateError if it is invalid or has no such context.
    """
    paths = [api.kubeconfig] if api.kubeconfig else _environment_paths() or [_users_kubeconfig()]
    try:
        credentials = _kubeconfig(paths, api.context)
    except Unavailable as error:
        raise Unavailable(f"{error}: {_CHECK_CLUSTER}") from error
    if changes and not (api.kubeconfig or api.context):
        note(f"Using the context {credentials.context} of {credentials.name}")
    return credentials


def _check_unambiguous(running: RuntimeInfo) -> None:
    """Raise WrongUsage if kubectl would use another API than the headgate of `.headgate`."""
    try:
        users = _kubeconfig([_users_kubeconfig()])
    except HeadgateError:  # kubectl can't use it
        return
    if users.server.rstrip("/") == running.api:
        return
    command = shlex.join(["headgate", *sys.argv[1:]])
    raise WrongUsage(
        f"the headgate of {DEFAULT_STATE} runs on this machine, but kubectl uses the context {users.context} of"
        f" {users.name}; choose one of:\n"
        f"  {command} --state {DEFAULT_STATE}\n"
        f"  {command} --context {shlex.quote(users.context)}"
    )


def _environment_paths() -> Sequence[Path]:
    return [Path(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]


def _users_kubeconfig() -> Path:
    return Path.home() / ".kube" / "config"


def _kubeconfig(paths: Sequence[Path], context: str = "") -> "Kubeconfig":
    # Imported here, because not all commands that look for a headgate send requests.
    _import_http_client()
    from headgate.kubernetes.credentials import Kubeconfig

    return Kubeconfig(paths, context)


def _client(credentials: "Kubeconfig", *, of_cluster: bool) -> "Client":
    from headgate.kubernetes.client import Client, ErrorHints

    if of_cluster:
        hints = ErrorHints(
            unreachable=_CHECK_CLUSTER,
            refused="log in again, or use another kubeconfig; that of an earlier `headgate up` is not valid anymore",
            names_rule=True,
        )
    else:
        hints = ErrorHints(unreachable=_START, refused="the kubeconfig may be from an earlier `headgate up`")
    return Client(credentials, hints)


def _import_http_client() -> None:
    """Import aiohttp without its own TLS contexts of the system's roots: a sixth of the processor time of a command.

    Requests to an API have a context with the roots of its kubeconfig.
    """
    before = {name: os.environ.get(name) for name in _ROOTS}
    os.environ.update(_ROOTS)
    try:
        import aiohttp  # noqa: F401
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process belongs to another user
        return True
    return True
