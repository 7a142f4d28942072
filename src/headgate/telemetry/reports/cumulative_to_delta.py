"""Converts the cumulative values that proxies report to deltas, so that each request counts once.

Within one process of a proxy a series only grows, with two exceptions:
- A counter is reset: if a value is smaller than the last one, the growth is counted from zero.
- Envoy evicts idle series. Measured with Envoy 1.40: at the first eviction after its last growth, Envoy leaves the series out
  of its reports. If the series grows before the next eviction, it continues from its old value. At the next eviction Envoy
  drops the series; later growth starts from zero. So a series starts from zero if it was missing from more reports than
  there are between two evictions. If reports are lost, headgate doesn't know from how many reports the series was
  missing. It then counts the smaller of the two possible deltas, because no request may count twice.

After a restart, headgate continues from a checkpoint. The proxies may have reported the growth after the checkpoint to the
earlier headgate too. A caller that stored results of that headgate leaves such growth out (`Delta.may_repeat`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from headgate.envoy.stats_sink import BOUNDS, REPORT_TIMEOUT_SECONDS
from headgate.resources.meta import Value
from headgate.telemetry.counters import packed_counters
from headgate.telemetry.counters.histogram import Buckets
from headgate.telemetry.reports.otlp import ProxyReport, Series, SeriesSample

GAP = 10.0  # Seconds without a report after which the next report is late.
STEPS = 3  # After this many consecutive reports from more than GAP in the past, the proxy's clock counts as set back.
FORGET = 3600.0  # Seconds of silence after which a proxy is forgotten.
MOST_SERIES = 20_000  # The limit of series of one process; Envoy's own limits are lower.
COMPLETE = 2  # After this many reports, each series that a process did not evict has been reported.
STALE = 20  # Reports after which the checkpoint of an idle process is encoded again.
_PROCESSES = (
    2  # Processes to store per proxy: a process may send its last report after the first report of its successor.
)
_HIGHEST = packed_counters.highest_bits(len(BOUNDS) + 1)


class SeriesCheckpoint(Value, frozen=True, kw_only=True, array_like=True):
    """The checkpoint of a series: its value at `time`, in the proxy's report `number`."""

    series: Series
    time: float
    number: int
    value: int
    buckets: dict[int, int] = msgspec.field(default_factory=dict)


class ProcessCheckpoint(Value, frozen=True, kw_only=True):
    """The checkpoint of a proxy process. `number` is that of its last report, which arrived at `last_report`."""

    node: str
    start: float
    last_report: float
    number: int
    series: tuple[SeriesCheckpoint, ...] = ()


class DeltaCheckpoint(Value, frozen=True, kw_only=True):
    """The checkpoint of the last values of all series. Each of `runs` is a `ProcessCheckpoint` as MessagePack.

    headgate has counted all requests of every process that started after `began`.
    """

    began: float
    runs: tuple[bytes, ...] = ()


class Delta(NamedTuple):
    """The growth of a series; `buckets` is the growth of a histogram.

    `may_repeat` is True if an earlier headgate may have received a part of the growth after its last checkpoint.
    """

    series: Series
    value: int
    buckets: Buckets = 0
    may_repeat: bool = False


class Deltas(NamedTuple):
    """The growth of series in a report.

    `late` is the number of seconds without a report before this report, or 0 if the report is not late. Some of the
    counted requests may be that old. `unknown` is True if the process started before headgate counted its requests, so
    that its first values are ignored. `full` is True if the process has more series than `MOST_SERIES`. `changed` is
    True if the checkpoint is out of date, even without growth.
    """

    grown: Sequence[Delta]
    late: float = 0.0
    unknown: bool = False
    full: bool = False
    changed: bool = False


