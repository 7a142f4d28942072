"""Views of the page other than its overview: questions, histories, Services, and the commands that they show (R110)."""

import asyncio
import json
import shlex
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.async_api import expect
from tests.browser import assert_accessible, needs_axe, needs_chromium
from tests.dashboard.open_page import FINDINGS, PROXIES, OpenPage
from tests.dashboard.page_api import INSPECT, PageApi, edge, even_split, finding, graph, node

from headgate.kinds import names_of
from headgate.resources.request_spec import CALLER_KINDS

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]


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


@pytest.mark.parametrize(
    ("text", "kind"), [("serviceaccount/web", "ServiceAccount"), ("Deployment/web", "Deployment"), ("po/web", "Pod")]
)
async def test_explain_accepts_a_caller_as_the_command_does(opened: OpenPage, text: str, kind: str) -> None:
    page = opened.page
    opened.api.objects[f"{INSPECT}/trafficgraphs/workloads"] = graph([], [])
    await opened.open("/explain?url=http://website/&in=shop")
    caller = page.get_by_label("From (empty: the gateway, if any)")
    await caller.fill("web")
    fault = await caller.evaluate("field => field.validationMessage")
    assert fault.startswith("Write the caller as KIND/NAME, for example serviceaccount/web. Kinds are pod, deployment,")
    await caller.fill(text)
    async with page.expect_request(lambda request: "caller" in (request.post_data or "")) as sent:
        await page.get_by_role("button", name="Explain", exact=True).click()
    body = json.loads((await sent.value).post_data or "")
    assert body["spec"]["caller"] == {"kind": kind, "name": "web"}


async def test_the_callers_that_explain_accepts_are_those_of_the_command(opened: OpenPage) -> None:
    await opened.open()
    kinds = await opened.page.evaluate(
        """async words => {
          const url = new URL("views/explain/question.js", document.querySelector("script[src]").src);
          const { specOf } = await import(url);
          return words.map(word => specOf({ url: "/", method: "", headers: "", gateway: "", at: "", from: `${word}/web` }).caller?.kind);
        }""",
        [word for kind in CALLER_KINDS for word in names_of(kind).words],
    )
    assert kinds == [kind for kind in CALLER_KINDS for _ in names_of(kind).words]


