"""Repeated attempts to reach a server, and the pauses between them."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

FIRST_S, LONGEST_S = 0.2, 20.0
T = TypeVar("T")

log = logging.getLogger(__name__)


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each retry: they double up to LONGEST_S, and up to half of each is random.

    The random part spreads the attempts of many watches after an API server has restarted.
    """
    longest = FIRST_S
    while True:
        yield longest / 2 + random.uniform(0, longest / 2)  # noqa: S311 - not for secrets
        longest = min(2 * longest, LONGEST_S)


async def until_done(attempt: Callable[[], Awaitable[T]], failure: str, *, on: type[Exception]) -> T:
    """Repeat an attempt that raises `on`, with growing pauses; return its result. Raises what it raises otherwise.

    `failure` says in the log what a failed attempt could not do; if it is empty, nothing is logged.
    """
    waits = pauses()
    while True:
        try:
            return await attempt()
        except on as error:
            pause = next(waits)
            if failure:
                log.warning("%s, next attempt in %.1f s: %s", failure, pause, error)
            await asyncio.sleep(pause)
