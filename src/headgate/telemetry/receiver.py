"""What proxies send becomes growth in windows: one call for each report, never one for each request."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Literal

import grpc

from headgate.envoy.reporting import OVERFLOW
from headgate.errors import TelemetryError
from headgate.resources.meta import Value
from headgate.telemetry.dropped import DroppedCopies
from headgate.telemetry.flows import Peer
from headgate.telemetry.growth import Growth, KeptGrowth, Taken
from headgate.telemetry.otlp import Report, read_report
from headgate.telemetry.series import Callers, counted, dropped_at
from headgate.telemetry.windows import KeptWindows, Windows
from headgate.xds.gate import TurnedAway
from headgate.xds.server import Prove

BREATH = 20  # proxies that are worked on before others get their turn
FORGET_EVERY = 600.0  # seconds between looks for proxies that have been silent for long
LATE = "reports with requests from before the window, because none came for a while"
UNKNOWN = "proxies that had run for long when headgate first heard of them; what they did before does not count"
DROPPED = "copies of requests that a proxy dropped at the limits of a mirror"
LOST = "requests or series that a proxy had no room to count"
FULL = "reports with more series than a proxy may have"
UNREADABLE = "reports that could not be read"
NOTES = (LATE, UNKNOWN, LOST, DROPPED, FULL, UNREADABLE)


class Kept(Value, frozen=True, kw_only=True):
    """All that is known about traffic, as it is kept on disk. `version` is another one when a lane's number or a series is."""

    version: Literal[4]
    growth: KeptGrowth
    windows: KeptWindows


def by_address(_node_id: str, address: str, identity: str) -> Peer | None:
    """Return a caller of which only the address is known, or the identity that it proved."""
    return Peer(outside=identity or address)


class Receiver:
    """Takes the proxies' reports. `changed` counts those with news; `clock` is in seconds since the epoch, as theirs is.

    `absences` is how many reports there are between two evictions of idle series.
    """

    def __init__(
        self,
        windows: Windows,
        absences: int,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.windows = windows
        self.changed = 0
        self.dropped = DroppedCopies(time.monotonic)
        self._growth = Growth(absences, clock())
        self._callers: Callers = by_address
        self._clock = clock
        self._forgot = clock()
        self._waiting: dict[str, list[tuple[float, asyncio.Future[None]]]] = defaultdict(list)

    def tell_by(self, callers: Callers) -> None:
        """Name those who come in plaintext by more than their address from now on."""
        self._callers = callers

    async def export(self, data: bytes, prove: Prove) -> bytes:
        """Answer `otlp.METHOD`. Raises TurnedAway when the report is none, or somebody else's than it says."""
        try:
            report = read_report(data)
        except TelemetryError as error:
            self.windows.note(UNREADABLE)
            raise TurnedAway(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
        await prove(report.node)
        self.take(report)
        return b""

    def take(self, report: Report) -> None:
        """Count what grew."""
        now = self._clock()
        taken = self._growth.take(report, now)
        self._note(taken)
        for grown in taken.grown:
            if grown.series.name.startswith(OVERFLOW):
                self.windows.note(LOST, grown.value)
            elif cluster := dropped_at(grown):
                self.windows.note(DROPPED, grown.value)
                self.dropped.add(cluster, grown.value)
            elif found := counted(report.node, grown, self._callers):
                self.windows.add(*found)
        self.changed += taken.changed
        self._wake(report)
        if now > self._forgot + FORGET_EVERY:
            self._forgot = now
            self._growth.forget(now)

    async def heard(self, node_id: str, since: float) -> None:
        """Wait for a report of a proxy from after a moment (seconds since the epoch): what it did before has arrived."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[node_id].append((since, waiter))
        try:
            await waiter
        finally:
            self._waiting[node_id].remove((since, waiter))
            if not self._waiting[node_id]:
                del self._waiting[node_id]

    async def kept(self) -> Kept:
        """Return all that is known, as of one moment."""
        for done, _ in enumerate(self._growth.prepare()):
            if not done % BREATH:
                await asyncio.sleep(0)
        return Kept(version=4, growth=self._growth.kept(), windows=self.windows.kept())

    def restore(self, kept: Kept) -> None:
        """Go on where an earlier headgate ended."""
        self._growth.restore(kept.growth, self._clock())
        self.windows.restore(kept.windows)

    def _note(self, taken: Taken) -> None:
        for what, happened in ((LATE, taken.late), (UNKNOWN, taken.unknown), (FULL, taken.full)):
            if happened:
                self.windows.note(what)

    def _wake(self, report: Report) -> None:
        for since, waiter in self._waiting.get(report.node, ()):
            if report.time > since and not waiter.done():
                waiter.set_result(None)
