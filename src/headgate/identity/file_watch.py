"""Files that somebody else writes: what they hold, and a word when they change."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from watchfiles import awatch

_QUIET = 50  # ms without a change, then the files are read: whoever writes them has written all by then
_LONGEST_WAIT = 1000  # ms


async def file_changes(paths: Iterable[Path]) -> AsyncIterator[None]:
    """Yield at once, then whenever something changes in the directories of some files, for ever.

    Directories, because a mounted Secret is changed by replacing a link, and an editor replaces the file. One that can't
    be watched ends it.
    """
    directories = {path.absolute().parent for path in paths}
    events = awatch(*directories, step=_QUIET, debounce=_LONGEST_WAIT, recursive=False, watch_filter=None)
    pending = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)  # the watch is set up now: nothing falls between the first reading and it
    try:
        while True:
            yield
            await pending
            pending = asyncio.ensure_future(anext(events))
    except OSError:
        return
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        await events.aclose()
