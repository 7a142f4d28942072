"""The page in a browser: what a reader sees of each state of the API (R110)."""

import asyncio
import re
from typing import Any

import pytest
from playwright.async_api import Page, expect
from tests.browser import assert_accessible, needs_axe, needs_chromium, visit
from tests.dashboard import meshes
from tests.dashboard.open_page import FINDINGS, MESH, PROXIES, SERVICES, OpenPage
from tests.dashboard.page_api import INSPECT, edge, even_split, finding, graph, mesh_status, node, proxy

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]


def rows(page: Page, table: str = "Services and the traffic that they received") -> Any:
    return page.get_by_role("table", name=table).locator("tbody tr")


async def test_the_health_line_says_what_the_mesh_has(opened: OpenPage) -> None:
    unready = {
        "object": {"kind": "Deployment", "namespace": "shop", "name": "cart"},
        "ready": 0,
        "wanted": 1,
        "message": "CommandNotFound: x",
    }
    opened.api.objects[MESH] = mesh_status(
        proxies={"total": 5, "inSync": 3, "lagging": 0, "refused": 2, "disconnected": 0},
        workloads={"ready": 1, "wanted": 2, "unready": [unready]},
        store={"writable": False, "message": "can't write the store", "failingSinceTime": None, "damaged": []},
        findings={"errors": 1, "warnings": 2, "notes": 0},
        problems=[{"reason": "StoreNotWritable", "message": "the disk is full", "object": None}],
    )
    await opened.open()
    health = opened.page.get_by_role("region", name="Health of the mesh")
    for text in (
        "3 of 5 in sync",
        "2 rejected a resource",
        "1 of 2 ready",
        "Deployment shop/cart: CommandNotFound: x",
        "not writable",
        "1 error, 2 warnings",
        "StoreNotWritable the disk is full",
    ):
        await expect(health).to_contain_text(text)


async def test_services_are_ordered_by_the_worst_and_have_the_numbers_of_the_api(opened: OpenPage) -> None:
    opened.api.objects[SERVICES] = graph(
        [
            *(node("good"), node("failing"), node("invalid", errors=1), node("10.0.0.7", kind="Outside")),
            *(node("caller", kind="Deployment"), node("good-v1")),
        ],
        [
            edge(3, 0, requests=1200, p99Microseconds=900, exchanged=1200, secured=0),
            edge(0, 1, requests=200, failures=50, denied=7),
            edge(2, 1, requests=100, failures=25, p99Microseconds=1_050_000, bytes=60_000),
            edge(0, 1, copy=True, requests=9999, failures=9999),
        ],
        splits=[even_split(0, {5: 900, 0: 300})],
    )
    await opened.open()
    await expect(rows(opened.page)).to_have_count(4)
    cells = [await row.locator("th, td").all_inner_texts() for row in await rows(opened.page).all()]
    assert [" ".join(" ".join(row).split()) for row in cells] == [
        "failing shop 9.77/s ✕ 74.4 % 1.05 s 2 kB/s ! 7 yes 1 none",
        "invalid shop 0/s - - - 0 - 1 ✕ 1 error",
        "good shop 40/s 100 % 900 µs - 0 ! not all 1 none",
        "good-v1 shop 30/s by split - - - 0 - 1 none",
    ]


async def test_an_event_changes_the_page_without_a_reload(opened: OpenPage) -> None:
    await opened.open()
    success = rows(opened.page).filter(has_text="cart")
    await expect(success).to_contain_text("100 %")
    opened.api.change(SERVICES, "MODIFIED", graph([node("website"), node("cart")], [edge(0, 1, failures=3)]))
    await expect(success).to_contain_text("99 %")
    opened.api.change(FINDINGS, "ADDED", finding("website"))
    await expect(opened.page.get_by_text("Service shop/gone not found; create it")).to_be_visible()
    opened.api.change(FINDINGS, "DELETED", finding("website"))
    await expect(opened.page.get_by_text("Service shop/gone not found; create it")).to_have_count(0)


