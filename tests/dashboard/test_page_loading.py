"""A page whose files do not arrive: when it loads again, and when it leaves that to the user (R110)."""

import pytest
from playwright.async_api import Page, Route, expect
from tests.browser import needs_chromium
from tests.dashboard.open_page import OpenPage

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]
LATER_MS = 60_000


async def lose(page: Page, pattern: str) -> None:
    """End all requests for a file, as a browser does when the addresses of its machine change."""

    async def end(route: Route) -> None:
        await route.abort("internetdisconnected")

    await page.route(pattern, end)


async def test_a_page_without_its_scripts_loads_again_three_times_and_then_offers_it(opened: OpenPage) -> None:
    page = opened.page
    await page.clock.install()
    await lose(page, "**/views/views.js")
    await opened.open()
    for _ in range(3):
        await expect(page.get_by_text("It loads again in a moment")).to_be_visible()
        async with page.expect_event("load"):
            await page.clock.fast_forward(LATER_MS)
    notice = page.get_by_role("alert").filter(has_text="The files of this page did not arrive.")
    await expect(notice).to_be_visible()
    await page.evaluate("window.isSameLoad = true")
    await page.clock.fast_forward(LATER_MS)
    assert await page.evaluate("window.isSameLoad")
    await page.unroute("**/views/views.js")
    await notice.get_by_role("button", name="Reload").click()
    await expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    # All files arrived, so the next failure is repeated as the first one was.
    await lose(page, "**/views/views.js")
    await page.reload()
    await expect(page.get_by_text("It loads again in a moment")).to_be_visible()


async def test_a_page_without_a_style_keeps_what_is_typed(opened: OpenPage) -> None:
    page = opened.page
    await page.clock.install()
    await lose(page, "**/style/views.css")
    await opened.open("/explain")
    url = page.get_by_label("URL")
    await url.fill("http://website:8080/")
    await page.evaluate("window.isSameLoad = true")
    reload = page.get_by_role("alert").filter(has_text="The style of this page did not arrive.").get_by_role("button")

    while not await reload.is_visible():  # the limit of the test ends a page that never offers it
        await page.clock.fast_forward(LATER_MS)
    assert await page.evaluate("window.isSameLoad")
    await expect(url).to_have_value("http://website:8080/")
