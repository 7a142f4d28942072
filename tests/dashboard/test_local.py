"""The address and the token of the dashboard of a state directory, and what of them the next start has."""

import stat
from pathlib import Path

import pytest
from aiohttp import ClientSession, CookieJar
from tests.dashboard.running_dashboard import StaticToken

from headgate.dashboard.local import FILE_NAME, Address, parse_url, read_url, serving_state
from headgate.standalone.listeners import listen


async def test_the_next_start_has_the_same_url(tmp_path: Path) -> None:
    assert read_url(tmp_path) == ""
    credentials = StaticToken("http://127.0.0.1:1", "secret")
    async with serving_state(tmp_path, credentials) as first:
        assert read_url(tmp_path) == first
        assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    async with serving_state(tmp_path, credentials) as second:
        assert second == first


async def test_a_start_on_another_port_has_another_token_because_the_program_on_the_last_port_may_have_received_the_last(
    tmp_path: Path,
) -> None:
    credentials = StaticToken("http://127.0.0.1:1", "secret")
    async with serving_state(tmp_path, credentials) as first:
        pass
    with listen(parse_url(first).host_port, ""):
        async with serving_state(tmp_path, credentials) as second:
            assert parse_url(second).host_port != parse_url(first).host_port
            assert parse_url(second).token != parse_url(first).token


async def test_a_cookie_serves_only_the_start_that_set_it(tmp_path: Path) -> None:
    """While headgate is stopped, a program of another user can bind the port and get the cookies of open pages."""
    credentials = StaticToken("http://127.0.0.1:1", "secret")
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser:
        async with serving_state(tmp_path, credentials) as url:
            async with browser.get(url) as response:
                assert response.status == 200
            (cookie,) = browser.cookie_jar
            assert parse_url(url).token not in cookie.value
        page = f"http://{parse_url(url).host_port}/"
        async with serving_state(tmp_path, credentials):
            async with browser.get(page) as response:
                assert response.status == 401
                assert "has not opened the dashboard since headgate started" in await response.text()
            async with browser.get(f"{page}api/v1/pods") as response:
                assert response.status == 401
                assert "open the URL that headgate prints" in (await response.json())["message"]
            async with browser.get(url) as response:
                assert response.status == 200


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/?token=short", "damaged"])
def test_a_damaged_url_is_not_used(url: str) -> None:
    assert parse_url(url) == Address()
