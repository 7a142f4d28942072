"""`kubectl traffic tap` on a mesh with real Envoys: live requests with the route and the access rule applied (D29)."""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect
from tests.browser import needs_chromium, visiting
from tests.e2e.running_mesh import BIN, RunningMesh, mesh_in_a_new_directory
from tests.waiting import until
from tests.wire import ask_unix

EXAMPLE = Path(__file__).parents[2] / "examples" / "bookstore"
THIEF = "spiffe://cluster.local/ns/default/sa/thief"
PLUGIN = str(BIN / "kubectl-traffic")
Event = Mapping[str, Any]


@pytest.fixture(scope="module")
def bookstore() -> Iterator[RunningMesh]:
    with mesh_in_a_new_directory(manifests={path.name: path.read_text() for path in EXAMPLE.glob("*.yaml")}) as mesh:
        mesh.settle()
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def page(bookstore: RunningMesh, tab: Page) -> AsyncIterator[Page]:
    """The dashboard of the bookstore in a browser."""
    async with visiting(tab, bookstore.ready["dashboard"]):
        yield tab


def environment(mesh: RunningMesh) -> Mapping[str, str]:
    return {**os.environ, "KUBECONFIG": str(mesh.state / "kubeconfig"), "PATH": f"{BIN}:{os.environ['PATH']}"}


