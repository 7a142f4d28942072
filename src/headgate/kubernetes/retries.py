"""The steps of a reconciliation, repeated until they succeed."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headgate.backoff import pauses
from headgate.errors import HeadgateError

MAX_CONCURRENT_STEPS = 8  # limits the load on the API server

log = logging.getLogger(__name__)


class ReconcileStep(NamedTuple):
    """A step of a reconciliation. `failure` says in the log what a failed attempt could not do, and identifies the step.

    While `content` is the same, a failed step waits before its next attempt.
    """

    failure: str
    work: Callable[[], Awaitable[None]]
    content: str = ""


class FailedAttempt(NamedTuple):
    """The last failed attempt of a step with some content, after which `attempts` in a row have failed.

    The next attempt is due at the time `due`.
    """

    content: str
    error: HeadgateError
    attempts: int
    due: float
    waits: Iterator[float]


class Steps:
    """Runs steps, and repeats those that failed with growing pauses. A failed step does not delay the other ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, FailedAttempt] = {}

    @property
    def failures(self) -> Mapping[str, FailedAttempt]:
        """The last failure of each step whose last attempt failed."""
        return self._failures

    def pause(self) -> float | None:
        """Return the seconds until the next attempt of a failed step; None if no step has failed."""
        due = min((failure.due for failure in self._failures.values()), default=None)
        return None if due is None else max(0.0, due - self._clock())

    async def repeat(self, reconcile: Callable[[], Awaitable[None]], changed: asyncio.Event, failure: str) -> None:
        """Reconcile at once, after each change, and when a failed step is due, until canceled.

        `failure` says in the log what an attempt could not do that raised HeadgateError.
        """
        waits = pauses()
        while True:
            changed.clear()
            try:
                await reconcile()
                waits, pause = pauses(), self.pause()
            except HeadgateError as error:
                pause = next(waits)
                log.warning("%s, next attempt in %.1f s: %s", failure, pause, error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await changed.wait()

    async def run(self, steps: Sequence[ReconcileStep]) -> None:
        """Run all steps except those that wait after a failure. Forget the failures of steps that are missing in `steps`."""
        turns = asyncio.Semaphore(MAX_CONCURRENT_STEPS)

        async def attempt(step: ReconcileStep) -> None:
            async with turns:
                await self._attempt(step)

        names = {step.failure for step in steps}
        self._failures = {name: failure for name, failure in self._failures.items() if name in names}
        await asyncio.gather(*map(attempt, steps))

    async def _attempt(self, step: ReconcileStep) -> None:
        last = self._failures.get(step.failure)
        if last and last.content != step.content:
            last = None
        if last and self._clock() < last.due:
            return
        try:
            await step.work()
        except HeadgateError as error:
            waits = last.waits if last else pauses()
            pause, attempts = next(waits), last.attempts + 1 if last else 1
            self._failures[step.failure] = FailedAttempt(step.content, error, attempts, self._clock() + pause, waits)
            if not last or str(last.error) != str(error):
                log.warning("%s, next attempt in %.1f s: %s", step.failure, pause, error)
        else:
            self._failures.pop(step.failure, None)
