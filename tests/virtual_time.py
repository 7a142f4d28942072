"""An event loop whose time passes only while all tasks wait, so that tests of timeouts are exact and take no time."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_SETTLE_S = 0.005  # real seconds in which data arrives on loopback


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 and jumps to the next timer when no socket has events."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        """Return the seconds that have passed."""
        return self.now


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        sockets = len(self.get_map() or {}) > 1  # one is the loop's own
        wait = timeout if timeout is None else min(timeout, _SETTLE_S if sockets else 0.0)
        ready = super().select(wait)
        if not ready and timeout:
            self._loop.now += timeout
        return ready


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario in virtual time. `asyncio.get_running_loop().time()` is its clock."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(scenario)
