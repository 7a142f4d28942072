"""Quantities (R9, R10, D24) and percentages are parsed exactly."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.quantity import of_thousandths, parse_percentage, parse_quantity, thousandths


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("0m", 0),
        ("10m", Fraction(1, 100)),
        ("500m", Fraction(1, 2)),
        ("1500m", Fraction(3, 2)),
        ("1.5", Fraction(3, 2)),
        ("1.", 1),
        (".5", Fraction(1, 2)),
        ("+2", 2),
        ("-1", -1),
        ("3n", Fraction(3, 10**9)),
        ("3u", Fraction(3, 10**6)),
        ("2k", 2000),
        ("2Ki", 2048),
        ("1Ei", 2**60),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e-3", Fraction(1, 1000)),
    ],
)
def test_a_quantity_parses_to_an_exact_fraction(text: str, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a quantity"),
        ("m", "is not a quantity"),
        ("one", "is not a quantity"),
        ("1 m", "is not a quantity"),
        ("1,5", "is not a quantity"),
        ("0x10", "is not a quantity"),
        ("1K", "unknown suffix 'K'"),
        ("1e99", "unknown suffix 'e99'"),
        ("1e", "unknown suffix 'e'"),
        ("9" * 41, "at most 40 characters"),
        ("\u0661m", "is not a quantity"),
        ("1\n", "is not a quantity"),
    ],
)
def test_an_invalid_quantity_raises_a_message_for_the_user(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_quantity(text)


@given(st.text(max_size=50))
def test_any_text_parses_or_raises_a_value_error(text: str) -> None:
    try:
        assert isinstance(parse_quantity(text), Fraction)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - some texts are valid


def test_percentages_are_exact_fractions() -> None:
    assert [parse_percentage(text) for text in ("0%", "1%", "99.5%", "0.000001%", "250%")] == [
        0,
        Fraction(1, 100),
        Fraction(199, 200),
        Fraction(1, 10**8),
        Fraction(5, 2),
    ]


@pytest.mark.parametrize(
    "text", ["", "%", "1", "-1%", "1/0%", "1e3%", ".5%", "1.%", "12345%", "1 %", "1%\n", "\u0661%"]
)
def test_other_texts_are_no_percentages(text: str) -> None:
    with pytest.raises(ValueError, match="write for example 1% or"):
        parse_percentage(text)


@given(st.integers(min_value=0))
def test_thousandths_are_written_exactly(number: int) -> None:
    text = of_thousandths(number)
    if len(text) <= 40:
        assert thousandths(text) == number


def test_a_quantity_in_thousandths_is_rounded_up() -> None:
    assert [thousandths(amount) for amount in ("1", 2, 0.5, "1u")] == [1000, 2000, 500, 1]
