"""What was counted since headgate started, for those who collect it themselves: Prometheus and its like.

Totals only grow. They are told apart by workloads, or by pods where that is wanted, and there is an end to how many there
are: what has no room any more counts as `OTHER`, and it is said how much that is.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headgate.resources.meta import Value
from headgate.telemetry import lanes
from headgate.telemetry.counts import Counts
from headgate.telemetry.flows import Flow

MOST = 5_000  # each is some 28 lines of text when it has latencies
IDLE = 3600.0  # seconds after which a total may go when there is no room; it begins at zero when it comes back
SWEEP = 60.0  # seconds between two looks for such


class End(Value, frozen=True, kw_only=True, order=True):
    """One end of traffic. `pod` and `outside` (as in `flows.Peer`) are there only where pods are told apart."""

    namespace: str = ""
    workload: str = ""
    pod: str = ""
    outside: str = ""


class Passage(Value, frozen=True, kw_only=True, order=True):
    """Traffic with labels of its own; fields are as in `Flow`. `target` has a value only where pods have labels."""

    source: End
    destination: End
    service: str = ""
    port: int = 0
    backend: str = ""
    target: int = 0
    copy: bool = False
    secured: bool = False


Describe = Callable[[Flow], Passage]
"""Tells what a flow counts as, now."""
OTHER = Passage(source=End(workload="other"), destination=End(workload="other"))


class Total(NamedTuple):
    """What was counted of a passage. `latency` are buckets in long `lanes`: what is never over may outgrow short ones."""

    passage: Passage
    counts: Counts
    latency: int


class _Row:
    __slots__ = ("grown", "latency", "others")

    def __init__(self) -> None:
        self.latency = 0
        self.others = 0
        self.grown = 0.0


class Totals:
    """Adds up. `started` is in seconds since the epoch; `by_pod` says what `describe` tells apart; `clock` is monotonic."""

    def __init__(
        self,
        describe: Describe,
        *,
        by_pod: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        most: int = MOST,
    ) -> None:
        self.started = wall()
        self.by_pod = by_pod
        self.notes: Counter[str] = Counter()
        self._describe = describe
        self._clock = clock
        self._most = most
        self._rows: dict[Passage, _Row] = {}
        self._swept = clock() - SWEEP

    def add(self, flow: Flow, counts: Counts) -> None:
        """Count growth."""
        row = self._row(self._describe(flow))
        row.grown = self._clock()
        row.latency += lanes.widened(counts.latency)
        row.others += counts.others

    def note(self, what: str, count: int = 1) -> None:
        """Note that something is missing from what is counted; `what` is for the reader."""
        self.notes[what] += count

    def rows(self) -> Sequence[Total]:
        """Return all totals as they are now."""
        return [Total(passage, Counts(others=row.others), row.latency) for passage, row in self._rows.items()]

    def _row(self, passage: Passage) -> _Row:
        row = self._rows.get(passage)
        if row is None:
            if len(self._rows) >= self._most:
                self._sweep()
            known = passage if len(self._rows) < self._most else OTHER
            row = self._rows.setdefault(known, _Row())
        return row

    def _sweep(self) -> None:
        now = self._clock()
        if now >= self._swept + SWEEP:
            self._swept = now
            for passage in [passage for passage, row in self._rows.items() if row.grown < now - IDLE]:
                del self._rows[passage]
