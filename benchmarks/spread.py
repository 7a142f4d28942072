"""Measure the deviation of a backend's share in 100 requests: headgate's split, compared with a random choice.

Both Envoys split 90/10 over the same backends. One is configured by headgate (weighted localities, round robin), the
other by hand with weighted clusters (a random number per request). In theory the random choice has a standard deviation
of 3.
"""

import math
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.contest import WEIGHTS
from benchmarks.lab import start_envoy, start_gateway, website
from benchmarks.load import Backend, connect
from benchmarks.proxy import minimal
from tests.ports import free_port

NAMES = ("v0", "v1")
RUN = 100  # requests


class Scale(NamedTuple):
    """The number of runs of requests to each proxy."""

    runs: int


USUAL = Scale(runs=100)
SMALLEST = Scale(runs=1)


async def shares(port: int, runs: int) -> list[int]:
    """Return the number of requests in each run to the backend with the smaller weight."""
    more = iter(range(runs * RUN - 1))
    (client,) = await connect(f"127.0.0.1:{port}", 1, lambda: next(more, None) is not None)
    await client.done
    names = [answer.name for answer in client.seen]
    if len(names) != runs * RUN:
        raise RuntimeError(f"{runs * RUN - len(names)} of {runs * RUN} requests failed")
    return [names[start : start + RUN].count(NAMES[1]) for start in range(0, runs * RUN, RUN)]


async def measure(scale: Scale) -> None:
    """Print a row for each kind of split."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        backends = [stack.enter_context(Backend(name)) for name in NAMES]
        gateway = await start_gateway(stack, directory, website(free_port(), backends, WEIGHTS))
        port, place = free_port(), directory / "clusters"
        by_hand = minimal(port, backends, f"{place}.sock", localities=False)
        await start_envoy(stack, place, by_hand)
        theory = math.sqrt(RUN * WEIGHTS[1] / 100 * WEIGHTS[0] / 100)
        print(f"share of 10 % in {scale.runs} runs of {RUN} requests (a random pick has a deviation of {theory:.2f})")
        for name, where in (("generated", gateway.port), ("weighted clusters", port)):
            counts = await shares(where, scale.runs)
            print(f"  {name:20} {min(counts):3} to {max(counts):3}   deviation {statistics.pstdev(counts):5.2f}")
