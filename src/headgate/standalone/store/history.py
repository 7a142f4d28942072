"""The newest changes, kept once for all watchers: a watcher is a cursor into this ring, never a queue of its own."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from headgate.errors import Gone
from headgate.objects.ports import Change


class History:
    """A ring of the last `size` changes. Revisions are consecutive, so a revision is also a place in the ring."""

    def __init__(self, revision: int, size: int) -> None:
        self.revision = revision
        self._floor = revision  # changes after this one are kept
        self._slots: list[Change | None] = [None] * size
        self._grown = asyncio.Event()

    def append(self, changes: Sequence[Change]) -> None:
        """Make changes visible to the watchers, in order."""
        for change in changes:
            self._slots[change.revision % len(self._slots)] = change
            self.revision = change.revision
        self._floor = max(self._floor, self.revision - len(self._slots))
        self._grown.set()
        self._grown = asyncio.Event()

    async def after(self, since: int) -> AsyncIterator[Change]:
        """Yield every change after revision `since`, for ever. Raises Gone when one of them is no longer kept."""
        if since > self.revision:
            raise Gone(
                f"revision {since} is from another store (this one is at {self.revision}): list again and watch from there"
            )
        cursor = since
        while True:
            while cursor < self.revision:
                cursor += 1
                yield self._at(cursor)
            await self._grown.wait()

    def _at(self, revision: int) -> Change:
        change = self._slots[revision % len(self._slots)]
        if revision <= self._floor or change is None:
            raise Gone(f"the changes after revision {revision - 1} are no longer kept: list again and watch from there")
        return change
