"""The root Services of Canaries: created if there is none, also after a deletion (R32)."""

import contextlib

from headgate.compiler.snapshot import Snapshot
from headgate.errors import AlreadyExists
from headgate.latest import Latest
from headgate.objects.ports import Writer
from headgate.resources.mesh.canary.types import Canary
from headgate.resources.meta import Key, Object, service_name
from headgate.rollout.owned_split import root_service


class RootServices:
    """Creates root Services. `domain` is the DNS domain of Services."""

    def __init__(self, objects: Writer, snapshot: Latest[Snapshot | None], domain: str) -> None:
        self._objects = objects
        self._snapshot = snapshot
        self._domain = domain

    def exists(self, key: Key, root: str) -> bool:
        """Return whether the root (`namespace/name`) of a Canary exists. One of another namespace counts as existing."""
        snapshot = self._snapshot.get()
        return snapshot is not None and (root in snapshot.services or not root.startswith(f"{key.namespace}/"))

    def is_owned(self, obj: Object, root: str) -> bool:
        """Return whether the root exists and belongs to a Canary."""
        snapshot = self._snapshot.get()
        if snapshot is None or root not in snapshot.services:
            return False
        references = snapshot.services[root][1].metadata.owner_references
        return any(reference.uid == obj["metadata"]["uid"] for reference in references)

    async def create(self, key: Key, obj: Object, canary: Canary, root: str) -> None:
        """Create the root of a Canary if there is none, with the ports of the first backend that exists."""
        snapshot = self._snapshot.get()
        if snapshot is None or self.exists(key, root):
            return
        names = (service_name(backend.service, key.namespace, self._domain) for backend in canary.spec.backends)
        backend = next((snapshot.services[name][1] for name in names if name in snapshot.services), None)
        if backend:
            with contextlib.suppress(AlreadyExists):
                await self._objects.create(root_service(obj, root.partition("/")[2], backend))
