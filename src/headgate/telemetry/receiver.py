"""Receives the proxies' metric reports (OTLP over gRPC) and adds the increases of their counters to the windows."""

import asyncio
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

import grpc

from headgate.envoy.stats_sink import STATS_OVERFLOW
from headgate.errors import TelemetryError
from headgate.latest import Latest, until
from headgate.model.latency_buckets import BOUNDS_US
from headgate.model.size_buckets import BOUNDS_BYTES
from headgate.resources.meta import Value
from headgate.telemetry.access_records import AccessCheckpoint, AccessRecords, FindCall, no_call
from headgate.telemetry.counters.flows import Peer
from headgate.telemetry.dropped_copies import DroppedCopies
from headgate.telemetry.increments import Increments
from headgate.telemetry.mirror_increments import MirrorIncrements
from headgate.telemetry.reports.cumulative_to_delta import CumulativeToDelta, Delta, DeltaCheckpoint, Deltas
from headgate.telemetry.reports.otlp import ProxyReport, read_report
from headgate.telemetry.reports.series import Counted, FindCaller, counted, dropped_at, is_attempts, sized_at
from headgate.telemetry.windows import Windows, WindowsCheckpoint
from headgate.xds.authentication import StatusError
from headgate.xds.unary_methods import CheckNode

BATCH = 20  # The number of proxy processes to encode before the event loop runs other tasks.
FORGET_EVERY = 600.0  # Seconds between two searches for silent proxies.
LATE = "late reports of proxies, with requests that may be older than the window"
UNKNOWN = "proxies that started before headgate, whose earlier requests are not counted"
DROPPED = "mirrored requests that proxies dropped because of the limit per mirror"
LOST = "requests or series that proxies could not count because of their limits"
FULL = "reports with too many series, of which only some are counted"
UNREADABLE = "reports that could not be read"
NOTES = (LATE, UNKNOWN, LOST, DROPPED, FULL, UNREADABLE)


class Checkpoint(Value, frozen=True, kw_only=True):
    """All traffic counts, in the format of the checkpoint file.

    `version` changes when the order of counters or a series name changes. `latency_bounds` (microseconds) and `size_bounds`
    (bytes) are those of the histograms, whose counts mean nothing with other bounds.
    """

    version: Literal[6]
    latency_bounds: tuple[int, ...]
    size_bounds: tuple[int, ...]
    growth: DeltaCheckpoint
    windows: WindowsCheckpoint
    access: AccessCheckpoint = AccessCheckpoint()


def by_address(_node_id: str, address: str, identity: str) -> Peer | None:
    """Return a caller by its authenticated identity; without an identity, by its address."""
    return Peer(outside=identity or address)


class Finders(NamedTuple):
    """What the mesh knows about reported traffic: `caller` names callers without a proxy, `call` the workloads of a call."""

    caller: FindCaller = by_address
    call: FindCall = no_call


class Receiver:
    """Counts the traffic that proxies report. `changed` is the number of reports that changed the checkpoint.

    Envoy evicts idle series after every `reports_per_eviction` reports. `clock` is in seconds since the
    epoch; with `shares_clock`, all proxies use it.
    """

    def __init__(
        self,
        windows: Windows,
        reports_per_eviction: int,
        find: Finders = Finders(),  # noqa: B008 - it is immutable
        *,
        clock: Callable[[], float] = time.time,
        shares_clock: bool = False,
    ) -> None:
        self.windows = windows
        self.changed = 0
        self.dropped = DroppedCopies(time.monotonic)
        self.increments = Increments()
        self.mirrors = MirrorIncrements()
        self.access = AccessRecords(find.call, now=clock())
        self._deltas = CumulativeToDelta(reports_per_eviction, clock(), shares_clock=shares_clock)
        self._find_caller = find.caller
        self._clock = clock
        self._forgot = clock()
        self._taken: Latest[int] = Latest(0)  # the number of reports so far; `wait_for_report` waits until it changes

    async def export(self, data: bytes, check_node: CheckNode) -> bytes:
        """Handle a report (`otlp.METHOD`).

        Raises StatusError if the report is malformed, or if the sender is not the proxy that the report names.
        """
        try:
            report = read_report(data)
        except TelemetryError as error:
            self.windows.note(UNREADABLE)
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
        check_node(report.node)
        self.take(report)
        return b""

    def take(self, report: ProxyReport) -> None:
        """Add the increase of each series in a report to the windows and increments, or to the dropped copies."""
        now = self._clock()
        deltas = self._deltas.take(report, now)
        self._note(deltas)
        for grown in deltas.grown:
            if grown.series.name.startswith(STATS_OVERFLOW):
                self.windows.note(LOST, grown.value)
            elif cluster := dropped_at(grown):
                self.windows.note(DROPPED, grown.value)
                self.dropped.add(cluster, grown.value)
            elif cluster := sized_at(grown):
                if not grown.may_repeat:
                    self.mirrors.add_sizes(cluster, grown.buckets)
            elif growth := counted(report.node, grown, self._find_caller):
                self._count(growth, grown, now)
        self.changed += deltas.changed
        self._taken.set(self._taken.get() + 1)
        if now > self._forgot + FORGET_EVERY:
            self._forgot = now
            self._deltas.forget(now)

    def _count(self, growth: Counted, grown: Delta, now: float) -> None:
        """Add the growth of a flow to all counts; of attempts, only to the evidence of rollouts."""
        if not grown.may_repeat:
            self.increments.add(*growth)
        if is_attempts(grown):
            return
        self.windows.add(growth.flow, growth.counts)
        self.access.add(growth.flow, growth.counts, now)
        if not grown.may_repeat:
            self.mirrors.add(grown.series, growth.counts)

    async def wait_for_report(self, node_id: str, since: float) -> None:
        """Wait until a proxy has reported its requests before `since` (seconds since the epoch)."""
        await until(lambda: self._deltas.last_report_time(node_id) > since, self._taken)

    async def checkpoint(self) -> Checkpoint:
        """Return all counts at one moment, for `restore`."""
        for done, _ in enumerate(self._deltas.prepare_checkpoint()):
            if not done % BATCH:
                await asyncio.sleep(0)
        return Checkpoint(
            version=6,
            latency_bounds=BOUNDS_US,
            size_bounds=BOUNDS_BYTES,
            growth=self._deltas.checkpoint(),
            windows=self.windows.checkpoint(),
            access=self.access.checkpoint(),
        )

    def restore(self, saved: Checkpoint | None) -> None:
        """Continue from the checkpoint of an earlier headgate process; without one, begin to count now."""
        self._deltas.restore(saved.growth if saved else None, self._clock())
        if saved:
            self.windows.restore(saved.windows)
            self.access.restore(saved.access)

    def _note(self, deltas: Deltas) -> None:
        for what, happened in ((LATE, deltas.late), (UNKNOWN, deltas.unknown), (FULL, deltas.full)):
            if happened:
                self.windows.note(what)
