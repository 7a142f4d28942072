"""What a question is asked about: the objects of files, or those of a running headgate, and what they compile to."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headgate.cli.arguments import DEFAULT_STATE, existing
from headgate.cli.client import Client
from headgate.cli.kubeconfig import find_access
from headgate.cli.offline import completed
from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.control.feed import COMPILED, snapshot_of
from headgate.control.instance import read_instance
from headgate.errors import HeadgateError, NotFound
from headgate.resources.meta import Key, Object
from headgate.resources.registry import key_of
from headgate.settings import Settings
from headgate.store.files import read


class World(NamedTuple):
    """Objects, and what they compile to."""

    snapshot: Snapshot
    compiled: Compiled


def offline(paths: list[Path], settings: Settings) -> World:
    """Compile files. Raises HeadgateError that names the first mistake which keeps a file from being read."""
    manifests = read(existing(paths))
    if not manifests.objects:
        first = "; ".join(f"{item.file}:{item.line}: {item.message}" for item in manifests.problems[:1])
        raise HeadgateError(first or f"there are no objects in {', '.join(map(str, paths))}")
    return _world(completed({manifest.key: manifest.object for manifest in manifests.objects}), settings)


async def live(kubeconfig: Path | None, state: Path | None) -> World:
    """Compile what an API server has, as the headgate does that runs there."""
    client = Client(find_access(kubeconfig, state, os.environ))
    found: dict[Key, Object] = {}
    for kind in COMPILED:
        try:
            items, _ = await client.items(kind)
        except NotFound:  # another cluster need not have every kind
            continue
        found |= {key_of(obj): obj for obj in items}
    return _world(found, _settings(kubeconfig, state))


def _settings(kubeconfig: Path | None, state: Path | None) -> Settings:
    """Return the settings of a headgate of this machine, which keeps them beside its kubeconfig; else the usual ones."""
    named = next((Path(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path), None)
    file = kubeconfig or (named if state is None and named and named.exists() else None)
    instance = read_instance(file.absolute().parent if file else state or DEFAULT_STATE)
    return instance.settings if instance else Settings()


def _world(objects: Mapping[Key, Object], settings: Settings) -> World:
    snapshot = snapshot_of(objects)
    return World(snapshot, compile_mesh(snapshot, settings))
