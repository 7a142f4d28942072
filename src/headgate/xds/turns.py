"""Turns of streams: few proxies at a time are brought up to date, however many connect at once.

A proxy's first configuration is megabytes. A thousand of them sent side by side take gigabytes of memory, and no proxy answers
in time; one after the other, each takes milliseconds.
"""

import asyncio
import ctypes
import enum
from collections import deque
from collections.abc import Callable

AT_ONCE = 32  # streams
SECONDS = 1.0  # after which a stream that has its turn no longer makes others wait
QUIET_SECONDS = 0.25  # without a turn, after which memory is given back


class Turns:
    """The turns of all streams. Those that wait have theirs in order, first those that have begun."""

    def __init__(self) -> None:
        self.free = AT_ONCE
        self.waiting: deque[Turn] = deque()
        self._quiet: asyncio.TimerHandle | None = None

    def give(self) -> None:
        """Pass a turn on."""
        self.free += 1
        while self.free and self.waiting:
            self.waiting.popleft().begin()
        if self.free == AT_ONCE:
            if self._quiet:
                self._quiet.cancel()
            loop = asyncio.get_running_loop()
            self._quiet = loop.call_later(QUIET_SECONDS, loop.run_in_executor, None, _give_memory_back)


def _give_memory_back() -> None:
    """Return freed memory to the system: after 300 first configurations of 5 MB glibc keeps 100 of 270 MB."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc alone has it
        trim(0)


class _State(enum.Enum):
    NONE = enum.auto()
    AWAITED = enum.auto()
    HELD = enum.auto()
    NOT_NEEDED = enum.auto()


class Turn:
    """One stream's turn; `go_on` is called when it has come after it was waited for."""

    def __init__(self, turns: Turns, go_on: Callable[[], None]) -> None:
        self._turns = turns
        self._go_on = go_on
        self._state = _State.NONE
        self._has_begun = False
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> bool:
        """Return whether it is the stream's turn; wait for it otherwise."""
        if self._state is _State.NONE:
            if self._turns.free:
                self._hold()
            else:
                self._state = _State.AWAITED
                (self._turns.waiting.appendleft if self._has_begun else self._turns.waiting.append)(self)
        return self._state is _State.NOT_NEEDED or self._state is _State.HELD

    def begin(self) -> None:
        """Let the stream go on: its turn has come."""
        self._hold()
        self._go_on()

    def rest(self) -> None:
        """Let others have their turn while the stream has nothing to send."""
        self._end(_State.NONE)

    def dispense(self) -> None:
        """Need no turn any more: the proxy is up to date, or has ended, or takes too long."""
        self._end(_State.NOT_NEEDED)

    def _hold(self) -> None:
        self._turns.free -= 1
        self._state, self._has_begun = _State.HELD, True
        self._timer = asyncio.get_running_loop().call_later(SECONDS, self.dispense)

    def _end(self, after: _State) -> None:
        if self._state is _State.NOT_NEEDED:
            return
        before, self._state = self._state, after
        if self._timer:
            self._timer.cancel()
        if before is _State.HELD:
            self._turns.give()
        elif before is _State.AWAITED:
            self._turns.waiting.remove(self)
