"""A Prometheus that scrapes headgate, as a source of readings (`flows.Source`)."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from headgate import durations
from headgate.errors import NoCounts, TelemetryError
from headgate.http_failures import describe
from headgate.options import MeshOptions
from headgate.resources.meta import timestamp
from headgate.telemetry.counters.flows import Reading, Source
from headgate.telemetry.counters.time_buckets import KEPT
from headgate.telemetry.prometheus.samples import decode, query, read_samples

TIMEOUT = 10.0  # Timeout of a query in seconds.
MOST_BYTES = 256 << 20  # Limit of an answer's size in bytes.
SHARED_S = 1.0  # The time for which requests for a window share a reading, in seconds.

Fetch = Callable[[str, float], Awaitable[bytes]]
"""A function that sends a PromQL query, evaluated at a time (seconds since the epoch), and returns the JSON answer.

Raises TelemetryError.
"""


class Prometheus:
    """Returns readings from the Prometheus at `url`.

    `fetch` replaces the HTTP client; `clock` is in seconds since the epoch.
    """

    def __init__(self, url: str, *, fetch: Fetch | None = None, clock: Callable[[], float] = time.time) -> None:
        self._url = url
        self._fetch = fetch or _fetcher(url)
        self._clock = clock
        self._last: dict[float, tuple[float, asyncio.Task[Reading]]] = {}  # by window, with the time that ends it

    async def read(self, seconds: float, end: float | None = None) -> Reading:
        """Return a reading of the last `seconds`, or of those before `end` (seconds since the epoch).

        Requests for the last `seconds` share a query while it runs, and its reading for `SHARED_S`. Raises NoCounts if there are
        no samples of that time, and TelemetryError.
        """
        now, window = self._clock(), min(seconds, KEPT)
        if end is not None:
            return await self._read(window, end, has_end=True)
        self._last = {key: last for key, last in self._last.items() if _is_shared(*last, now)}
        if window not in self._last:
            task = asyncio.create_task(self._read(window, now), name="a query to Prometheus")
            task.add_done_callback(_retrieve)
            self._last[window] = now, task
        return await asyncio.shield(self._last[window][1])

    async def _read(self, window: float, moment: float, *, has_end: bool = False) -> Reading:
        content = await self._fetch(query(window), moment)
        series = await asyncio.to_thread(decode, content, self._url)
        if has_end and not any(sampled > moment - window for entry in series for sampled, _ in entry.values[-1:]):
            raise NoCounts(
                f"the Prometheus {self._url} has no samples of headgate from the {durations.formatted(window)} before "
                f"{timestamp(moment)}"
            )
        return await asyncio.to_thread(read_samples, series, moment, window, self._url)


def _is_shared(moment: float, task: asyncio.Task[Reading], now: float) -> bool:
    if not task.done():
        return True
    return 0 <= now - moment < SHARED_S and not task.cancelled() and task.exception() is None


def _retrieve(task: asyncio.Task[Reading]) -> None:
    """Retrieve the exception of a task: without a client that still waits, asyncio would log it."""
    if not task.cancelled():
        task.exception()


def _fetcher(url: str) -> Fetch:
    async def fetch(query: str, moment: float) -> bytes:
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
            raise TelemetryError(f"the Prometheus {url} denies queries from headgate (HTTP {answer.status})")
        return content

    return fetch


async def _limited(answer: ClientResponse, url: str) -> bytes:
    content = bytearray()
    async for part in answer.content.iter_any():
        content += part
        if len(content) > MOST_BYTES:
            raise TelemetryError(
                f"the answer of the Prometheus {url} exceeds {MOST_BYTES >> 20} MB: choose a shorter window"
            )
    return bytes(content)


def traffic_source(options: MeshOptions, reports: Source) -> Source:
    """Return the Prometheus that the options of the mesh name; by default the `reports` of proxies."""
    return Prometheus(options.metrics_source) if options.metrics_source else reports
