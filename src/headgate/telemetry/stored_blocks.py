"""Makes blocks of the stored windows, saves them as they are made, and restores them at the start (R85)."""

import asyncio
import logging
import zlib
from collections.abc import Sequence

import msgspec

from headgate.errors import StoreError
from headgate.model.latency_buckets import BOUNDS_US
from headgate.model.size_buckets import BOUNDS_BYTES
from headgate.objects.ports import StateStorage
from headgate.resources.meta import Value
from headgate.telemetry.counters.blocks import DamagedBlock, WindowBlock, merge_blocks, pack_block
from headgate.telemetry.counters.stored_windows import (
    BLOCK_S,
    LONG_BLOCK_S,
    LONG_KEPT_S,
    LONG_S,
    SHORT_KEPT_S,
    SHORT_S,
    StoredWindows,
)
from headgate.telemetry.windows import Windows

VERSION = 1  # changes when the order of counters changes
LATEST_S = 2 * BLOCK_S  # Seconds until a block is made although no checkpoint has its counts; it is never saved.
_DELAY_S = 0.1  # after the end of a window
_SLOTS = {"short": SHORT_KEPT_S // BLOCK_S + 1, "long": LONG_KEPT_S // LONG_BLOCK_S + 1}
"""The numbers of states: a new block replaces the state of a block that is too old."""

log = logging.getLogger(__name__)


class SavedBlock(Value, frozen=True, kw_only=True):
    """A block in its saved format: a `WindowBlock` as MessagePack, with its CRC-32 as `checksum`.

    The bounds are those of the histograms, whose counts mean nothing with other bounds.
    """

    version: int
    latency_bounds: tuple[int, ...]
    size_bounds: tuple[int, ...]
    checksum: int
    block: bytes


class BlockKeeper:
    """Makes the blocks of ended windows. With a `storage`, it saves them, and restores those of an earlier process.

    If several writes fail in a row, it logs the first error only.
    """

    def __init__(self, windows: Windows, storage: StateStorage | None) -> None:
        self._windows = windows
        self._storage = storage
        self._saved: set[str] = set()
        self._unsaved: dict[str, WindowBlock] = {}
        self._failed = False

    async def restore(self) -> None:
        """Restore the saved blocks. Call this before a checkpoint is restored, and before anything is counted."""
        if self._storage is None:
            return
        blocks: dict[str, WindowBlock] = {}
        for name in (f"{kind}-{number}" for kind, count in _SLOTS.items() for number in range(count)):
            if block := await _load(self._storage, name):
                blocks[name] = block
        short, long = ([block for name, block in blocks.items() if name.startswith(kind)] for kind in _SLOTS)
        self._windows.stored.restore_blocks(short, long, self._windows.now())
        self._saved = set(blocks)

    async def run(self) -> None:
        """Keep blocks at the end of each window until canceled."""
        while True:
            await self.keep()
            await asyncio.sleep(SHORT_S - self._windows.now() % SHORT_S + _DELAY_S)

    async def keep(self) -> None:
        """Close the window that has ended, make the blocks that are due, and save them.

        Until a block is saved, its windows remain in the next checkpoint: an end in between loses no window.
        """
        stored = self._windows.stored
        stored.advance(self._windows.now())
        while buckets := stored.due():
            end = buckets[-1].end
            is_durable, is_late = stored.durable_until >= end, self._windows.now() >= end + LATEST_S
            if not is_durable and not is_late:
                break
            block = await asyncio.to_thread(pack_block, buckets, self._windows.flow_of())
            if is_durable and not await self._save(_name("short", block), block) and not is_late:
                break
            stored.put(block, buckets)
        while blocks := stored.due_merge(self._windows.now()):
            try:
                block = await asyncio.to_thread(merge_blocks, blocks, LONG_S)
            except DamagedBlock as error:
                log.warning("%s, so they are missing", error)
                stored.drop(error.block)
                continue
            stored.put_merged(block)
            if stored.durable_until >= block.end:
                await self._save(_name("long", block), block)
        stored.trim(self._windows.now())
        await self._synchronize()

    async def _synchronize(self) -> None:
        """Clear the states of dropped blocks, and save the blocks whose last write failed."""
        names = set(_names(self._windows.stored))
        for name in self._saved - names:
            if not await self._write(name, b""):
                return
            self._saved.discard(name)
        for name, block in list(self._unsaved.items()):
            if name not in names:
                del self._unsaved[name]
            elif not await self._save(name, block):
                return

    async def _save(self, name: str, block: WindowBlock) -> bool:
        """Save a block if there is a storage; return False if that failed."""
        if self._storage is None:
            return True
        self._unsaved[name] = block
        if not await self._write(name, await asyncio.to_thread(_encode, block)):
            return False
        self._saved.add(name)
        self._failed = False
        del self._unsaved[name]
        return True

    async def _write(self, name: str, state: bytes) -> bool:
        try:
            if self._storage:
                await self._storage.save(name, state)
        except StoreError as error:
            if not self._failed:
                log.warning(
                    "the windows of traffic counts can't be saved, so they would be lost by a restart: %s", error
                )
            self._failed = True
            return False
        return True


def _names(stored: StoredWindows) -> Sequence[str]:
    return [*(_name("short", block) for block in stored.short), *(_name("long", block) for block in stored.long)]


def _name(kind: str, block: WindowBlock) -> str:
    """Return the name of a block's state: `short-0` to `short-60`, `long-0` to `long-144`."""
    length = BLOCK_S if kind == "short" else LONG_BLOCK_S
    return f"{kind}-{int(block.start // length) % _SLOTS[kind]}"


async def _load(storage: StateStorage, name: str) -> WindowBlock | None:
    """Return a saved block; None if there is none, or if it is damaged, or has the counters of another release."""
    try:
        if not (data := await storage.load(name)):
            return None
        return await asyncio.to_thread(_decode, data)
    except (StoreError, msgspec.DecodeError) as error:
        log.warning("windows of traffic counts (%s) can't be read, so they are missing: %s", name, error)
        return None


def _decode(data: bytes) -> WindowBlock | None:
    """Return a block; None if another release saved it. Raises msgspec.DecodeError."""
    saved = msgspec.msgpack.decode(data, type=SavedBlock)
    if (saved.version, saved.latency_bounds, saved.size_bounds) != (VERSION, BOUNDS_US, BOUNDS_BYTES):
        return None
    if zlib.crc32(saved.block) != saved.checksum:
        raise msgspec.DecodeError("its checksum is wrong")
    return msgspec.msgpack.decode(saved.block, type=WindowBlock)


def _encode(block: WindowBlock) -> bytes:
    encoded = msgspec.msgpack.encode(block)
    saved = SavedBlock(
        version=VERSION,
        latency_bounds=BOUNDS_US,
        size_bounds=BOUNDS_BYTES,
        checksum=zlib.crc32(encoded),
        block=encoded,
    )
    return msgspec.msgpack.encode(saved)
