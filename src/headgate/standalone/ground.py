"""What everything else on one machine stands on: the state directory, the objects in it, and the addresses."""

import asyncio
import logging
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import structs

from headgate.admission.admission import admission, sound_check
from headgate.api.certificate import KEY
from headgate.api.exposition import PATH
from headgate.errors import HeadgateError
from headgate.settings import Settings
from headgate.standalone.addresses import Addresses, claim_range
from headgate.standalone.controllers.gateways import ensure_class
from headgate.standalone.controllers.services import admit_services, follow_services, hold_services, range_of
from headgate.standalone.instance import (
    LOCK,
    TOKEN,
    Instance,
    free_address,
    listen,
    lock,
    lowest_port,
    read_instance,
    written,
)
from headgate.standalone.node import admit_nodes
from headgate.standalone.options import Options
from headgate.standalone.runtime_directory import claimed, remove_unused
from headgate.standalone.store.memory import MemoryStore
from headgate.standalone.store.sqlite import SqliteJournal

log = logging.getLogger(__name__)
DATABASE = "objects.sqlite"
GUARDS = "guards.json"
ADMIN_SOCKET = "admin.sock"
PROBE_SOCKET = "probe.sock"
XDS_SOCKET = "xds.sock"
_OTHER_USERS = stat.S_IRWXG | stat.S_IRWXO
_RENEWED = {TOKEN: "the API's token", KEY: "the API's private key"}
_REFUSED = frozenset({"token-secret"})  # its reader refuses it: a copy of it can sign tokens of proxies


class Ground(NamedTuple):
    """Directories, objects, addresses and listeners of one machine.

    `inherited` are open files that each proxy inherits: they keep other headgates off the addresses, and show that the
    runtime directory `sockets` is in use. `metrics` is where Prometheus reads, if it is to.
    """

    state: Path
    sockets: Path
    store: MemoryStore
    addresses: Addresses
    inherited: tuple[int, ...]
    settings: Settings
    instance: Instance
    api: socket.socket
    metrics: socket.socket | None

    @property
    def xds(self) -> Path:
        """The socket on which proxies are served."""
        return self.sockets / XDS_SOCKET


async def lay_ground(options: Options, stack: AsyncExitStack) -> Ground:
    """Lock the state directory, open the objects in it, and claim addresses. Raises HeadgateError."""
    state = state_directory(options, stack)
    sockets, owner = stack.enter_context(claimed(state, os.environ))  # removed after all that use them have ended
    remove_unused(os.environ)
    settings = structs.replace(options.settings, lowest_port=lowest_port())
    store, addresses, guard = _objects(options, settings, stack)
    await hold_services(store, addresses)
    await ensure_class(store)
    before = read_instance(state)
    api = stack.enter_context(listen(options.api_address, before.api.removeprefix("https://") if before else ""))
    metrics = _metrics(options, stack, before)
    instance = Instance(
        api=f"https://{written(api)}",
        kubeconfig=str(state / "kubeconfig"),
        proxy=free_address(
            options.proxy_address, before.proxy if before else "", held=await _answers(sockets / ADMIN_SOCKET)
        ),
        probe=str(sockets / PROBE_SOCKET),
        admin=str(sockets / ADMIN_SOCKET),
        pid=os.getpid(),
        metrics=f"http://{written(metrics)}{PATH}" if metrics else "",
    )
    return Ground(state, sockets, store, addresses, (guard, owner), settings, instance, api, metrics)


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


def _objects(options: Options, settings: Settings, stack: AsyncExitStack) -> tuple[MemoryStore, Addresses, int]:
    """Return the stored objects, a range of addresses, and the open file that keeps other headgates off the range."""
    journal = None
    if not options.ephemeral:
        journal = SqliteJournal.open(options.state / DATABASE)
        stack.callback(journal.close)
    addressed = (*journal.of_kind("", "Service"), *journal.of_kind("", "Pod")) if journal else ()
    number, guard = claim_range(range_of(addressed), record=options.state / GUARDS)
    stack.enter_context(guard)
    addresses = Addresses(number)
    store = MemoryStore(
        check=sound_check(settings),
        admit=admission(options.sidecars, {("v1", "Node"): admit_nodes, ("v1", "Service"): admit_services(addresses)}),
        kept=follow_services(addresses),
        journal=journal,
    )
    return store, addresses, guard.fileno()


async def _answers(path: Path) -> bool:
    """Return whether a process listens on a unix socket."""
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


def _metrics(options: Options, stack: AsyncExitStack, before: Instance | None) -> socket.socket | None:
    if not options.metrics_address:
        return None
    old = urlsplit(before.metrics).netloc if before else ""
    return stack.enter_context(listen(options.metrics_address, old))
