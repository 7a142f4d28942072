"""Debian's Chromium, driven by Playwright, for tests of the dashboard's page."""

import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright import sync_api
from playwright.async_api import Browser, Error, Page, async_playwright, expect

expect.set_options(timeout=60_000)  # how long a busy machine may take, and never what a test proves
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium") or ""
"""The program. The headless shell is Chromium's engine without the user interface, and takes half of its processor time."""

LAUNCH: dict[str, Any] = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
"""The parameters of Playwright's `launch`. Chromium's sandbox needs user namespaces, which root in a container has not."""

NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"

needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium (Debian: chromium-headless-shell or chromium)")
AXE = Path(__file__).parents[1] / "tools/page/node_modules/axe-core/axe.min.js"
needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="needs axe-core (tools/check_page.py installs it with npm)")


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run Chromium without a window."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**LAUNCH)
        try:
            yield browser
        finally:
            await browser.close()


async def visit(page: Page, url: str) -> None:
    """Open a URL, again if the addresses of the machine change meanwhile, as tests of pod networks change them.

    Chromium then ends all its requests. The page itself repeats those of its files and of the API.
    """
    is_open = False
    while not is_open:
        try:
            await page.goto(url)
            is_open = True
        except Error as error:
            if NETWORK_CHANGED not in error.message:
                raise


async def leave(page: Page, dashboard: str) -> None:
    """Open a document without scripts at a dashboard's `host:port`: it ends the streams of the dashboard's page before the next test.

    The tab keeps its process, which has compiled the page's files. A new tab, or a document of another origin, has a new
    process, which compiles them again: half the processor time of a test.
    """
    await visit(page, f"http://{dashboard}/nothing")


@contextlib.asynccontextmanager
async def visiting(tab: Page, url: str) -> AsyncIterator[None]:
    """Show the dashboard at a URL in a tab for the `with` block."""
    await visit(tab, url)
    yield
    await leave(tab, urlsplit(url).netloc)


def visit_sync(page: sync_api.Page, url: str) -> None:
    """Open a URL as `visit` does, with Playwright's blocking API."""
    is_open = False
    while not is_open:
        try:
            page.goto(url)
            is_open = True
        except sync_api.Error as error:
            if NETWORK_CHANGED not in error.message:
                raise


async def assert_accessible(page: Page) -> None:
    """Fail if axe finds a violation of its rules on a page."""
    await page.evaluate(AXE.read_text())
    report = await page.evaluate("axe.run()")
    violations = {rule["id"]: [node["html"] for node in rule["nodes"]] for rule in report["violations"]}
    assert violations == {}, json.dumps(violations, indent=2)
