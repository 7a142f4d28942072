"""Weights of backends become integers in the same ratio (R9, D24)."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headgate.resources.weights import whole_weights


def test_weights_are_scaled_to_the_smallest_integers():
    assert whole_weights([Fraction(1), Fraction(1, 2)]) == (2, 1)
    assert whole_weights([1000, 500]) == (2, 1)
    assert whole_weights([0, 7]) == (0, 1)
    assert whole_weights([0, 0]) == (0, 0)
    assert whole_weights([]) == ()


@given(st.lists(st.fractions(min_value=0, max_value=10**6, max_denominator=10**6), max_size=6))
def test_integer_weights_have_the_ratio_of_the_quantities(values):
    weights = whole_weights(values)
    for one, first in zip(values, weights, strict=True):
        for two, second in zip(values, weights, strict=True):
            assert one * second == two * first
            assert (one == 0) == (first == 0)
