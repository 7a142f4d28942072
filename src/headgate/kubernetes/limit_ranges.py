"""Follows the LimitRanges of the mesh's namespaces, into which injection fits the resources of sidecars."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from headgate.objects.ports import Reader, Relist, follow
from headgate.resources.meta import Key, Object
from headgate.resources.registry import LIMIT_RANGE, key_of


class FollowedLimitRanges:
    """The current LimitRanges by namespace: a function of `admission.limit_ranges.LimitRanges`.

    Before the first list there are none, and the API server refuses a pod that does not fit; its controller creates it again.
    """

    def __init__(self) -> None:
        self._by_namespace: Mapping[str, Sequence[Object]] = {}

    def __call__(self, namespace: str) -> Sequence[Object]:
        """Return the LimitRanges of a namespace, sorted by name. Any thread may call this, since each change makes a new mapping."""
        return self._by_namespace.get(namespace, ())

    async def run(self, reader: Reader) -> None:
        """Follow the LimitRanges until canceled."""
        objects: dict[Key, Object] = {}
        async for step in follow(reader, LIMIT_RANGE.group, LIMIT_RANGE.kind):
            if isinstance(step, Relist):
                objects = {key_of(obj): obj for obj in step.items}
            elif step.type == "DELETED":
                objects.pop(step.key, None)
            else:
                objects[step.key] = step.object
            self._by_namespace = {
                namespace: tuple(objects[key] for key in keys)
                for namespace, keys in groupby(sorted(objects), key=attrgetter("namespace"))
            }
