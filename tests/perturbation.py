"""Perturbs the tests of a process, or a program of headgate: sockets, timers and threads are held back at random, as on a busy machine.

A test that reads once what becomes true later fails in one of a hundred runs on a busy machine, and in one of a few runs here.
"""

import argparse
import asyncio
import contextlib
import math
import random
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import uvloop

P = ParamSpec("P")
T = TypeVar("T")
HELD, STALLED, LATE = 0.25, 0.01, 0.3
"""The shares of ready sockets that are held, of waits that stall their event loop, and of timers and threads that begin late."""
_NAP_S = 0.0005
VARIABLE = "HEADGATE_TESTS_HOLD_MS"
"""Names the longest hold in milliseconds to the processes of a run that start programs."""


def milliseconds(text: str) -> float:
    """Return the longest hold that an option requests, in milliseconds. Raises ArgumentTypeError."""
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"must be a number of milliseconds above 0, not {text!r}")


class Holds:
    """Draws the seconds of holds, at most `longest`; most of them are short."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._random = random.Random()

    def draw(self, share: float) -> float:
        """Return the seconds of a hold for this share of the calls, otherwise 0."""
        return self._longest * self._random.random() ** 3 if self._random.random() < share else 0.0


class HoldingSelector(selectors.DefaultSelector):
    """Reports some ready sockets later than they are ready, and returns late sometimes. It loses none."""

    def __init__(self, holds: Holds) -> None:
        super().__init__()
        self._holds = holds
        self._until: dict[int, float] = {}  # by file descriptor: the time at which a ready socket is reported

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            ready = super().select(self._wait(end))
            now = time.monotonic()
            reported = [event for event in ready if self._is_due(event[0].fd, now)]
            still = {key.fd for key, _ in ready}
            self._until = {fd: until for fd, until in self._until.items() if fd in still and until > now}
            if reported or (end is not None and now >= end):
                time.sleep(self._holds.draw(STALLED))
                return reported
            if ready:
                time.sleep(_NAP_S)  # a held socket ends each wait at once

    def _wait(self, end: float | None) -> float | None:
        """Return the seconds until the end of the wait, or until the first hold ends."""
        ends = [*self._until.values(), *([] if end is None else [end])]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _is_due(self, fd: int, now: float) -> bool:
        """Return whether a ready socket is reported now; decide about a hold when it becomes ready."""
        return self._until.setdefault(fd, now + self._holds.draw(HELD)) <= now


def perturb(longest: float) -> None:
    """Hold back what the event loops and the thread pools of this process do, by at most `longest` seconds each time."""
    holds = Holds(longest)
    begin, call_at, submit = (
        asyncio.SelectorEventLoop.__init__,
        asyncio.BaseEventLoop.call_at,
        ThreadPoolExecutor.submit,
    )

    def begin_holding(loop: asyncio.SelectorEventLoop, selector: selectors.BaseSelector | None = None) -> None:
        begin(loop, selector or HoldingSelector(holds))

    def call_late(loop: asyncio.BaseEventLoop, when: float, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        real = isinstance(getattr(loop, "_selector", None), HoldingSelector)  # tests in virtual time are exact
        return call_at(loop, when + (holds.draw(LATE) if real else 0.0), *args, **kwargs)

    def held(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        time.sleep(holds.draw(LATE))
        return call(*args, **kwargs)

    def submit_held(self: ThreadPoolExecutor, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return submit(self, held, call, *args, **kwargs)

    uvloop.run = asyncio.run  # type: ignore[assignment]  # uvloop is written in C and can't be perturbed
    asyncio.SelectorEventLoop.__init__ = begin_holding  # type: ignore[assignment,method-assign]
    asyncio.BaseEventLoop.call_at = call_late  # type: ignore[assignment,method-assign]
    ThreadPoolExecutor.submit = submit_held  # type: ignore[assignment,method-assign]
