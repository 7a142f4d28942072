"""Sequential tests of rates keep their promise: evidence grows by chance only, however the blocks are cut (R108)."""

from itertools import product
from math import comb, log

import pytest

from headgate.statistics.betting import Block, Rates, RateTest, Rejects, Sample, Wealth

WORSE = RateTest(rejects=Rejects.HIGHER, limit=0.0)
WORSE_BY_5 = RateTest(rejects=Rejects.HIGHER, limit=0.05)
FINE_WITHIN_5 = RateTest(rejects=Rejects.LOWER, limit=0.05)
ABOVE_10 = RateTest(rejects=Rejects.HIGHER, limit=0.1, is_absolute=True)
BELOW_10 = RateTest(rejects=Rejects.LOWER, limit=0.1, is_absolute=True)
RATES = (0.0, 0.001, 0.02, 0.1, 0.4, 1.0)
SIZES = ((9, 1), (3, 3), (1, 4), (0, 3))


def is_null(test: RateTest, rates: Rates) -> bool:
    edge = test.limit if test.is_absolute else rates.reference + test.limit
    return rates.candidate <= edge if test.rejects is Rejects.HIGHER else rates.candidate >= edge


def binomial(sample: Sample, rate: float) -> float:
    return comb(sample.trials, sample.events) * rate**sample.events * (1 - rate) ** (sample.trials - sample.events)


def expected(test: RateTest, wealth: Wealth, sizes: tuple[int, int], rates: Rates) -> float:
    """Return the exact expectation of the evidence after one more block."""
    references, candidates = sizes
    total = 0.0
    for first, second in product(range(references + 1), range(candidates + 1)):
        block = Block(Sample(references, first), Sample(candidates, second))
        chance = binomial(block.reference, rates.reference) * binomial(block.candidate, rates.candidate)
        total += chance * test.after(wealth, block).evidence if chance else 0.0
    return total


@pytest.mark.parametrize("test", [WORSE, WORSE_BY_5, FINE_WITHIN_5, ABOVE_10, BELOW_10], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_expected_evidence_never_grows_while_the_null_hypothesis_is_true(
    test: RateTest, sizes: tuple[int, int]
) -> None:
    start = test.start()
    later = test.after(start, Block(Sample(200, 13), Sample(20, 3)))
    pairs = [Rates(*pair) for pair in product(RATES, RATES)]
    null = [rates for rates in pairs if is_null(test, rates)]
    assert len(null) >= 3
    for wealth, rates in product((start, later), null):
        assert expected(test, wealth, sizes, rates) <= wealth.evidence * (1 + 1e-9), rates


@pytest.mark.parametrize("test", [WORSE, WORSE_BY_5, FINE_WITHIN_5, ABOVE_10, BELOW_10], ids=str)
def test_expected_evidence_grows_when_the_claim_is_true(test: RateTest) -> None:
    rates = Rates(0.001, 0.5 if test.rejects is Rejects.HIGHER else 0.001)
    wealth = test.after(test.start(), Block(Sample(900, 1), Sample(0, 0)))
    assert expected(test, wealth, (9, 3), rates) > wealth.evidence


def test_requests_to_the_reference_alone_are_no_evidence() -> None:
    start = WORSE.start()
    assert WORSE.after(start, Block(Sample(1000, 500), Sample(0, 0))).evidence == start.evidence


def test_a_failing_candidate_is_found_after_a_few_failures() -> None:
    wealth = WORSE.start()
    rounds = 0
    while wealth.evidence < 100:
        rounds += 1
        wealth = WORSE.after(wealth, Block(Sample(9, 0), Sample(1, rounds % 2)))
    assert rounds <= 10


def test_a_jump_of_the_common_rate_is_no_evidence_and_does_not_hide_a_later_difference() -> None:
    wealth = WORSE.start()
    for _ in range(100):
        wealth = WORSE.after(wealth, Block(Sample(900, 1), Sample(100, 0)))
    most = 0.0
    for _ in range(100):
        wealth = WORSE.after(wealth, Block(Sample(900, 27), Sample(100, 3)))
        most = max(most, wealth.evidence)
    assert most < 100
    blocks = 0
    while wealth.evidence < 100:
        blocks += 1
        wealth = WORSE.after(wealth, Block(Sample(900, 27), Sample(100, 8)))
    assert blocks <= 10


def test_a_candidate_that_turns_bad_after_a_day_is_found_within_a_minute() -> None:
    wealth = WORSE.start()
    for _ in range(86_400 // 10):
        wealth = WORSE.after(wealth, Block(Sample(9000, 9), Sample(1000, 1)))
    blocks = 0
    while wealth.evidence < 100:
        blocks += 1
        wealth = WORSE.after(wealth, Block(Sample(900, 1), Sample(100, 5)))
    assert blocks <= 10


def test_evidence_without_end_stays_a_number() -> None:
    wealth = WORSE.start()
    for _ in range(2000):
        wealth = WORSE.after(wealth, Block(Sample(900, 0), Sample(100, 100)))
    assert 100 < wealth.evidence < float("inf")


def test_a_block_with_thousands_of_failures_is_one_finite_gain() -> None:
    test = RateTest(rejects=Rejects.HIGHER, limit=0.0)
    wealth = test.after(test.start(), Block(Sample(9000, 0), Sample(9000, 9000)))
    assert 1e100 < wealth.evidence < 1e201


def test_growth_predicts_how_many_requests_a_decision_needs() -> None:
    """Simulated, the median is 560 requests (`make bench ARGS=rollouts`); this is the information that they have."""
    growth = RateTest(rejects=Rejects.LOWER, limit=0.01).growth(Block(Sample(90_000, 90), Sample(10_000, 10)))
    assert log(100) / growth == pytest.approx(600, rel=0.25)
    assert BELOW_10.growth(Block(Sample(0, 0), Sample(100, 20))) == 0.0


def test_a_limit_of_zero_rejects_at_the_first_event() -> None:
    literal = RateTest(rejects=Rejects.HIGHER, limit=0.0, is_absolute=True)
    wealth = literal.after(literal.start(), Block(Sample(900, 0), Sample(5000, 0)))
    assert wealth.evidence < 1
    assert literal.after(wealth, Block(Sample(9, 0), Sample(1, 1))).evidence > 1e4
