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

    async def read(self, seconds: float, end: float | None = None) -> Reading:
        """Return a reading of the last `seconds`, or of those before `end` (seconds since the epoch).

        Raises NoCounts if there are no samples of that time, and TelemetryError.
        """
        moment, window = self._clock() if end is None else end, min(seconds, KEPT)
        content = await self._fetch(query(window), moment)
        series = await asyncio.to_thread(decode, content, self._url)
        if end is not None and not any(sampled > end - window for entry in series for sampled, _ in entry.values[-1:]):
            raise NoCounts(
                f"the Prometheus {self._url} has no samples of headgate from the {durations.formatted(window)} before "
                f"{timestamp(end)}"
            )
        return await asyncio.to_thread(read_samples, series, moment, window, self._url)


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
