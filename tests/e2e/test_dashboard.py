"""The dashboard of a running mesh: the address that `headgate up` prints, and the page that a browser shows of it (R110)."""

import asyncio
import http.client
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect
from tests.browser import needs_chromium, visiting
from tests.e2e.manifests import endpoints, service_manifest, split_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.headgate_program import command
from tests.ports import free_port
from tests.waiting import LONGEST_POLL_S, until
from tests.wire import DEADLINE_S

INSPECT = "/apis/inspect.headgate.dev/v1beta1"


@pytest_asyncio.fixture(loop_scope="module")
async def page(mesh: RunningMesh, tab: Page) -> AsyncIterator[Page]:
    """The page that `headgate up` serves, in a browser."""
    async with visiting(tab, mesh.ready["dashboard"]):
        yield tab


def login(url: str) -> tuple[http.client.HTTPConnection, str]:
    """Return a connection to a dashboard and the cookie of a browser that has opened its URL."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request("GET", f"/?{parts.query}")
    response = connection.getresponse()
    response.read()
    return connection, response.headers["set-cookie"].partition(";")[0]


def proxies(url: str) -> list[str]:
    """Return the nodes of the proxies, read through a dashboard."""
    connection, cookie = login(url)
    connection.request("GET", f"{INSPECT}/proxies", headers={"cookie": cookie})
    items = json.loads(connection.getresponse().read())["items"]
    connection.close()
    return sorted(proxy["node"] for proxy in items)


async def until_agreed(agree: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the page shows what the API has: both change while a proxy of an earlier test ends."""
    async with asyncio.timeout(DEADLINE_S):
        while not await agree():
            await asyncio.sleep(LONGEST_POLL_S)


def proxy_total(mesh: RunningMesh) -> int:
    """Return the number of proxies that the API names."""
    status = json.loads(mesh.kubectl("get", "--raw", f"{INSPECT}/meshstatuses/mesh"))["status"]
    return int(status["proxies"]["total"])


def test_the_command_prints_the_url_of_the_running_headgate(mesh: RunningMesh) -> None:
    done = mesh.headgate("dashboard", "--no-browser")
    assert (done.returncode, done.stdout) == (0, f"{mesh.ready['dashboard']}\n")


def test_the_command_serves_a_page_of_its_own_on_a_chosen_port_until_it_is_stopped(mesh: RunningMesh) -> None:
    port = free_port()
    words = ["dashboard", "--no-browser", "--port", str(port), "--state", str(mesh.state)]
    with subprocess.Popen([*command(), *words], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert url.startswith(f"http://127.0.0.1:{port}/?token=")
        until(lambda: proxies(url) == proxies(mesh.ready["dashboard"]), "the proxies of both, also while one ends")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


@needs_chromium
@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_has_the_numbers_of_the_api(mesh: RunningMesh, namespace: str, page: Page) -> None:
    """A finding appears when its cause does, without a reload, and goes with it."""
    health = page.get_by_role("region", name="Health of the mesh")
    await expect(health).to_contain_text("in sync")

    async def has_total() -> bool:
        return f"of {proxy_total(mesh)} in sync" in await health.inner_text()

    await until_agreed(has_total)
    await page.goto(mesh.ready["dashboard"].partition("?")[0] + f"#/findings?namespace={namespace}")
    await expect(page.get_by_text("No findings")).to_be_visible()
    mesh.apply(
        service_manifest("website", {"http": 8080}),
        endpoints("website", {}),
        split_manifest("website", "website", {"gone": 1}),
        namespace=namespace,
    )
    card = page.get_by_role("listitem").filter(has_text=f"TrafficSplit {namespace}/website")
    await expect(card).to_contain_text("spec.backends[0].service")
    mesh.delete("trafficsplit/website", namespace)
    await expect(card).to_have_count(0)


@needs_chromium
@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_lists_each_proxy(mesh: RunningMesh, page: Page) -> None:
    await page.get_by_role("link", name="Proxies", exact=True).click()
    rows = page.get_by_role("table", name="Proxies").locator("tbody tr")

    async def has_each() -> bool:
        return await rows.count() == len(proxies(mesh.ready["dashboard"]))

    await until_agreed(has_each)
    await expect(rows.filter(has_text="gateway").filter(has_text="headgate-system")).to_contain_text("in sync")


@needs_chromium
@pytest.mark.asyncio(loop_scope="module")
async def test_a_rollback_on_the_page_restores_an_object_and_is_undone(
    mesh: RunningMesh, namespace: str, page: Page
) -> None:
    def weights() -> list[int]:
        split = json.loads(mesh.kubectl("get", "trafficsplit", "website", "-n", namespace, "-o", "json"))
        return [backend["weight"] for backend in split["spec"]["backends"]]

    await page.goto(mesh.ready["dashboard"].partition("?")[0] + f"#/history?namespace={namespace}")
    mesh.apply(split_manifest("website", "website", {"v1": 90, "v2": 10}), namespace=namespace)
    await expect(page.get_by_text(f"TrafficSplit {namespace}/website created")).to_be_visible()
    mesh.apply(split_manifest("website", "website", {"v1": 50, "v2": 50}), namespace=namespace)
    changed = page.get_by_role("listitem").filter(has_text="weight 90 → 50")
    await changed.get_by_role("button", name="What would a rollback to before it write?").click()
    await page.get_by_role("button", name="Roll back to revision").click()
    restored = page.get_by_text(f"Restored: TrafficSplit {namespace}/website.")
    await expect(restored).to_be_visible()
    assert weights() == [90, 10]
    await page.get_by_role("button", name="Undo the rollback").click()
    await expect(restored).to_have_count(0)
    assert weights() == [50, 50]
