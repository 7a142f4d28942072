"""Packed counters of 32 and of 64 bits."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.telemetry.counters.packed_counters import (
    LARGEST_NARROW,
    NARROW,
    WIDE,
    by_index,
    difference,
    highest_bits,
    to_narrow,
    to_wide,
)

FITTING = st.dictionaries(st.integers(0, 180), st.integers(1, LARGEST_NARROW))
ANY = st.dictionaries(st.integers(0, 180), st.integers(1, (1 << 64) - 1))
FEW = st.dictionaries(st.integers(0, 9), st.integers(1, 5))


def wide(counts):
    return sum(count << 64 * index for index, count in counts.items())


@given(FITTING)
def test_small_counts_are_unchanged_by_a_conversion_to_32_bits_and_back(counts):
    narrow = to_narrow(wide(counts))
    assert by_index(narrow, NARROW) == by_index(to_wide(narrow), WIDE) == counts


@given(ANY)
def test_a_count_beyond_32_bits_becomes_the_largest_value_and_changes_no_other_count(counts):
    limited = {index: min(count, LARGEST_NARROW) for index, count in counts.items()}
    assert by_index(to_narrow(wide(counts)), NARROW) == limited


@given(FEW, FEW)
def test_the_difference_is_none_if_a_counter_shrank(new, old):
    expected = {index: new.get(index, 0) - old.get(index, 0) for index in {*new, *old}}
    found = difference(wide(new), wide(old), highest_bits(10))
    if min(expected.values(), default=0) < 0:
        assert found is None
    else:
        assert by_index(found, WIDE) == {index: count for index, count in expected.items() if count}
