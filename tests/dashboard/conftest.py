"""Fixtures of the tests that open the page in a browser."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Error, Page, ViewportSize
from tests.browser import chromium, leave
from tests.dashboard.open_page import FINDINGS, MESH, PROXIES, SERVICES, OpenPage
from tests.dashboard.page_api import PageApi, edge, graph, mesh_status, node, proxy, serving_page

from headgate.dashboard.local import Address

VIEWPORT: ViewportSize = {"width": 1280, "height": 720}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


class Profile:
    """A browser's cache of the page's files, which the dashboard of each test has at the same address, and a tab for all tests."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.address = Address()

    async def tab(self) -> Page:
        """Return the tab, which is as new."""
        return self.context.pages[0] if self.context.pages else await self.context.new_page()

    async def clear(self) -> None:
        """Undo what a test did to the tab, close all others, and delete the cookies. It needs a dashboard at the address."""
        tab, *others = self.context.pages
        for page in (tab, *others):
            await page.unroute_all(behavior="ignoreErrors")
            await leave(page, self.address.host_port)
        for page in others:
            await page.close()
        await tab.evaluate("sessionStorage.clear()")
        await tab.emulate_media(color_scheme="null", reduced_motion="null")
        await tab.set_viewport_size(VIEWPORT)
        await tab.mouse.move(0, 0)
        await self.context.clear_cookies()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def profile(browser: Browser) -> Profile:
    return Profile(await browser.new_context(viewport=VIEWPORT))


@pytest_asyncio.fixture(loop_scope="session")
async def opened(profile: Profile) -> AsyncIterator[OpenPage]:
    """A page in front of a healthy mesh with two Services, none of which has failures."""
    api, errors = PageApi(), list[str]()

    def keep(message: ConsoleMessage) -> None:
        if "Policy" in message.text:  # a policy that is violated is a message of the console
            errors.append(message.text)

    def keep_error(error: Error) -> None:
        errors.append(str(error))

    api.objects = {
        MESH: mesh_status(),
        FINDINGS: {"objects": 5, "items": []},
        PROXIES: {"items": [proxy("website-1")]},
        SERVICES: graph([node("website"), node("cart")], [edge(0, 1)]),
    }
    async with serving_page(api, profile.address) as profile.address:
        page = await profile.tab()
        page.on("pageerror", keep_error)
        page.on("console", keep)
        yield OpenPage(page, api, profile.address.url(), errors)
        reported = [*errors]  # scripts of a test also run in the empty page, and can fail there
        page.remove_listener("pageerror", keep_error)
        page.remove_listener("console", keep)
        await profile.clear()
    assert reported == []