class CumulativeToDelta:
    """Holds the last values of all proxies. Times are seconds since the epoch.

    Envoy evicts idle series after every `reports_per_eviction` reports; it counts reports instead of using a timer. With
    `shares_clock`, all proxies use headgate's clock, as on one machine.
    """

    def __init__(self, reports_per_eviction: int, began: float, *, shares_clock: bool = False) -> None:
        self._reports_per_eviction = reports_per_eviction
        self._shares_clock = shares_clock
        self.began = self._created = began
        self._started = began  # when this headgate started to receive reports
        self._proxies: dict[str, _Proxy] = {}

    def take(self, report: ProxyReport, now: float) -> Deltas:
        """Return the growth since the last report of the same process."""
        proxy = self._proxies.get(report.node)
        oldest = self.began if proxy else max(self.began, now - FORGET)
        if proxy is None:
            proxy = self._proxies[report.node] = _Proxy(max(report.start, oldest), self._reports_per_eviction)
        silence = report.time - proxy.last_report
        proxy.note_report(report.time, now)
        is_unknown = report.start not in proxy.processes and report.start < oldest
        process = proxy.process(report.start)
        if process is None:
            return Deltas(())
        moment = proxy.moment(report.time)
        if is_unknown or process.is_restored or self._may_be_earlier(report, now):
            process.note_earlier_start(moment.number)
        grown = [delta for sample in report.samples if (delta := process.delta(sample, moment))]
        if is_unknown:
            return Deltas((), unknown=bool(grown), full=process.is_full, changed=process.is_changed)
        is_late = grown and silence > GAP
        return Deltas(grown, late=silence if is_late else 0.0, full=process.is_full, changed=process.is_changed)

    def _may_be_earlier(self, report: ProxyReport, now: float) -> bool:
        """Return whether the process of a report may have reported to an earlier headgate."""
        if self._shares_clock:
            return report.start <= self._created
        # The age of the process needs no equal clocks, but is too small by the time that the report was on its way.
        return now - (report.time - report.start) <= self._started + REPORT_TIMEOUT_SECONDS

    def last_report_time(self, node: str) -> float:
        """Return the time of a proxy's last report by the proxy's clock; 0 for an unknown proxy."""
        proxy = self._proxies.get(node)
        return proxy.last_report if proxy else 0.0

    def forget(self, now: float) -> None:
        """Drop proxies that have been silent for `FORGET` seconds. A proxy that returns later counts as new."""
        for node in [node for node, proxy in self._proxies.items() if proxy.arrived < now - FORGET]:
            del self._proxies[node]

    def prepare_checkpoint(self) -> Iterator[None]:
        """Encode changed processes, one per step, so that `checkpoint` is fast."""
        for node, proxy in list(self._proxies.items()):
            for start, process in proxy.processes.items():
                process.checkpoint(node, start, proxy)
                yield

    def checkpoint(self) -> DeltaCheckpoint:
        """Return the last values of all series, for `restore`."""
        return DeltaCheckpoint(
            began=self.began,
            runs=tuple(
                process.checkpoint(node, start, proxy)
                for node, proxy in self._proxies.items()
                for start, process in proxy.processes.items()
            ),
        )

    def restore(self, saved: DeltaCheckpoint | None, now: float) -> None:
        """Continue from the last values of an earlier headgate; without them, begin to count now."""
        self._started = now
        self.began = saved.began if saved else now
        for part in saved.runs if saved else ():
            saved_process = msgspec.msgpack.decode(part, type=ProcessCheckpoint)
            proxy = self._proxies.setdefault(
                saved_process.node, _Proxy(saved_process.last_report, self._reports_per_eviction)
            )
            proxy.arrived = now
            proxy.number = max(proxy.number, saved_process.number)
            proxy.processes[saved_process.start] = _Process(saved_process.series, is_restored=True)


class _Moment(NamedTuple):
    """The moment of a reported value: the time by the proxy's clock, and the number of the report.

    Envoy has dropped every series that was last seen in report `evicted` or before.
    """

    time: float
    number: int
    evicted: int


class _Proxy:
    """The processes of one proxy by start time, and the times of the proxy's last report."""

    def __init__(self, last_report: float, reports_per_eviction: int) -> None:
        self.processes: dict[float, _Process] = {}
        self.last_report = last_report
        self.arrived = 0.0
        self.number = 0  # the number of reports that arrived; several messages with one time count as one report
        self._reports_per_eviction = reports_per_eviction
        self._evicted_at = 0
        self._reports_in_the_past = 0

    def note_report(self, time: float, now: float) -> None:
        """Count a report that the proxy sent at `time`, by the proxy's clock, and that arrived at `now`."""
        self.arrived = now
        self._reports_in_the_past = self._reports_in_the_past + 1 if time < self.last_report - GAP else 0
        if self._reports_in_the_past >= STEPS:
            self._set_back(time)
        if time > self.last_report:
            self.number += 1
            self.last_report = time

    def moment(self, time: float) -> _Moment:
        """Return the moment of a report's values. After every few reports, drop evicted series first."""
        evicted = self.number - self._reports_per_eviction - 1
        if evicted > self._evicted_at:
            self._evicted_at = self.number
            for process in self.processes.values():
                process.drop(evicted)
        return _Moment(time, self.number - (time < self.last_report), evicted)

    def process(self, start: float) -> "_Process | None":
        """Return the process that started at `start`; None if `start` is 0, or before all remembered processes."""
        if not start or (
            start not in self.processes and len(self.processes) >= _PROCESSES and start < min(self.processes)
        ):
            return None
        process = self.processes.setdefault(start, _Process())
        if len(self.processes) > _PROCESSES:
            del self.processes[min(self.processes)]
        return process

    def _set_back(self, time: float) -> None:
        """Set all later times to one second before `time`, because the proxy's clock was set back."""
        self.last_report = time - 1
        for process in self.processes.values():
            process.set_back(self.last_report)


