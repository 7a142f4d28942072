"""Repeated attempts: which pause comes before the next one, and what the log says about a failed one."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

FIRST_S, LONGEST_S = 0.2, 20.0
_EMPTY_S = 1.0  # a stream without a value that lasts less long has failed, as in client-go
T = TypeVar("T")

log = logging.getLogger(__name__)


def exact() -> float:
    """Return the largest share: pauses with it as `draw` have no random part. For pauses that a message names before."""
    return 1.0


class Backoff:
    """The pauses of one loop before its next attempts: they grow from `first_s` up to `longest_s`.

    Half of each is the share that `draw` returns, from 0 to 1: random, so that many clients of an API server that has
    restarted spread their attempts. The pauses begin again after `reset`, and after an attempt that was marked by
    `begin` and lasted longer than `steady_s`.
    """

    def __init__(
        self,
        *,
        first_s: float = FIRST_S,
        longest_s: float = LONGEST_S,
        growth: float = 2.0,
        steady_s: float | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._first_s, self._longest_s, self._growth = min(first_s, longest_s), longest_s, growth
        self._steady_s = steady_s
        self._draw = draw
        self._limit_s = self._first_s
        self._began = 0.0

    def begin(self) -> None:
        """Mark the begin of an attempt, for `steady_s`."""
        self._began = asyncio.get_running_loop().time()

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self._limit_s = self._first_s

    def next_pause(self) -> float:
        """Return the seconds to wait before the next attempt."""
        if self._steady_s is not None and asyncio.get_running_loop().time() - self._began > self._steady_s:
            self.reset()
        limit_s = self._limit_s
        self._limit_s = min(self._growth * limit_s, self._longest_s)
        return limit_s / 2 + limit_s / 2 * self._draw()

    def pause_after(self, error: Exception, failure: str) -> float:
        """Return the seconds to wait after a failed attempt. Log them, the error, and `failure`: what it could not do."""
        pause = self.next_pause()
        log.warning("%s, next attempt in %.1f s: %s", failure, pause, error)
        return pause


Wait = Callable[[Exception, float], Awaitable[None]]
"""A function that reports the error of a failed attempt, and waits for a number of seconds. It may raise to end the attempts."""


async def until_done(
    attempt: Callable[[], Awaitable[T]],
    failure: str | Wait,
    *,
    on: type[Exception] | tuple[type[Exception], ...],
    backoff: Backoff | None = None,
) -> T:
    """Repeat an attempt that raises `on`, with growing pauses; return its result. Raises what it raises otherwise.

    `failure` says in the log what a failed attempt could not do; if it is empty, nothing is logged.
    """
    backoff = backoff or Backoff()
    while True:
        try:
            return await attempt()
        except on as error:
            await _pause(backoff, error, failure)


async def restarted(
    stream: Callable[[], AsyncGenerator[T]],
    failure: str | Wait,
    *,
    on: type[Exception] | tuple[type[Exception], ...],
    backoff: Backoff,
) -> AsyncGenerator[T]:
    """Yield the values of a stream without end: begin it again when it ends, and after a pause when it raises `on`.

    `failure` is as in `until_done`. The stream resets the backoff when it works again. A stream that ends at once without a value also
    begins again after a pause: its server would get requests without an end.
    """
    clock = asyncio.get_running_loop().time
    while True:
        backoff.begin()
        is_empty, began = True, clock()
        try:
            async with contextlib.aclosing(stream()) as values:
                async for value in values:
                    is_empty = False
                    yield value
            if is_empty and clock() - began < _EMPTY_S:
                await asyncio.sleep(backoff.next_pause())
        except on as error:
            await _pause(backoff, error, failure)


async def _pause(backoff: Backoff, error: Exception, failure: str | Wait) -> None:
    if callable(failure):
        await failure(error, backoff.next_pause())
    else:
        await asyncio.sleep(backoff.pause_after(error, failure) if failure else backoff.next_pause())