async def test_filters_and_the_order_are_in_the_url(opened: OpenPage) -> None:
    nodes = [node("website"), node("cart"), node("cart", namespace="test"), node("db", labels={"tier": "storage"})]
    opened.api.objects[SERVICES] = graph(nodes, [edge(0, 1, failures=3), edge(0, 3, requests=900)])
    await opened.open()
    page = opened.page
    await expect(rows(page)).to_have_count(4)
    await page.get_by_label("Search", exact=True).fill("tier=storage")
    await expect(rows(page)).to_have_count(1)
    await page.get_by_label("Search", exact=True).fill("")
    await page.get_by_label("Only failing").check()
    await expect(rows(page)).to_have_count(1)
    await page.get_by_label("Only failing").uncheck()
    await page.get_by_role("button", name="Requests").click()
    await expect(rows(page).first).to_contain_text("db")
    await expect(page).to_have_url(re.compile(r"#/\?sort-services=-rate$"))
    await page.reload()
    await expect(rows(page).first).to_contain_text("db")


async def test_no_change_is_lost_while_the_api_begins_a_watch(opened: OpenPage) -> None:
    """An API server may begin the watch that the page requested first after it has answered the list."""
    api = opened.api
    api.objects[FINDINGS] = {"objects": 5, "items": [finding("website")]}
    api.late_watches[FINDINGS] = asyncio.Event()
    await opened.open("/findings")
    await api.receives(f"{FINDINGS}?watch=true")
    await opened.page.evaluate(
        "path => fetch(path).then(response => response.text())", MESH
    )  # so a list is answered too
    api.objects[FINDINGS] = {"objects": 5, "items": []}
    api.late_watches[FINDINGS].set()
    await expect(opened.page.get_by_text("No findings")).to_be_visible()


async def test_a_chosen_namespace_and_window_are_requested(opened: OpenPage) -> None:
    of_namespace = SERVICES.replace("/v1beta1/", "/v1beta1/namespaces/shop/")
    opened.api.objects[of_namespace] = graph([node("cart")], [])
    opened.api.objects[f"{INSPECT}/namespaces/shop/findings"] = {"objects": 1, "items": []}
    await opened.open()
    await opened.page.get_by_label("Namespace").select_option("shop")
    await expect(rows(opened.page)).to_have_count(1)
    await opened.page.get_by_label("Window").select_option("5 minutes")
    await opened.api.receives(f"{of_namespace}?window=5m")
    await expect(rows(opened.page)).to_have_count(1)
    await expect(opened.page).to_have_url(re.compile(r"#/\?namespace=shop&window=5m$"))


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("NoTraffic", "No traffic in the last 30 s"),
        ("NoSidecars", "Label the namespace headgate.dev/inject=true"),
        ("NothingRouted", "The mesh has no Service yet"),
    ],
)
async def test_an_empty_graph_says_why_and_what_to_do(opened: OpenPage, reason: str, text: str) -> None:
    opened.api.objects[SERVICES] = graph([], [], reason)
    await opened.open()
    await expect(opened.page.get_by_text(text)).to_be_visible()


async def test_a_lost_connection_keeps_the_values_and_says_that_they_are_not_current(opened: OpenPage) -> None:
    await opened.open()
    await expect(rows(opened.page)).to_have_count(2)
    opened.api.fail(SERVICES, MESH, FINDINGS)
    notice = opened.page.get_by_text("Not current.")
    await expect(notice).to_be_visible()
    await expect(rows(opened.page)).to_have_count(2)
    opened.api.errors.clear()
    await expect(notice).to_have_count(0)


@pytest.mark.parametrize("file", ["readings.js", "style/base.css"])
async def test_a_page_whose_file_did_not_arrive_loads_again(opened: OpenPage, file: str) -> None:
    """Chromium ends requests, also those to the machine itself, when an address of the machine changes."""
    await opened.page.route(f"**/{file}", lambda route: route.abort("internetdisconnected"), times=1)
    await opened.open()
    await expect(opened.page.get_by_text("3 of 3 in sync")).to_be_visible()
    await expect(opened.page.locator("html")).not_to_have_css("background-color", "rgba(0, 0, 0, 0)")


async def test_a_failed_request_says_what_the_api_says_and_is_repeated(opened: OpenPage) -> None:
    opened.api.errors[SERVICES] = 503
    await opened.open()
    failure = opened.page.get_by_role("alert")
    await expect(failure).to_contain_text("The traffic can't be read")
    await expect(failure).to_contain_text(f"{SERVICES} is not available")
    opened.api.errors.clear()
    await expect(rows(opened.page)).to_have_count(2)


