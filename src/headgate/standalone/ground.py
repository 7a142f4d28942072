"""What everything else on one machine stands on: the state directory, the objects in it, and the addresses."""

import logging
import shutil
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from headgate.admission import defaults
from headgate.admission.injection import admit_sidecars
from headgate.admission.self_references import chain, sound_check
from headgate.admission.workload_rules import admit_workloads
from headgate.objects.ports import Admit, Change, Kept
from headgate.resources.meta import Object
from headgate.settings import Settings
from headgate.standalone.addresses import Addresses, claim_range
from headgate.standalone.controllers.gateways import ensure_class
from headgate.standalone.controllers.services import admit_services, follow_services, hold_services, range_of
from headgate.standalone.instance import lock, lowest_port
from headgate.standalone.node import admit_nodes
from headgate.standalone.options import Options
from headgate.standalone.private_state import restrict_to_owner
from headgate.standalone.store.memory import MemoryStore
from headgate.standalone.store.sqlite import SqliteJournal

log = logging.getLogger(__name__)
DATABASE = "objects.sqlite"
GUARDS = "guards.json"


class Ground(NamedTuple):
    """Objects, addresses, and the open files that each proxy inherits.

    These keep other headgates off the addresses, and show that the runtime directory is in use.
    """

    store: MemoryStore
    addresses: Addresses
    inherited: tuple[int, ...]
    settings: Settings


def state_directory(options: Options, stack: AsyncExitStack) -> Path:
    """Make and lock the state directory, closed to other users.

    An ephemeral one is removed at the end, unless it existed before. Raises HeadgateError.
    """
    new = not options.state.exists()
    options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if options.ephemeral and new:
        stack.callback(shutil.rmtree, options.state, ignore_errors=True)
    for message in restrict_to_owner(options.state):
        log.warning("%s", message)
    stack.enter_context(lock(options.state))
    return options.state


async def lay_ground(options: Options, stack: AsyncExitStack, owner: int) -> Ground:
    """Open the store with all its admission hooks, and claim a range of addresses."""
    hooks: list[Admit] = []
    followers: list[Kept] = []
    journal = None
    if not options.ephemeral:
        journal = SqliteJournal.open(options.state / DATABASE)
        stack.callback(journal.close)

    def admit(new: Object, old: Object | None) -> Object:  # the hooks need addresses, and these need the store
        return chain(*hooks)(new, old)

    def kept(changes: Sequence[Change]) -> None:
        for follower in followers:
            follower(changes)

    settings = structs.replace(options.settings, lowest_port=lowest_port())
    store = MemoryStore(check=sound_check(settings), admit=admit, kept=kept, journal=journal)
    services = (await store.list("", "Service")).items
    number, guard = claim_range(range_of(services), record=options.state / GUARDS)
    stack.enter_context(guard)
    addresses = Addresses(number)
    hooks += [
        defaults.admit,
        admit_workloads,
        admit_nodes,
        admit_sidecars(options.sidecars, store),
        admit_services(addresses),
    ]
    followers.append(follow_services(addresses))
    await hold_services(store, addresses)
    await ensure_class(store)
    return Ground(store, addresses, (guard.fileno(), owner), settings)
