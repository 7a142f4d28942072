"""The mesh of a running headgate, compiled from its stored objects, which a client may list and watch."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from headgate.cli.connection import find_api
from headgate.compiler.compile import Compiler, compile_mesh
from headgate.kubernetes.client import Client
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import ClusterStore
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


async def followed_meshes(client: Client, settings: Settings) -> AsyncGenerator[Mesh]:
    """Yield the mesh of the stored objects, and a new one after changes; a slow reader gets only the newest.

    Raises Unavailable if the API can't be reached at first; later it waits until the API can be reached again.
    """
    async with client:
        versions = ServedVersions(client)
        await versions.refresh()
        feed, compiler = Feed(ClusterStore(client, versions)), Compiler()
        running = [asyncio.create_task(part.run()) for part in (feed, versions)]
        try:
            async for snapshot in feed.snapshot.changes():
                if snapshot is not None:
                    yield compiler.compile(snapshot, settings).mesh
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
