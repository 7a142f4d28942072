"""Follows the LimitRanges and ResourceQuotas of the mesh's namespaces, to which injection fits the resources of sidecars."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from headgate.admission.namespace_limits import NamespaceLimits
from headgate.objects.ports import Reader, Relist, follow
from headgate.resources.kind import Kind
from headgate.resources.meta import Key, Object
from headgate.resources.registry import LIMIT_RANGE, RESOURCE_QUOTA, key_of


class FollowedLimits:
    """The current limits by namespace: a function of `admission.namespace_limits.LimitsByNamespace`.

    Before the first list there are none, and the API server refuses a pod that does not fit; its controller creates it again.
    """

    def __init__(self) -> None:
        self._ranges, self._quotas = _FollowedKind(LIMIT_RANGE), _FollowedKind(RESOURCE_QUOTA)

    def __call__(self, namespace: str) -> NamespaceLimits:
        """Return the limits of a namespace, sorted by name. Any thread may call this, since each change makes a new mapping."""
        return NamespaceLimits(self._ranges.of_namespace(namespace), self._quotas.of_namespace(namespace))

    async def run(self, reader: Reader) -> None:
        """Follow the objects until canceled."""
        async with asyncio.TaskGroup() as tasks:
            for followed in (self._ranges, self._quotas):
                tasks.create_task(followed.run(reader), name=f"limits by {followed.kind.kind}")


class _FollowedKind:
    """The objects of a kind by namespace."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._by_namespace: Mapping[str, Mapping[Key, Object]] = {}

    def of_namespace(self, namespace: str) -> Sequence[Object]:
        objects = self._by_namespace.get(namespace, {})
        return tuple(objects[key] for key in sorted(objects))

    async def run(self, reader: Reader) -> None:
        async for step in follow(reader, self.kind.group, self.kind.kind):
            if isinstance(step, Relist):
                listed = {key_of(obj): obj for obj in step.items}
                self._by_namespace = {
                    namespace: {key: listed[key] for key in keys}
                    for namespace, keys in groupby(sorted(listed), key=attrgetter("namespace"))
                }
                continue
            namespace = step.key.namespace
            remaining = {key: obj for key, obj in self._by_namespace.get(namespace, {}).items() if key != step.key}
            changed = remaining if step.type == "DELETED" else {**remaining, step.key: step.object}
            self._by_namespace = {**self._by_namespace, namespace: changed}