async def test_what_the_caller_may_not_do_is_not_offered_and_a_denied_request_says_so(opened: OpenPage) -> None:
    opened.api.denied.add("proxies")
    opened.api.errors[MESH] = 403
    await opened.open()
    await expect(opened.page.get_by_text("You may not see the status of the mesh")).to_be_visible()
    views = opened.page.get_by_role("navigation", name="Views")
    await expect(views.get_by_role("link", name="Proxies")).to_have_count(0)
    await expect(views.get_by_role("link", name="Findings")).to_be_visible()


async def test_a_caller_without_rights_to_all_namespaces_begins_with_that_of_the_kubeconfig(opened: OpenPage) -> None:
    opened.api.denied.add("trafficgraphs")
    opened.api.errors[SERVICES] = 403
    opened.api.objects[SERVICES.replace("/v1beta1/", "/v1beta1/namespaces/shop/")] = graph([node("cart")], [])
    await opened.open()
    await expect(rows(opened.page)).to_have_count(1)


async def test_a_resource_without_a_watch_is_read_repeatedly(opened: OpenPage) -> None:
    await opened.page.route("**/*watch=true*", lambda route: route.fulfill(status=405, json={"message": "no watch"}))
    await opened.open()
    await expect(rows(opened.page)).to_have_count(2)
    opened.api.objects[SERVICES] = graph([node("website")], [])
    await expect(rows(opened.page)).to_have_count(1)


