"""A Prometheus that scrapes headgate, as the source of the answers about traffic (`flows.Source`).

It is asked for the samples themselves, never for `increase()` or `rate()`: these extrapolate, and do not see what a series
began with. What is told is exact to a scrape, and latencies to the buckets that are exposed.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from headgate.errors import TelemetryError
from headgate.http_failures import describe
from headgate.resources.meta import Value
from headgate.telemetry.counters import counts
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.flows import Flow, Peer, Reading
from headgate.telemetry.counters.histogram import bucket_of, gathered
from headgate.telemetry.counters.time_buckets import KEPT
from headgate.telemetry.prometheus import text

BEFORE = 130.0  # seconds before a window in which a sample is looked for; so scrapes may be two minutes apart
TIMEOUT = 10.0
MOST_BYTES = 256 << 20  # of an answer
NO_PODS = "headgates that counted before by workload, not by pod: what they counted is left out"
NEW = "series whose growth before Prometheus first saw them is unknown"
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

Ask = Callable[[str, float], Awaitable[bytes]]
"""Asks a Prometheus a query as of a moment (seconds since the epoch); returns its JSON. Raises TelemetryError."""
Labels: TypeAlias = Mapping[str, str]
Samples: TypeAlias = Sequence[tuple[float, str]]
Scraped: TypeAlias = tuple[str, str]
"""Who was scraped: `job` and `instance`."""


class Series(Value, frozen=True):
    """What Prometheus has of one series."""

    metric: dict[str, str]
    values: tuple[tuple[float, str], ...]


class _Data(Value, frozen=True, kw_only=True):
    result: tuple[Series, ...] = ()


class _Answer(Value, frozen=True, kw_only=True):
    status: str
    data: _Data = _Data()
    error: str = ""


class Prometheus:
    """Answers about traffic from the Prometheus at a URL. `clock` is in seconds since the epoch."""

    def __init__(self, url: str, *, ask: Ask | None = None, clock: Callable[[], float] = time.time) -> None:
        self._url = url
        self._ask = ask or _asks(url)
        self._clock = clock

    async def read(self, seconds: float) -> Reading:
        """Return what happened in the last `seconds`. Raises TelemetryError when nothing can be said."""
        end, window = self._clock(), min(seconds, KEPT)
        query = f'{{__name__=~"{"|".join(_NAMES)}"}}[{round((window + BEFORE) * 1000)}ms]'
        series = await asyncio.to_thread(_decoded, await self._ask(query, end), self._url)
        try:
            return await asyncio.to_thread(_reading, series, end, window, self._url)
        except (KeyError, ValueError) as error:
            raise TelemetryError(
                f"the Prometheus {self._url} has numbers that are none of headgate's: {error}"
            ) from error


class Life(NamedTuple):
    """One headgate: when it was first scraped, as far as that was looked for, and since when it counted then.

    `again` are the moments of the first scrapes after it had been started again.
    """

    scraped: float
    started: float
    again: tuple[float, ...] = ()


def _reading(series: Sequence[Series], end: float, window: float, url: str) -> Reading:
    lives = _lives(series, url)
    flows: dict[Flow, Counts] = defaultdict(Counts)
    buckets: dict[tuple[tuple[str, str], ...], dict[float, int]] = defaultdict(dict)
    notes: dict[str, int] = defaultdict(int)
    for one in series:
        name = one.metric["__name__"]
        life = lives.get(_scraped(one.metric))
        if name == text.STARTED:
            notes[NO_PODS] += _counts_workloads(one)
            continue
        samples = [item for item in one.values if item[0] >= life.scraped] if life else ()
        if not life or not samples:
            continue
        count, is_known = growth(samples, end - window, life)
        notes[NEW] += not is_known
        if name == _BUCKET:
            key = tuple(sorted((label, text) for label, text in one.metric.items() if label != "le"))
            buckets[key][float(one.metric["le"])] = count
        elif name == text.INCOMPLETE:
            notes[one.metric.get("what", "")] += count
        elif count:
            flow = _flow(name, one.metric)
            flows[flow] = flows[flow].plus(Counts.of({_index(name, one.metric): count}))
    for labels, by_bound in buckets.items():
        if found := dict(_apart(by_bound)):
            flow = _flow(_BUCKET, dict(labels))
            flows[flow] = flows[flow].plus(Counts(gathered(found)))
    cut = tuple(f"{what}: {count}" for what, count in sorted(notes.items()) if count)
    return Reading(end=end, window=window, flows=flows, cut=cut)


def growth(samples: Samples, since: float, life: Life) -> tuple[int, bool]:
    """Return by how much a counter grew after a moment, and whether that is all.

    A series that begins later than its headgate was scraped began with zero, and so did everything when a headgate starts.
    """
    values = [(moment, int(float(text))) for moment, text in samples]
    before = [item for item in values if item[0] <= since]
    after = [(moment, value) for moment, value in values if moment > since]
    if before:
        (at, last), is_known = before[-1], True
    elif not after:
        return 0, True
    else:
        is_known = after[0][0] > life.scraped or life.started >= since
        at, last = after[0][0], 0 if is_known else after[0][1]
    total = 0
    for moment, value in after:
        is_new = value < last or any(at < one <= moment for one in life.again)
        total += value if is_new else value - last
        at, last = moment, value
    return total, is_known


def _lives(series: Iterable[Series], url: str) -> Mapping[Scraped, Life]:
    found = [one for one in series if one.metric["__name__"] == text.STARTED and one.values]
    if not found:
        raise TelemetryError(
            f"the Prometheus {url} has nothing of headgate's in the last minutes: start `headgate up` with"
            " --metrics-address, and add that address to scrape_configs"
        )
    ends = {_scraped(one.metric): one.values[-1][0] for one in found if _counts_workloads(one)}
    lives = {
        scraped: _life(samples)
        for scraped, values in ((_scraped(one.metric), one.values) for one in found if not _counts_workloads(one))
        if (samples := [item for item in values if item[0] > ends.get(scraped, 0.0)])
    }
    begun = max(((life.scraped, *life.again)[-1] for life in lives.values()), default=0.0)
    if any(end > begun for end in ends.values()):
        raise TelemetryError(
            f"the Prometheus {url} has no pods of headgate's: start `headgate up` with --metrics-by pod"
        )
    return lives


def _counts_workloads(started: Series) -> bool:
    return started.metric.get("by") != "pod"


def _life(samples: Samples) -> Life:
    again = tuple(moment for (_, before), (moment, text) in pairwise(samples) if text != before)
    moment, started = samples[0]
    return Life(moment, float(started), again)


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


def _apart(by_bound: Mapping[float, int]) -> Iterable[tuple[int, int]]:
    """Yield the counts of a histogram's own buckets, each in the bucket that is in its middle."""
    below, last = 0, 0.0
    for bound, count in sorted(by_bound.items()):
        if count > below:
            middle = last * 1.1 if bound == inf else ((last or bound / 2) * bound) ** 0.5
            yield bucket_of(middle * 1e6), count - below
        below, last = max(below, count), bound


