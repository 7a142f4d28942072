"""Cumulative values become growth: each request counts once, whatever becomes of proxies, reports and headgate.

What a process of a proxy reports only grows, with two exceptions:
- A counter that is reset goes back to zero: what is smaller than before began anew.
- An idle series is evicted. Measured with Envoy 1.40: at the first eviction after its last growth it is left out of the
  reports, and if it grows before the next one it is back and goes on where it was; at the next one it is gone, and begins
  anew. So a series began anew that was missing in more reports than there are between two evictions. Of reports that
  headgate did not hear nothing is known: then the smaller of the two answers counts, and nothing ever counts twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from headgate.resources.meta import Value
from headgate.telemetry import lanes, wire
from headgate.telemetry.histogram import Buckets
from headgate.telemetry.otlp import Report, Sample, Series

GAP = 10.0  # seconds without a report, after which the next one is late
STEPS = 3  # reports from before the last one, by more than such a gap: then the proxy's clock was set back
FORGET = 3600.0  # seconds of silence after which a proxy is forgotten
MOST_SERIES = 20_000  # of one process: Envoy's own limits are below that
STALE = 20  # reports after which what is on disk of an idle process is written anew
_RUNS = 2  # processes of one proxy that are known: the old one's last report may come after the new one's first


class KeptSeries(Value, frozen=True, kw_only=True, array_like=True):
    """A series on disk, as it was at `time`, in the report `number` of its proxy."""

    series: Series
    time: float
    number: int
    value: int
    buckets: dict[int, int] = msgspec.field(default_factory=dict)


class KeptRun(Value, frozen=True, kw_only=True):
    """A process of a proxy on disk; `number` is how many reports were heard until then, the last one at `heard`."""

    node: str
    start: float
    heard: float
    number: int
    series: tuple[KeptSeries, ...] = ()


class KeptGrowth(Value, frozen=True, kw_only=True):
    """All last values on disk; nothing of what processes did that started after `began` is unknown.

    Each of `runs` is a `KeptRun` as MessagePack.
    """

    began: float
    runs: tuple[bytes, ...] = ()


class Grown(NamedTuple):
    """By how much a series grew; a histogram by `buckets` too."""

    series: Series
    value: int
    buckets: Buckets = 0


class Taken(NamedTuple):
    """What a report came to. `late`: some of it may have happened that many seconds before, because none came meanwhile.

    `unknown`: these are the first values of a process that has run for long; nobody knows when they grew, and they do not
    count. `full`: there are more series than one process may have. `changed`: some last values are others than were `kept`,
    which a reset or an eviction brings about without any growth.
    """

    grown: Sequence[Grown]
    late: float = 0.0
    unknown: bool = False
    full: bool = False
    changed: bool = False


class Growth:
    """The last values of all proxies, from which what they report next is growth. Times are seconds since the epoch.

    `absences` is how many reports there are from one eviction to the next: Envoy counts them, so its timers may be late.
    """

    def __init__(self, absences: int, began: float) -> None:
        self._absences = absences
        self._began = began
        self._proxies: dict[str, _Proxy] = {}

    def take(self, report: Report, now: float) -> Taken:
        """Return what grew since the last report of the same process."""
        proxy = self._proxies.get(report.node)
        oldest = self._began if proxy else max(self._began, now - FORGET)
        if proxy is None:
            proxy = self._proxies[report.node] = _Proxy(max(report.start, oldest), self._absences)
        silence = report.time - proxy.heard
        proxy.listen(report.time, now)
        is_unknown = report.start not in proxy.runs and report.start < oldest
        run = proxy.run(report.start)
        if run is None:
            return Taken(())
        moment = proxy.moment(report.time)
        grown = [item for sample in report.samples if (item := run.grown(sample, moment))]
        if is_unknown:
            return Taken((), unknown=bool(grown), full=run.is_full, changed=run.is_changed)
        is_late = grown and silence > GAP
        return Taken(grown, late=silence if is_late else 0.0, full=run.is_full, changed=run.is_changed)

    def forget(self, now: float) -> None:
        """Let go of proxies that have been silent for long; one that comes back is listened to from then on."""
        for node in [node for node, proxy in self._proxies.items() if proxy.arrived < now - FORGET]:
            del self._proxies[node]

    def prepare(self) -> Iterator[None]:
        """Do the better part of what `kept` has to do, a proxy at a time."""
        for node, proxy in list(self._proxies.items()):
            for start, run in proxy.runs.items():
                run.kept(node, start, proxy)
                yield

    def kept(self) -> KeptGrowth:
        """Return everything, to be read back by `restore`."""
        return KeptGrowth(
            began=self._began,
            runs=tuple(
                run.kept(node, start, proxy)
                for node, proxy in self._proxies.items()
                for start, run in proxy.runs.items()
            ),
        )

    def restore(self, kept: KeptGrowth, now: float) -> None:
        """Take over the last values of an earlier headgate."""
        self._began = kept.began
        for part in kept.runs:
            item = msgspec.msgpack.decode(part, type=KeptRun)
            proxy = self._proxies.setdefault(item.node, _Proxy(item.heard, self._absences))
            proxy.arrived = now
            proxy.number = max(proxy.number, item.number)
            proxy.runs[item.start] = _Run(item.series)


class _Moment(NamedTuple):
    """When a series was seen: by the proxy's clock, and by the number of its report.

    What was last seen in the report `evicted`, or before it, was gone before this one.
    """

    time: float
    number: int
    evicted: int


class _Proxy:
    """What is known of one proxy: its processes by their start, and when it was heard."""

    def __init__(self, heard: float, absences: int) -> None:
        self.runs: dict[float, _Run] = {}
        self.heard = heard
        self.arrived = 0.0
        self.number = 0  # of reports that were heard; the messages of one moment are one
        self._absences = absences
        self._swept = 0
        self._behind = 0

    def listen(self, time: float, now: float) -> None:
        """Take note of a report of `time` by the proxy's clock, which came `now` by ours."""
        self.arrived = now
        self._behind = self._behind + 1 if time < self.heard - GAP else 0
        if self._behind >= STEPS:
            self._set_back(time)
        if time > self.heard:
            self.number += 1
            self.heard = time

    def moment(self, time: float) -> _Moment:
        """Return what a report's values are to be held against; let go of what was evicted, now and then."""
        evicted = self.number - self._absences - 1
        if evicted > self._swept:
            self._swept = self.number
            for run in self.runs.values():
                run.drop(evicted)
        return _Moment(time, self.number - (time < self.heard), evicted)

    def run(self, start: float) -> "_Run | None":
        """Return a process; None for a mere sign of life, and for one that ended long before those that are known."""
        if not start or (start not in self.runs and len(self.runs) >= _RUNS and start < min(self.runs)):
            return None
        found = self.runs.setdefault(start, _Run())
        if len(self.runs) > _RUNS:
            del self.runs[min(self.runs)]
        return found

    def _set_back(self, time: float) -> None:
        """Go on by the proxy's new clock."""
        self.heard = time - 1
        for run in self.runs.values():
            run.set_back(self.heard)


