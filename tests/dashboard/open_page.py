"""A page in chromium with an API that the test feeds, and the paths of what its overview reads."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.async_api import Page, expect
from tests.dashboard.page_api import INSPECT, PageApi

MESH, FINDINGS, PROXIES = f"{INSPECT}/meshstatuses", f"{INSPECT}/findings", f"{INSPECT}/proxies"
SERVICES = f"{INSPECT}/trafficgraphs/services"
AXE = Path(__file__).parents[2] / "tools/page/node_modules/axe-core/axe.min.js"
needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="needs axe-core (tools/check_page.py installs it with npm)")
expect.set_options(timeout=60_000)  # how long a busy machine may take, and never what a test proves


class OpenPage(NamedTuple):
    """A page in a browser with its API."""

    page: Page
    api: PageApi
    url: str
    errors: list[str]

    async def open(self, place: str = "") -> None:
        """Open the page at a place of it, such as `/proxies`."""
        await self.page.goto(f"{self.url}#{place}")

    async def assert_accessible(self) -> None:
        """Fail if axe finds a violation of its rules on the page."""
        await self.page.evaluate(AXE.read_text())
        report = await self.page.evaluate("axe.run()")
        violations = {v["id"]: [n["html"] for n in v["nodes"]] for v in report["violations"]}
        assert violations == {}, json.dumps(violations, indent=2)
