"""Sequential tests of event rates: evidence that stays valid however often it is read.

Each test bets against a null hypothesis. It starts with a wealth of 1. While the null hypothesis is true, no bet has a
positive expected gain, so the probability that the wealth ever reaches 1/error is at most `error` (Ville's inequality).
The wealth is the evidence: at 100, an error of 1 % is excluded.

The gain of a block of requests is a likelihood ratio: of an alternative pair of rates to the pair of the null hypothesis
that is closest to it (in Kullback-Leibler divergence, weighted by the numbers of requests). Turner, Ly and Grünwald show
that its expectation is at most 1 for any numbers of requests, if the null hypothesis is convex: "Generic E-variables for
exact sequential k-sample tests" (arXiv 2106.02693), and for a tolerated difference "Exact anytime-valid confidence
intervals for contingency tables and beyond" (arXiv 2203.09785). In short: the logarithm of the expected gain is concave in
the true rates, and both it and its slope into the null hypothesis are at most 0 at the closest pair.

Each block may have other true rates, so a common drift of both versions is no evidence. Within a block, only the mean
rates must satisfy the null hypothesis. Requests must fail independently of each other; `clusters` has a test without this
assumption (docs/tasks/canary.md).
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from math import exp, log, log1p
from typing import NamedTuple

from headgate.resources.meta import Value

SHIFTS = (0.3, 0.7, 1.2, 1.9, 2.8, 4.0, 5.5, 7.5)
"""The alternatives of a test for a higher rate: distances from the null hypothesis, in logits (0.7 is about twice the odds)."""
FRACTIONS = (0.02, 0.3)
"""The alternatives of a test for a lower rate: distances from the reference, as parts of the tolerated difference."""
DECAYS = (1.0, 0.95)
"""The part of the reference's counts that remains after a block: one memory for a steady rate, one for a rate that drifts."""
RESERVE = 0.3
"""The part of the initial wealth that is not bet at once. Bets lose almost all of their wealth when the common rate jumps."""
REFILL = 50
"""The reserve adds 1/(REFILL + number of blocks) of itself to the bets before each block, so that it never runs out."""
_PRIOR_TRIALS, _PRIOR_EVENTS = 50.0, 0.05  # the reference's counts before the first block
_AT_START = ((_PRIOR_TRIALS, _PRIOR_EVENTS),) * len(DECAYS)
_LEAST_EDGE = 1e-4  # the rate from which alternatives start: smaller differences are not worth a bet
_SMALLEST = 1e-9  # rates are kept away from 0 and 1 by this much
_BISECTIONS = 36
_MOST_WEALTH = 1e200  # wealth above all thresholds; a limit prevents an overflow
_MOST_GAIN = log(_MOST_WEALTH)


class Sample(NamedTuple):
    """Requests of one version (`trials`), and how many of them had the event, such as a failure."""

    trials: int
    events: int

    def plus(self, more: "Sample") -> "Sample":
        """Return the sum of both."""
        return Sample(self.trials + more.trials, self.events + more.events)


class Block(NamedTuple):
    """The requests of both versions in the same short time."""

    reference: Sample
    candidate: Sample

    def plus(self, more: "Block") -> "Block":
        """Return the sum of both."""
        return Block(self.reference.plus(more.reference), self.candidate.plus(more.candidate))


class Rates(NamedTuple):
    """The event rates of both versions."""

    reference: float
    candidate: float


class Wealth(Value, frozen=True, kw_only=True):
    """The state of a test: the wealth of each bet, the reserve, and the reference's counts (trials, events) per memory."""

    stakes: tuple[float, ...]
    reserve: float = RESERVE
    blocks: int = 0
    memories: tuple[tuple[float, float], ...] = _AT_START

    @property
    def evidence(self) -> float:
        """The evidence against the null hypothesis: it reaches 1/error with a probability of at most `error`."""
        return sum(self.stakes) + self.reserve


class Rejects(Enum):
    """What a test shows when it rejects its null hypothesis: that the candidate's rate is higher, or lower."""

    HIGHER = "higher"
    LOWER = "lower"


