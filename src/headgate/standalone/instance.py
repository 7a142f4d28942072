"""Where a running headgate is found, and the private files and addresses that outlive a start."""

import fcntl
import os
import secrets
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headgate.atomic_file import read_json, write_private
from headgate.errors import HeadgateError
from headgate.resources.meta import Value

LOOPBACK = "127.0.0.1"
INSTANCE = "instance.json"
LOCK = "lock"
TOKEN = "token"  # noqa: S105  # a file's name
_UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_USUAL_LOWEST = 1024


class Instance(Value, frozen=True, kw_only=True):
    """A running headgate; kept in the state directory as `instance.json` (0600). Addresses are `host:port`.

    `metrics` is the URL that Prometheus is to read, if there is one.
    """

    api: str
    kubeconfig: str
    proxy: str
    probe: str
    admin: str
    pid: int
    metrics: str = ""


def read_instance(state: Path) -> Instance | None:
    """Return the instance that runs, or ran last, in a state directory."""
    return read_json(state / INSTANCE, Instance)


def write_instance(state: Path, instance: Instance) -> None:
    """Keep where this headgate is found."""
    write_private(state / INSTANCE, msgspec.json.encode(instance))


def write_environment(state: Path, instance: Instance, programs: Path) -> Path:
    """Write what a shell sources to use this headgate: kubectl, its plugin and headgate's commands find it. Return the path.

    `programs` is the directory of headgate's own programs; those of the user's PATH come first.
    """
    path = state / "env"
    lines = [
        f'export PATH="$PATH":{shlex.quote(str(programs))}',
        f"export KUBECONFIG={shlex.quote(instance.kubeconfig)}",
        f"export HEADGATE_STATE={shlex.quote(str(state))}",
    ]
    write_private(path, ("\n".join(lines) + "\n").encode())
    return path


@contextmanager
def lock(state: Path) -> Iterator[None]:
    """Keep other headgates off a state directory until the end, however that comes. Raises HeadgateError."""
    with os.fdopen(os.open(state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = read_instance(state)
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


def listen(address: str, before: str) -> socket.socket:
    """Listen on `host:port`; port 0 means that of `before` where it is free, else any free one. Raises HeadgateError."""
    host, port = split_address(address)
    old = split_address(before)[1] if before else 0
    for candidate in (port or old, port):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, candidate))
            found.listen(128)
        except OSError as error:
            found.close()
            reason = error.strerror
        else:
            return found
    raise HeadgateError(f"can't listen on {address}: {reason}; choose another port, or 0 for a free one")


def free_address(address: str, before: str, *, held: bool) -> str:
    """Return `host:port` for somebody else to listen on, chosen like `listen`; `held` says that `before` is its own."""
    if held and before and split_address(address)[1] in {0, split_address(before)[1]}:
        return before
    with listen(address, before) as found:
        return written(found)


def written(listener: socket.socket) -> str:
    """Return a socket's own address as `host:port`."""
    host, port = listener.getsockname()
    return f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port` on loopback. Raises HeadgateError."""
    host, _, port = address.rpartition(":")
    if not host.startswith("127.") or not port.isdecimal() or int(port) > 65535:
        raise HeadgateError(f"{address!r} is not a loopback address; write for example {LOOPBACK}:15001")
    return host, int(port)


def lowest_port() -> int:
    """Return the smallest TCP port that this user may listen on."""
    if os.geteuid() == 0:
        return 0
    try:
        return int(_UNPRIVILEGED.read_text())
    except (OSError, ValueError):
        return _USUAL_LOWEST
