"""What is known about traffic, on disk: a headgate that was killed goes on counting where it was.

Last values and windows are one file, written all at once: with values of one moment and windows of another, requests would
count twice or not at all.
"""

import asyncio
import logging
import time
from pathlib import Path

import msgspec

from headgate.private import write_private
from headgate.telemetry.receiver import Kept, Receiver

FILE = "traffic.msgpack"
EVERY = 2.0  # seconds between two writes, at least
SELDOM = 60.0  # seconds between two writes when there was no traffic
REST = 20  # times as long as a write took nothing is written after it

log = logging.getLogger(__name__)


def read_kept(path: Path) -> Kept | None:
    """Return what is in a file; None when there is none, or it is of another release."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s can't be used, so the counts of traffic begin anew: %s", path, error)
        return None


async def keep(receiver: Receiver, path: Path) -> None:
    """Write what changed, every few seconds until cancelled, and once more then. A disk that fails is told about once."""
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
        """Write if there is something new. Which series are idle is worth a write too, but not a prompt one."""
        changed = self._receiver.changed
        if changed == self._written and time.monotonic() < self._next and not anyhow:
            return
        try:
            await self._alone(await self._receiver.kept())
        except OSError as error:
            if not self._failed:
                log.warning("the counts of traffic can't be kept, a restart begins them anew: %s", error)
            self._failed = True
        else:
            self._written, self._failed = changed, False
        self._next = time.monotonic() + SELDOM

    async def _alone(self, kept: Kept) -> None:
        """Write when nothing else is being written: a thread goes on when its task is cancelled, and must not be the last."""
        if self._writing:
            await asyncio.wait({self._writing})
        self._writing = asyncio.ensure_future(asyncio.to_thread(_write, self._path, kept))
        await asyncio.shield(self._writing)


def _write(path: Path, kept: Kept) -> None:
    write_private(path, msgspec.msgpack.encode(kept))
