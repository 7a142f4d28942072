"""The objects of a snapshot as JSON, for admission steps and explanations."""

import msgspec

from headgate.compiler.snapshot import Snapshot
from headgate.objects.ports import View
from headgate.resources.meta import Key, Object, Resource
from headgate.resources.registry import KINDS

_SHAPES = {(kind.group, kind.kind): kind.shape for kind in KINDS if kind.shape}


class SnapshotView(View):
    """Implements `objects.ports.View` with the objects of a snapshot, which have only the fields that headgate reads.

    Invalid objects have only the part that stays active.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def get(self, key: Key) -> Object | None:
        """Return an object; None if it does not exist."""
        resource = self._snapshot.objects.get(key) or self._snapshot.fail_closed.get(key)
        return _object(resource) if resource else None

    def select(self, group: str, kind: str, namespace: str) -> list[Object]:
        """Return the objects of a kind in a namespace."""
        shape = _SHAPES.get((group, kind))
        resources = (
            [*self._snapshot.by_shape.get(shape, {}).items(), *self._snapshot.fail_closed.items()] if shape else []
        )
        return [
            _object(resource)
            for key, resource in resources
            if (key.group, key.kind, key.namespace) == (group, kind, namespace)
        ]


def _object(resource: Resource) -> Object:
    fields: Object = msgspec.to_builtins(resource)
    return {"metadata": {}, **fields}
