"""Counts of traffic since headgate started, for Prometheus.

Totals only grow. Their labels name workloads; with `--metrics-by pod`, they name pods too. The number of label sets is
limited; traffic beyond the limit is counted with the labels `OTHER`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from headgate.telemetry.counters import packed_counters
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow

MOST = 5_000  # The limit of totals; a total with latencies has about 28 lines in `/metrics`.
IDLE = 3600.0  # Seconds without traffic after which a total is dropped if the limit is reached.
SWEEP = 60.0  # The shortest time between two searches for idle totals, in seconds.


Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of labels, in their order in `/metrics`."""
Describe = Callable[[Flow], Labels]
"""A function that returns the labels of a flow, from the current objects."""
OTHER: Labels = (
    ("source_workload", "other"),
    ("destination_workload", "other"),
    ("connection_security_policy", "none"),
)


class Total(NamedTuple):
    """The counts of all flows with the same labels. With `copy`, these are the flows of mirrored copies (D22).

    `latency` is a histogram of wide packed counters (64 bits), because totals grow without limit.
    """

    labels: Labels
    copy: bool
    counts: Counts
    latency: int


class _Row(msgspec.Struct, gc=False):
    latency: int = 0
    counters: int = 0
    grown: float = 0.0


class Totals:
    """Adds up the counts of flows by their labels, which `describe` returns.

    `clock` is monotonic. `started` is the time when counting starts, in seconds since the epoch. `by_pod` is True if
    labels name pods too. `most` is the limit of totals.
    """

    def __init__(
        self,
        describe: Describe,
        *,
        clock: Callable[[], float],
        started: float,
        by_pod: bool = False,
        most: int = MOST,
    ) -> None:
        self.started = started
        self.by_pod = by_pod
        self.notes: Counter[str] = Counter()
        self._describe = describe
        self._clock = clock
        self._most = most
        self._rows: dict[tuple[Labels, bool], _Row] = {}
        self._swept = clock() - SWEEP

    def add(self, flow: Flow, counts: Counts) -> None:
        """Add `counts` to the total of a flow's labels."""
        row = self._row((self._describe(flow), flow.copy))
        row.grown = self._clock()
        row.latency += packed_counters.to_wide(counts.latency)
        row.counters += counts.counters

    def note(self, what: str, count: int = 1) -> None:
        """Count `count` events that made totals incomplete. `what` describes the kind of event for users."""
        self.notes[what] += count

    def rows(self) -> Sequence[Total]:
        """Return all totals."""
        return [Total(*key, Counts(counters=row.counters), row.latency) for key, row in self._rows.items()]

    def _row(self, key: tuple[Labels, bool]) -> _Row:
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= self._most:
                self._sweep()
            row_key = key if len(self._rows) < self._most else (OTHER, False)
            row = self._rows.setdefault(row_key, _Row())
        return row

    def _sweep(self) -> None:
        now = self._clock()
        if now >= self._swept + SWEEP:
            self._swept = now
            for key in [key for key, row in self._rows.items() if row.grown < now - IDLE]:
                del self._rows[key]
