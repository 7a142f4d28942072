"""The objects of a running headgate that the compiler reads, for a client with the permissions to list and watch them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec import structs

import headgate
from headgate.cli.inspect_client import InspectClient
from headgate.cli.output import note, reason_in
from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.errors import single_errors
from headgate.kubernetes.client import Client
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import ClusterStore
from headgate.latest import Latest, until
from headgate.model.routing import Mesh
from headgate.plane.feed import COMPILED, Feed, snapshot_of
from headgate.resources.meta import Key, Object
from headgate.resources.registry import key_of
from headgate.settings import Settings


async def active_settings(client: Client) -> Settings:
    """Return the settings with which the running headgate compiles. Raises HeadgateError."""
    settings = (await InspectClient(client).status()).status.settings
    return Settings(**structs.asdict(settings))


async def current_mesh(client: Client, settings: Settings) -> Mesh:
    """Return the mesh of the stored objects. Raises Unavailable and Denied."""
    async with client:
        return (await compiled_objects(client, settings)).mesh


async def compiled_objects(client: Client, settings: Settings, namespaces: Sequence[str] = ()) -> Compiled:
    """Compile the stored objects of some namespaces, or of all. Raises Unavailable and Denied."""
    versions = ServedVersions(client)
    await versions.refresh()
    store = ClusterStore(client, versions, namespaces)
    objects: dict[Key, Object] = {}
    for kind in COMPILED:
        objects |= {key_of(obj): obj for obj in (await store.list(kind.group, kind.kind)).items}
    return compile_mesh(snapshot_of(objects), settings)


@asynccontextmanager
async def followed_objects(client: Client) -> AsyncIterator[Latest[Snapshot | None]]:
    """Keep a snapshot of the stored objects current within the context; it is None until all kinds have been listed.

    While objects can't be read, the snapshot does not change; one message says so, and another one when they can be read
    again. A failure of a task ends the context, and is raised.
    """
    failed_reads, log = _FailedReads(), logging.getLogger(headgate.__name__)
    log.addHandler(failed_reads)
    try:
        async with client, asyncio.TaskGroup() as tasks:
            versions = ServedVersions(client)
            await versions.refresh()
            feed = Feed(ClusterStore(client, versions))
            work = feed.run(), versions.run(), failed_reads.report(feed)
            running = [tasks.create_task(job) for job in work]
            yield feed.snapshot
            for task in running:
                task.cancel()
    except BaseExceptionGroup as group:
        raise single_errors(group)[0] from None
    finally:
        log.removeHandler(failed_reads)


class _FailedReads(logging.Handler):
    """Receives the log, in which each kind has a warning for each failed attempt, and prints one message for all of them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._reason = Latest("")

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the reason of the first failure."""
        self._reason.set(self._reason.get() or reason_in(record))

    async def report(self, feed: Feed) -> None:
        """Print when objects can't be read, and when all can be read again, until canceled."""
        while True:
            await until(lambda: bool(self._reason.get()), self._reason)
            note(f"objects can't be read, so the files stay as they are until they can: {self._reason.get()}")
            await feed.wait_until_current()
            self._reason.set("")
            note("all objects can be read again, and the files follow them")
