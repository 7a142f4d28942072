"""Send requests through a proxy's probe socket: it routes as the proxy's listeners do, and names the chosen backend."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector
from yarl import URL

from headgate.envoy.listeners import UPSTREAM_HEADER_PREFIX
from headgate.envoy.traffic_stats import UPSTREAM_ATTRIBUTES, parse_backend, parse_pod
from headgate.envoy.upstream_tls import AUDITED, DENIED_HEADER
from headgate.errors import ProxyError
from headgate.http_failures import describe
from headgate.resources.meta import Value

SHOWN_BYTES = 200
_LONGEST_HEADER = 1 << 16
_OURS = (
    "Accept",
    "Accept-Encoding",
    "Content-Type",
    "User-Agent",
)  # headers that aiohttp must not add: routes may match on them, so only the user sets them

Header = tuple[str, str]


class ProbeRequest(Value, frozen=True, kw_only=True):
    """The request that a probe repeats. `url` is absolute; `timeout` is for one request, in seconds."""

    method: str
    url: str
    headers: tuple[Header, ...] = ()
    body: bytes = b""
    timeout: float = 10.0


class FailureKey(NamedTuple):
    """The key by which failed requests are counted.

    With a response, `status` is its status and `message` the first line of its body. Without a response, `status` is 0
    and `message` is the cause. `denied` is set when the sidecar of the backend's pod denied the request, because no
    TrafficTarget allows the caller.
    """

    status: int
    backend: str
    message: str
    denied: bool = False


class Batch(Value, frozen=True, kw_only=True):
    """Equal requests: `number` in total, at most `concurrency` at a time."""

    request: ProbeRequest
    number: int
    concurrency: int


class TallyCounts(Value, frozen=True, kw_only=True):
    """The content of a Tally, as a message between processes."""

    backends: dict[str, int]
    pods: dict[str, int]
    statuses: dict[int, int]
    failures: tuple[tuple[FailureKey, int], ...]
    proxy_answers: dict[int, int]


class ProbeProgress(Value, frozen=True, kw_only=True):
    """A line that `headgate sidecar try` prints: the number of finished requests; after the last one, what was counted."""

    finished: int
    counts: TallyCounts | None = None


class Tally:
    """Counts the finished requests by backend, pod, status and failure."""

    def __init__(self) -> None:
        self.backends: Counter[str] = Counter()
        self.pods: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.failures: Counter[FailureKey] = Counter()
        self.proxy_answers: Counter[int] = Counter()  # number of responses that the proxy itself generated, by status

    @classmethod
    def of(cls, counts: TallyCounts) -> Self:
        """Return the tally with the content of a message."""
        tally = cls()
        tally.backends.update(counts.backends)
        tally.pods.update(counts.pods)
        tally.statuses.update(counts.statuses)
        tally.failures.update(dict(counts.failures))
        tally.proxy_answers.update(counts.proxy_answers)
        return tally

    @property
    def counts(self) -> TallyCounts:
        """The content of this tally, as a message."""
        return TallyCounts(
            backends=self.backends,
            pods=self.pods,
            statuses=self.statuses,
            failures=tuple(self.failures.items()),
            proxy_answers=self.proxy_answers,
        )

    @property
    def requests(self) -> int:
        """Return the number of finished requests."""
        return sum(self.statuses.values())

    def add(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Count a response. A 5xx, a 4xx of a proxy, or a denial is a failure; a 4xx of the application is not."""
        upstream = {
            name: text
            for name, _ in UPSTREAM_ATTRIBUTES
            if (text := headers.get(f"{UPSTREAM_HEADER_PREFIX}{name}", "-")) != "-"
        }
        backend = parse_backend(upstream)
        served = bool(backend)
        self.statuses[status] += 1
        if served:
            self.backends[backend] += 1
            self.pods[parse_pod(upstream.get("pod", "")).pod or "-"] += 1
        else:
            self.proxy_answers[status] += 1
        denied = served and headers.get(DENIED_HEADER, AUDITED) != AUDITED
        if denied or status >= (500 if served else 400):
            self.failures[FailureKey(status, backend, first_line(body), denied)] += 1

    def add_unanswered(self, message: str) -> None:
        """Count a request without a response."""
        self.statuses[0] += 1
        self.failures[FailureKey(0, "", message)] += 1


def first_line(body: bytes) -> str:
    """Return the first line of a body, at most SHOWN_BYTES long, with unprintable characters replaced."""
    text = body[:SHOWN_BYTES].decode(errors="replace").strip().partition("\n")[0]
    return "".join(character if character.isprintable() else "�" for character in text)


class RequestBatch:
    """Sends a batch of requests, on persistent connections. `hint` says why the socket may be missing.

    `on_request` is called after each request.
    """

    def __init__(
        self,
        socket: Path,
        batch: Batch,
        *,
        on_request: Callable[[], object] = lambda: None,
        hint: str = "check that `headgate up` runs",
    ) -> None:
        self.tally = Tally()
        self._socket = socket
        self._request = batch.request
        self._concurrency = batch.concurrency
        self._left = batch.number
        self._on_request = on_request
        self._hint = hint

    async def run(self) -> Tally:
        """Send the requests, and return the tally. Raises ProxyError when the proxy can't be reached."""
        try:
            _, writer = await asyncio.open_unix_connection(self._socket)
        except OSError as error:
            raise ProxyError(
                f"the probe socket {self._socket} of the proxy can't be reached ({error.strerror}); {self._hint}"
            ) from error
        writer.close()
        session = ClientSession(
            connector=UnixConnector(str(self._socket), limit=self._concurrency),
            timeout=ClientTimeout(self._request.timeout),
            skip_auto_headers=_OURS,
            auto_decompress=False,
            max_field_size=_LONGEST_HEADER,
        )
        async with session, asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, self._left)):
                group.create_task(self._work(session))
        return self.tally

    async def _work(self, session: ClientSession) -> None:
        while self._left:
            self._left -= 1
            await self._send(session)
            self._on_request()

    async def _send(self, session: ClientSession) -> None:
        request = self._request
        try:
            async with session.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=request.body or None,
                allow_redirects=False,
                proxy="http://proxy",  # makes aiohttp write the absolute URL into the request line
            ) as response:
                body = await response.read()
        except TimeoutError:
            self.tally.add_unanswered(f"no response within {request.timeout:g} s; raise --timeout")
        except (OSError, ClientError) as error:
            self.tally.add_unanswered(describe(error))
        else:
            self.tally.add(response.status, {name.lower(): text for name, text in response.headers.items()}, body)
