"""The test for clustered failures keeps its promise for incidents of any content, also when they cross windows (R108)."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import product

import pytest

from headgate.statistics.betting import Block, Sample
from headgate.statistics.clusters import ClusterTest, ClusterWealth

TEST = ClusterTest()
CHANCES = (0.0, 0.001, 0.02, 0.1, 0.3, 0.5, 0.8, 0.97)
SIZES = ((9, 1), (90, 10), (3, 3), (10, 90), (1, 4), (0, 3), (3, 0))
QUIET, FAILING = (
    Block(Sample(90, 0), Sample(10, 0)),
    Block(Sample(90, 0), Sample(10, 4)),
)


def some_states() -> dict[str, ClusterWealth]:
    """Return states before a window, after different earlier windows."""
    start = TEST.start()
    failed = TEST.after(start, FAILING)
    return {"start": start, "quiet": TEST.after(start, QUIET), "after a pause": TEST.after(failed, FAILING)}


def outcome(sizes: tuple[int, int], failed: tuple[bool, bool]) -> Block:
    (references, candidates), (first, second) = sizes, failed
    return Block(Sample(references, int(first)), Sample(candidates, int(second)))


@pytest.mark.parametrize("state", some_states().values(), ids=some_states())
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("part", [1.0, 0.5])
def test_expected_evidence_never_grows_while_requests_start_incidents_alike(
    state: ClusterWealth, sizes: tuple[int, int], part: float
) -> None:
    """`part` is the candidate's probability to start an incident, compared with the reference's."""
    for chance in CHANCES:
        failing = (
            1 - (1 - chance) ** sizes[0],
            1 - (1 - chance * part) ** (sizes[1] + state.skipped) if sizes[1] else 0,
        )
        total = 0.0
        for failed in product((False, True), repeat=2):
            weights = [rate if event else 1 - rate for rate, event in zip(failing, failed, strict=True)]
            total += weights[0] * weights[1] * TEST.after(state, outcome(sizes, failed)).evidence
        assert total <= state.evidence * (1 + 1e-9), chance


def failed_windows(size: int, windows: int, *, length: int, chance: float) -> dict[tuple[bool, ...], float]:
    """Return the exact probability of each series of failed windows, when incidents last `length` requests.

    The first window starts without an incident. A request in an incident starts no other.
    """
    series: dict[tuple[tuple[bool, ...], int], float] = {((), 0): 1.0}
    for _ in range(windows):
        for request in range(size):
            following: dict[tuple[tuple[bool, ...], int], float] = defaultdict(float)
            for (seen, left), weight in series.items():
                before = seen if request else (*seen, False)
                failed = (*before[:-1], True)
                if left:
                    following[failed, left - 1] += weight
                else:
                    following[before, 0] += weight * (1 - chance)
                    following[failed, length - 1] += weight * chance
            series = following
    found: dict[tuple[bool, ...], float] = defaultdict(float)
    for (seen, _), weight in series.items():
        found[seen] += weight
    return found


def states_after(sizes: tuple[int, int], windows: int) -> Iterator[tuple[tuple[tuple[bool, ...], ...], ClusterWealth]]:
    """Yield each series of failed windows (of the reference, of the candidate), and the state after it."""
    if not windows:
        yield (), TEST.start()
        return
    for series, state in states_after(sizes, windows - 1):
        for failed in product((False, True), repeat=2):
            yield (*series, failed), TEST.after(state, outcome(sizes, failed))


@pytest.mark.parametrize("sizes", [(18, 2), (9, 3), (4, 4), (2, 6)], ids=str)
@pytest.mark.parametrize("parts", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
def test_incidents_that_cross_windows_are_no_evidence(sizes: tuple[int, int], parts: tuple[int, int]) -> None:
    """`parts` selects incidents of one request (0) or as long as a window (1), for each version."""
    lengths = [size if part else 1 for size, part in zip(sizes, parts, strict=True)]
    evidence = {series: state.evidence for series, state in states_after(sizes, 6)}
    for chance in (0.01, 0.1, 0.3, 0.7):
        first, second = (
            failed_windows(size, 6, length=length, chance=chance) for size, length in zip(sizes, lengths, strict=True)
        )
        total = sum(
            weight * other_weight * evidence[tuple(zip(references, candidates, strict=True))]
            for (references, weight), (candidates, other_weight) in product(first.items(), second.items())
        )
        assert total <= 1 + 1e-9, chance


def test_failures_within_a_window_and_the_next_count_once() -> None:
    one = TEST.after(TEST.start(), Block(Sample(90, 0), Sample(10, 1)))
    all_of_them = TEST.after(TEST.start(), Block(Sample(90, 0), Sample(10, 10)))
    assert one == all_of_them
    assert TEST.after(one, FAILING).evidence == one.evidence > 1


def test_failures_of_both_versions_in_the_same_window_are_no_evidence() -> None:
    both = Block(Sample(90, 30), Sample(10, 3))
    assert TEST.after(TEST.start(), both).evidence == TEST.start().evidence


def test_a_window_with_a_change_of_shares_is_not_counted() -> None:
    state = TEST.without(TEST.start(), FAILING)
    assert state.evidence == TEST.start().evidence
    assert TEST.after(state, FAILING).evidence < TEST.after(TEST.start(), FAILING).evidence


def test_a_candidate_that_fails_in_each_window_is_found() -> None:
    state = TEST.start()
    windows = 0
    while state.evidence < 100:
        windows += 1
        state = TEST.after(state, Block(Sample(18, 0), Sample(2, 1)))
    assert windows <= 15
