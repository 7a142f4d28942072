"""Compare proxies under the same load. They take turns, so that disturbances of the machine affect all alike."""

import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.load import cpu_seconds, drive, generator, pin

WEIGHTS = (90, 10)
CONNECTIONS = 32
PROXIES, CLIENTS = 0, 1
"""CPUs: one for the proxies, which take turns, and one for clients and backends."""


class Scale(NamedTuple):
    """The number of slices of load on each proxy, their seconds, and those of the first load, which warms the caches."""

    rounds: int
    seconds: float
    warm: float


USUAL = Scale(rounds=15, seconds=2, warm=1)
SMALLEST = Scale(rounds=1, seconds=0.1, warm=0.1)


class Result(NamedTuple):
    """The result of one slice of load on one proxy; `cpu` is Envoy's CPU time per request in microseconds."""

    rate: float
    p99: float
    cpu: float


class Contender(NamedTuple):
    """One of the compared proxies."""

    name: str
    port: int
    pid: int
    results: list[Result]


async def compete(contenders: Sequence[Contender], scale: Scale) -> None:
    """Load each proxy in each round in random order, and print a row for each. Raises RuntimeError if a request fails."""
    for contender in contenders:
        pin(contender.pid, PROXIES)
        await _measure(contender, seconds=scale.warm)  # open connections to the backends and warm the caches
    for _ in range(scale.rounds):
        for contender in random.sample(contenders, len(contenders)):
            contender.results.append(await _measure(contender, seconds=scale.seconds))
    print(f"{scale.rounds} slices of {scale.seconds:g} s each, {CONNECTIONS} connections, load by {generator()}")
    print(f"{'medians':20} {'req/s':>8} {'p99 ms':>8} {'CPU us/req':>11}")
    for contender in contenders:
        rate, p99, cpu = (statistics.median(values) for values in zip(*contender.results, strict=True))
        print(f"{contender.name:20} {rate:8.0f} {p99:8.2f} {cpu:11.1f}")


async def _measure(contender: Contender, *, seconds: float) -> Result:
    before = cpu_seconds(contender.pid)
    load = await drive(contender.port, connections=CONNECTIONS, seconds=seconds)
    if load.failed or not load.requests:
        raise RuntimeError(f"{contender.name}: {load.failed} of {load.requests} requests failed")
    used = cpu_seconds(contender.pid) - before
    return Result(load.requests / load.seconds, load.p99, used / load.requests * 1e6)