async def test_a_command_gives_its_words_to_the_program_and_none_to_the_shell(opened: OpenPage) -> None:
    """Who writes a link to the page decides about the texts in its URL."""
    page = opened.page
    url, caller = "http://website/?a=$(id)&b='", "Deployment/x;reboot"
    await opened.open(f"/explain?{urlencode({'url': url, 'from': caller, 'in': 'default', 'headers': 'x-user: `id`'})}")
    command = await page.locator(".command code").inner_text()
    assert shlex.split(command) == [
        *("headgate", "explain", url, "-H", "x-user: `id`", "--from", caller.lower(), "-n", "default")
    ]
    run = await asyncio.create_subprocess_exec(
        *("bash", "-c", command.replace("headgate", "printf '%s\\n'", 1)), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await run.communicate()
    assert printed.decode().splitlines() == shlex.split(command)[1:]
    await opened.open("/splits?namespace=$(id)")
    await expect(page.locator(".command code")).to_have_text("kubectl get trafficsplits -n '$(id)'")


@pytest.mark.parametrize(("namespace", "option"), [("shop", "-n shop"), ("", "-A")])
async def test_the_comparison_and_the_command_of_a_rollback_have_the_same_namespace(
    opened: OpenPage, namespace: str, option: str
) -> None:
    page, api = opened.page, opened.api
    revisions = f"{INSPECT}/namespaces/{namespace}/revisions" if namespace else f"{INSPECT}/revisions"
    revision: dict[str, Any] = {
        "revision": 7,
        "recordTime": None,
        "reason": "Written",
        "changes": [],
        "effectMessages": [],
    }
    api.objects[revisions] = {"items": [{"metadata": {"name": "7"}, **revision}]}
    api.objects[f"{revisions}/7/restoration"] = {"steps": []}
    await opened.open(f"/history?namespace={namespace}")
    await page.get_by_role("button", name="What would a rollback to it write?").click()
    await expect(page.get_by_text("The objects are as they were at this revision")).to_be_visible()
    await expect(page.locator(".restoration .command code")).to_have_text(
        [f"headgate rollback 7 {option} --dry-run", f"headgate rollback 7 {option}"]
    )


@pytest.mark.parametrize(("place", "namespace"), [("", "shop"), ("/?namespace=test", "test")])
async def test_a_caller_with_rights_in_one_namespace_is_offered_its_views(
    opened: OpenPage, place: str, namespace: str
) -> None:
    """The namespace of the URL, or without it of the kubeconfig's context (R110)."""
    views = {"explanations": "Explain", "revisions": "History", "proxies": "Proxies", "findings": "Findings"}
    opened.api.denied |= {*views}
    opened.api.allowed_namespaces.add(namespace)
    await opened.open(place)
    links = opened.page.get_by_role("navigation", name="Views").get_by_role("link")
    await expect(links).to_have_text(["Overview", "Splits", "Rollouts", *views.values()])
    await opened.open("/?namespace=other")
    await expect(links).to_have_text(["Overview", "Splits", "Rollouts"])
    await opened.open(f"/?namespace={namespace}")
    await expect(links).to_have_text(["Overview", "Splits", "Rollouts", *views.values()])


async def test_a_view_that_is_left_before_its_stream_begins_opens_none(opened: OpenPage) -> None:
    """Its stream would never end, and four of them leave none for other views."""
    page, api = opened.page, opened.api
    holds_locks = await page.add_init_script(
        "const request = navigator.locks.request.bind(navigator.locks);"
        "const begun = new Promise(resolve => { window.begin = resolve; });"
        "navigator.locks.request = async (...words) => { await begun; return request(...words); };"
    )
    async with holds_locks:
        await opened.open("/proxies")
    await expect(page.get_by_text("Loading the proxies")).to_be_visible()
    await page.evaluate("location.hash = '#/nowhere'")
    await expect(page.get_by_text("This page has no such view")).to_be_visible()
    # A view ends its readings by a timer that is due at once.
    await page.evaluate("new Promise(done => setTimeout(done, 5))")
    await page.evaluate("begin()")
    await page.evaluate("location.hash = '#/findings'")
    while FINDINGS not in api.watched():
        await api.next_activity()
    assert [path for path in api.requested if path.startswith(PROXIES)] == []


def classes(requests: int, failures: int) -> list[dict[str, Any]]:
    """Return the responses of a point: all of them successes but for failures and five denied ones."""
    numbers = {"2xx": requests - failures - 5, "denied": 5, "grpc-14": failures}
    return [{"responseClass": name, "count": count, "failure": name == "grpc-14"} for name, count in numbers.items()]


def series() -> dict[str, Any]:
    """Return a TrafficSeries of two backends: 10 s with counts, 10 s without, then 10 s with counts, after a change of the weights."""
    counts = {"connections": 0, "failedConnections": 0, "deniedConnections": 0}
    latencies = {"p50Microseconds": 1000, "p90Microseconds": 2000, "p99Microseconds": 9000}

    def points(first: int, second: int, failures: int) -> list[dict[str, Any]]:
        return [
            {"startTime": f"2026-01-01T00:00:{start}Z", "endTime": f"2026-01-01T00:00:{end}Z", "requests": requests}
            | {"failures": failures, "denied": 5, "responses": classes(requests, failures)}
            | counts
            | latencies
            for start, end, requests in (("00", "10", first), ("20", "30", second))
        ]

    split = {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": "shop", "name": "website"}
    weights = [{"service": "website-v1", "weight": 90}, {"service": "website-v2", "weight": 10}]
    status = {
        "stepMilliseconds": 10_000,
        "points": points(100, 200, 10),
        "backends": [
            {"service": "website-v1", "points": points(90, 150, 0)},
            {"service": "website-v2", "points": points(10, 50, 10)},
        ],
        "weights": [{"object": split, "recordTime": "2026-01-01T00:00:15Z", "revision": 3, "backends": weights}],
        "messages": ["headgate has no counts from 00:00:10 to 00:00:20"],
    }
    return {"kind": "TrafficSeries", "metadata": {"name": "service.website", "namespace": "shop"}, "status": status}


def serve_service(api: PageApi) -> None:
    """Let the API have the traffic of the Service shop/website: a caller, two backends, a split and a finding."""
    of_shop = f"{INSPECT}/namespaces/shop"
    api.objects[f"{of_shop}/trafficseries/service.website"] = series()
    nodes = [node("website"), node("website-v1"), node("website-v2"), node("client", kind="Deployment")]
    split = even_split(0, {1: 150, 2: 150})
    api.objects[f"{of_shop}/trafficgraphs/services"] = graph(
        nodes, [edge(3, 0, failures=30, denied=100)], splits=[split]
    )
    api.objects[f"{of_shop}/findings"] = {"objects": 5, "items": [finding("website")]}


async def test_a_service_shows_its_traffic_by_backend_and_the_weights_that_changed(opened: OpenPage) -> None:
    page = opened.page
    serve_service(opened.api)
    await opened.open("/service/shop/website")
    for title, text in (
        ("Weights", "website-v1 90 %, website-v2 10 %"),
        ("Requests a second", "website-v1 14.5, website-v2 4.5"),
        ("Responses a second by class", "2xx 18.5, denied 0.5, gRPC 14 (failure) 1"),
        ("Success", "website-v1 100 %, website-v2 77.8 %"),
        ("Latency", "p50 1 ms, p90 2 ms, p99 9 ms"),
        ("Latency by backend, p99", "website-v1 9 ms, website-v2 9 ms"),
    ):
        plot = page.get_by_role("img", name=f"{title}: {text}")
        await expect(plot.locator("canvas")).to_be_visible()
    await expect(page.get_by_text("headgate has no counts from 00:00:10 to 00:00:20")).to_be_visible()
    await expect(page.get_by_text("2xx 270, denied 10, gRPC 14 (failure) 20")).to_be_visible()

    callers = page.get_by_role("region", name="Callers").locator("tbody tr")
    await expect(callers).to_have_text(["client (shop)6.67/s85 %10.5 ms!100yes"])
    splits = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="TrafficSplit shop/website"))
    await expect(splits.first).to_have_text("TrafficSplit shop/website")
    await expect(page.get_by_text("Service shop/gone not found; create it")).to_be_visible()