@contextmanager
def tapping(mesh: RunningMesh, *words: str) -> Iterator[Iterator[Event]]:
    """Run a tap during the `with` block; yield its events."""
    environment = {**os.environ, "KUBECONFIG": str(mesh.state / "kubeconfig"), "PATH": f"{BIN}:{os.environ['PATH']}"}
    command = [str(BIN / "kubectl-traffic"), "tap", *words, "-o", "json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout
        try:
            yield (json.loads(line) for line in process.stdout)
        finally:
            process.terminate()


def first(events: Iterator[Event], fits: Callable[[Event], bool]) -> Event:
    return next(event for event in events if event["kind"] == "TapEvent" and fits(event))


def key_of(part: Mapping[str, Any]) -> str:
    """Return the object of a route or an access rule as text."""
    about = part["object"]
    return f"{about['kind']} {about['namespace']}/{about['name']}"


def recorded_share(mesh: RunningMesh) -> float:
    """Return the share of requests that the gateway's Envoy records, in millionths."""
    runtime = json.loads(
        asyncio.run(ask_unix(json.loads((mesh.state / "instance.json").read_text())["admin"], "/runtime"))
    )
    return float(runtime["entries"].get("headgate.tap", {}).get("final_value", "0"))


def call(mesh: RunningMesh, url: str, *options: str) -> None:
    """Send a request through the gateway."""
    proxy = json.loads((mesh.state / "instance.json").read_text())["proxy"]
    command = ["curl", "-s", "-o", "/dev/null", "-x", f"http://{proxy}", *options, url]
    subprocess.run(command, check=True, timeout=60)


def test_a_tap_shows_the_route_and_the_access_rule_of_each_request(bookstore: RunningMesh) -> None:
    with tapping(bookstore, "deployment/bookstore-v1") as events:
        allowed = first(events, lambda event: event["side"] == "Server" and event["response"]["status"] == 200)
        denied = first(events, lambda event: event["side"] == "Server" and event["source"].get("identity") == THIEF)
        sent = first(events, lambda event: event["side"] == "Client" and "buyer" in event["proxy"]["name"])
    assert key_of(allowed["access"]) == "TrafficTarget default/buyer-to-bookstore"
    assert (allowed["source"]["identity"], allowed["secured"]) == ("spiffe://cluster.local/ns/default/sa/buyer", True)
    reason = "no TrafficTarget or XAuthorizationPolicy allows this caller"
    unaudited = {"audited": False, "wouldDeny": False, "message": reason}
    assert denied["access"] == {"allowed": False, "object": None, "rule": "", **unaudited}
    assert denied["response"]["status"] == 403
    assert key_of(sent["route"]) == "TrafficSplit default/bookstore"
    assert sent["destination"]["pod"].startswith("default/bookstore-v1-")


def test_proxies_record_requests_only_during_a_tap(bookstore: RunningMesh) -> None:
    until(lambda: recorded_share(bookstore) == 0, "the taps of other tests have ended")
    with tapping(bookstore, "trafficsplit/bookstore") as events:
        assert key_of(first(events, lambda _: True)["route"]) == "TrafficSplit default/bookstore"
        until(lambda: recorded_share(bookstore) == 1_000_000, "the gateway also records requests")
    until(lambda: recorded_share(bookstore) == 0, "the proxies stop recording")


def test_a_tap_redacts_header_and_query_values_without_the_option_values(bookstore: RunningMesh) -> None:
    def from_curl(event: Event) -> bool:
        call(bookstore, "http://bookstore:8080/books?token=s3cret", "-H", "cookie: user=ada")
        return "token" in event["request"]["path"]

    for words, path, cookie in (((), "[redacted]", "[redacted]"), (("--values",), "s3cret", "user=ada")):
        with tapping(bookstore, "service/bookstore", *words) as events:
            request = first(events, from_curl)["request"]
            assert (request["path"], request["headers"]["cookie"]) == (f"/books?token={path}", cookie)


@needs_chromium
@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_shows_live_requests_explains_a_denied_one_and_ends_its_tap(
    bookstore: RunningMesh, page: Page
) -> None:
    await asyncio.to_thread(until, lambda: recorded_share(bookstore) == 0, "the taps of other tests have ended")
    await page.goto(f"{page.url.partition('#')[0]}#/service/default/bookstore?tap=live&tap-status=denied")
    denied = page.get_by_role("region", name="Recorded requests").locator("tbody tr").filter(has_text="ServiceAccount")
    await expect(denied.first).to_contain_text("ServiceAccount default/thief")
    await asyncio.to_thread(until, lambda: recorded_share(bookstore) == 1_000_000, "the gateway also records requests")
    await page.get_by_role("button", name="Pause").last.click()
    await denied.first.get_by_role("link", name="Explain this").click()
    await expect(page.get_by_label("The decision")).to_contain_text("denied")
    await asyncio.to_thread(until, lambda: recorded_share(bookstore) == 0, "the proxies stop recording")


@needs_chromium
@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_explains_a_denied_request_through_the_gateway(bookstore: RunningMesh, page: Page) -> None:
    sender = "ServiceAccount headgate-system/gateway"
    await page.goto(f"{page.url.partition('#')[0]}#/service/default/bookstore?tap=live&tap-from={sender}")
    await expect(page.get_by_text("Live.")).to_be_visible(timeout=60_000)
    await asyncio.to_thread(until, lambda: recorded_share(bookstore) == 1_000_000, "the gateway records requests")
    row = page.get_by_role("region", name="Recorded requests").locator("tbody tr")

    def is_recorded_after_a_call() -> bool:
        call(bookstore, "http://bookstore:8080/books")
        return asyncio.run_coroutine_threadsafe(row.count(), loop).result() > 0

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(until, is_recorded_after_a_call, "the server's proxy records requests")
    await expect(row.first).to_contain_text("denied 403")
    await row.first.get_by_role("link", name="Explain this").click()
    await expect(page.get_by_label("The decision")).to_contain_text("denied")


@needs_chromium
@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_writes_the_missing_rule_and_a_deletion_closes_the_port_again(
    bookstore: RunningMesh, page: Page
) -> None:
    def rules() -> set[str]:
        return {rule["metadata"]["name"] for rule in bookstore.get("traffictarget")["items"]}

    before = await asyncio.to_thread(rules)
    await page.goto(
        f"{page.url.partition('#')[0]}#/service/default/bookstore?tap=live&tap-from=ServiceAccount default/thief"
    )
    card = page.get_by_role("listitem").filter(has_text="Deployment default/thief")
    await card.get_by_role("button", name="Write the missing TrafficTarget").first.click(timeout=60_000)
    await expect(card).to_contain_text("access gained")
    await card.get_by_role("button", name="Apply", exact=True).click()
    undo = card.get_by_role("button", name="Undo: delete the TrafficTarget")
    await expect(undo).to_be_visible()
    (name,) = await asyncio.to_thread(rules) - before
    rows = page.get_by_role("region", name="Recorded requests").locator("tbody tr")
    await expect(rows.filter(has_text=f"TrafficTarget default/{name}").first).to_be_visible()
    await undo.click()
    await expect(card.get_by_role("button", name="Apply", exact=True)).to_be_enabled()
    assert await asyncio.to_thread(rules) == before
    await expect(rows.first).to_contain_text("denied")


@needs_chromium
@pytest.mark.asyncio(loop_scope="module")
async def test_explain_writes_a_rule_for_the_method_and_path_and_explains_again(
    bookstore: RunningMesh, page: Page
) -> None:
    root = page.url.partition("#")[0]
    # A match of a TrafficTarget fits GET /books; no rule has the other path, which gets a group of its own.
    for path, allows in (("/books", "match look of HTTPRouteGroup bookstore"), ("/private/a.b", "GET /private/a")):
        url = f"http://bookstore:8080{path}"
        await page.goto(f"{root}#/explain?url={url}&from=serviceaccount/thief&in=default")
        decision = page.get_by_label("The decision")
        await expect(decision).to_contain_text("denied")
        await page.get_by_role("button", name="Write the missing TrafficTarget").click()
        await expect(
            page.get_by_text(f"It allows the requests {'of ' if 'match' in allows else ''}{allows}")
        ).to_be_visible()
        await page.get_by_role("button", name="Apply", exact=True).click()
        await expect(decision).to_contain_text("allowed")
        await expect(decision.get_by_text("To allow it")).to_have_count(0)
        explained = await asyncio.to_thread(bookstore.headgate, "explain", "POST", url, "--from", "sa/thief")
        assert "  denied " in explained.stdout
        history = await asyncio.to_thread(bookstore.headgate, "history", "--limit", "1")
        assert " headgate-dashboard " in history.stdout
        await page.get_by_role("button", name="Undo: delete the TrafficTarget").click()
        await expect(decision).to_contain_text("denied")


@needs_chromium
@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_edits_the_yaml_of_a_split_and_undoes_it(bookstore: RunningMesh, page: Page) -> None:
    def weights() -> list[int]:
        return [backend["weight"] for backend in bookstore.get("trafficsplit/bookstore")["spec"]["backends"]]

    before = await asyncio.to_thread(weights)
    await page.goto(f"{page.url.partition('#')[0]}#/yaml/TrafficSplit.split.smi-spec.io/default/bookstore")
    text = page.get_by_role("textbox", name="YAML of the object")
    await expect(text).to_have_value(re.compile("weight:"))
    written = await text.input_value()
    await text.fill(written.replace(f"weight: {before[0]}", "weight: -1", 1))
    await expect(page.get_by_role("alert")).to_contain_text("Line ")
    await text.fill(written.replace(f"weight: {before[0]}", "weight: 77", 1))
    await expect(page.get_by_label("The effect of the change")).to_contain_text("requests")
    await page.get_by_role("button", name="Apply", exact=True).click()
    await page.get_by_role("button", name="Undo the change").click(timeout=60_000)
    await expect(text).to_have_value(written)
    assert await asyncio.to_thread(weights) == before


def test_tap_rejects_invalid_targets_and_options(bookstore: RunningMesh) -> None:
    for words, code, message in (
        (("deployment/missing",), 1, "Deployment default/missing not found"),
        (("configmap/x",), 2, "can't be tapped; write KIND/NAME"),
        (("deployment/bookstore-v1", "--max-rps", "0"), 2, "--max-rps"),
    ):
        done = subprocess.run(
            [PLUGIN, "tap", *words], capture_output=True, text=True, timeout=60, check=False, env=environment(bookstore)
        )
        assert (done.returncode, message in done.stderr) == (code, True), done.stderr
