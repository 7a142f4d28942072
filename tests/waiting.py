"""Wait in a test for what other threads and processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

from tests.wire import DEADLINE_S

T = TypeVar("T")
POLL_S = 0.02


def until(condition: Callable[[], T | None], what: str = "", seconds: float = DEADLINE_S, *, poll: float = POLL_S) -> T:
    """Call `condition` every `poll` seconds until it returns a true value; return that value.

    AssertionError and LookupError of `condition` count as false. Raises AssertionError after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        try:
            if found := condition():
                return found
            failure = ""
        except (AssertionError, LookupError) as error:
            failure = repr(error)
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition} {failure}"
        time.sleep(max(poll, time.monotonic() - begun))  # leave half of the CPU time to other processes