async def test_a_service_that_selects_no_pod_shows_the_responses_of_its_backends_and_those_without_one(
    opened: OpenPage,
) -> None:
    """Its own points have only the requests that no backend received."""
    serve_service(opened.api)
    answer = series()
    for point in answer["status"]["points"]:
        responses = [{"responseClass": "5xx", "count": 10, "failure": True}]
        point |= {"requests": 10, "failures": 10, "denied": 0, "responses": responses}
    opened.api.objects[f"{INSPECT}/namespaces/shop/trafficseries/service.website"] = answer
    await opened.open("/service/shop/website")
    title = "Responses a second by class"
    for name in (
        f"{title}, from its backends: 2xx 18, denied 1, gRPC 14 (failure) 1",
        f"{title}, from its own pods or without a backend: 5xx (failure) 1",
        "Success: website-v1 100 %, website-v2 77.8 %, own pods or without a backend 0 %",
    ):
        await expect(opened.page.get_by_role("img", name=name)).to_be_visible()


async def test_the_success_of_a_service_includes_failures_that_reached_no_backend(opened: OpenPage) -> None:
    serve_service(opened.api)
    answer = series()
    for point in answer["status"]["points"]:
        point["failures"] = 39
    opened.api.objects[f"{INSPECT}/namespaces/shop/trafficseries/service.website"] = answer
    await opened.open("/service/shop/website")
    name = "Success: website-v1 100 %, website-v2 77.8 %, all 80 %"
    await expect(opened.page.get_by_role("img", name=name)).to_be_visible()


async def test_a_service_names_its_backends_that_call_others(opened: OpenPage) -> None:
    """The calls of a pod count for one Service: here for the backend, whose selector is narrower."""
    serve_service(opened.api)
    nodes = [node("website"), node("website-v1"), node("website-v2"), node("client", kind="Deployment"), node("cart")]
    path = f"{INSPECT}/namespaces/shop/trafficgraphs/services"
    opened.api.objects[path] = graph(nodes, [edge(3, 0), edge(1, 4)], splits=[even_split(0, {1: 150, 2: 150})])
    await opened.open("/service/shop/website")
    backends = opened.page.get_by_role("region", name="Callees of its backends")
    await expect(backends.get_by_role("link")).to_have_text(["website-v1"])
    await backends.get_by_role("link").click()
    callees = opened.page.get_by_role("region", name="Callees").locator("tbody tr")
    await expect(callees.get_by_role("link")).to_have_text(["cart (shop)"])


async def test_a_time_without_counts_is_a_gap_in_the_lines_of_a_plot(opened: OpenPage) -> None:
    await opened.open()
    rates = await opened.page.evaluate(
        "async status => (await import(new URL('plot/series.js', document.querySelector('script[src]').src))).rates(status)",
        series()["status"],
    )
    start = 1767225600
    assert [time - start for time in rates["times"]] == [10, 20, 30]
    assert rates["lines"] == [
        {"label": "website-v1", "values": [8.5, None, 14.5]},
        {"label": "website-v2", "values": [0.5, None, 4.5]},
    ]


async def test_a_service_without_counts_says_so(opened: OpenPage) -> None:
    serve_service(opened.api)
    opened.api.errors[f"{INSPECT}/namespaces/shop/trafficseries/service.website"] = 404
    await opened.open("/service/shop/website")
    await expect(opened.page.get_by_text("No counts of this time")).to_be_visible()
    await expect(opened.page.get_by_text("service.website is not available")).to_be_visible()


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_in_a_service(opened: OpenPage, scheme: Any) -> None:
    serve_service(opened.api)
    await opened.page.emulate_media(color_scheme=scheme)
    await opened.open("/service/shop/website")
    await expect(opened.page.locator("canvas")).to_have_count(6)
    await expect(opened.page.get_by_role("region", name="Callers")).to_be_visible()
    await assert_accessible(opened.page)


async def test_a_service_says_how_many_requests_rules_in_audit_mode_would_have_denied(opened: OpenPage) -> None:
    serve_service(opened.api)
    audited = graph([node("website"), node("client", kind="Deployment")], [edge(1, 0, audited=12)])
    for scope in (INSPECT, f"{INSPECT}/namespaces/shop"):
        opened.api.objects[f"{scope}/trafficgraphs/services"] = audited
    await opened.open()
    await expect(opened.page.get_by_role("row", name="website")).to_contain_text("audit: 12")
    await opened.open("/service/shop/website")
    await expect(opened.page.get_by_text("audit: 12 requests would have been denied")).to_be_visible()
    await expect(opened.page.get_by_role("row", name="client")).to_contain_text("audit: 12")
