"""How the texts of options are read."""

import pytest

from headgate.option import HostPort, parse_collector, parse_sampling


@pytest.mark.parametrize(
    ("text", "share"), [("0", 0), ("1", 100), ("0.5", 50), ("0.25", 25), ("100", 10_000), ("100.00", 10_000)]
)
def test_a_percentage_is_a_share_in_ten_thousandths(text: str, share: int) -> None:
    assert parse_sampling(text) == share


@pytest.mark.parametrize("text", ["", "half", "-1", "101", "100.01", "0.001", "1%", "1,5", " 1", "1e1", "\u0661"])
def test_another_text_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="must be a percentage from 0 to 100 with at most two decimals, such as 1 or"):
        parse_sampling(text)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("collector.monitoring:4317", "collector.monitoring"),
        ("10.0.0.1:4317", "10.0.0.1"),
        ("[fd00::1]:4317", "fd00::1"),
    ],
)
def test_an_address_has_a_host_and_a_port(text: str, host: str) -> None:
    assert parse_collector(text) == HostPort(host=host, port=4317)


@pytest.mark.parametrize("text", ["collector", "http://collector:4317", "collector:0", ":4317", "collector:4317/v1"])
def test_a_wrong_address_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write HOST:PORT without http://, for example"):
        parse_collector(text)


def test_an_empty_address_is_no_collector() -> None:
    assert parse_collector("") is None
