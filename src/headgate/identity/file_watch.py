"""Watches files for changes that other processes make."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from watchfiles import awatch
from watchfiles._rust_notify import WatchfilesRustInternalError

from headgate.errors import HeadgateError
from headgate.inotify import message_from_watchfiles

_QUIET = 50  # milliseconds without a change before the files are read, as one change may be several writes
_LONGEST_WAIT = 1000  # milliseconds after which the files are read even if changes continue


async def file_changes(paths: Iterable[Path]) -> AsyncIterator[None]:
    """Yield at once, then after each change in the directories of these files. End when a directory can't be watched.

    Raises HeadgateError when the kernel's limit of inotify instances is reached.
    The directories are watched because an update of a mounted Secret replaces a link, and editors replace the file.
    """
    directories = {path.absolute().parent for path in paths}
    events = awatch(*directories, step=_QUIET, debounce=_LONGEST_WAIT, recursive=False, watch_filter=None)
    pending = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)  # the watch is set up before the first yield: no change is missed
    try:
        while True:
            yield
            await pending
            pending = asyncio.ensure_future(anext(events))
    except OSError:
        return
    except WatchfilesRustInternalError as error:
        names = ", ".join(sorted(map(str, directories)))
        reason = message_from_watchfiles(error, "this machine or the pod's node")
        raise HeadgateError(f"changes to files in {names} can't be watched: {reason}") from error
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        await events.aclose()
