"""Following the objects of one kind: all of them, then each change; all again when the watch has expired."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import NamedTuple

from headgate.errors import Gone, Unavailable
from headgate.objects.ports import Change, Reader
from headgate.resources.meta import Object

AGAIN_SECONDS = 1.0  # between two attempts to reach the objects

log = logging.getLogger(__name__)


class Listed(NamedTuple):
    """All objects of a kind at one moment. What a reader knew before and is not among them is gone."""

    items: Sequence[Object]


async def follow(reader: Reader, group: str, kind: str, namespace: str = "") -> AsyncGenerator[Listed | Change]:
    """Yield all objects of a kind, then each change, for ever; begin again when the watch expired or failed."""
    while True:
        try:
            listing = await reader.list(group, kind, namespace)
            yield Listed(listing.items)
            async for change in reader.watch(group, kind, namespace, since=listing.version):
                yield change
        except Gone:
            continue
        except Unavailable as error:
            log.warning("objects of kind %s can't be read, the next attempt is in %g s: %s", kind, AGAIN_SECONDS, error)
            await asyncio.sleep(AGAIN_SECONDS)


async def follow_all(reader: Reader, kinds: Iterable[tuple[str, str]]) -> AsyncGenerator[Listed | Change]:
    """Follow several kinds, given by group and kind, at once. Only the changes of one kind have an order."""
    streams = [follow(reader, group, kind) for group, kind in kinds]
    waiting = {asyncio.ensure_future(anext(stream)): stream for stream in streams}
    try:
        while True:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                stream = waiting.pop(future)
                yield future.result()
                waiting[asyncio.ensure_future(anext(stream))] = stream
    finally:
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            await stream.aclose()
