"""How much of the time work that can wait may take: it works in slices, and rests for longer than it worked."""

import time
from collections.abc import Callable

SETTLE_SECONDS = 0.02  # lets the proxies' answers to a change arrive, so that one status tells it all
PATIENCE_SECONDS = 0.25  # at most between two answers, if they take longer
LONGEST_SECONDS = 1.0  # at most for all answers
SLICE_SECONDS = 0.02  # of work; then the streams have their turn
REST = 3  # times as long as the work took
ROUND_REST = 9  # the same after a round


class Pace:
    """Measures work, and says how long to rest. Times are seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._rested = self._began  # when the rest after the last slice is over
        self._next_round = self._began
        self._round = 0.0
        self._noticed: float | None = None  # when something happened that was not looked at yet
        self._answers = 0
        self._answered = self._began

    def notice(self, answers: int) -> None:
        """Note that something happened, and how many answers have come since the start."""
        now = self._clock()
        if self._noticed is None:
            self._noticed = self._answered = now
        if self._answers != answers:
            self._answers, self._answered = answers, now

    def looked(self) -> None:
        """Note that all that happened was looked at."""
        self._noticed = None

    def patience(self) -> float:
        """Return how long proxies may still take to answer until what happened is looked at all the same."""
        if self._noticed is None:
            return 0.0
        return min(self._answered + PATIENCE_SECONDS, self._noticed + LONGEST_SECONDS) - self._clock()

    def pause(self) -> float:
        """Return how long to wait before the next slice."""
        return max(SETTLE_SECONDS, self._rested - self._clock())

    def begin(self) -> None:
        """Begin a slice."""
        self._began = self._clock()

    @property
    def is_slice_over(self) -> bool:
        """Say whether the slice has taken its time."""
        return self._clock() - self._began >= SLICE_SECONDS

    def end(self) -> None:
        """End a slice."""
        now = self._clock()
        self._rested = now + REST * (now - self._began)

    def spend_on_round(self, seconds: float) -> None:
        """Note work for a round: the next one waits for it."""
        self._round += seconds
        self._next_round = self._clock() + ROUND_REST * self._round

    def begin_round(self) -> None:
        """Begin a round."""
        self._round = 0.0

    def until_round(self) -> float:
        """Return how long to wait until a round may begin; 0 or less when it may now."""
        return self._next_round - self._clock()