class _Last:
    """The last value of a series, and when it was seen."""

    __slots__ = ("buckets", "number", "time", "value")

    def __init__(self, time: float, number: int, value: int, buckets: int) -> None:
        self.time = time
        self.number = number
        self.value = value
        self.buckets = buckets


class _Run:
    """The series of one process."""

    def __init__(self, series: Sequence[KeptSeries] = ()) -> None:
        self.is_full = False
        self._written = b""
        self._written_at = 0
        self._series = {one.series: _Last(one.time, one.number, one.value, _joined(one.buckets)) for one in series}

    def grown(self, sample: Sample, moment: _Moment) -> Grown | None:
        """Return the growth of a series; None when there is none."""
        last = self._series.get(sample.series)
        if last is None:
            return self._first(sample, moment)
        if moment.time <= last.time:
            return None  # repeated, or overtaken by a newer one
        is_new = sample.value < last.value or last.number <= moment.evicted
        last.time, last.number = moment.time, moment.number
        if sample.value == last.value and not is_new:
            return None
        self._written = b""
        before, old = (0, 0) if is_new else (last.value, last.buckets)
        grown = wire.growth(sample.buckets, old)
        if grown is None:
            before, grown = 0, sample.buckets
        last.value, last.buckets = sample.value, sample.buckets
        return _grown(sample, before, grown)

    @property
    def is_changed(self) -> bool:
        """Whether there is something new for the disk."""
        return not self._written

    def drop(self, evicted: int) -> None:
        """Let go of series that were last seen in a report or before it."""
        for series in [series for series, last in self._series.items() if last.number <= evicted]:
            del self._series[series]
            self._written = b""

    def set_back(self, time: float) -> None:
        """Bring all times before a time."""
        for last in self._series.values():
            last.time = min(last.time, time)

    def kept(self, node: str, start: float, proxy: _Proxy) -> bytes:
        """Return all series as they were when one grew last, or not long after.

        What an idle series has missed since then is not in it: that is on the safe side.
        """
        if not self._written or proxy.number > self._written_at + STALE:
            series = tuple(
                KeptSeries(
                    series=series,
                    time=last.time,
                    number=last.number,
                    value=last.value,
                    buckets=lanes.spread(last.buckets, lanes.LONG),
                )
                for series, last in self._series.items()
            )
            kept = KeptRun(node=node, start=start, heard=proxy.heard, number=proxy.number, series=series)
            self._written, self._written_at = msgspec.msgpack.encode(kept), proxy.number
        return self._written

    def _first(self, sample: Sample, moment: _Moment) -> Grown | None:
        self.is_full = len(self._series) >= MOST_SERIES
        if self.is_full:
            return None
        self._written = b""
        self._series[sample.series] = _Last(moment.time, moment.number, sample.value, sample.buckets)
        return _grown(sample, 0, sample.buckets)


def _grown(sample: Sample, before: int, buckets: int) -> Grown | None:
    more = sample.value - before
    return Grown(sample.series, more, lanes.narrowed(buckets)) if more else None


def _joined(buckets: Mapping[int, int]) -> int:
    words = lanes.empty(max(buckets, default=-1) + 1, lanes.LONG)
    for bucket, count in buckets.items():
        words[bucket] = count
    return lanes.joined(words)
