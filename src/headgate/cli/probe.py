"""Sends requests through the proxy's probe socket, which routes as the mesh does and names who answered."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headgate.cli.wire import Connection, Header
from headgate.envoy.listeners import BACKEND_HEADER, POD_HEADER
from headgate.envoy.peers import DENIED
from headgate.envoy.telemetry import parse_pod
from headgate.errors import ProxyError
from headgate.resources.meta import Value

SHOWN_BYTES = 200


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
        self.unserved: Counter[int] = Counter()  # by status: answers that the proxy gave itself

    @property
    def requests(self) -> int:
        """How many requests have ended."""
        return sum(self.statuses.values())

    def add(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Count an answer. The application's own 4xx is an answer like any; a 5xx, or a proxy's 4xx, is a failure."""
        backend, pod = headers.get(BACKEND_HEADER, "-"), parse_pod(headers.get(POD_HEADER, "-")).pod
        served = backend not in {"", "-"}
        self.statuses[status] += 1
        if served:
            self.backends[backend] += 1
            self.pods[pod] += 1
        else:
            self.unserved[status] += 1
        refused = served and DENIED in headers
        if refused or status >= (500 if served else 400):
            self.failures[Failure(status, backend if served else "", first_line(body), refused)] += 1

    def lose(self, message: str) -> None:
        """Count a request without an answer."""
        self.statuses[0] += 1
        self.failures[Failure(0, "", message)] += 1


def first_line(body: bytes) -> str:
    """Return what a body begins with, fit to be shown."""
    text = body[:SHOWN_BYTES].decode(errors="replace").strip().partition("\n")[0]
    return "".join(character if character.isprintable() else "�" for character in text)


class Probe:
    """Sends one kind of request `number` times, `concurrency` at once, each worker on a connection that it keeps."""

    def __init__(self, socket: Path, request: Request) -> None:
        self.told: Callable[[], object] = lambda: None
        """Called after each request."""
        self.tally = Tally()
        self._socket = socket
        self.request = request
        self._left = 0

    async def run(self, number: int, concurrency: int) -> Tally:
        """Send the requests. Raises ProxyError when the proxy can't be reached at all."""
        self._left = number
        try:
            first = await self._connect()
        except OSError as error:
            raise ProxyError(
                f"the proxy's socket {self._socket} can't be reached ({error.strerror}); is `headgate up` still running?"
            ) from error
        async with asyncio.TaskGroup() as group:
            for index in range(min(concurrency, number)):
                group.create_task(self._work(first if index == 0 else None))
        return self.tally

    async def _connect(self) -> Connection:
        return Connection(await asyncio.open_unix_connection(self._socket))

    async def _work(self, connection: Connection | None) -> None:
        while self._left:
            self._left -= 1
            connection = await self._ask(connection)
            self.told()
        if connection:
            await connection.close()

    async def _ask(self, kept: Connection | None) -> Connection | None:
        """Send one request; return the connection when it takes another."""
        connection = kept
        try:
            connection = connection or await self._connect()
            if await self._exchange(connection):
                return connection
        except TimeoutError:
            self.tally.lose(f"no answer within {self.request.timeout:g} s; allow more with --timeout")
        except OSError as error:
            self.tally.lose(str(error))
        if connection:
            await connection.close()
        return None

    async def _exchange(self, connection: Connection) -> bool:
        request = self.request
        async with asyncio.timeout(request.timeout):
            response = await connection.ask(request.method, request.url, request.headers, request.body)
            body = await response.read()
        self.tally.add(response.status, response.headers, body)
        return response.reusable
