"""Durations are parsed with the Gateway API's and Go's syntax, and formatted with Go's."""

import pytest

from headgate.durations import formatted, from_microseconds, microseconds, milliseconds, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0s", 0), ("10s", 10_000), ("1h30m", 5_400_000), ("500ms", 500), ("1m5s250ms", 65_250), ("1s1s", 2000)],
)
def test_a_gateway_api_duration_parses_to_milliseconds(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize("text", ["", "1", "1.5s", "-1s", "1d", "s", "123456s", "1h1h1h1h1h", " 1s", "1s ", "\u0661s"])
def test_an_invalid_gateway_api_duration_raises_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write for example 10s"):
        milliseconds(text)


@pytest.mark.parametrize(("text", "value"), [("30s", 30), ("1m30s", 90), ("2h", 7200), ("500ms", 0.5), ("1.5m", 90)])
def test_a_go_duration_parses_to_seconds(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "30", "s", "-3s", "5 s", "1d"])
def test_an_invalid_go_duration_raises_a_message_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="30s, 5m or 1m30s"):
        seconds(text)


@pytest.mark.parametrize(("seconds", "written"), [(30, "30s"), (60, "1m0s"), (3661.5, "1h1m1.5s"), (0.25, "0.25s")])
def test_seconds_are_formatted_as_go_formats_a_duration(seconds: float, written: str) -> None:
    assert formatted(seconds) == written


@pytest.mark.parametrize("number", [0, 1, 250, 1000, 1200, 1205, 94_000, 1_000_000, 1_500_000, 60_000_000])
def test_microseconds_are_formatted_without_rounding(number: int) -> None:
    assert microseconds(from_microseconds(number)) == number


def test_microseconds_have_a_readable_unit() -> None:
    numbers = (250, 1_205, 1_200, 94_000, 1_500_000, 60_000_000)
    assert [from_microseconds(number) for number in numbers] == ["250us", "1.205ms", "1.2ms", "94ms", "1500ms", "60s"]
