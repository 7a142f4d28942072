"""The live requests of a Service: what the page shows of a tap, and when the tap ends (R110, D29)."""

from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.async_api import Page, expect
from tests.browser import assert_accessible, needs_axe, needs_chromium, visit
from tests.dashboard.open_page import FINDINGS, MESH, SERVICES, OpenPage
from tests.dashboard.page_api import INSPECT, PageApi, edge, graph, node

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]
OF_SHOP = f"{INSPECT}/namespaces/shop"
TAP = f"{OF_SHOP}/services/website/tap"
BUYER = "spiffe://cluster.local/ns/shop/sa/buyer"
OF_WEB = "spiffe://cluster.local/ns/web/sa/client"
GATEWAY = "spiffe://cluster.local/ns/headgate-system/sa/gateway"
SPLIT = {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": "shop", "name": "website"}
TARGET = {"group": "access.smi-spec.io", "kind": "TrafficTarget", "namespace": "shop", "name": "buyers"}


def peer(**fields: Any) -> dict[str, Any]:
    return {"pod": "", "service": "", "port": 0, "identity": "", "address": ""} | fields


def event(side: str, path: str = "/", status: int = 200, **fields: Any) -> dict[str, Any]:
    """Return a TapEvent of a request to the Service shop/website."""
    response = {"status": status, "flags": [], "details": "", "grpcStatus": ""}
    shared = {
        "kind": "TapEvent",
        "startTime": "2026-01-01T00:00:00.250Z",
        "side": side,
        "request": {
            "method": "GET",
            "authority": "website:8080",
            "path": path,
            "headers": {"user-agent": "[redacted]"},
        },
        "response": response,
        "latencyMicroseconds": 1500,
        "route": None,
        "access": None,
    }
    if side == "Client":
        of_side: dict[str, Any] = {
            "proxy": {"namespace": "shop", "name": "buyer-1"},
            "source": peer(pod="shop/buyer-1"),
            "destination": peer(pod="shop/website-1", service="shop/website-v1", port=8080),
            "route": {"object": SPLIT, "name": ""},
        }
    else:
        of_side = {
            "proxy": {"namespace": "shop", "name": "website-1"},
            "source": peer(identity=BUYER, address="10.0.0.1"),
            "destination": peer(pod="shop/website-1", port=8080),
            "access": {"allowed": True, "object": TARGET, "rule": ""},
        }
    return shared | of_side | fields


def serve_tap(api: PageApi, *, calls: list[Any] | None = None, **service: Any) -> None:
    """Let the API have the Service shop/website with these calls, a tap of it, and nothing else about it."""
    nodes = [node("website", **service), node("buyer", kind="Deployment")]
    api.objects[f"{OF_SHOP}/trafficgraphs/services"] = graph(nodes, calls or [])
    api.objects[f"{OF_SHOP}/findings"] = {"objects": 1, "items": []}
    api.streams |= {TAP, f"{TAP}values"}


async def watched(api: PageApi, path: str, *, is_open: bool = True) -> None:
    """Wait until a stream is open, or until it has ended."""
    while (path in api.watched()) is not is_open:
        await api.next_activity()


async def open_tap(opened: OpenPage, query: str = "", *, values: bool = False) -> Page:
    await opened.open(f"/service/shop/website?tap=live{query}")
    await watched(opened.api, f"{TAP}values" if values else TAP)
    return opened.page


def rows(page: Page) -> Any:
    return page.get_by_role("region", name="Recorded requests").locator("tbody tr")


async def test_proxies_record_nothing_until_the_user_starts_a_tap_and_after_it(opened: OpenPage) -> None:
    page, api = opened.page, opened.api
    serve_tap(api)
    await opened.open("/service/shop/website")
    await page.get_by_role("button", name="Show live requests").click()
    await watched(api, TAP)
    await page.get_by_role("button", name="Stop").click()
    await watched(api, TAP, is_open=False)
    await page.get_by_role("button", name="Show live requests").click()
    await watched(api, TAP)
    await page.get_by_role("link", name="Proxies", exact=True).click()
    await watched(api, TAP, is_open=False)


async def test_a_denied_and_a_failed_request_differ_from_others_in_words(opened: OpenPage) -> None:
    serve_tap(opened.api)
    page = await open_tap(opened)
    older = {"allowed": False, "object": None, "rule": ""}
    denied = older | {"message": "path is '/orders', wanted regex /items$"}
    audited = {"allowed": True, "object": None, "rule": "", "audited": True, "wouldDeny": True, "message": "no rule"}
    grpc = {"status": 200, "flags": [], "details": "", "grpcStatus": "14"}
    early = {"status": 200, "flags": ["UC"], "details": "", "grpcStatus": ""}
    opened.api.send(
        TAP,
        event("Client"),
        event("Server", status=404),
        event("Server", status=403, access=older),
        event("Server", status=403, access=denied),
        event("Client", status=503),
        event("Client", response=grpc),
        event("Client", response=early),
        event("Server", access=audited),
    )
    results = rows(page).locator("td:first-child")
    await expect(results).to_have_text(
        [
            "!audit: would be denied 200",
            "✕failed 200 (UC)",
            "✕failed 200, gRPC 14",
            "✕failed 503",
            "!denied 403",
            "!denied 403",
            "i404",
            "✓200",
        ]
    )
    await expect(rows(page).nth(0)).to_contain_text("audit: no rule")
    await expect(rows(page).nth(4)).to_contain_text("path is '/orders', wanted regex /items$")
    await expect(rows(page).nth(5)).to_contain_text("no access rule allows it")
    await expect(rows(page).nth(6)).to_contain_text("TrafficTarget shop/buyers")
    await expect(rows(page).nth(7)).to_contain_text("TrafficSplit shop/website")
    rules = page.get_by_label("Route or rule")
    await rules.select_option("no access rule allows it")
    await expect(results).to_have_text(["!denied 403", "!denied 403"])


async def test_a_failure_of_the_server_leads_to_the_row_with_the_flag_of_its_proxy(opened: OpenPage) -> None:
    """The client's proxy gets a 503 without the reason, whether the application or its proxy sent it."""
    serve_tap(opened.api)
    page = await open_tap(opened)
    own = {"status": 503, "flags": [], "details": "via_upstream", "grpcStatus": ""}
    here = {"status": 503, "flags": ["UH"], "details": "no_healthy_upstream", "grpcStatus": ""}
    opened.api.send(
        TAP,
        event("Client", "/closed", response=own, secured=True),
        event("Client", "/plain", response=own, secured=False),
        event("Client", "/here", response=here),
    )
    await expect(rows(page)).to_have_count(3)
    lead = "sent by the server or its proxy: the server's row has its flag"
    await expect(rows(page).nth(2)).to_contain_text(lead)
    await expect(page.get_by_text(lead)).to_have_count(1)


async def test_filters_select_requests_and_a_link_keeps_them(opened: OpenPage) -> None:
    serve_tap(opened.api)
    page = await open_tap(opened, "&tap-status=failed")
    opened.api.send(TAP, event("Client", "/books"), event("Server", "/cart", 500))
    await expect(rows(page)).to_have_count(1)
    await expect(rows(page)).to_contain_text("/cart")
    await page.get_by_label("Host and path").fill("books")
    await expect(page.get_by_text("The filters hide all 2 requests")).to_be_visible()
    await page.get_by_role("button", name="Remove the filters").click()
    await expect(rows(page)).to_have_count(2)
    await page.get_by_role("combobox", name="From").select_option("ServiceAccount shop/buyer")
    await expect(rows(page)).to_have_count(1)
    assert parse_qs(page.url.partition("?")[2])["tap-from"] == ["ServiceAccount shop/buyer"]
    await page.get_by_role("button", name="Stop").click()
    await watched(opened.api, TAP, is_open=False)


async def test_a_request_opens_in_explain_with_its_sender_and_without_redacted_values(opened: OpenPage) -> None:
    api = opened.api
    serve_tap(api)
    api.objects[f"{INSPECT}/trafficgraphs/workloads"] = graph([], [])
    api.objects[f"{OF_SHOP}/explanations"] = {"status": None}
    page = await open_tap(opened)
    api.send(TAP, event("Server", "/books?id=[redacted]"), event("Client", "/all"))
    links = page.get_by_role("link", name="Explain this")
    await expect(rows(page).nth(1)).to_contain_text("without redacted values")
    await expect(links).to_have_count(2)
    for link, url, caller in ((0, "/all", "Pod/buyer-1"), (1, "/books", "ServiceAccount/buyer")):
        query = parse_qs((await links.nth(link).get_attribute("href") or "").partition("?")[2])
        assert (query["url"], query["from"], query["in"]) == ([f"http://website:8080{url}"], [caller], ["shop"])
        assert "headers" not in query
    await links.nth(1).click()
    await expect(page.get_by_label("URL")).to_have_value("http://website:8080/books")
    await expect(page.get_by_role("combobox", name="From")).to_have_value("ServiceAccount/buyer")
    await watched(api, TAP, is_open=False)


@pytest.mark.parametrize(
    ("identity", "authority", "question"),
    [
        (GATEWAY, "website:8080", ("http://website:8080/", None, "shop")),
        (OF_WEB, "website:8080", ("http://website.shop:8080/", "ServiceAccount/client", "web")),
        (OF_WEB, "", ("http://website.shop/", "ServiceAccount/client", "web")),
        (OF_WEB, "cart:8080", ("http://cart:8080/", "ServiceAccount/client", "web")),
        (OF_WEB, "website.shop", ("http://website.shop/", "ServiceAccount/client", "web")),
        (BUYER, "website:8080", ("http://website:8080/", "ServiceAccount/buyer", "shop")),
    ],
)
async def test_explain_resolves_the_host_of_a_request_as_its_server_did(
    opened: OpenPage, identity: str, authority: str, question: tuple[str, str | None, str]
) -> None:
    """The gateway is no caller in its own namespace, and a short name can be the tapped Service's for senders of other namespaces."""
    serve_tap(opened.api)
    page = await open_tap(opened)
    request = {"method": "GET", "authority": authority, "path": "/", "headers": {}}
    denied = {"allowed": False, "object": None, "rule": ""}
    opened.api.send(TAP, event("Server", status=403, source=peer(identity=identity), access=denied, request=request))
    href = await page.get_by_role("link", name="Explain this").get_attribute("href") or ""
    query = {name: values[0] for name, values in parse_qs(href.partition("?")[2]).items()}
    assert (query["url"], query.get("from"), query["in"]) == question
    await expect(rows(page)).not_to_contain_text("its sender has no identity")


async def test_a_client_of_another_namespace_resolves_short_names_in_its_own(opened: OpenPage) -> None:
    serve_tap(opened.api)
    page = await open_tap(opened)
    opened.api.send(TAP, event("Client", source=peer(pod="web/client-1")))
    href = await page.get_by_role("link", name="Explain this").get_attribute("href") or ""
    query = parse_qs(href.partition("?")[2])
    assert (query["url"], query["from"], query["in"]) == (["http://website:8080/"], ["Pod/client-1"], ["web"])


async def test_other_windows_leave_a_stream_to_live_requests(opened: OpenPage) -> None:
    """An overview and the readings of the Service want more streams than a browser has."""
    await opened.open()
    while not {MESH, FINDINGS, SERVICES} & opened.api.watched():
        await opened.api.next_activity()
    serve_tap(opened.api)
    page = await opened.page.context.new_page()
    await visit(page, opened.url)
    await page.goto(f"{opened.url}#/service/shop/website?tap=live")
    await expect(page.get_by_text("Live.")).to_be_visible()
    opened.api.send(TAP, event("Client"))
    await expect(rows(page)).to_have_count(1)


async def test_a_pause_ends_when_the_user_hides_the_values(opened: OpenPage) -> None:
    serve_tap(opened.api)
    page = await open_tap(opened, "&tap-values=true", values=True)
    request = event("Client")
    request["request"]["headers"] = {"cookie": "user=ada"}
    opened.api.send(f"{TAP}values", request)
    await page.get_by_text("1 header").click()
    await expect(page.get_by_text("user=ada")).to_be_visible()
    pause = page.get_by_role("button", name="Pause").last
    await pause.click()
    await expect(page.get_by_text("0 since the pause.")).to_be_visible()
    await page.get_by_label("Values of headers and queries").uncheck()
    await expect(page.get_by_text("user=ada")).to_have_count(0)
    await expect(pause).to_have_attribute("aria-pressed", "false")
    await watched(opened.api, TAP)
    opened.api.send(TAP, event("Client", "/after"))
    await expect(rows(page)).to_have_count(1)
    await expect(rows(page)).to_contain_text("/after")


async def test_values_are_requested_only_with_the_right_to_them_and_explained(opened: OpenPage) -> None:
    api = opened.api
    serve_tap(api)
    page = await open_tap(opened)
    await page.get_by_label("Values of headers and queries").check()
    await watched(api, f"{TAP}values")
    await watched(api, TAP, is_open=False)
    request = event("Client", "/books?id=7")
    request["request"]["headers"] = {"cookie": "user=ada"}
    api.send(f"{TAP}values", request)
    href = await page.get_by_role("link", name="Explain this").get_attribute("href") or ""
    query = parse_qs(href.partition("?")[2])
    assert (query["url"], query["headers"]) == (["http://website:8080/books?id=7"], ["cookie: user=ada"])
    await expect(page.get_by_text("kubectl traffic tap service/website -n shop --values")).to_be_visible()


async def test_a_page_keeps_the_newest_500_requests(opened: OpenPage) -> None:
    serve_tap(opened.api)
    page = await open_tap(opened)
    opened.api.send(TAP, *(event("Client", f"/{number}") for number in range(1200)))
    opened.api.send(TAP, {"kind": "TapNotice", "dropped": 7, "message": "more requests than the tap's limit"})
    await expect(page.get_by_text("500 shown; 1,200 recorded, of which the newest 500 are kept.")).to_be_visible()
    await expect(page.get_by_text("7 requests not shown: more requests than the tap's limit.")).to_be_visible()
    await expect(rows(page).first).to_contain_text("website:8080/1199")
    await expect(rows(page)).to_have_count(100)


async def test_a_pause_holds_the_requests_until_the_user_continues(opened: OpenPage) -> None:
    serve_tap(opened.api)
    page = await open_tap(opened)
    opened.api.send(TAP, event("Client", "/first"))
    await expect(rows(page)).to_have_count(1)
    pause = page.get_by_role("button", name="Pause").last
    await pause.focus()
    await page.keyboard.press("Enter")
    opened.api.send(TAP, event("Client", "/second"))
    await expect(page.get_by_text("1 since the pause.")).to_be_visible()
    await expect(rows(page)).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(rows(page)).to_have_count(2)


async def test_a_lost_tap_keeps_its_requests_says_so_and_reconnects(opened: OpenPage) -> None:
    api = opened.api
    serve_tap(api)
    page = await open_tap(opened)
    api.send(TAP, event("Client", "/before"))
    await expect(rows(page)).to_have_count(1)
    api.fail(TAP)
    await expect(page.get_by_text(f"Not current: {TAP} is not available The page tries again.")).to_be_visible()
    await expect(rows(page)).to_have_count(1)
    del api.errors[TAP]
    await watched(api, TAP)
    await expect(page.get_by_text("Live.")).to_be_visible()
    api.send(TAP, event("Client", "/after"))
    await expect(rows(page)).to_have_count(2)


@pytest.mark.parametrize(
    ("service", "calls", "reason"),
    [
        ({"meshed": 0, "pods": 2}, [], "None of its 2 pods has a sidecar"),
        ({}, [], "It had no requests in the last 30 seconds"),
        ({}, [edge(1, 0, requests=0, connections=9)], "only connections of TCP ports"),
        ({}, [edge(1, 0)], "a request appears when it is finished"),
    ],
)
async def test_an_empty_tap_says_why(opened: OpenPage, service: Any, calls: list[Any], reason: str) -> None:
    serve_tap(opened.api, calls=calls, **service)
    page = await open_tap(opened)
    await expect(page.get_by_text("No request yet")).to_be_visible()
    await expect(page.get_by_text(reason)).to_be_visible()


async def test_live_requests_are_not_offered_without_the_right_to_them(opened: OpenPage) -> None:
    serve_tap(opened.api)
    opened.api.denied.add("services")
    await opened.open("/service/shop/website?tap=live")
    await expect(opened.page.get_by_role("heading", name="Callers")).to_be_visible()
    await expect(opened.page.get_by_text("Live requests")).to_have_count(0)
    assert not [path for path in opened.api.requested if path.startswith(TAP)]


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_in_live_requests(opened: OpenPage, scheme: Any) -> None:
    serve_tap(opened.api)
    await opened.page.emulate_media(color_scheme=scheme)
    page = await open_tap(opened)
    denied = {"allowed": False, "object": None, "rule": ""}
    opened.api.send(TAP, event("Client", status=503), event("Server", status=403, access=denied), event("Server"))
    await expect(rows(page)).to_have_count(3)
    await assert_accessible(opened.page)
