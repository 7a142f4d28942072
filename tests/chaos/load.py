"""Constant load: clients with keep-alive connections that send the next request shortly after each response."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

ANSWER_S = 60.0
"""Timeout of a request in seconds; a request without an answer by then has failed."""
PAUSE_S = 0.05
"""The shortest pause after a response in seconds: eight clients send at most 90 requests a second."""
PAUSES, LONGEST_PAUSE_S = 3, 0.25
"""The shortest pause in times of the response. A busy machine responds later, so it gets fewer requests."""
PATIENCE_S = 120.0


class Target(NamedTuple):
    """The address that a client connects to, and the URI of its requests, absolute if `address` is an HTTP proxy."""

    address: str
    uri: str
    host: str


class TimedAnswer(NamedTuple):
    """One request: when it was sent and answered (`time.monotonic`), the status, and the backend that answered.

    `status` is 0 if there was no complete response; then `backend` has the error.
    """

    sent: float
    answered: float
    status: int
    backend: str
    target: Target


class TimedLoad:
    """Clients that send requests from `start` to `stop`; `answers` records each one."""

    def __init__(self, targets: Sequence[Target], *, clients: int) -> None:
        self.answers: list[TimedAnswer] = []
        self._targets = targets
        self._clients = clients
        self._going = False
        self._last_response_s = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start or resume the clients."""
        self._going = True
        self._tasks = [
            asyncio.create_task(self._client(self._targets[number % len(self._targets)]))
            for number in range(self._clients)
        ]

    async def stop(self) -> None:
        """Stop the clients after their current requests."""
        self._going = False
        await asyncio.gather(*self._tasks)

    async def reached(self, count: int) -> None:
        """Wait for `count` further answers."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.answers) < count:
                await asyncio.sleep(PAUSE_S)

    @property
    def failed(self) -> list[TimedAnswer]:
        """Return the requests that no backend answered."""
        return [answer for answer in self.answers if answer.status != 200]

    @property
    def backends(self) -> Counter[str]:
        """Return the number of answers of each backend."""
        return Counter(answer.backend for answer in self.answers if answer.status == 200)

    async def _client(self, target: Target) -> None:
        while self._going:
            await self._connection(target)

    async def _connection(self, target: Target) -> None:
        host, _, port = target.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            while self._going:
                if not await self._ask(target, reader, writer):
                    return
                await asyncio.sleep(max(PAUSE_S, min(PAUSES * self._last_response_s, LONGEST_PAUSE_S)))
        finally:
            writer.close()

    async def _ask(self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send one request and record its answer; return whether the connection can be reused."""
        sent = time.monotonic()
        writer.write(f"GET {target.uri} HTTP/1.1\r\nhost: {target.host}\r\n\r\n".encode())
        try:
            async with asyncio.timeout(ANSWER_S):
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                status = int(head.split(" ", 2)[1])
                body = await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r")[0]))
        except (OSError, asyncio.IncompleteReadError) as error:  # TimeoutError is a subclass of OSError
            self.answers.append(TimedAnswer(sent, time.monotonic(), 0, repr(error), target))
            return False
        answered = time.monotonic()
        self._last_response_s = answered - sent
        self.answers.append(TimedAnswer(sent, answered, status, body.decode(), target))
        return "connection: close" not in head


async def ask(target: Target, count: int) -> Counter[str]:
    """Send requests on one connection, one after the other; return the backend or the error of each."""
    load = TimedLoad([target], clients=1)
    load._going = True
    host, _, port = target.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for _ in range(count):
        await load._ask(target, reader, writer)
    writer.close()
    return Counter(answer.backend for answer in load.answers)
