"""Fixtures of the tests that open the page in a browser."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage
from tests.browser import chromium
from tests.dashboard.open_page import FINDINGS, MESH, PROXIES, SERVICES, OpenPage
from tests.dashboard.page_api import PageApi, edge, graph, mesh_status, node, proxy, serving_page

from headgate.dashboard.local import Address


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


class Profile:
    """A browser's cache of the page's files, which the dashboard of each test has at the same address."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.address = Address()

    async def clear(self) -> None:
        """Close all pages and delete the cookies. A tab also stores its reloads, which end with it."""
        for page in self.context.pages:
            await page.goto("about:blank")  # it releases the locks of the streams before the next test
            await page.close()
        await self.context.clear_cookies()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def profile(browser: Browser) -> Profile:
    return Profile(await browser.new_context())


@pytest_asyncio.fixture(loop_scope="session")
async def opened(profile: Profile) -> AsyncIterator[OpenPage]:
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
    async with serving_page(api, profile.address) as profile.address:
        page = await profile.context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", keep)
        yield OpenPage(page, api, profile.address.url(), errors)
        reported = [*errors]  # scripts of a test also run in the empty page, and can fail there
        await profile.clear()
    assert reported == []
