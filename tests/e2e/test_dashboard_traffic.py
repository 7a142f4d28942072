"""The page in front of real Envoys: its numbers, and what a user changes there, counted at the backends (R110)."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect
from tests.browser import assert_accessible, chromium, needs_axe, needs_chromium, visit
from tests.e2e.bookstore import BOOKSTORE
from tests.e2e.manifests import external, split_manifest
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory
from tests.e2e.versions import ANALYSIS, Versions
from tests.make.rollouts import message_of
from tests.processes import stopped
from tests.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]
GRAPH = "/apis/inspect.headgate.dev/v1beta1/{}trafficgraphs/services?window=1h"


@pytest.fixture(scope="module")
def bookstore() -> Iterator[RunningMesh]:
    """Run examples/bookstore: six pods with sidecars. Tests add Services in namespaces of their own."""
    with mesh_in_a_new_directory(manifests=BOOKSTORE) as mesh:
        yield mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def page(bookstore: RunningMesh, browser: Browser) -> AsyncIterator[Page]:
    """The page of the bookstore in a browser."""
    context = await browser.new_context(reduced_motion="reduce")
    opened = await context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    await visit(opened, bookstore.ready["dashboard"])
    yield opened
    await context.close()
    assert errors == []


async def show(page: Page, place: str) -> None:
    await page.goto(f"{page.url.partition('#')[0]}#{place}")


def create_shop(mesh: RunningMesh, namespace: str, weights: Mapping[str, int]) -> Mapping[str, Any]:
    """Create a Service `web` that is split between backends, each in this process; return the backends by name."""
    mesh.create_namespace(namespace)
    backends = {name: mesh.backend(name) for name in weights}
    mesh.apply(
        external("web"),
        *(external(name, backend) for name, backend in backends.items()),
        split_manifest("web", "web", weights),
        namespace=namespace,
    )
    mesh.conditions("web", namespace, Programmed="True", BackendsReady="True")
    return backends


def graph_of(mesh: RunningMesh, namespace: str = "") -> Mapping[str, Any]:
    """Return the graph of the last hour as the API has it."""
    path = GRAPH.format(f"namespaces/{namespace}/" if namespace else "")
    return dict(json.loads(mesh.kubectl("get", "--raw", path))["status"])


def panel_of(page: Page) -> Locator:
    """Return the terms and values of the graph's panel."""
    return page.get_by_role("complementary", name="Numbers of the graph").locator("dl > div")


async def test_the_numbers_of_a_split_are_those_of_the_api_and_of_the_backends(
    bookstore: RunningMesh, page: Page
) -> None:
    backends = create_shop(bookstore, "counted", {"web-v1": 3, "web-v2": 1})
    backends["web-v2"].faults += ["500 Internal Server Error"] * 5
    requests = bookstore.send(200, bookstore.request("web", 8080, namespace="counted"), connections=4)
    counted = {name: backend.requests for name, backend in backends.items()}
    assert requests == {**counted, "web-v2": counted["web-v2"] - 5, "500": 5}

    def answer() -> Mapping[str, int]:
        (split,) = (graph := graph_of(bookstore, "counted"))["splits"]
        return {graph["nodes"][part["service"]]["name"]: part["requests"] for part in split["backends"]}

    until(lambda: answer() == counted, "the API has the counts of the backends")
    await show(page, "/?namespace=counted&window=1h")
    await page.locator('[data-id="Service/counted/web"]').click()
    for text in ("Received200", "Success97.5 %", "Failed5"):
        await expect(panel_of(page).get_by_text(text).or_(panel_of(page).filter(has_text=text)).first).to_be_visible()
    for name, number in counted.items():
        await page.locator(f'[data-id="Service/counted/{name}"]').click()
        await expect(panel_of(page).filter(has_text=re.compile(f"^Received by splits{number}$"))).to_be_visible()
    row = page.get_by_role("table", name="Services and the traffic").get_by_role("row").filter(has_text="web counted")
    await expect(row).to_contain_text("97.5 %")