class _Last(msgspec.Struct, gc=False):
    """The last value of a series, and when it was reported. `is_restored` is True if an earlier headgate received it."""

    time: float
    number: int
    value: int
    buckets: int
    is_restored: bool = False


class _Process:
    """The series of one process."""

    def __init__(self, series: Sequence[SeriesCheckpoint] = (), *, is_restored: bool = False) -> None:
        self.is_full = False
        self.is_restored = is_restored
        self._encoded = b""
        self._encoded_at = 0
        self._first_number: int | None = None
        self._series = {
            last.series: _Last(last.time, last.number, last.value, _packed(last.buckets), is_restored=True)
            for last in series
        }

    def note_earlier_start(self, number: int) -> None:
        """Note that this process started before headgate. `number` is that of its first report to this headgate."""
        if self._first_number is None:
            self._first_number = number

    def delta(self, sample: SeriesSample, moment: _Moment) -> Delta | None:
        """Return the growth of a series; None without growth."""
        last = self._series.get(sample.series)
        if last is None:
            return self._first(sample, moment)
        if moment.time <= last.time:
            return None  # the report was delivered twice, or a newer report arrived first
        is_new = sample.value < last.value or last.number <= moment.evicted
        was_restored, last.is_restored = last.is_restored, False
        last.time, last.number = moment.time, moment.number
        if sample.value == last.value and not is_new:
            return None
        self._encoded = b""
        before, old = (0, 0) if is_new else (last.value, last.buckets)
        buckets = packed_counters.difference(sample.buckets, old, _HIGHEST)
        if buckets is None:
            before, buckets = 0, sample.buckets
        last.value, last.buckets = sample.value, sample.buckets
        may_repeat = was_restored and self._may_repeat(sample.value - before, moment)
        return _delta(sample, before, buckets, may_repeat=may_repeat)

    @property
    def is_changed(self) -> bool:
        """Whether the encoded checkpoint is out of date."""
        return not self._encoded

    def drop(self, evicted: int) -> None:
        """Drop series that were last seen in report `evicted` or before."""
        for series in [series for series, last in self._series.items() if last.number <= evicted]:
            del self._series[series]
            self._encoded = b""

    def set_back(self, time: float) -> None:
        """Set all times that are later than `time` to `time`."""
        for last in self._series.values():
            last.time = min(last.time, time)

    def checkpoint(self, node: str, start: float, proxy: _Proxy) -> bytes:
        """Return all series as MessagePack. Reuse the last result until a series grows, for at most `STALE` reports.

        So the result may ignore recent reports in which an idle series was missing. After a restart of headgate, the
        growth of that series may then be counted too low.
        """
        if not self._encoded or proxy.number > self._encoded_at + STALE:
            series = tuple(
                SeriesCheckpoint(
                    series=series,
                    time=last.time,
                    number=last.number,
                    value=last.value,
                    buckets=packed_counters.by_index(last.buckets, packed_counters.WIDE),
                )
                for series, last in self._series.items()
            )
            saved = ProcessCheckpoint(
                node=node, start=start, last_report=proxy.last_report, number=proxy.number, series=series
            )
            self._encoded, self._encoded_at = msgspec.msgpack.encode(saved), proxy.number
        return self._encoded

    def _first(self, sample: SeriesSample, moment: _Moment) -> Delta | None:
        self.is_full = len(self._series) >= MOST_SERIES
        if self.is_full:
            return None
        self._encoded = b""
        self._series[sample.series] = _Last(moment.time, moment.number, sample.value, sample.buckets)
        is_unsure = self._first_number is not None and moment.evicted < self._first_number
        return _delta(sample, 0, sample.buckets, may_repeat=is_unsure and self._may_repeat(sample.value, moment))

    def _may_repeat(self, growth: int, moment: _Moment) -> bool:
        """Return whether an earlier headgate may have received a part of the first growth of a series in this headgate.

        If the series was missing from complete reports, it has grown since then. So a growth of 1 is new. Without this
        rule, all rare failures would be left out for the time between two evictions, but not the successes.
        """
        return growth > 1 or moment.number < (self._first_number or 0) + COMPLETE


def _delta(sample: SeriesSample, before: int, buckets: int, *, may_repeat: bool) -> Delta | None:
    more = sample.value - before
    return Delta(sample.series, more, packed_counters.to_narrow(buckets), may_repeat) if more else None


def _packed(buckets: Mapping[int, int]) -> int:
    counters = packed_counters.zeros(max(buckets, default=-1) + 1, packed_counters.WIDE)
    for bucket, count in buckets.items():
        counters[bucket] = count
    return packed_counters.pack(counters)
