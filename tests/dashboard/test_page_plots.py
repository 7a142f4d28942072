"""The plots of a Service on the page: what stays while the series can't be read, and the times on their axes (R110)."""

from itertools import pairwise
from typing import Any

import pytest
from playwright.async_api import expect
from tests.browser import needs_chromium, visit
from tests.dashboard.open_page import OpenPage
from tests.dashboard.page_api import INSPECT
from tests.dashboard.test_page_views import serve_service

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]
SERIES = f"{INSPECT}/namespaces/shop/trafficseries/service.website"
READ_AGAIN = "document.dispatchEvent(new Event('visibilitychange'))"
RECORD_LABELS = """
  const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
  Object.assign(CanvasRenderingContext2D.prototype, {
    clearRect(...area) { this.canvas.labels = []; clearRect.apply(this, area); },
    fillText(text, x, y) {
      if (this.textAlign === "center") this.canvas.labels.push({ text, x, y, width: this.measureText(text).width });
      fillText.call(this, text, x, y);
    },
  });
"""


async def test_plots_stay_with_a_notice_while_the_series_cannot_be_read(opened: OpenPage) -> None:
    serve_service(opened.api)
    await opened.open("/service/shop/website")
    page = opened.page
    plot = page.get_by_role("img", name="Requests a second: website-v1 14.5, website-v2 4.5")
    notice = page.get_by_role("region", name="Traffic").get_by_text("Not current.")
    await expect(plot).to_be_visible()
    await expect(notice).to_have_count(0)
    opened.api.errors[SERIES] = 503
    await page.evaluate(READ_AGAIN)
    await expect(notice).to_be_visible()
    await expect(page.get_by_text(f"{SERIES} is not available")).to_be_visible()
    await expect(page.locator(".stale").filter(has=plot)).to_be_visible()
    del opened.api.errors[SERIES]
    await page.evaluate(READ_AGAIN)
    await expect(notice).to_have_count(0)
    await expect(page.locator(".stale")).to_have_count(0)
    await expect(plot).to_be_visible()
    opened.api.errors[SERIES] = 404
    await page.evaluate(READ_AGAIN)
    await expect(page.get_by_text("No counts of this time")).to_be_visible()
    await expect(plot).to_have_count(0)


async def test_plots_of_another_window_or_service_do_not_stay(opened: OpenPage) -> None:
    serve_service(opened.api)
    await opened.open("/service/shop/website")
    plots = opened.page.locator("canvas")
    await expect(plots).to_have_count(6)
    opened.api.errors[SERIES] = 503
    await opened.page.get_by_role("combobox", name="Time").select_option("1 hour")
    await expect(opened.page.get_by_role("alert")).to_contain_text("The traffic can't be read")
    await expect(plots).to_have_count(0)
    del opened.api.errors[SERIES]
    await opened.page.evaluate(READ_AGAIN)
    await expect(plots).to_have_count(6)
    opened.api.errors[f"{INSPECT}/namespaces/shop/trafficseries/service.cart"] = 503
    await opened.open("/service/shop/cart")
    await expect(opened.page.get_by_role("alert").first).to_contain_text("The traffic can't be read")
    await expect(plots).to_have_count(0)


@pytest.mark.parametrize(
    ("locale", "span", "labels"),
    [
        ("de-DE", 900, {"05:40", "1. Jan."}),
        ("en-US", 900, {"5:40 AM", "Jan 1"}),
        ("en-US", 40, {"5:40:00 AM", "Jan 1"}),
        ("de-DE", 86_400, {"31. Dez.", "00:00", "1. Jan."}),
        ("ja-JP", 86_400, {"12月31日", "0:00", "1月1日"}),
    ],
)
async def test_times_of_a_plot_are_in_the_locale_and_zone_of_the_reader_and_do_not_overlap(
    opened: OpenPage, locale: str, span: int, labels: set[str]
) -> None:
    serve_service(opened.api)
    browser = opened.page.context.browser
    assert browser
    narrow: Any = {"width": 390, "height": 844}
    context = await browser.new_context(locale=locale, timezone_id="Asia/Kolkata", viewport=narrow)
    page = await context.new_page()
    await page.add_init_script(RECORD_LABELS)
    await visit(page, opened.url)
    await page.goto(f"{opened.url}#/service/shop/website?span={span}&end=2026-01-01T00:10:00Z")
    await expect(page.locator("canvas")).to_have_count(6)
    drawn = await page.locator("canvas").first.evaluate("canvas => canvas.labels")
    assert labels <= {label["text"].replace("\u202f", " ") for label in drawn}
    for height in {label["y"] for label in drawn}:
        line = sorted((label for label in drawn if label["y"] == height), key=lambda label: label["x"])
        for left, right in pairwise(line):
            assert left["x"] + left["width"] / 2 < right["x"] - right["width"] / 2, line
    await page.locator(".u-over").first.hover()
    await expect(page.locator(".u-legend").first).to_contain_text("2026")
    await context.close()
