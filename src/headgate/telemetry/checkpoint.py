"""Checkpoints of the traffic counts, so that the next headgate process continues to count.

One state contains the last values of all series and the windows, and is replaced as a whole. If values and windows came
from different moments, requests would count twice or not at all.
"""

import asyncio
import logging
import time
from math import inf

import msgspec

from headgate.errors import StoreError
from headgate.model.latency_buckets import BOUNDS_US
from headgate.model.size_buckets import BOUNDS_BYTES
from headgate.objects.ports import StateStorage
from headgate.telemetry.counters.time_buckets import KEPT
from headgate.telemetry.receiver import Checkpoint, Receiver

NAME = "traffic.msgpack"
IDLE_INTERVAL_S = 60.0  # The time between two writes without traffic.
PAUSE_FACTOR = 20  # The pause after a write, as a multiple of the time that the write took.

log = logging.getLogger(__name__)


async def load_checkpoint(storage: StateStorage) -> Checkpoint | None:
    """Return the saved checkpoint; None if there is none, or if it is unreadable, or has the format or the buckets of another release."""
    try:
        data = await storage.load(NAME)
        checkpoint = None if data is None else msgspec.msgpack.decode(data, type=Checkpoint)
    except (StoreError, msgspec.DecodeError) as error:
        log.warning("%s can't be read, so the traffic counts start at 0: %s", NAME, error)
        return None
    if checkpoint and (checkpoint.latency_bounds, checkpoint.size_bounds) != (BOUNDS_US, BOUNDS_BYTES):
        log.warning("%s has histograms with other buckets than this release, so the traffic counts start at 0", NAME)
        return None
    return checkpoint


async def write_checkpoints(receiver: Receiver, storage: StateStorage) -> None:
    """Write a checkpoint every few seconds if something changed, and once more when canceled.

    If several writes fail in a row, log the first error only.
    """
    writer = _CheckpointWriter(receiver, storage)
    try:
        while True:
            began = time.monotonic()
            await writer.write()
            await asyncio.sleep(max(storage.interval_s, PAUSE_FACTOR * (time.monotonic() - began)))
    finally:
        await writer.write(force=True)


class _CheckpointWriter:
    def __init__(self, receiver: Receiver, storage: StateStorage) -> None:
        self._receiver = receiver
        self._receiver.windows.stored.durable_until = -inf
        self._storage = storage
        self._written = -1
        self._next = time.monotonic() + IDLE_INTERVAL_S
        self._idle_since = time.monotonic()
        self._failed = False
        self._writing: asyncio.Future[None] | None = None

    async def write(self, *, force: bool = False) -> None:
        """Write a checkpoint if requests were counted, or if the last write was a minute ago.

        Without requests, only the number of reports per proxy changes, so a write is less urgent. After `KEPT`
        seconds without requests, the windows are empty and Envoy has evicted all series, so nothing is written.
        """
        changed, now, stored = self._receiver.changed, time.monotonic(), self._receiver.windows.stored
        if changed != self._written:
            self._idle_since = now
        elif not force and (now < self._next or now > self._idle_since + KEPT + IDLE_INTERVAL_S):
            stored.durable_until = self._receiver.windows.now()  # the saved checkpoint has all counts
            return
        try:
            saved = await self._receiver.checkpoint()
            await self._write_alone(saved)
        except StoreError as error:
            if not self._failed:
                log.warning("the traffic counts can't be saved, so they would start at 0 after a restart: %s", error)
            self._failed = True
        else:
            self._written, self._failed, stored.durable_until = changed, False, saved.windows.at
        self._next = time.monotonic() + IDLE_INTERVAL_S

    async def _write_alone(self, saved: Checkpoint) -> None:
        """Wait for the previous write, then write. A write continues after its task is canceled."""
        if self._writing:
            await asyncio.wait({self._writing})
        self._writing = asyncio.ensure_future(self._storage.save(NAME, msgspec.msgpack.encode(saved)))
        await asyncio.shield(self._writing)
