"""The percentage of traces that a proxy begins, as users write it."""

import pytest

from headgate.resources.trace_sampling import parse_sampling


@pytest.mark.parametrize(
    ("text", "share"), [("0", 0), ("1", 100), ("0.5", 50), ("0.25", 25), ("100", 10_000), ("100.00", 10_000)]
)
def test_a_percentage_is_a_share_in_ten_thousandths(text: str, share: int) -> None:
    assert parse_sampling(text) == share


@pytest.mark.parametrize("text", ["", "half", "-1", "101", "100.01", "0.001", "1%", "1,5", " 1", "1e1", "\u0661"])
def test_another_text_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="must be a percentage from 0 to 100 with at most two decimals, such as 1 or"):
        parse_sampling(text)
