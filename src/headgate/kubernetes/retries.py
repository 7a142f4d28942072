"""Repeated attempts to reach an API server, and the pauses between them."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from headgate.errors import Unavailable

FIRST_S, LONGEST_S = 0.2, 20.0
T = TypeVar("T")

log = logging.getLogger(__name__)


async def until_answered(ask: Callable[[], Awaitable[T]], failure: str) -> T:
    """Repeat a request until the API server is available; return its result. Raises what `ask` raises otherwise.

    `failure` says in the log what a failed attempt could not do.
    """
    waits = pauses()
    while True:
        try:
            return await ask()
        except Unavailable as error:
            pause = next(waits)
            log.warning("%s, next attempt in %.1f s: %s", failure, pause, error)
            await asyncio.sleep(pause)


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each retry: they double up to LONGEST_S, and up to half of each is random.

    The random part spreads the attempts of many watches after an API server has restarted.
    """
    longest = FIRST_S
    while True:
        yield longest / 2 + random.uniform(0, longest / 2)  # noqa: S311 - not for secrets
        longest = min(2 * longest, LONGEST_S)
