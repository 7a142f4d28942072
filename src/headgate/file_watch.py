"""Watches files and directories for changes that other processes make."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path

from watchfiles import Change, awatch
from watchfiles._rust_notify import WatchfilesRustInternalError

from headgate.errors import HeadgateError
from headgate.inotify import message_from_watchfiles

_QUIET = 50  # milliseconds without a change before the files are read, as one change may be several writes
_LONGEST_WAIT = 1000  # milliseconds after which the files are read even if changes continue


class WatchError(HeadgateError):
    """The kernel's limit of inotify instances is reached, so no file can be watched."""


async def directory_changes(
    directories: Iterable[Path], machine: str, visible: Callable[[Change, str], bool] | None = None
) -> AsyncGenerator[None]:
    """Yield at once, then after each change in directories; with a filter `visible`, below them too.

    Raises OSError when a directory can't be watched, and WatchError, which names the `machine` whose limit is reached.
    """
    events = awatch(
        *directories, step=_QUIET, debounce=_LONGEST_WAIT, recursive=visible is not None, watch_filter=visible
    )
    pending = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)  # the watch is set up before the first yield: no change is missed
    try:
        while True:
            yield
            await pending
            pending = asyncio.ensure_future(anext(events))
    except WatchfilesRustInternalError as error:
        raise WatchError(message_from_watchfiles(error, machine)) from error
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        await events.aclose()


async def file_changes(paths: Iterable[Path]) -> AsyncGenerator[None]:
    """Yield at once, then after each change in the directories of these files. End when a directory can't be watched.

    Raises HeadgateError when the kernel's limit of inotify instances is reached.
    The directories are watched because an update of a mounted Secret replaces a link, and editors replace the file.
    """
    directories = {path.absolute().parent for path in paths}
    try:
        async with contextlib.aclosing(directory_changes(directories, "this machine or the pod's node")) as changes:
            async for _ in changes:
                yield
    except OSError:
        return
    except WatchError as error:
        names = ", ".join(sorted(map(str, directories)))
        raise HeadgateError(f"changes to files in {names} can't be watched: {error}") from error
