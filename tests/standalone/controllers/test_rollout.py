import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.resources.apps.deployment import RollingUpdate, Strategy
from headgate.standalone.controllers.rollout import Sizes, bounds, resize, roll


def limits(surge: int | str, unavailable: int | str) -> Strategy:
    return Strategy(rolling_update=RollingUpdate(max_surge=surge, max_unavailable=unavailable))


@pytest.mark.parametrize(
    ("strategy", "wanted", "expected"),
    [
        (Strategy(), 4, (5, 3)),
        (Strategy(), 1, (2, 1)),  # 25% of 1 pod: maxSurge rounds up, maxUnavailable rounds down
        (limits(0, 0), 3, (3, 2)),  # with 0 for both limits, the rollout could never progress
        (limits("100%", 0), 3, (6, 3)),
        (limits(1, "50%"), 4, (5, 2)),
    ],
)
def test_the_bounds_of_a_rollout_are_rounded_as_in_kubernetes(strategy, wanted, expected):
    assert bounds(strategy, wanted) == expected


def test_a_rollout_replaces_pods_within_max_surge_and_max_unavailable():
    assert roll(Sizes(wanted=2, new=0, new_available=0, old=(2,), old_available=(2,)), Strategy()) == (1, (2,))
    assert roll(Sizes(wanted=2, new=1, new_available=0, old=(2,), old_available=(2,)), Strategy()) == (1, (2,))
    assert roll(Sizes(wanted=2, new=1, new_available=1, old=(2,), old_available=(2,)), Strategy()) == (1, (1,))
    assert roll(Sizes(wanted=2, new=1, new_available=1, old=(1,), old_available=(1,)), Strategy()) == (2, (1,))
    assert roll(Sizes(wanted=2, new=2, new_available=2, old=(1,), old_available=(1,)), Strategy()) == (2, (0,))


def test_unavailable_old_pods_are_removed_first():
    _, old = roll(Sizes(wanted=2, new=1, new_available=0, old=(2,), old_available=(1,)), limits(1, 1))
    assert old == (1,)


@given(
    wanted=st.integers(0, 20),
    old=st.lists(st.integers(0, 20), min_size=1, max_size=3),
    surge=st.integers(0, 5),
    unavailable=st.integers(0, 5),
)
def test_every_rollout_completes_within_its_bounds(wanted, old, surge, unavailable):
    strategy = limits(surge, unavailable)
    most, least = bounds(strategy, wanted)
    new, rest = 0, tuple(old)
    start = sum(rest)
    for _ in range(100):
        sizes = Sizes(wanted=wanted, new=new, new_available=new, old=rest, old_available=rest)
        new, rest = roll(sizes, strategy)
        assert new + sum(rest) <= max(most, start)
        assert new + sum(rest) >= min(least, start)
    assert (new, sum(rest)) == (wanted, 0)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(0, 20))
def test_resized_replicasets_have_the_wanted_total_of_pods(sizes, wanted):
    result = resize(sizes, wanted)
    assert sum(result) == wanted
    assert all(after <= before for after, before in zip(result[:-1], sizes[:-1], strict=True))