async def test_the_thief_is_denied_on_the_page_as_often_as_in_the_api(bookstore: RunningMesh, page: Page) -> None:
    """The traffic goes on, so both must agree at a moment."""
    await show(page, "/?window=1h&namespace=default")
    thief = page.locator('.node[data-id="Deployment/default/thief"]')
    await expect(thief).to_be_visible()
    await page.locator('g.link[data-id*="thief"]').first.click(force=True)
    denied = panel_of(page).filter(has_text=re.compile(r"^Denied"))
    await expect(denied).to_be_visible()

    async def agrees() -> bool:
        before = graph_of(bookstore)
        shown = int(re.sub(r"\D", "", await denied.inner_text()))
        names = [node["name"] for node in before["nodes"]]
        (edge,) = (edge for edge in before["edges"] if names[edge["source"]] == "thief")
        return bool(0 < edge["denied"] == edge["requests"] - edge["failures"] == shown)

    while not await agrees():
        await asyncio.sleep(0.1)


async def test_a_dragged_weight_is_planned_applied_observed_and_undone(bookstore: RunningMesh, page: Page) -> None:
    """All requests move to web-v2 and back. A sidecar that does not respond is the one that lacks the change."""
    create_shop(bookstore, "dragged", {"web-v1": 100, "web-v2": 0})
    request = bookstore.request("web", 8080, namespace="dragged")
    assert bookstore.send(20, request) == {"web-v1": 20}
    await show(page, "/splits/dragged/web")
    slider = page.get_by_role("slider", name="web-v2")
    box = await slider.bounding_box()
    assert box
    await page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"], box["y"] + box["height"] / 2, steps=5)
    await page.mouse.up()
    await expect(page.get_by_label("Weight of web-v2")).to_have_value("100")
    await expect(page.get_by_role("status", name="The effect of the change")).to_contain_text("web-v2")
    assert bookstore.send(20, request) == {"web-v1": 20}  # nothing is written yet

    progress = page.locator(".card-head")
    total = len(bookstore.sidecars()) + 1
    with stopped(next(iter(bookstore.sidecars().values()))):
        await page.get_by_role("button", name="Apply").click()
        await expect(progress).to_contain_text(f"{total - 1} of {total} proxies")
    await expect(progress).to_contain_text(f"{total} of {total} proxies have the configuration")
    assert bookstore.send(20, request) == {"web-v2": 20}

    await page.get_by_role("button", name="Undo: web-v1 100, web-v2 0").click()
    await expect(page.get_by_label("Weight of web-v2")).to_have_value("0")
    bookstore.conditions("web", "dragged", Programmed="True")
    assert bookstore.send(20, request) == {"web-v1": 20}


async def test_a_canary_is_watched_from_its_first_evidence_to_its_promotion(bookstore: RunningMesh, page: Page) -> None:
    bookstore.create_namespace("released")
    versions = Versions(bookstore, "released")
    versions.begin(ANALYSIS)
    bookstore.settle()
    await show(page, "/rollouts/released/web")
    card = page.get_by_role("article")
    await expect(card).to_contain_text("Progressing")
    await expect(card).to_contain_text("step 1 of 3, 10% of the requests")

    def counts_requests() -> bool:
        message = message_of(versions.status())
        return "counting has begun" in message or "no request to" in message

    until(counts_requests, "requests of the step count")
    request = bookstore.request("web", 8080, namespace="released")
    bookstore.send(10, request)  # too few for a decision, so the evidence stays as it is

    def counted() -> Mapping[str, int]:
        counts = {backend["service"]: backend["requests"] for backend in versions.status()["backends"]}
        assert sum(counts.values()) >= 10
        return counts

    for service, number in until(counted, "the evidence has the requests").items():
        backend = card.get_by_role("listitem").filter(has_text=service)
        await expect(backend).to_contain_text(f"failed 0 of {number} requests in this step")
    await expect(card.get_by_role("row", name="success")).to_be_visible()
    with bookstore.load(request, request):
        await expect(card).to_contain_text("Promoted")
        status = versions.ended("Promoted")
    await expect(card).to_contain_text(message_of(status))
    assert bookstore.send(20, request) == {"next": 20}


@needs_axe
async def test_axe_finds_no_violation_in_any_view(bookstore: RunningMesh, page: Page) -> None:
    for place, shown in VIEWS.items():
        await show(page, place)
        await expect(page.locator(f"main {shown}").first).to_be_visible()
        await assert_accessible(page)


VIEWS = {
    "/": ".graph-stage .node",
    "/service/default/bookstore": "canvas",
    "/splits": ".card",
    "/splits/default/bookstore": "form",
    "/rollouts": ".state",
    "/explain?url=http://bookstore:8080/books&in=default": "form",
    "/history": "li",
    "/proxies": "tbody tr",
    "/findings": ".state",
}
"""The place of each view, and what it shows of the bookstore."""
