"""Turns for a limited number of tasks at a time, given to clients in rotation, so that no client's tasks delay another's."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headgate.errors import ProxyError


class TooManyWaiting(ProxyError):
    """A client has as many waiting tasks as it may have. It may try again."""


class FairTurns:
    """Lets `at_a_time` tasks run. A client may have `waiting_per_client` further tasks, which wait.

    When a task ends, the client whose last turn is longest ago gets the next turn, for its first waiting task.
    """

    def __init__(self, at_a_time: int, waiting_per_client: int) -> None:
        self._free = at_a_time
        self._limit = waiting_per_client
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by client, the next one first

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn of this client and hold it during the context. Raises TooManyWaiting at once."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(client)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, client: str) -> None:
        turns = self._waiting.setdefault(client, deque())
        if len(turns) >= self._limit:
            raise TooManyWaiting(f"{len(turns)} requests of {client} wait for their turn: try again later")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._remove(client, turn)
            else:
                self._pass_on()  # it got its turn in the moment in which it was canceled
            raise

    def _remove(self, client: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(client, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(client, None)

    def _pass_on(self) -> None:
        """Give a turn that has ended to the next client, which then is the last one in the rotation."""
        while self._waiting:
            client = next(iter(self._waiting))
            turns = self._waiting.pop(client)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():  # it is done if its task was canceled and has not run since
                turn.set_result(None)
                return
        self._free += 1
