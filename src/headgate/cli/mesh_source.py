"""The objects of a running headgate that the compiler reads, for a client with the permissions to list and watch them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headgate.cli.connection import find_api
from headgate.compiler.compile import compile_mesh
from headgate.compiler.snapshot import Snapshot
from headgate.errors import single_errors
from headgate.kubernetes.client import Client
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import ClusterStore
from headgate.latest import Latest
from headgate.model.routing import Mesh
from headgate.plane.feed import COMPILED, Feed, snapshot_of
from headgate.resources.meta import Key, Object
from headgate.resources.registry import key_of
from headgate.settings import Settings


async def current_mesh(kubeconfig: Path | None, state: Path | None, settings: Settings) -> Mesh:
    """Return the mesh of the stored objects. Raises Unavailable, Denied, and what `find_api` raises."""
    async with find_api(kubeconfig, state) as client:
        versions = ServedVersions(client)
        await versions.refresh()
        store = ClusterStore(client, versions)
        objects: dict[Key, Object] = {}
        for kind in COMPILED:
            objects |= {key_of(obj): obj for obj in (await store.list(kind.group, kind.kind)).items}
    return compile_mesh(snapshot_of(objects), settings).mesh


@asynccontextmanager
async def followed_objects(client: Client) -> AsyncIterator[Latest[Snapshot | None]]:
    """Keep a snapshot of the stored objects current within the context; it is None until all kinds have been listed.

    While the API can't be reached, the snapshot does not change. A failure of a task ends the context, and is raised.
    """
    try:
        async with client, asyncio.TaskGroup() as tasks:
            versions = ServedVersions(client)
            await versions.refresh()
            feed = Feed(ClusterStore(client, versions))
            running = [tasks.create_task(part.run()) for part in (feed, versions)]
            yield feed.snapshot
            for task in running:
                task.cancel()
    except BaseExceptionGroup as group:
        raise single_errors(group)[0] from None
