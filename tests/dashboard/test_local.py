"""The address and the token of a dashboard, which stay the same for all starts of a state directory."""

import stat
from pathlib import Path

import pytest
from tests.dashboard.running_dashboard import StaticToken

from headgate.dashboard.local import FILE_NAME, Address, parse_url, read_url, serving_state


async def test_the_next_start_has_the_same_url_so_that_an_open_page_reconnects(tmp_path: Path) -> None:
    assert read_url(tmp_path) == ""
    credentials = StaticToken("http://127.0.0.1:1", "secret")
    async with serving_state(tmp_path, credentials) as first:
        assert read_url(tmp_path) == first
        assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    async with serving_state(tmp_path, credentials) as second:
        assert second == first


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/?token=short", "damaged"])
def test_a_damaged_url_is_not_used(url: str) -> None:
    assert parse_url(url) == Address()
