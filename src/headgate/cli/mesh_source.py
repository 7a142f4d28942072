"""The mesh of a running headgate, compiled from its stored objects, which a client may list and watch."""

from pathlib import Path

from headgate.cli.connection import find_api
from headgate.compiler.compile import compile_mesh
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import ClusterStore
from headgate.model.routing import Mesh
from headgate.plane.feed import COMPILED, snapshot_of
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
