"""Simulated requests of two versions with known true rates, in blocks, from a seeded generator.

Each series of blocks is endless; `decided_after` reads it until a test decides.
"""

import math
from bisect import bisect
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate, count
from random import Random
from typing import Protocol, TypeVar

from headgate.statistics.betting import Block, Rates, Sample

ERROR = 0.01
SIZES = (90, 10)
"""Requests to the reference and to the candidate in a block: 5 s at 20 requests per second."""
Series = Callable[[Random], Iterator[Block]]
State = TypeVar("State", bound="Evidence")


class Evidence(Protocol):
    """The state of a sequential test."""

    @property
    def evidence(self) -> float: ...


class SequentialTest(Protocol[State]):
    """A `RateTest` or a `ClusterTest`."""

    def start(self) -> State: ...

    def after(self, wealth: State, block: Block, /) -> State: ...


@cache
def _cumulative(trials: int, rate: float) -> list[float]:
    return list(
        accumulate(
            math.comb(trials, events) * rate**events * (1 - rate) ** (trials - events) for events in range(trials)
        )
    )


def binomial(random: Random, trials: int, rate: float) -> int:
    """Draw the number of events in independent trials."""
    return bisect(_cumulative(trials, rate), random.random())


def steady(reference: float, candidate: float, sizes: tuple[int, int] = SIZES) -> Series:
    """Return blocks of independent requests with constant rates."""
    return _independent(lambda _: Rates(reference, candidate), sizes)


def waves(worse: float = 0.0, period: int = 40) -> Series:
    """Return blocks in which the common rate follows a sine between 0.1 and 3 %; the candidate adds `worse`."""
    rates = [0.0155 + 0.0145 * math.sin(2 * math.pi * step / period) for step in range(period)]
    return _independent(lambda step: Rates(rates[step % period], rates[step % period] + worse), SIZES)


def jumps(worse: float = 0.0, every: int = 20) -> Series:
    """Return blocks in which the common rate jumps between 0.1 and 3 %; the candidate adds `worse`."""

    def rates(step: int) -> Rates:
        common = 0.03 if step // every % 2 else 0.001
        return Rates(common, common + worse)

    return _independent(rates, SIZES)


def _independent(rates: Callable[[int], Rates], sizes: tuple[int, int]) -> Series:
    def blocks(random: Random) -> Iterator[Block]:
        start = random.randrange(1000)
        for step in count(start):
            yield Block(
                *(Sample(size, binomial(random, size, rate)) for size, rate in zip(sizes, rates(step), strict=True))
            )

    return blocks


def bad_minutes(random: Random) -> Iterator[Block]:
    """Yield blocks of 5 s; ten minutes apart in the mean, both versions fail 30 % for a minute, otherwise 0.1 %."""
    left = 0
    while True:
        left = left - 1 if left else 12 * (random.random() < 1 / 120)
        rate = 0.3 if left else 0.001
        yield Block(*(Sample(size, binomial(random, size, rate)) for size in SIZES))


def incidents(length: int, rates: Rates, sizes: tuple[int, int] = SIZES) -> Series:
    """Return blocks in which incidents of one version fail `length` of its requests in a row.

    A request outside an incident starts one with such a probability that nearly `rates` of all requests fail.
    """

    def failures(random: Random, size: int, rate: float) -> Iterator[int]:
        until_next, left = _gap(random, rate / length), 0
        while True:
            failed = done = 0
            while done < size:
                if left:
                    step = min(left, size - done)
                    left, failed = left - step, failed + step
                else:
                    step = min(until_next, size - done)
                    until_next -= step
                    if not until_next and done + step < size:
                        left, until_next = length, _gap(random, rate / length)
                done += step
            yield failed

    def blocks(random: Random) -> Iterator[Block]:
        versions = (failures(random, size, rate) for size, rate in zip(sizes, rates, strict=True))
        for events in zip(*versions, strict=True):
            yield Block(*map(Sample, sizes, events))

    return blocks


def _gap(random: Random, chance: float) -> int:
    """Draw the number of requests before the next that starts an incident."""
    return int(math.log(1 - random.random()) / math.log1p(-chance))


def bad_pod(random: Random) -> Iterator[Block]:
    """Yield blocks in which one of the reference's ten pods fails 30 % of its requests, and all other pods 0.1 %."""
    references, candidates = SIZES
    while True:
        events = binomial(random, references // 10, 0.3) + binomial(random, references * 9 // 10, 0.001)
        yield Block(Sample(references, events), Sample(candidates, binomial(random, candidates, 0.001)))


def bad_node(random: Random) -> Iterator[Block]:
    """Yield blocks in which one of ten nodes is bad. It has one of the reference's ten pods, and maybe the candidate's pod."""
    rate = 0.3 if random.random() < 0.1 else 0.001
    for reference, _ in bad_pod(random):
        yield Block(reference, Sample(SIZES[1], binomial(random, SIZES[1], rate)))


def sticky_users(users: int, share: float, sizes: tuple[int, int] = SIZES) -> Series:
    """Return blocks in which each user stays with a version, and a share of the users always fails; other requests 0.1 %."""

    def blocks(random: Random) -> Iterator[Block]:
        groups = (users * size // sum(sizes) for size in sizes)
        failing = [sum(random.random() < share for _ in range(group)) / group for group in groups]
        rates = [0.001 + 0.999 * part for part in failing]
        while True:
            yield Block(*(Sample(size, binomial(random, size, rate)) for size, rate in zip(sizes, rates, strict=True)))

    return blocks


def periodic_clients(period: int, sizes: tuple[int, int], *, rotation: bool = False, healthy: bool = False) -> Series:
    """Return blocks of one client: in each `period` of its requests, the last one is for a path that the candidate fails.

    The reference fails the path too unless it is `healthy`. `sizes` is a cycle of the split. The backends of each cycle
    are drawn without replacement, or by `rotation` they have the same order in all cycles.
    """

    def blocks(random: Random) -> Iterator[Block]:
        order = [False] * sizes[0] + [True] * sizes[1]
        random.shuffle(order)
        sent = random.randrange(period)
        while True:
            trials, events = [0, 0], [0, 0]
            for _ in range(10):
                if not rotation:
                    random.shuffle(order)
                for is_candidate in order:
                    sent += 1
                    trials[is_candidate] += 1
                    events[is_candidate] += sent % period == 0 and (is_candidate or not healthy)
            yield Block(*map(Sample, trials, events))

    return blocks


def decided_after(test: SequentialTest[State], blocks: Iterator[Block], most: int) -> int | None:
    """Return the candidate's requests until the evidence is 1/ERROR; None if it is not after `most` requests."""
    state, requests = test.start(), 0
    for block in blocks:
        requests += block.candidate.trials
        if requests > most:
            return None
        state = test.after(state, block)
        if state.evidence >= 1 / ERROR:
            return requests
    return None


def decisions(test: SequentialTest[State], series: Series, most: int, seeds: range) -> list[int | None]:
    """Return when each of many rollouts was decided: the candidate's requests, or None. A seed stands for a rollout."""
    return [decided_after(test, series(Random(seed)), most) for seed in seeds]
