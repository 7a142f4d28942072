"""A changed weight moves only the necessary number of users (requirements 2.8)."""

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.model.hash_slots import TOTAL, is_rounded, layout, slot_counts

WEIGHTS = st.lists(st.integers(0, 2**31), min_size=1, max_size=6).filter(any)


def owners(counts):
    return [run.owner for run in layout(tuple(counts)) for _ in range(run.size)]


def moved(before, after):
    return [(a, b) for a, b in zip(owners(before), owners(after), strict=True) if a != b]


@st.composite
def counts(draw, backends, most=TOTAL):
    """Draw the number of slots of each backend; each backend after the first has at most `most` slots."""
    found = []
    for _ in range(backends - 1):
        found.append(draw(st.integers(0, min(most, TOTAL - sum(found)))))
    return (TOTAL - sum(found), *found)


@given(WEIGHTS)
def test_all_slots_are_assigned_and_each_share_is_exact_to_one_slot(weights):
    found = slot_counts(weights)
    assert sum(found) == TOTAL
    for weight, count in zip(weights, found, strict=True):
        assert abs(weight * TOTAL - count * sum(weights)) < sum(weights)
        assert count == 0 or weight > 0


def test_is_rounded_is_true_if_a_weight_is_not_an_integer_number_of_slots():
    assert slot_counts([90, 10]) == (9000, 1000)
    assert not is_rounded([90, 10])
    assert slot_counts([1, 1, 1]) == (3334, 3333, 3333)
    assert is_rounded([1, 1, 1])


def test_slot_counts_rejects_weights_of_0():
    with pytest.raises(ValueError, match="no weight"):
        slot_counts([0, 0])


@given(WEIGHTS)
def test_the_layout_has_the_right_number_of_slots_for_each_backend(weights):
    wanted = slot_counts(weights)
    found = owners(wanted)
    assert [found.count(index) for index in range(len(wanted))] == list(wanted)


@given(counts(2), counts(2))
def test_with_two_backends_a_change_moves_the_fewest_users(before, after):
    assert len(moved(before, after)) == abs(before[0] - after[0])


@given(counts(3), counts(3))
def test_with_three_backends_a_change_of_the_first_and_one_other_weight_moves_the_fewest_users(before, after):
    found = moved(before, after)
    for index in (1, 2):
        gained = [pair for pair in found if pair[1] == index and pair[0] == 0]
        lost = [pair for pair in found if pair[0] == index and pair[1] == 0]
        change = after[index] - before[index]
        if change * (after[3 - index] - before[3 - index]) >= 0:  # backends 1 and 2 exchange no slots
            assert (len(gained), len(lost)) == (max(change, 0), max(-change, 0))
            assert all(0 in pair for pair in found)


@given(st.data(), st.integers(3, 6))
def test_no_user_moves_between_backends_that_fit_into_their_home_regions(data, backends):
    home = TOTAL // (backends - 1)
    before, after = data.draw(counts(backends, home)), data.draw(counts(backends, home))
    found = moved(before, after)
    assert all(0 in pair for pair in found)
    assert len(found) == sum(abs(a - b) for a, b in zip(before[1:], after[1:], strict=True))


@given(st.data(), st.integers(2, 6))
def test_a_user_moves_at_most_once_in_a_monotonic_rollout(data, backends):
    """In a rollout the weights move step by step from the first backend to the rest."""
    home = TOTAL if backends <= 3 else TOTAL // (backends - 1)
    end = data.draw(counts(backends, home))
    assume(end[0] < TOTAL)
    steps = data.draw(st.integers(1, 6))
    ramp = []
    for step in range(steps + 1):
        remaining = [count * step // steps for count in end[1:]]
        ramp.append(owners((TOTAL - sum(remaining), *remaining)))
    for history in zip(*ramp, strict=True):
        assert sum(a != b for a, b in itertools.pairwise(history)) <= 1
