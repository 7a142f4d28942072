"""Debian's chromium, driven by Playwright, for tests of the dashboard's page."""

import contextlib
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright

CHROMIUM = shutil.which("chromium") or ""
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="needs chromium (Debian: chromium)")


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run chromium without a window."""
    async with async_playwright() as playwright:
        # Its sandbox needs user namespaces, which root in a container has not.
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()