class RateTest(Value, frozen=True, kw_only=True):
    """A sequential test of a null hypothesis about event rates.

    With `rejects` "higher", the null hypothesis is: the candidate's rate is at most `limit` above the reference's. With
    "lower" it is: at least `limit` above. If `is_absolute`, the candidate's rate itself is at most, or at least, `limit`.
    """

    rejects: Rejects
    limit: float
    is_absolute: bool = False

    def start(self) -> Wealth:
        """Return the state before the first block."""
        bets = len(DECAYS) * len(SHIFTS if self.rejects is Rejects.HIGHER else FRACTIONS)
        return Wealth(stakes=((1 - RESERVE) / bets,) * bets)

    def after(self, wealth: Wealth, block: Block) -> Wealth:
        """Return the state after a block. Its numbers of requests must not depend on its events."""
        if not block.candidate.trials:
            return wealth  # no gain or loss is possible, and the reserve lasts for blocks that count
        refill = wealth.reserve / (REFILL + wealth.blocks)
        bets = zip(wealth.stakes, self._alternatives(wealth.memories), strict=True)
        stakes = tuple(
            min((stake + refill / len(wealth.stakes)) * exp(min(self._gain(block, rates), _MOST_GAIN)), _MOST_WEALTH)
            for stake, rates in bets
        )
        return Wealth(
            stakes=stakes,
            reserve=wealth.reserve - refill,
            blocks=wealth.blocks + 1,
            memories=_remembered(wealth.memories, block.reference),
        )

    def growth(self, block: Block) -> float:
        """Return the expected growth of the evidence per request to the candidate, as a logarithm.

        Assumes the rate and the ratio of requests of `block`: for a relative limit, that both versions have the
        reference's rate. The result is at most 0 if the null hypothesis is true then.
        """
        trials, events = _remembered(_AT_START, block.reference)[0]
        rate = events / trials
        rates = Rates(rate, block.candidate.events / block.candidate.trials if self.is_absolute else rate)
        if self.is_absolute and (rates.candidate >= self.limit) is (self.rejects is Rejects.LOWER):
            return 0.0
        ratio = 0.0 if self.is_absolute else block.reference.trials / block.candidate.trials
        null = self._closest(rates, ratio, 1.0)
        return ratio * _divergence(rates.reference, null.reference) + _divergence(rates.candidate, null.candidate)

    def _alternatives(self, memories: Sequence[tuple[float, float]]) -> Iterator[Rates]:
        for trials, events in memories:
            reference = _inside(events / trials)
            for candidate in self._candidates(reference):
                yield Rates(reference, _inside(candidate))

    def _candidates(self, reference: float) -> Iterator[float]:
        start = 0.0 if self.is_absolute else reference
        if self.rejects is Rejects.LOWER:
            yield from (start + self.limit * part for part in FRACTIONS)
        else:
            edge = _inside(max(start + self.limit, _LEAST_EDGE))
            odds = edge / (1 - edge)
            yield from (1 - 1 / (1 + odds * exp(shift)) for shift in SHIFTS)

    def _gain(self, block: Block, rates: Rates) -> float:
        """Return the logarithm of the factor by which a bet on `rates` multiplies its wealth."""
        null = self._closest(rates, block.reference.trials, block.candidate.trials)
        gain = _log_ratio(block.candidate, rates.candidate, null.candidate)
        return gain if self.is_absolute else gain + _log_ratio(block.reference, rates.reference, null.reference)

    def _closest(self, rates: Rates, references: float, candidates: float) -> Rates:
        """Return the rates of the null hypothesis that are closest to `rates`, weighted by the numbers of requests."""
        if self.is_absolute:
            return Rates(rates.reference, _inside(self.limit))
        if not self.limit:
            pooled = (references * rates.reference + candidates * rates.candidate) / (references + candidates)
            return Rates(pooled, pooled)
        ends = rates.reference, rates.candidate - self.limit
        low, high = max(min(ends), _SMALLEST), min(max(ends), 1 - self.limit - _SMALLEST)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            slope = references * _slope(rates.reference, middle) + candidates * _slope(
                rates.candidate, middle + self.limit
            )
            if slope > 0:
                high = middle
            else:
                low = middle
        return Rates(low, low + self.limit)


def _remembered(memories: Sequence[tuple[float, float]], sample: Sample) -> tuple[tuple[float, float], ...]:
    return tuple(
        (
            trials * decay + (1 - decay) * _PRIOR_TRIALS + sample.trials,
            events * decay + (1 - decay) * _PRIOR_EVENTS + sample.events,
        )
        for decay, (trials, events) in zip(DECAYS, memories, strict=True)
    )


def _log_ratio(sample: Sample, rate: float, null: float) -> float:
    """Return the logarithm of the likelihood ratio of `rate` to `null`."""
    return sample.events * log(rate / null) + (sample.trials - sample.events) * (log1p(-rate) - log1p(-null))


def _slope(rate: float, null: float) -> float:
    """Return the derivative by `null` of the divergence of `rate` from `null`."""
    return (null - rate) / (null * (1 - null))


def _divergence(rate: float, null: float) -> float:
    """Return the Kullback-Leibler divergence of a rate from another rate, in natural logarithms."""
    divergence = rate * log(rate / null) if rate else 0.0
    return divergence + (1 - rate) * (log1p(-rate) - log1p(-null)) if rate < 1 else divergence


def _inside(rate: float) -> float:
    return min(max(rate, _SMALLEST), 1 - _SMALLEST)