async def test_proxies_show_envoys_words_beside_the_object_to_blame(opened: OpenPage) -> None:
    refusal = {
        "type": "routes",
        "resource": "outbound/shop/website/80",
        "message": "bad regex: missing ]",
        "object": {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": "shop", "name": "website"},
        "rejectionTime": "2026-01-01T00:00:00Z",
        "current": True,
    }
    lagging = proxy("cart-1", state="Lagging", message="waits", types=[{"type": "routes", "resources": 9, "held": 7}])
    refused = proxy("website-2", state="Refused", refusals=[refusal])
    opened.api.objects[PROXIES] = {"items": [proxy("website-1"), lagging, refused]}
    await opened.open("/proxies")
    names = rows(opened.page, "Proxies").locator("th")
    await expect(names).to_have_text(["website-2 shop", "cart-1 shop", "website-1 shop"])
    await expect(rows(opened.page, "Proxies").filter(has_text="cart-1")).to_contain_text("7 of 9")
    rejected = opened.page.get_by_role("list", name="Rejected resources")
    for text in ("TrafficSplit shop/website", "shop/website-2", "Envoy says: bad regex: missing ]"):
        await expect(rejected).to_contain_text(text)


async def test_a_warning_about_new_weights_is_shown_in_any_script(opened: OpenPage) -> None:
    path = "/apis/split.smi-spec.io/v1alpha4/namespaces/shop/trafficsplits"
    backends = [{"service": "website-v1", "weight": 50}, {"service": "website-v2", "weight": 50}]
    metadata = {"namespace": "shop", "name": "website", "uid": "1", "resourceVersion": "1", "generation": 1}
    split = {"metadata": metadata, "spec": {"service": "website", "backends": backends}}
    opened.api.objects |= {path: {"items": [split]}, f"{path}/website": split}
    opened.api.warning = '299 - "größer → \\"店\\"", 299 - "second"'
    await opened.open("/splits/shop/website")
    await opened.page.get_by_role("spinbutton", name="Weight of website-v1").fill("60")
    await opened.page.get_by_role("button", name="Apply").click()
    await expect(opened.page.get_by_text('größer → "店"', exact=True)).to_be_visible()
    await expect(opened.page.get_by_text("second", exact=True)).to_be_visible()


async def test_findings_are_filtered_by_severity_and_text(opened: OpenPage) -> None:
    items = [finding("note", "Note"), finding("warning", "Warning"), finding("error")]
    opened.api.objects[FINDINGS] = {"objects": 5, "items": items}
    await opened.open("/findings")
    cards = opened.page.get_by_role("listitem").filter(has_text="BackendNotFound")
    await expect(cards).to_have_count(3)
    await expect(cards.first).to_contain_text("TrafficSplit shop/error")
    await opened.page.get_by_label("Severity").select_option("Notes")
    await expect(cards).to_have_count(1)
    await opened.page.get_by_label("Search").fill("none of them")
    await expect(opened.page.get_by_text("No finding matches the filter")).to_be_visible()


async def test_a_newer_server_offers_a_reload(opened: OpenPage) -> None:
    await opened.page.route(
        "**/v1beta1/findings*",
        lambda route: route.fulfill(status=200, json={"objects": 1, "items": []}, headers={"headgate-page": "other"}),
    )
    await opened.open()
    await expect(opened.page.get_by_text("headgate has a newer version of this page.")).to_be_visible()


async def test_a_reader_with_a_keyboard_reaches_the_content(opened: OpenPage) -> None:
    await opened.open("/findings")
    await expect(opened.page.get_by_text("No findings")).to_be_visible()
    await opened.page.keyboard.press("Tab")
    await expect(opened.page.get_by_text("Skip to the content")).to_be_focused()
    await opened.page.keyboard.press("Enter")
    await expect(opened.page.locator("main")).to_be_focused()
    await expect(opened.page).to_have_url(re.compile("#/findings$"))


@pytest.mark.parametrize("place", ["", "/proxies", "/findings", "/explain", "/history", "/unknown"])
async def test_the_page_fits_a_phone(opened: OpenPage, place: str) -> None:
    opened.api.objects[FINDINGS] = {"objects": 5, "items": [finding("a-name-without-any-space" * 4)]}
    await opened.page.set_viewport_size({"width": 390, "height": 800})
    await opened.open(place)
    await expect(opened.page.locator("main .finding, main table, main .state, main form").first).to_be_visible()
    assert await opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation(opened: OpenPage, scheme: Any) -> None:
    opened.api.objects[MESH] = mesh_status(findings={"errors": 1, "warnings": 1, "notes": 0})
    opened.api.objects[FINDINGS] = {
        "objects": 5,
        "items": [finding("a"), finding("b", "Warning"), finding("c", "Note")],
    }
    failing = graph([node("website", warnings=1), node("cart", errors=1)], [edge(0, 1, failures=20, denied=3)])
    opened.api.objects[SERVICES] = failing
    await opened.page.emulate_media(color_scheme=scheme)
    for place in ("", "/proxies", "/findings"):
        await opened.open(place)
        await expect(opened.page.locator("main .finding, main table").first).to_be_visible()
        await assert_accessible(opened.page)


async def test_a_hidden_page_has_no_streams(opened: OpenPage) -> None:
    await opened.open()
    await expect(rows(opened.page)).to_have_count(2)
    assert opened.api.watched()
    await opened.page.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    async with asyncio.timeout(60):
        await opened.api.unwatched.wait()
    opened.api.objects[SERVICES] = graph([node("website")], [])
    await opened.page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    await expect(rows(opened.page)).to_have_count(1)


async def test_more_pages_than_streams_stay_current_and_can_send_requests(opened: OpenPage) -> None:
    """A browser has six connections to an origin; streams on all of them would block each request."""
    context = opened.page.context
    pages = [opened.page, *[await context.new_page() for _ in range(3)]]
    for page in pages:
        await visit(page, opened.url)
        await expect(rows(page)).to_have_count(2)
    opened.api.objects[SERVICES] = graph([node("website")], [])
    opened.api.change(SERVICES, "MODIFIED", opened.api.objects[SERVICES])
    for page in pages:
        await expect(rows(page)).to_have_count(1)
        await page.get_by_role("link", name="Proxies", exact=True).click()
        await expect(rows(page, "Proxies")).to_have_count(1)


async def test_a_mesh_of_300_services_is_drawn_and_listed(opened: OpenPage) -> None:
    """The most that is drawn: 300 nodes and 1,000 edges. One Service more makes the graph a table."""
    opened.api.objects[SERVICES] = meshes.services(300, 1000)
    await opened.page.emulate_media(reduced_motion="reduce")
    await opened.open()
    await expect(opened.page.locator(".graph-stage g.node")).to_have_count(300)
    await expect(opened.page.locator(".graph-stage g.link")).to_have_count(1000)
    await expect(opened.page.get_by_role("button", name="Show more: 200 of 300 are not shown")).to_be_visible()
    await opened.page.get_by_role("searchbox", name="Search").fill("payments-3")
    await expect(rows(opened.page)).to_have_count(1)
    opened.api.change(SERVICES, "MODIFIED", meshes.services(301, 1000))
    await opened.page.get_by_role("searchbox", name="Search").fill("")
    await expect(opened.page.get_by_text("301 nodes are too many to draw")).to_be_visible()
