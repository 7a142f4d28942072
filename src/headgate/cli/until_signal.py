"""Runs a program of a pod until Kubernetes ends it."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any

from headgate.errors import HeadgateError, single_errors


async def until_signal(work: Coroutine[Any, Any, None], *, plain: type[HeadgateError]) -> None:
    """Do `work` until SIGTERM or SIGINT. Raises errors of the type `plain` not in a group, so that they print no traceback."""
    running = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await running
    except BaseExceptionGroup as group:
        if group.split(plain)[1]:
            raise
        raise single_errors(group)[0] from None
