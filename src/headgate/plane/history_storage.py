"""Loads the history, and saves it in the state storage of the host: a base and a ring of segments (`history.segments`)."""

import asyncio
import logging

from headgate.errors import StoreError
from headgate.history.revisions import Log
from headgate.history.segments import SLOTS, DamagedHistory, Stored, Writes, decode, store
from headgate.objects.ports import StateStorage

BASE = "history-base"

log = logging.getLogger(__name__)


def _slot(number: int) -> str:
    return f"history-{number}"


class HistoryStorage:
    """The stored history. Without a `storage`, the history has the same limits, and ends with the process."""

    def __init__(self, storage: StateStorage | None) -> None:
        self._storage = storage
        self._stored: Stored | None = None
        self.interval_s = storage.interval_s if storage else 0.0

    async def load(self) -> Log | None:
        """Return the saved history; None if there is none, or if it is damaged."""
        if self._storage is None:
            return None
        try:
            base = await self._storage.load(BASE)
            if base is None:
                return None
            slots = [await self._storage.load(_slot(number)) or b"" for number in range(SLOTS)]
            self._stored = await asyncio.to_thread(decode, base, slots)
        except (StoreError, DamagedHistory) as error:
            log.warning("the history can't be read, so it begins again: %s", error)
            return None
        return self._stored.log

    async def save(self, current: Log) -> Log:
        """Save a history, and return it without the revisions that exceed its limits. Raises Unavailable."""
        start = self._stored or Stored.starting(current)
        writes = await asyncio.to_thread(store, start, current)
        if self._storage:
            await self._write(self._storage, writes)
        self._stored = writes.stored
        return writes.stored.log

    async def _write(self, storage: StateStorage, writes: Writes) -> None:
        if writes.base is not None:
            await storage.save(BASE, writes.base)
        for slot, data in writes.segments:
            await storage.save(_slot(slot), data)
        used = {segment.slot for segment, _ in writes.stored.segments}
        unused = range(SLOTS) if self._stored is None else writes.cleared
        for slot in (slot for slot in unused if slot not in used):
            if await storage.load(_slot(slot)):
                await storage.save(_slot(slot), b"")
