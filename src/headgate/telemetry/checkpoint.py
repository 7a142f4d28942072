"""Keeps the counts of traffic on disk, so that a headgate that was killed continues to count where it was.

Last values and windows are one file, which is replaced as a whole: last values of one moment with windows of another would
count requests twice or not at all.
"""

import asyncio
import logging
import time
from pathlib import Path

import msgspec

from headgate.atomic_file import write_private
from headgate.telemetry.receiver import Checkpoint, Receiver

FILE = "traffic.msgpack"
EVERY = 2.0  # seconds between two writes, at least
SELDOM = 60.0  # seconds between two writes without traffic
REST = 20  # the pause after a write is this many times as long as the write took

log = logging.getLogger(__name__)


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Read a file; return None if it does not exist, or is of another release."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Checkpoint)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s can't be used, so the counts of traffic begin at 0: %s", path, error)
        return None


async def write_checkpoints(receiver: Receiver, path: Path) -> None:
    """Write what changed, every few seconds until cancelled, and once more then. A failing disk is logged once."""
    disk = _Disk(receiver, path)
    try:
        while True:
            began = time.monotonic()
            await disk.write()
            await asyncio.sleep(max(EVERY, REST * (time.monotonic() - began)))
    finally:
        await disk.write(anyhow=True)


class _Disk:
    def __init__(self, receiver: Receiver, path: Path) -> None:
        self._receiver = receiver
        self._path = path
        self._written = -1
        self._next = time.monotonic() + SELDOM
        self._failed = False
        self._writing: asyncio.Future[None] | None = None

    async def write(self, *, anyhow: bool = False) -> None:
        """Write if requests were counted; else only now and then, for the reports that idle series missed."""
        changed = self._receiver.changed
        if changed == self._written and time.monotonic() < self._next and not anyhow:
            return
        try:
            await self._write_alone(await self._receiver.checkpoint())
        except OSError as error:
            if not self._failed:
                log.warning("the counts of traffic can't be kept, so a restart begins at 0: %s", error)
            self._failed = True
        else:
            self._written, self._failed = changed, False
        self._next = time.monotonic() + SELDOM

    async def _write_alone(self, saved: Checkpoint) -> None:
        """Wait for the write before this one: its thread runs on if its task was cancelled, and must not end last."""
        if self._writing:
            await asyncio.wait({self._writing})
        self._writing = asyncio.ensure_future(asyncio.to_thread(_write, self._path, saved))
        await asyncio.shield(self._writing)


def _write(path: Path, saved: Checkpoint) -> None:
    write_private(path, msgspec.msgpack.encode(saved))
