"""Shares have one form in all commands, statuses and Events."""

from fractions import Fraction

import pytest

from headgate.formatting import share


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0, "0%"),
        (1, "100%"),
        (Fraction(1, 4), "25%"),
        (Fraction(1, 3), "33.33%"),
        (Fraction(1, 1000), "0.1%"),
        (Fraction(1, 30_000), "0.003%"),
        (Fraction(99_999, 100_000), "99.999%"),
        (1 - 0.01, "99%"),
        (0.1 + 0.2, "30%"),
        (0.9999999999999999, "100%"),
    ],
)
def test_a_share_is_a_percentage_with_two_decimals_unless_it_is_near_0_or_100(
    part: Fraction | float, text: str
) -> None:
    assert share(part) == text
