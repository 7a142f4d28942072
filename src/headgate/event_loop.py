"""Runs a control plane: its event loop, and Python's interpreter with settings for it. Ends connections."""

import contextlib
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # commands that use no event loop start faster without it
    from asyncio import WriteTransport

# Thresholds of Python's garbage collector for all commands, above its defaults. A mesh has no reference cycles, so Python frees it without the
# collector. With the default thresholds, the collector takes half of the time of a build. One collection of the youngest
# objects takes 3 to 11 ms for 10,000 objects, and 28 to 80 ms for 100,000, in which no route is sent.
GC_THRESHOLDS = 10_000, 200, 20
SWITCH_S = 0.0005
"""The time for which a thread, such as a compilation, keeps the interpreter while the event loop waits for it.

With Python's default of 5 ms, each event that arrives during a compilation waits that long.
"""


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a control plane until it ends."""
    import uvloop  # noqa: PLC0415  # commands that run no control plane start faster without it

    sys.setswitchinterval(SWITCH_S)
    uvloop.run(work)


def abort(transport: "WriteTransport") -> None:
    """Abort a connection, whatever it does now."""
    with contextlib.suppress(
        AttributeError
    ):  # a TLS connection that was closed twice, in early releases of Python 3.11
        transport.abort()