def _decoded(content: bytes, url: str) -> Sequence[Series]:
    try:
        answer = msgspec.json.decode(content, type=_Answer)
    except msgspec.DecodeError as error:
        raise TelemetryError(f"what answers at {url} is no Prometheus: {error}") from error
    if answer.status != "success":
        raise TelemetryError(f"the Prometheus {url} can't answer: {answer.error}")
    return answer.data.result


def _asks(url: str) -> Ask:
    async def ask(query: str, moment: float) -> bytes:
        form = {"query": query, "time": f"{moment:.3f}"}
        where = f"{url.rstrip('/')}/api/v1/query"
        try:
            async with (
                ClientSession(timeout=ClientTimeout(TIMEOUT)) as session,
                session.post(where, data=form, headers={"accept": "application/json"}, allow_redirects=False) as answer,
            ):
                content = await _limited(answer, url)
        except (OSError, ClientError) as error:
            raise TelemetryError(f"the Prometheus {url} can't be reached: {describe(error)}") from error
        if answer.status in {401, 403}:
            raise TelemetryError(f"the Prometheus {url} does not let headgate ask ({answer.status})")
        return content

    return ask


async def _limited(answer: ClientResponse, url: str) -> bytes:
    content = bytearray()
    async for part in answer.content.iter_any():
        content += part
        if len(content) > MOST_BYTES:
            raise TelemetryError(
                f"the Prometheus {url} answers more than {MOST_BYTES >> 20} MB: ask for a shorter window"
            )
    return bytes(content)


def parse_source(text: str) -> Prometheus:
    """Return the source that `prometheus=URL` means. Raises TelemetryError."""
    kind, _, url = text.partition("=")
    where = urlsplit(url)
    if kind != "prometheus" or where.scheme not in {"http", "https"} or not where.hostname:
        raise TelemetryError(f"{text!r} is no source of metrics: write prometheus=http://HOST:PORT")
    if where.username or where.password:
        raise TelemetryError(
            "a source of metrics has no password in its URL: other users of this machine could read it"
        )
    return Prometheus(url)
