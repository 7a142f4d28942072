"""Wait in a test for what other threads and processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

from tests.wire import DEADLINE_S

T = TypeVar("T")
POLL_S = 0.02
LONGEST_POLL_S = 0.2


def until(
    condition: Callable[[], T | None],
    what: str = "",
    seconds: float = DEADLINE_S,
    *,
    poll: float = POLL_S,
    longest: float = LONGEST_POLL_S,
) -> T:
    """Call `condition` until it returns a true value; return that value.

    The first pause between two calls is `poll` seconds. Pauses become longer, up to `longest` seconds, because a call may take
    as much processor time as what the test waits for. AssertionError and LookupError of `condition` count as false. Raises AssertionError after
    `seconds`.
    """
    start = time.monotonic()
    while True:
        begun = time.monotonic()
        try:
            if found := condition():
                return found
            failure = ""
        except (AssertionError, LookupError) as error:
            failure = repr(error)
        now = time.monotonic()
        assert now < start + seconds, f"not within {seconds} s: {what or condition} {failure}"
        longer = min((now - start) / 10, longest)
        time.sleep(max(poll, now - begun, longer))  # leave at least half of the CPU time to other processes
