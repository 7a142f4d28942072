"""The addresses of a running headgate, which other commands and the next start read from the state directory."""

import shlex
from pathlib import Path

import msgspec

from headgate.atomic_file import read_json, write_private
from headgate.resources.meta import Value

FILE_NAME = "instance.json"
LOCK = "lock"
"""The file in each state directory that its headgate locks."""


class RuntimeInfo(Value, frozen=True, kw_only=True):
    """The addresses and files of a running headgate, stored in the state directory as `instance.json` (0600).

    `api` and `metrics` have URLs; `metrics` is empty if no metrics are exposed. `proxy` is `host:port`. `localhost_port` is that of names
    below `.localhost`, 0 in records of earlier versions. `probe` and `admin`
    are the paths of unix sockets. `node` is the path of the network namespace in which pods without a network of their own are; empty if
    that is the machine's.
    """

    api: str
    kubeconfig: str
    proxy: str
    probe: str
    admin: str
    pid: int
    metrics: str = ""
    node: str = ""
    localhost_port: int = 0


def read_runtime_info(state: Path) -> RuntimeInfo | None:
    """Read the addresses of the current or last headgate from its state directory; None before the first start."""
    return read_json(state / FILE_NAME, RuntimeInfo)


def write_runtime_info(state: Path, info: RuntimeInfo) -> None:
    """Write `instance.json` into the state directory."""
    write_private(state / FILE_NAME, msgspec.json.encode(info))


def write_environment(state: Path, info: RuntimeInfo, programs: Path) -> Path:
    """Write `env`, which a shell sources so that kubectl and headgate's commands use this headgate; return its path.

    `programs` is the directory of headgate's programs. It is appended to PATH, so programs of the same name in the user's PATH
    are found first.
    """
    path = state / "env"
    lines = [
        f'export PATH="$PATH":{shlex.quote(str(programs))}',
        f"export KUBECONFIG={shlex.quote(info.kubeconfig)}",
        f"export HEADGATE_STATE={shlex.quote(str(state))}",
    ]
    write_private(path, ("\n".join(lines) + "\n").encode())
    return path
