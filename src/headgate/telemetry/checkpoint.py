"""Checkpoints of the traffic counts on disk, so that a restarted headgate continues to count.

One file contains the last values of all series and the windows, and is replaced as a whole. If values and windows came
from different moments, requests would count twice or not at all.
"""

import asyncio
import logging
import time
from pathlib import Path

import msgspec

from headgate.atomic_file import write_private
from headgate.telemetry.receiver import Checkpoint, Receiver

FILE = "traffic.msgpack"
INTERVAL_S = 2.0  # the shortest time between two writes
IDLE_INTERVAL_S = 60.0  # the time between two writes without traffic
PAUSE_FACTOR = 20  # the pause after a write, as a multiple of the time that the write took

log = logging.getLogger(__name__)


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Read a checkpoint; return None if the file does not exist, or has the format of another release."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Checkpoint)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s can't be read, so the traffic counts start at 0: %s", path, error)
        return None


async def write_checkpoints(receiver: Receiver, path: Path) -> None:
    """Write a checkpoint every few seconds if something changed, and once more when canceled.

    If several writes fail in a row, log the first error only.
    """
    writer = _CheckpointWriter(receiver, path)
    try:
        while True:
            began = time.monotonic()
            await writer.write()
            await asyncio.sleep(max(INTERVAL_S, PAUSE_FACTOR * (time.monotonic() - began)))
    finally:
        await writer.write(force=True)


class _CheckpointWriter:
    def __init__(self, receiver: Receiver, path: Path) -> None:
        self._receiver = receiver
        self._path = path
        self._written = -1
        self._next = time.monotonic() + IDLE_INTERVAL_S
        self._failed = False
        self._writing: asyncio.Future[None] | None = None

    async def write(self, *, force: bool = False) -> None:
        """Write a checkpoint if requests were counted, and at least once a minute.

        Without requests, only the numbers of the proxies' reports change, so a write is less urgent.
        """
        changed = self._receiver.changed
        if changed == self._written and time.monotonic() < self._next and not force:
            return
        try:
            await self._write_alone(await self._receiver.checkpoint())
        except OSError as error:
            if not self._failed:
                log.warning("the traffic counts can't be saved, so they would start at 0 after a restart: %s", error)
            self._failed = True
        else:
            self._written, self._failed = changed, False
        self._next = time.monotonic() + IDLE_INTERVAL_S

    async def _write_alone(self, saved: Checkpoint) -> None:
        """Wait for the previous write, then write. The thread of a write continues after its task is canceled."""
        if self._writing:
            await asyncio.wait({self._writing})
        self._writing = asyncio.ensure_future(asyncio.to_thread(_write, self._path, saved))
        await asyncio.shield(self._writing)


def _write(path: Path, saved: Checkpoint) -> None:
    write_private(path, msgspec.msgpack.encode(saved))
