"""Limits of the requests to an API server, so that a control plane with many objects does not overload it."""

import asyncio

WRITES_PER_S = 100.0  # 3,000 objects have their statuses after half a minute
BURST = 200
RETRY_AFTER_S = 30.0


class RequestLimits:
    """A token bucket for the writes of a client: BURST of them at once, and WRITES_PER_S of them in the long run.

    Writes are sent in the order in which they arrive. A request that the server rejects for now (429) waits as the server
    says, for at most `retry_after_s` seconds in total.
    """

    def __init__(
        self, *, writes_per_s: float = WRITES_PER_S, burst: int = BURST, retry_after_s: float = RETRY_AFTER_S
    ) -> None:
        self.retry_after_s = retry_after_s
        self._rate = writes_per_s
        self._burst = burst
        self._tokens = float(burst)  # negative: the number of writes that wait
        self._updated = 0.0

    async def wait_to_write(self) -> None:
        """Wait until a write may be sent."""
        now = asyncio.get_running_loop().time()
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate) - 1
        self._updated = now
        try:
            await asyncio.sleep(max(0.0, -self._tokens / self._rate))
        except asyncio.CancelledError:
            self._tokens += 1
            raise
