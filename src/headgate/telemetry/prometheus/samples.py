"""Reads traffic from the samples of headgate's series in a Prometheus.

The query returns raw samples instead of `increase()` or `rate()`, which extrapolate and ignore the first value of a
series. Counts can be wrong by the traffic of one scrape interval. Latencies are as exact as the histogram buckets in
`/metrics`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple, TypeAlias

import msgspec

from headgate.errors import TelemetryError
from headgate.resources.meta import Value
from headgate.telemetry.counters import counts
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow, Peer, Reading
from headgate.telemetry.counters.histogram import bucket_of, gathered
from headgate.telemetry.prometheus import text

BEFORE = 130.0  # seconds by which the query starts before the window, to include an earlier scrape
NO_PODS = "headgate processes that label series with workloads instead of pods, so that their counts are left out"
NEW = "series whose growth before their first scrape is unknown"
_BUCKET = f"{text.LATENCY}_bucket"
_INDEXES = {
    text.OPENED: counts.CONNECTIONS,
    text.FAILED: counts.UNREACHED,
    text.DENIED: counts.DENIED_CONNECTIONS,
    text.SENT: counts.SENT,
    text.RECEIVED: counts.RECEIVED,
}
_NAMES = (*_INDEXES, text.REQUESTS, text.COPIES, text.INCOMPLETE, text.STARTED, _BUCKET)
_COPY_INDEXES = {text.SUCCESS: counts.SUCCEEDED, text.FAILURE: counts.FAILED}

Labels: TypeAlias = Mapping[str, str]
Samples: TypeAlias = Sequence[tuple[float, str]]
Scraped: TypeAlias = tuple[str, str]
"""A scrape target: `job` and `instance`."""


class PrometheusSeries(Value, frozen=True):
    """A series in the answer of Prometheus."""

    metric: dict[str, str]
    values: tuple[tuple[float, str], ...]


class _Data(Value, frozen=True, kw_only=True):
    result: tuple[PrometheusSeries, ...] = ()


class _Answer(Value, frozen=True, kw_only=True):
    status: str
    data: _Data = _Data()
    error: str = ""


def query(window: float) -> str:
    """Return the PromQL query for all samples from which a reading of `window` seconds is computed."""
    return f'{{__name__=~"{"|".join(_NAMES)}"}}[{round((window + BEFORE) * 1000)}ms]'


class Lifetime(NamedTuple):
    """The lifetime of a scraped headgate: the time of its first scrape, and the time when its counters started.

    `restarts` has the time of the first scrape after each restart. Times are seconds since the epoch.
    """

    scraped: float
    started: float
    restarts: tuple[float, ...] = ()


def read_samples(series: Sequence[PrometheusSeries], end: float, window: float, url: str) -> Reading:
    """Return the reading of a window from the answer to `query`.

    Raises TelemetryError if the answer has series that do not come from headgate.
    """
    try:
        return _reading(series, end, window, url)
    except (KeyError, ValueError) as error:
        raise TelemetryError(f"the Prometheus {url} has samples that do not come from headgate: {error}") from error


def _reading(series: Sequence[PrometheusSeries], end: float, window: float, url: str) -> Reading:
    lifetimes = _lifetimes(series, url)
    flows: dict[Flow, Counts] = defaultdict(Counts)
    buckets: dict[tuple[tuple[str, str], ...], dict[float, int]] = defaultdict(dict)
    notes: dict[str, int] = defaultdict(int)
    for entry in series:
        name = entry.metric["__name__"]
        lifetime = lifetimes.get(_scraped(entry.metric))
        if name == text.STARTED:
            notes[NO_PODS] += _counts_workloads(entry)
            continue
        samples = [sample for sample in entry.values if sample[0] >= lifetime.scraped] if lifetime else ()
        if not lifetime or not samples:
            continue
        count, is_known = growth(samples, end - window, lifetime)
        notes[NEW] += not is_known
        if name == _BUCKET:
            key = tuple(sorted((label, text) for label, text in entry.metric.items() if label != "le"))
            buckets[key][float(entry.metric["le"])] = count
        elif name == text.INCOMPLETE:
            notes[entry.metric.get("what", "")] += count
        elif count:
            flow = _flow(name, entry.metric)
            flows[flow] = flows[flow].plus(Counts.of({_index(name, entry.metric): count}))
    for labels, by_bound in buckets.items():
        if middle := dict(_middle_buckets(by_bound)):
            flow = _flow(_BUCKET, dict(labels))
            flows[flow] = flows[flow].plus(Counts(gathered(middle)))
    cut = tuple(f"{what}: {count}" for what, count in sorted(notes.items()) if count)
    return Reading(end=end, window=window, flows=flows, cut=cut)


def growth(samples: Samples, since: float, lifetime: Lifetime) -> tuple[int, bool]:
    """Return the growth of a counter after the time `since`, and whether it is known exactly.

    A series starts at zero if it first appears after headgate's first scrape. After a restart, all series start at zero.
    """
    values = [(moment, int(float(text))) for moment, text in samples]
    before = [pair for pair in values if pair[0] <= since]
    after = [(moment, value) for moment, value in values if moment > since]
    if before:
        (at, last), is_known = before[-1], True
    elif not after:
        return 0, True
    else:
        is_known = after[0][0] > lifetime.scraped or lifetime.started >= since
        at, last = after[0][0], 0 if is_known else after[0][1]
    total = 0
    for moment, value in after:
        is_new = value < last or any(at < restart <= moment for restart in lifetime.restarts)
        total += value if is_new else value - last
        at, last = moment, value
    return total, is_known


def _lifetimes(series: Iterable[PrometheusSeries], url: str) -> Mapping[Scraped, Lifetime]:
    started = [entry for entry in series if entry.metric["__name__"] == text.STARTED and entry.values]
    if not started:
        raise TelemetryError(
            f"the Prometheus {url} has no series of headgate from the last minutes: add headgate's metrics to its"
            " scrape_configs (on one machine, also start `headgate up` with --metrics-address)"
        )
    ends = {_scraped(entry.metric): entry.values[-1][0] for entry in started if _counts_workloads(entry)}
    lifetimes = {
        scraped: _lifetime(samples)
        for scraped, values in (
            (_scraped(entry.metric), entry.values) for entry in started if not _counts_workloads(entry)
        )
        if (samples := [sample for sample in values if sample[0] > ends.get(scraped, 0.0)])
    }
    begun = max(((lifetime.scraped, *lifetime.restarts)[-1] for lifetime in lifetimes.values()), default=0.0)
    if any(end > begun for end in ends.values()):
        raise TelemetryError(
            f"the series of headgate in the Prometheus {url} have no pods: start headgate with --metrics-by pod"
        )
    return lifetimes


def _counts_workloads(started: PrometheusSeries) -> bool:
    return started.metric.get("by") != "pod"


def _lifetime(samples: Samples) -> Lifetime:
    restarts = tuple(moment for (_, before), (moment, text) in pairwise(samples) if text != before)
    moment, started = samples[0]
    return Lifetime(moment, float(started), restarts)


def _scraped(labels: Labels) -> Scraped:
    return labels.get("job", ""), labels.get("instance", "")


def _flow(name: str, labels: Labels) -> Flow:
    return Flow(
        source=_peer("source", labels),
        destination=_peer("destination", labels),
        service=_service("destination_service", labels),
        port=int(labels.get("destination_port", "0")),
        backend=_service("backend", labels),
        target=int(labels.get("destination_pod_port", "0")),
        secured=labels.get("connection_security_policy") == "mutual_tls",
        copy=name == text.COPIES,
    )


def _peer(side: str, labels: Labels) -> Peer:
    pod = labels.get(f"{side}_pod", "")
    if pod:
        return Peer(pod=f"{labels.get(f'{side}_workload_namespace', '')}/{pod}")
    return Peer(outside=labels.get(f"{side}_outside", ""))


def _service(what: str, labels: Labels) -> str:
    name = labels.get(f"{what}_name", "")
    return f"{labels.get(f'{what}_namespace', '')}/{name}" if name else ""


def _index(name: str, labels: Labels) -> int:
    if name == text.REQUESTS:
        return text.class_index_of(labels.get("response_class", ""))
    return _COPY_INDEXES[labels["classification"]] if name == text.COPIES else _INDEXES[name]


def _middle_buckets(by_bound: Mapping[float, int]) -> Iterable[tuple[int, int]]:
    """Yield (index, count) for each bucket of a Prometheus histogram.

    `index` is the index of headgate's bucket that contains the middle of the Prometheus bucket.
    """
    below, last = 0, 0.0
    for bound, count in sorted(by_bound.items()):
        if count > below:
            middle = last * 1.1 if bound == inf else ((last or bound / 2) * bound) ** 0.5
            yield bucket_of(middle * 1e6), count - below
        below, last = max(below, count), bound


def decode(content: bytes, url: str) -> Sequence[PrometheusSeries]:
    """Decode the answer to `query`. Raises TelemetryError."""
    try:
        answer = msgspec.json.decode(content, type=_Answer)
    except msgspec.DecodeError as error:
        raise TelemetryError(f"the answer of {url} is not a response of the Prometheus API: {error}") from error
    if answer.status != "success":
        raise TelemetryError(f"the Prometheus {url} reports an error: {answer.error}")
    return answer.data.result
