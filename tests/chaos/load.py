"""Constant load: clients that keep their connections and send the next request soon after the last one's answer."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

ANSWER_S = 10.0
"""A request that has no answer by then has failed."""
PAUSE_S = 0.02
"""Between an answer and the next request, so that the clients leave the processors to what they test."""
PATIENCE_S = 120.0


class Target(NamedTuple):
    """Where a client connects, and what it asks for: `uri` is absolute when `address` is an HTTP proxy."""

    address: str
    uri: str
    host: str


class Answer(NamedTuple):
    """One request: when it was sent and answered (`time.monotonic`), the status, and the backend that answered.

    `status` is 0 when there was no whole answer; `backend` then says why.
    """

    sent: float
    answered: float
    status: int
    backend: str
    target: Target


class Load:
    """Clients of some targets, from `start` to `stop`; `answers` grows meanwhile."""

    def __init__(self, targets: Sequence[Target], *, clients: int) -> None:
        self.answers: list[Answer] = []
        self._targets = targets
        self._clients = clients
        self._going = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin, or go on."""
        self._going = True
        self._tasks = [
            asyncio.create_task(self._client(self._targets[number % len(self._targets)]))
            for number in range(self._clients)
        ]

    async def stop(self) -> None:
        """Let every client have its last answer."""
        self._going = False
        await asyncio.gather(*self._tasks)

    async def reached(self, count: int) -> None:
        """Wait until there are so many answers."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.answers) < count:
                await asyncio.sleep(PAUSE_S)

    @property
    def failed(self) -> list[Answer]:
        """The requests without an answer of a backend."""
        return [answer for answer in self.answers if answer.status != 200]

    @property
    def backends(self) -> Counter[str]:
        """How many answers each backend gave."""
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
                await asyncio.sleep(PAUSE_S)
        finally:
            writer.close()

    async def _ask(self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send one request and note its answer; say whether the connection can be used again."""
        sent = time.monotonic()
        writer.write(f"GET {target.uri} HTTP/1.1\r\nhost: {target.host}\r\n\r\n".encode())
        try:
            async with asyncio.timeout(ANSWER_S):
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                status = int(head.split(" ", 2)[1])
                body = await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r")[0]))
        except (OSError, asyncio.IncompleteReadError) as error:  # a timeout is an OSError too
            self.answers.append(Answer(sent, time.monotonic(), 0, repr(error), target))
            return False
        self.answers.append(Answer(sent, time.monotonic(), status, body.decode(), target))
        return "connection: close" not in head


async def ask(target: Target, count: int) -> Counter[str]:
    """Send requests one after the other on one connection and return who answered them; a failure is an answer too."""
    load = Load([target], clients=1)
    load._going = True
    host, _, port = target.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for _ in range(count):
        await load._ask(target, reader, writer)
    writer.close()
    return Counter(answer.backend for answer in load.answers)
