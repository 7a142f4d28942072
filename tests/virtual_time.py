"""An event loop whose time passes only while all tasks wait, so that tests of timeouts are exact and take no time."""

import asyncio
import contextlib
import fcntl
import selectors
import termios
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_SETTLE_S = 0.005  # real seconds in which data arrives on loopback
_LONGEST_SETTLES = 100  # while the kernel has data that no socket has received yet: it delays them on a busy machine


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
        if not ready and timeout and sockets:
            for _ in range(_LONGEST_SETTLES):
                if ready or not self._is_sending():
                    break
                ready = super().select(wait)
        if not ready and timeout:
            self._loop.now += timeout
        return ready

    def _is_sending(self) -> bool:
        """Return whether a socket has sent bytes that the other end has not acknowledged."""
        for key in self.get_map().values():
            with contextlib.suppress(OSError):  # no TCP connection
                if any(fcntl.ioctl(key.fd, termios.TIOCOUTQ, bytes(4))):
                    return True
        return False


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario in virtual time. `asyncio.get_running_loop().time()` is its clock."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(scenario)
