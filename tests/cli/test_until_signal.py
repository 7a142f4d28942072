"""Programs of pods: Kubernetes ends them by SIGTERM, and an error that users can act on prints no traceback."""

import asyncio
import os
import signal

import pytest

from headgate.cli.until_signal import until_signal
from headgate.errors import HeadgateError, NotFound


async def failing(*errors: Exception) -> None:
    raise ExceptionGroup("tasks", errors)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_work(number: signal.Signals) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            ended.set()

    await until_signal(work(), plain=HeadgateError)
    assert ended.is_set()


async def test_an_error_of_the_type_is_raised_without_its_group() -> None:
    with pytest.raises(NotFound, match="no pod"):
        await until_signal(failing(NotFound("no pod")), plain=HeadgateError)


async def test_a_bug_beside_it_keeps_the_group() -> None:
    with pytest.raises(ExceptionGroup):
        await until_signal(failing(NotFound("no pod"), KeyError("bug")), plain=HeadgateError)
