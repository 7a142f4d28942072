"""The slices of the status writer, which limit its share of the processor time."""

import time
from collections.abc import Callable

SETTLE_SECONDS = 0.02  # the shortest pause before a slice; all answers during the pause share one status update
SLICE_SECONDS = 0.02  # the length of a slice, after which the writer yields the event loop to other tasks
PAUSE_FACTOR = 3  # the pause after a slice, as a multiple of its processor time


class Slice:
    """A slice of work that begins now. Times are seconds.

    `work_clock` returns the processor time of this thread. It also grows while other tasks run, but not while the writer
    waits for an API server.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, work_clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._work_clock = clock, work_clock
        self._began, self._worked = clock(), work_clock()
        self._rested = self._began

    @property
    def is_over(self) -> bool:
        """Whether the slice has lasted `SLICE_SECONDS`."""
        return self._clock() - self._began >= SLICE_SECONDS

    @property
    def work(self) -> float:
        """The processor time since the slice began."""
        return self._work_clock() - self._worked

    def end(self) -> None:
        """End the slice; the next one may begin after a multiple of its processor time."""
        self._rested = self._clock() + PAUSE_FACTOR * self.work

    def pause(self) -> float:
        """Return how long to wait before the next slice."""
        return max(SETTLE_SECONDS, self._rested - self._clock())
