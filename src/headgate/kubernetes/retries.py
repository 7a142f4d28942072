"""The steps of a reconciliation, repeated until they succeed."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from headgate.backoff import Backoff
from headgate.errors import HeadgateError
from headgate.latest import wait_for_any

MAX_CONCURRENT_STEPS = 8  # limits the load on the API server


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
    backoff: Backoff


class Steps:
    """Runs steps, and repeats those that failed with growing pauses. A failed step does not delay the other ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, FailedAttempt] = {}

    @property
    def failures(self) -> Mapping[str, FailedAttempt]:
        """The last failure of each step whose last attempt failed."""
        return self._failures

    async def wait(self, *events: asyncio.Event, longest_s: float | None = None) -> None:
        """Wait for an event, until the next attempt of a failed step is due, or for `longest_s` seconds."""
        pauses = [max(0.0, failure.due - self._clock()) for failure in self._failures.values()]
        pauses += [] if longest_s is None else [longest_s]
        await wait_for_any(*(event.wait() for event in events), *([asyncio.sleep(min(pauses))] if pauses else []))

    async def repeat(self, reconcile: Callable[[], Awaitable[None]], changed: asyncio.Event, failure: str) -> None:
        """Reconcile at once, after each change, and when a failed step is due, until canceled.

        `failure` says in the log what an attempt could not do that raised HeadgateError.
        """
        backoff = Backoff()
        while True:
            changed.clear()
            pause = None
            try:
                await reconcile()
                backoff.reset()
            except HeadgateError as error:
                pause = backoff.pause_after(error, failure)
            await self.wait(changed, longest_s=pause)

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
            backoff, attempts = (last.backoff, last.attempts + 1) if last else (Backoff(), 1)
            is_repeated = last is not None and str(last.error) == str(error)
            pause = backoff.next_pause() if is_repeated else backoff.pause_after(error, step.failure)
            self._failures[step.failure] = FailedAttempt(step.content, error, attempts, self._clock() + pause, backoff)
        else:
            self._failures.pop(step.failure, None)
