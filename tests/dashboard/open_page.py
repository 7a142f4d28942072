"""A page in Chromium with an API that the test feeds, and the paths of what its overview reads."""

from typing import NamedTuple

from playwright.async_api import Page
from tests.browser import visit
from tests.dashboard.page_api import INSPECT, PageApi

MESH, FINDINGS, PROXIES = f"{INSPECT}/meshstatuses", f"{INSPECT}/findings", f"{INSPECT}/proxies"
SERVICES = f"{INSPECT}/trafficgraphs/services"


class OpenPage(NamedTuple):
    """A page in a browser with its API."""

    page: Page
    api: PageApi
    url: str
    errors: list[str]

    async def open(self, place: str = "") -> None:
        """Open the page at a place of it, such as `/proxies`."""
        await visit(self.page, f"{self.url}#{place}")
