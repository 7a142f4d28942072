"""The newest changes of each kind, which watches read.

All watches share the stored changes: a watch is a position in the history and has no queue of its own.
"""

import asyncio
import bisect
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence

from headgate.errors import Gone
from headgate.objects.ports import Change


class RecentChanges:
    """The last `size` changes of each kind.

    Revisions number the changes to all kinds; a resource version is a revision as text.
    """

    def __init__(self, revision: int, size: int) -> None:
        self.revision = revision
        self._kinds: defaultdict[tuple[str, str], _Kind] = defaultdict(lambda: _Kind(revision, size))

    def append(self, changes: Sequence[Change]) -> None:
        """Add changes, in order, and wake the watches of their kinds."""
        kinds = {(change.key.group, change.key.kind): None for change in changes}
        for change in changes:
            self._kinds[change.key.group, change.key.kind].append(change)
            self.revision = int(change.version)
        for kind in kinds:
            self._kinds[kind].wake()

    async def after(self, since: str, group: str, kind: str) -> AsyncIterator[Change]:
        """Yield every change of a kind after revision `since`, without end. Raises Gone when one has been discarded."""
        revision = int(since) if since.isdecimal() else self.revision + 1
        if revision > self.revision:
            raise Gone(f"invalid resource version: {since}, current: {self.revision}; list again and watch from there")
        async for change in self._kinds[group, kind].after(revision):
            yield change


class _Kind:
    """The last changes of one kind, numbered from the first change since the start."""

    def __init__(self, floor: int, size: int) -> None:
        self._floor = floor  # the history contains all changes after this revision
        self._changes: deque[Change] = deque(maxlen=size)
        self._discarded = 0  # number of discarded changes
        self._appended = asyncio.Event()

    def append(self, change: Change) -> None:
        if len(self._changes) == self._changes.maxlen:
            self._floor = int(self._changes[0].version)
            self._discarded += 1
        self._changes.append(change)

    def wake(self) -> None:
        self._appended.set()
        self._appended = asyncio.Event()

    async def after(self, revision: int) -> AsyncIterator[Change]:
        if revision < self._floor:
            raise self._gone(revision)
        number = self._discarded + bisect.bisect_right(self._changes, revision, key=lambda change: int(change.version))
        while True:
            while number < self._discarded + len(self._changes):
                if number < self._discarded:
                    raise self._gone(revision)
                change = self._changes[number - self._discarded]
                number, revision = number + 1, int(change.version)
                yield change
            await self._appended.wait()

    def _gone(self, revision: int) -> Gone:
        return Gone(f"too old resource version: {revision} ({self._floor}); list again and watch from there")
