"""An open page when headgate stops and starts again: what it says, and how it continues (R110)."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from tests.browser import needs_chromium, visit
from tests.dashboard.open_page import FINDINGS, MESH, SERVICES, OpenPage
from tests.dashboard.page_api import PageApi, edge, graph, mesh_status, node
from tests.dashboard.running_dashboard import StaticToken
from tests.kubernetes import http_server

from headgate.dashboard.local import Address, serving
from headgate.dashboard.server import PageSettings

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]
SETTINGS = PageSettings("kind-shop", "shop")


class Upstream(NamedTuple):
    """An API, and the credentials with which dashboards read it."""

    api: PageApi
    credentials: StaticToken


@pytest_asyncio.fixture(loop_scope="session")
async def upstream() -> AsyncIterator[Upstream]:
    api = PageApi()
    api.objects = {
        MESH: mesh_status(),
        FINDINGS: {"objects": 5, "items": []},
        SERVICES: graph([node("website"), node("cart")], [edge(0, 1)]),
    }
    async with http_server.serving(api.answer) as server:
        yield Upstream(api, StaticToken((await server.connect()).host, "secret"))


async def test_an_open_page_says_what_to_do_after_a_restart_and_continues_then(
    browser: Browser, upstream: Upstream
) -> None:
    """Without a reload; its cookie is that of the start before."""
    context = await browser.new_context()
    page = await context.new_page()
    async with serving(upstream.credentials, SETTINGS, port=0, last=Address()) as address:
        await visit(page, address.url())
        await expect(page.get_by_text("3 of 3 in sync")).to_be_visible()
        await page.evaluate("window.isFirstLoad = true")
    await expect(page.get_by_text("headgate does not respond.")).to_be_visible()
    await expect(page.get_by_text("headgate dashboard --context kind-shop", exact=True)).to_be_visible()
    async with serving(upstream.credentials, SETTINGS, port=0, last=address) as again:
        assert again == address
        notice = page.get_by_text("headgate has started again.")
        await expect(notice).to_be_visible()
        await expect(page.get_by_text("headgate dashboard --context kind-shop", exact=True)).to_be_visible()
        await expect(page.get_by_text("3 of 3 in sync")).to_be_visible()
        tab = await context.new_page()
        await visit(tab, again.url())
        await expect(notice).to_have_count(0)
        assert await page.evaluate("window.isFirstLoad")
        await context.close()


async def test_credentials_that_the_api_server_rejects_are_no_restart(opened: OpenPage) -> None:
    opened.api.errors[MESH] = 401
    await opened.open()
    await expect(opened.page.get_by_text(f"{MESH} is not available")).to_be_visible()
    await expect(opened.page.get_by_text("headgate has started again.")).to_have_count(0)
