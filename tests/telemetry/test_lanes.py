"""Counts side by side in one number, in short lanes and in long ones."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.telemetry.lanes import LONG, MOST, SHORT, narrowed, spread, widened

FITTING = st.dictionaries(st.integers(0, 180), st.integers(1, MOST))
ANY = st.dictionaries(st.integers(0, 180), st.integers(1, (1 << 64) - 1))


def long_lanes(counts):
    return sum(count << 64 * lane for lane, count in counts.items())


@given(FITTING)
def test_what_fits_is_the_same_in_lanes_of_either_width(counts):
    short = narrowed(long_lanes(counts))
    assert spread(short, SHORT) == spread(widened(short), LONG) == counts


@given(ANY)
def test_what_is_too_large_fills_its_lane_and_no_other(counts):
    assert spread(narrowed(long_lanes(counts)), SHORT) == {lane: min(count, MOST) for lane, count in counts.items()}
