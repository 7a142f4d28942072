"""Limits how many streams send configuration at the same time.

A proxy's first configuration takes megabytes. A thousand of them sent at once take gigabytes of memory, and no proxy
answers in time; one after the other, each takes milliseconds.
"""

import asyncio
import ctypes
import enum
from collections import deque
from collections.abc import Callable

SLOTS = 32  # streams that may send at the same time
SLOT_SECONDS = 1.0  # after this time a stream releases its slot and sends without a slot
TRIM_DELAY_SECONDS = 0.25  # freed memory is returned when no stream has held a slot for this long


class SendSlots:
    """The send slots of a server. Streams wait for one in order; those that have already sent a response go first."""

    def __init__(self) -> None:
        self.free = SLOTS
        self.waiting: deque[SendSlot] = deque()
        self._trim: asyncio.TimerHandle | None = None
        self._is_closed = False

    def close(self) -> None:
        """Trim no memory any more: the server ends, and then the threads of the event loop."""
        self._is_closed = True
        self._cancel_trim()

    def _cancel_trim(self) -> None:
        if self._trim:
            self._trim.cancel()

    def release(self) -> None:
        """Return a slot, and grant free slots to the streams that have waited longest."""
        self.free += 1
        while self.free and self.waiting:
            self.waiting.popleft().grant()
        if self.free == SLOTS and not self._is_closed:
            self._cancel_trim()
            loop = asyncio.get_running_loop()
            self._trim = loop.call_later(TRIM_DELAY_SECONDS, loop.run_in_executor, None, _trim_memory)


def _trim_memory() -> None:
    """Return freed memory to the system: after 300 first configurations of 5 MB glibc keeps 100 of 270 MB."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # only glibc has malloc_trim
        trim(0)


class _State(enum.Enum):
    IDLE = enum.auto()
    WAITING = enum.auto()
    HELD = enum.auto()
    NOT_NEEDED = enum.auto()


class SendSlot:
    """One stream's claim to a slot. `resume` is called when a slot is granted after waiting."""

    def __init__(self, slots: SendSlots, resume: Callable[[], None]) -> None:
        self._slots = slots
        self._resume = resume
        self._state = _State.IDLE
        self._has_sent = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_needed(self) -> bool:
        """Whether the stream still needs a slot to send."""
        return self._state is not _State.NOT_NEEDED

    def acquire(self) -> bool:
        """Return whether the stream may send now. If not, the stream waits for a slot."""
        if self._state is _State.IDLE:
            if self._slots.free:
                self._hold()
            else:
                self._state = _State.WAITING
                (self._slots.waiting.appendleft if self._has_sent else self._slots.waiting.append)(self)
        return not self.is_needed or self._state is _State.HELD

    def grant(self) -> None:
        """Give the slot to the stream and let it send."""
        self._hold()
        self._resume()

    def release(self) -> None:
        """Give the slot back while the stream has nothing to send."""
        self._change(_State.IDLE)

    def finish(self) -> None:
        """Release the slot for good: the proxy is up to date, or the stream has ended or held the slot for too long."""
        self._change(_State.NOT_NEEDED)

    def _hold(self) -> None:
        self._slots.free -= 1
        self._state, self._has_sent = _State.HELD, True
        self._timer = asyncio.get_running_loop().call_later(SLOT_SECONDS, self.finish)

    def _change(self, after: _State) -> None:
        if not self.is_needed:
            return
        before, self._state = self._state, after
        if self._timer:
            self._timer.cancel()
        if before is _State.HELD:
            self._slots.release()
        elif before is _State.WAITING:
            self._slots.waiting.remove(self)
