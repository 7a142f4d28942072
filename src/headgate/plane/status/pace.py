"""The pauses of the status writer, which limit its share of the processor time and the number of its writes."""

import math
import time
from collections.abc import Callable

SETTLE_SECONDS = 0.02  # the shortest pause before a slice; all answers during the pause share one status update
ANSWER_QUIET_SECONDS = 0.25  # the wait for answers of lagging proxies, from the last change of any proxy
MAX_WAIT_SECONDS = 1.0  # the longest wait for lagging proxies, and the longest pause between observations
SLICE_SECONDS = 0.02  # the length of a slice, after which the writer yields the event loop to other tasks
PAUSE_FACTOR = 3  # the pause after a slice, as a multiple of its processor time
OBSERVATION_PAUSE_FACTOR = 9  # the pause after an observation or a full pass, as a multiple of its processor time
MEMBERSHIP_QUIET_SECONDS = 0.25  # a full pass begins after this time without a connecting or disconnecting proxy
RECONNECT_SECONDS = 1.0  # the wait for a proxy whose stream has ended: it reconnects, for example with a new token
MAX_MEMBERSHIP_SECONDS = 2.0  # the longest delay of a full pass while proxies connect and disconnect
TAKEOVER_SECONDS = 30.0  # the longest wait for the proxies of an earlier process: they try every 3 s to reconnect
COUNT_QUIET_SECONDS = 0.5  # the wait for further routes before the number of attached routes is written
MAX_COUNT_SECONDS = 5.0  # the longest wait while more and more routes are attached


class Debounce:
    """Debounces events. A wait ends `quiet` seconds after the last event, at most `longest` seconds after the first."""

    def __init__(self, quiet: float, longest: float, clock: Callable[[], float]) -> None:
        self._quiet, self._longest, self._clock = quiet, longest, clock
        self._first: float | None = None
        self._end = 0.0

    def note(self, quiet: float | None = None) -> None:
        """Start the wait, or extend it if an event came before. `quiet` is for this event only."""
        now = self._clock()
        self._end = now + (self._quiet if quiet is None else quiet)
        if self._first is None:
            self._first = now

    def left(self) -> float:
        """Return the seconds left to wait; 0 or less if the wait is over, or if there was no event."""
        return 0.0 if self._first is None else min(self._end, self._first + self._longest) - self._clock()

    def end(self) -> None:
        """End the wait; the next event begins a new wait."""
        self._first = None


class CountDelay:
    """Delays writes of a Gateway's status that only change the numbers of attached routes.

    A change is written at once if the last write was `MAX_COUNT_SECONDS` ago. Other changes are written once there was
    no further change for `COUNT_QUIET_SECONDS`, but at least every `MAX_COUNT_SECONDS`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._debounce = Debounce(COUNT_QUIET_SECONDS, MAX_COUNT_SECONDS, clock)
        self._clock = clock
        self._written = -math.inf
        self._wanted: object = None

    def left(self, status: object) -> float:
        """Return how long to wait before writing `status`; 0 or less if it may be written now."""
        if status != self._wanted:
            self._wanted = status
            self._debounce.note()
        recent = self._clock() - self._written < MAX_COUNT_SECONDS
        left = self._debounce.left() if recent else 0.0
        if left <= 0:
            self._debounce.end()
            self._written = self._clock()
        return left


class Pace:
    """Measures the writer's work, and returns how long to pause. Times are seconds.

    `work_clock` returns the processor time of this thread. It also grows while other tasks run, but not while the writer
    waits for an API server. `membership` debounces connects and disconnects of proxies.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, work_clock: Callable[[], float] = time.thread_time
    ) -> None:
        self.membership = Debounce(MEMBERSHIP_QUIET_SECONDS, MAX_MEMBERSHIP_SECONDS, clock)
        self._answering = Debounce(ANSWER_QUIET_SECONDS, MAX_WAIT_SECONDS, clock)
        self._clock, self._work_clock = clock, work_clock
        self._began, self._worked = clock(), work_clock()  # when the slice began, and what the work clock was then
        self._rested = self._next_observation = self._next_pass = self._began  # the times at which the pauses end
        self._observation = self._pass = 0.0  # seconds of work in the last observation and full pass
        self._changes: int | None = None  # the last argument of `note_change`; None after an observation

    def note_change(self, changes: int) -> None:
        """Extend the wait for answers if `changes`, the fleet's change count, differs from that in the last call."""
        if self._changes != changes:
            self._changes = changes
            self._answering.note()

    def answer_wait(self) -> float:
        """Return how long to wait for answers of lagging proxies; 0 or less if the wait is over."""
        return self._answering.left()

    def begin_observation(self) -> None:
        """Begin an observation."""
        self._observation, self._changes = 0.0, None
        self._answering.end()

    def spend_on_observation(self, seconds: float) -> None:
        """Add `seconds` of work to the current observation, and delay the next observation in proportion."""
        self._observation += seconds
        self._next_observation = self._clock() + min(OBSERVATION_PAUSE_FACTOR * self._observation, MAX_WAIT_SECONDS)

    def until_observation(self) -> float:
        """Return how long to wait until the next observation; 0 or less if it may begin now."""
        return self._next_observation - self._clock()

    def pause(self) -> float:
        """Return how long to wait before the next slice."""
        return max(SETTLE_SECONDS, self._rested - self._clock())

    def begin(self) -> None:
        """Begin a slice."""
        self._began, self._worked = self._clock(), self._work_clock()

    @property
    def is_slice_over(self) -> bool:
        """Whether the slice has lasted `SLICE_SECONDS`."""
        return self._clock() - self._began >= SLICE_SECONDS

    @property
    def work(self) -> float:
        """The seconds of work since the slice began."""
        return self._work_clock() - self._worked

    def end(self) -> None:
        """End a slice."""
        self._rested = self._clock() + PAUSE_FACTOR * self.work

    def spend_on_pass(self, seconds: float) -> None:
        """Add `seconds` of work to the current full pass, and delay the next full pass in proportion."""
        self._pass += seconds
        self._next_pass = self._clock() + OBSERVATION_PAUSE_FACTOR * self._pass

    def begin_pass(self) -> None:
        """Begin a full pass."""
        self._pass = 0.0
        self.membership.end()

    def until_pass(self) -> float:
        """Return how long to wait until a full pass may begin; 0 or less if it may begin now."""
        return max(self._next_pass - self._clock(), self.membership.left())
