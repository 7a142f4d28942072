"""Sends requests through the proxy's probe socket, which routes as the mesh does and names who answered."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector
from yarl import URL

from headgate.envoy.listeners import UPSTREAM_HEADER_PREFIX
from headgate.envoy.traffic_stats import UPSTREAM_ATTRIBUTES, parse_backend, parse_pod
from headgate.envoy.upstream_tls import DENIED_HEADER
from headgate.errors import ProxyError
from headgate.http_failures import describe
from headgate.resources.meta import Value

SHOWN_BYTES = 200
_LONGEST_HEADER = 1 << 16
_OURS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")  # routes may look at these: only the user sets them

Header = tuple[str, str]


class Request(Value, frozen=True, kw_only=True):
    """What is sent again and again. `url` is absolute; `timeout` is in seconds, for one request."""

    method: str
    url: str
    headers: tuple[Header, ...] = ()
    body: bytes = b""
    timeout: float = 10.0


class Failure(NamedTuple):
    """Why a request failed: a status and the first line of its body, or no status and what happened.

    `refused`: the sidecar of the backend's pod refused it, because no rule lets the caller in.
    """

    status: int
    backend: str
    message: str
    refused: bool = False


class Tally:
    """What became of the requests: counted by backend, pod and status; `unanswered` reached nobody."""

    def __init__(self) -> None:
        self.backends: Counter[str] = Counter()
        self.pods: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.failures: Counter[Failure] = Counter()
        self.proxy_answers: Counter[int] = Counter()  # by status: answers that the proxy gave itself

    @property
    def requests(self) -> int:
        """How many requests have ended."""
        return sum(self.statuses.values())

    def add(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Count an answer. The application's own 4xx is an answer like any; a 5xx, or a proxy's 4xx, is a failure."""
        said = {
            name: text
            for name, _ in UPSTREAM_ATTRIBUTES
            if (text := headers.get(f"{UPSTREAM_HEADER_PREFIX}{name}", "-")) != "-"
        }
        backend = parse_backend(said)
        served = bool(backend)
        self.statuses[status] += 1
        if served:
            self.backends[backend] += 1
            self.pods[parse_pod(said.get("pod", "")).pod or "-"] += 1
        else:
            self.proxy_answers[status] += 1
        refused = served and DENIED_HEADER in headers
        if refused or status >= (500 if served else 400):
            self.failures[Failure(status, backend, first_line(body), refused)] += 1

    def add_unanswered(self, message: str) -> None:
        """Count a request without an answer."""
        self.statuses[0] += 1
        self.failures[Failure(0, "", message)] += 1


def first_line(body: bytes) -> str:
    """Return what a body begins with, fit to be shown."""
    text = body[:SHOWN_BYTES].decode(errors="replace").strip().partition("\n")[0]
    return "".join(character if character.isprintable() else "�" for character in text)


class Probe:
    """Sends one kind of request `number` times, `concurrency` at once, on connections that are kept."""

    def __init__(self, socket: Path, request: Request) -> None:
        self.on_request: Callable[[], object] = lambda: None
        """Called after each request."""
        self.tally = Tally()
        self._socket = socket
        self.request = request
        self._left = 0

    async def run(self, number: int, concurrency: int) -> Tally:
        """Send the requests. Raises ProxyError when the proxy can't be reached at all."""
        self._left = number
        try:
            _, writer = await asyncio.open_unix_connection(self._socket)
        except OSError as error:
            raise ProxyError(
                f"the proxy's socket {self._socket} can't be reached ({error.strerror}); is `headgate up` still running?"
            ) from error
        writer.close()
        session = ClientSession(
            connector=UnixConnector(str(self._socket), limit=concurrency),
            timeout=ClientTimeout(self.request.timeout),
            skip_auto_headers=_OURS,
            auto_decompress=False,
            max_field_size=_LONGEST_HEADER,
        )
        async with session, asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, number)):
                group.create_task(self._work(session))
        return self.tally

    async def _work(self, session: ClientSession) -> None:
        while self._left:
            self._left -= 1
            await self._send(session)
            self.on_request()

    async def _send(self, session: ClientSession) -> None:
        request = self.request
        try:
            async with session.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=request.body or None,
                allow_redirects=False,
                proxy="http://proxy",  # the request line has the whole URL, as for any proxy
            ) as response:
                body = await response.read()
        except TimeoutError:
            self.tally.add_unanswered(f"no answer within {request.timeout:g} s; allow more with --timeout")
        except (OSError, ClientError) as error:
            self.tally.add_unanswered(describe(error))
        else:
            self.tally.add(response.status, {name.lower(): text for name, text in response.headers.items()}, body)
