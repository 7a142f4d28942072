"""Counts of traffic since headgate started, for Prometheus.

Totals only grow. Their labels name workloads, or pods with `--metrics-by pod`. The number of label sets is limited; traffic
beyond the limit counts as `OTHER`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from headgate.telemetry.counters import packed_counters
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow

MOST = 5_000  # each has about 28 lines of text if it has latencies
IDLE = 3600.0  # seconds after which an idle total may be dropped at the limit; if it returns, it starts from zero
SWEEP = 60.0  # seconds between two searches for idle totals


Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of labels, in the order of the text format."""
Describe = Callable[[Flow], Labels]
"""Returns the labels of a flow from the current objects."""
OTHER: Labels = (
    ("source_workload", "other"),
    ("destination_workload", "other"),
    ("connection_security_policy", "none"),
)


class Total(NamedTuple):
    """The counts of all flows with the same labels, or of their mirrored copies (D22).

    `latency` are wide packed counters, because totals grow without limit.
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

    `clock` is monotonic. `started` is the current time in seconds since the epoch. `by_pod`: labels name pods too.
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
        """Add the growth of a flow."""
        row = self._row((self._describe(flow), flow.copy))
        row.grown = self._clock()
        row.latency += packed_counters.to_wide(counts.latency)
        row.counters += counts.counters

    def note(self, what: str, count: int = 1) -> None:
        """Note that counts are missing; users read `what`."""
        self.notes[what] += count

    def rows(self) -> Sequence[Total]:
        """Return all totals."""
        return [Total(*key, Counts(counters=row.counters), row.latency) for key, row in self._rows.items()]

    def _row(self, key: tuple[Labels, bool]) -> _Row:
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= self._most:
                self._sweep()
            known = key if len(self._rows) < self._most else (OTHER, False)
            row = self._rows.setdefault(known, _Row())
        return row

    def _sweep(self) -> None:
        now = self._clock()
        if now >= self._swept + SWEEP:
            self._swept = now
            for key in [key for key, row in self._rows.items() if row.grown < now - IDLE]:
                del self._rows[key]
