"""Views of the page other than its overview: questions, histories, Services, and the commands that they show (R110)."""

import pytest
from playwright.async_api import expect
from tests.browser import needs_chromium
from tests.dashboard.open_page import OpenPage
from tests.dashboard.page_api import INSPECT, graph

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]


async def test_explain_asks_again_about_the_same_request(opened: OpenPage) -> None:
    page, api = opened.page, opened.api
    path = f"{INSPECT}/namespaces/shop/explanations"
    api.objects[f"{INSPECT}/trafficgraphs/workloads"] = graph([], [])
    api.errors[path] = 503
    await opened.open("/explain?url=http://website/&in=shop")
    await expect(page.get_by_role("alert")).to_have_text(f"The request was not explained{path} is not available")
    api.errors[path] = 500
    async with page.expect_response(f"**{path}") as response:
        await page.get_by_role("button", name="Explain", exact=True).click()
    assert (await response.value).status == 500
