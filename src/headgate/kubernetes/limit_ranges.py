"""Follows the LimitRanges of the mesh's namespaces, into which injection fits the resources of sidecars."""

from collections.abc import Sequence

from headgate.objects.ports import Reader, Relist, follow
from headgate.resources.meta import Key, Object
from headgate.resources.registry import LIMIT_RANGE, key_of


class FollowedLimitRanges:
    """The current LimitRanges by namespace: a function of `admission.limit_ranges.LimitRanges`.

    Before the first list there are none, and the API server refuses a pod that does not fit; its controller creates it again.
    """

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}

    def __call__(self, namespace: str) -> Sequence[Object]:
        """Return the LimitRanges of a namespace, sorted by name."""
        return [self._objects[key] for key in sorted(self._objects) if key.namespace == namespace]

    async def run(self, reader: Reader) -> None:
        """Follow the LimitRanges until canceled."""
        async for step in follow(reader, LIMIT_RANGE.group, LIMIT_RANGE.kind):
            if isinstance(step, Relist):
                self._objects = {key_of(obj): obj for obj in step.items}
            elif step.type == "DELETED":
                self._objects.pop(step.key, None)
            else:
                self._objects[step.key] = step.object
