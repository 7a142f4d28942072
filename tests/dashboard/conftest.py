"""Fixtures of the tests that open the page in a browser."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage
from tests.browser import chromium
from tests.dashboard.open_page import FINDINGS, MESH, PROXIES, SERVICES, OpenPage
from tests.dashboard.page_api import PageApi, edge, graph, mesh_status, node, proxy, serving_page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def opened(browser: Browser) -> AsyncIterator[OpenPage]:
    """A page in front of a healthy mesh with two Services, none of which has failures."""
    api, errors = PageApi(), list[str]()

    def keep(message: ConsoleMessage) -> None:
        if "Policy" in message.text:  # a policy that is violated is a message of the console
            errors.append(message.text)

    api.objects = {
        MESH: mesh_status(),
        FINDINGS: {"objects": 5, "items": []},
        PROXIES: {"items": [proxy("website-1")]},
        SERVICES: graph([node("website"), node("cart")], [edge(0, 1)]),
    }
    async with serving_page(api) as url:
        context = await browser.new_context()
        page = await context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", keep)
        yield OpenPage(page, api, url, errors)
        await context.close()
    assert errors == []
