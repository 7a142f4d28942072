"""The history on the page: marks of changes beside the plots of a Service, and rollbacks under the caller's rights (R110)."""

import itertools
import re
from typing import Any

import pytest
from playwright.async_api import Locator, expect
from tests.browser import assert_accessible, needs_axe, needs_chromium
from tests.dashboard.open_page import OpenPage
from tests.dashboard.page_api import INSPECT, PageApi, no_differences
from tests.dashboard.test_page_views import serve_service

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]
GROUP = "/apis/split.smi-spec.io/v1alpha4"
SPLITS = f"{GROUP}/namespaces/shop/trafficsplits"
REVISIONS = f"{INSPECT}/namespaces/shop/revisions"
WINDOW = "span=900&end=2026-01-01T00:10:00Z"


def recorded_split(name: str, weight: int, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "split.smi-spec.io/v1alpha4",
        "kind": "TrafficSplit",
        "metadata": {"namespace": "shop", "name": name, **metadata},
        "spec": {"service": "website", "backends": [{"service": "v1", "weight": weight}]},
    }


def stored(name: str, weight: int) -> dict[str, Any]:
    """Return a split as the API server has it: with metadata, annotations and a status that the history leaves out."""
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    metadata = {"uid": name, "resourceVersion": "7", "generation": 1, "annotations": annotations, "managedFields": []}
    return recorded_split(name, weight, **metadata) | {"status": {"conditions": []}}


def step(verb: str, name: str, present: int | None, past: int | None) -> dict[str, Any]:
    ref = {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": "shop", "name": name}
    contents = {
        "present": present and recorded_split(name, present),
        "wanted": past and recorded_split(name, past, labels={"a": "b"}),
    }
    return {"verb": verb, "object": ref, "skipMessage": "", **contents}


def revision(number: int, time: str, *effects: str, name: str = "website") -> dict[str, Any]:
    ref = {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": "shop", "name": name}
    change = {"object": ref, "action": "Changed", "by": "kubectl-edit", "file": "", "line": 0, "fields": []}
    content = {"revision": number, "recordTime": time, "reason": "Written", "changes": [change]}
    return {"metadata": {"name": str(number)}, **content, "effectMessages": list(effects)}


def serve_history(api: PageApi, *steps: dict[str, Any]) -> None:
    """Let the API have revision 4, the steps back to revision 3, and the stored objects of these steps."""
    four = revision(4, "2026-01-01T00:05:00Z", "Service shop/website:80: all requests: 40% of them move")
    api.objects |= {
        REVISIONS: {"items": [four], "older": 0},
        f"{REVISIONS}/4": four,
        f"{REVISIONS}/3/restoration": {"steps": list(steps)},
        f"{INSPECT}/plans": no_differences(),
        GROUP: {
            "resources": [
                {"name": "trafficsplits/status", "kind": "TrafficSplit"},
                {"name": "trafficsplits", "kind": "TrafficSplit"},
            ]
        },
        SPLITS: {"items": []},
    }
    for given in steps:
        if given["present"]:
            name, weight = given["object"]["name"], given["present"]["spec"]["backends"][0]["weight"]
            api.objects[f"{SPLITS}/{name}"] = stored(name, weight)


def rollback_button(opened: OpenPage) -> Locator:
    return opened.page.get_by_role("button", name="Roll back to revision 3")


async def open_rollback(opened: OpenPage) -> None:
    await opened.open("/history/4?rollback=3&namespace=shop")
    await expect(opened.page.get_by_text("The change has no effect on requests and access.")).to_be_visible()


async def test_a_rollback_is_checked_written_and_undone(opened: OpenPage) -> None:
    page, api = opened.page, opened.api
    serve_history(
        api, step("update", "website", 50, 90), step("create", "old", None, 10), step("delete", "new", 20, None)
    )
    api.objects[f"{REVISIONS}/4/restoration"] = {"steps": []}
    await open_rollback(opened)
    await expect(page.get_by_role("row", name="spec.backends[0].weight 50 90")).to_be_visible()
    await rollback_button(opened).click()
    await expect(
        page.get_by_text("Restored: TrafficSplit shop/website, TrafficSplit shop/old, TrafficSplit shop/new.")
    ).to_be_visible()
    await expect(rollback_button(opened)).to_have_count(0)
    body = recorded_split("website", 90)["spec"]["backends"]
    update = {"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}, "spec": {"backends": body}}
    delete = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "new", "resourceVersion": "7"}}
    writes = [write for write in api.written if write[1].startswith(GROUP)]
    assert writes == [
        ("PATCH", f"{SPLITS}/website", update),
        ("POST", SPLITS, recorded_split("old", 10, labels={"a": "b"})),
        ("DELETE", f"{SPLITS}/new", delete),
    ]
    assert [method for method, _, _ in api.dry_runs] == ["PATCH", "POST", "DELETE"]
    assert f"{SPLITS}/website?fieldManager=headgate-rollback&dryRun=All" in api.requested

    api.change(f"{REVISIONS}/3/restoration", "MODIFIED", {"steps": []})
    others = step("update", "of-another-writer", 1, 2)
    undo = {"steps": [step("update", "website", 90, 50), others]}
    api.change(f"{REVISIONS}/4/restoration", "MODIFIED", undo)
    await page.get_by_role("button", name="Undo the rollback: 1 object").click()
    await expect(page.get_by_text("Restored:")).to_have_count(0)
    assert api.objects[f"{SPLITS}/website"]["spec"]["backends"][0]["weight"] == 50


async def test_a_rollback_writes_nothing_if_an_object_has_changed_meanwhile(opened: OpenPage) -> None:
    api = opened.api
    serve_history(api, step("delete", "new", 20, None), step("update", "website", 50, 90))
    api.objects[f"{SPLITS}/website"] = stored("website", 60)
    await open_rollback(opened)
    await rollback_button(opened).click()
    alert = opened.page.get_by_role("alert")
    await expect(alert).to_contain_text("TrafficSplit shop/website: it has changed meanwhile")
    await expect(alert).to_contain_text("Nothing was written.")
    assert [method for method, path, _ in api.written if path.startswith(GROUP)] == []


async def test_a_write_that_fails_after_another_one_says_which_was_written(opened: OpenPage) -> None:
    page, api = opened.page, opened.api
    serve_history(api, step("update", "website", 50, 90), step("update", "other", 50, 90))
    api.objects[f"{REVISIONS}/4/restoration"] = {"steps": [step("update", "website", 90, 50)]}

    async def refuse(route: Any) -> None:
        is_write = route.request.method == "PATCH" and "dryRun" not in route.request.url
        await (route.fulfill(status=409, json={"message": "it was modified"}) if is_write else route.continue_())

    await page.route("**/trafficsplits/other*", refuse)
    await open_rollback(opened)
    await rollback_button(opened).click()
    await expect(page.get_by_role("alert")).to_contain_text(
        "TrafficSplit shop/other: it was modified. Written before: TrafficSplit shop/website. Not written: TrafficSplit shop/other."
    )
    await expect(page.get_by_role("button", name="Undo the rollback: 1 object")).to_be_visible()


async def test_a_rollback_that_the_caller_may_not_write_is_not_offered(opened: OpenPage) -> None:
    serve_history(opened.api, step("update", "website", 50, 90))
    opened.api.denied.add("trafficsplits")
    await open_rollback(opened)
    await expect(opened.page.get_by_text("You may not write these objects.")).to_be_visible()
    await expect(rollback_button(opened)).to_have_count(0)


async def test_a_mark_beside_the_plots_says_what_changed_and_leads_to_the_way_back(opened: OpenPage) -> None:
    """With the keyboard alone."""
    page, api = opened.page, opened.api
    serve_service(api)
    serve_history(api, step("update", "website", 50, 90))
    two = revision(2, "2025-12-31T23:57:00Z", "Service shop/website:80: a mirror ends")
    unrelated = revision(1, "2025-12-31T23:58:00Z", "Service shop/website-v1:80: moves", name="other")
    api.objects[REVISIONS]["items"] = [unrelated, two, *api.objects[REVISIONS]["items"]]
    await opened.open(f"/service/shop/website?{WINDOW}")
    marks = page.get_by_role("group", name="Changes in this time").get_by_role("button")
    await expect(marks).to_have_count(3)  # the series has the weights of revision 3
    text = page.get_by_role("region", name="The change")
    await marks.first.focus()
    await expect(text).to_contain_text("Service shop/website:80: a mirror ends")
    await page.keyboard.press("End")
    await expect(text).to_contain_text("40% of them move")
    await expect(text).to_contain_text("by kubectl-edit")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(rollback_button(opened)).to_be_visible()
    await expect(page).to_have_url(re.compile(r"#/history/4\?namespace=shop&rollback=3$"))


async def test_many_changes_share_marks(opened: OpenPage) -> None:
    api = opened.api
    serve_service(api)
    times = [f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z" for number in range(200)]
    effect = "Service shop/website:80: moves"
    api.objects[REVISIONS] = {"items": [revision(n + 10, t, effect) for n, t in enumerate(times)], "older": 5}
    await opened.open(f"/service/shop/website?{WINDOW}")
    marks = opened.page.get_by_role("group", name="Changes in this time").get_by_role("button")
    await expect(opened.page.get_by_text("5 older revisions of the namespace have no marks.")).to_be_visible()
    boxes = [box for mark in await marks.all() if (box := await mark.bounding_box())]
    assert 5 < len(boxes) < 40
    assert all(left["x"] + left["width"] <= right["x"] + 1 for left, right in itertools.pairwise(boxes))


async def test_the_window_of_the_plots_is_in_the_url(opened: OpenPage) -> None:
    page, api = opened.page, opened.api
    serve_service(api)
    api.objects[REVISIONS] = {"items": [], "older": 0}
    await opened.open(f"/service/shop/website?{WINDOW}")
    series = f"{INSPECT}/namespaces/shop/trafficseries/service.website"
    query = "start=2025-12-31T23%3A{}%3A00Z&end=2025-12-31T23%3A{}%3A00Z&step=10s"
    await expect(page.get_by_text("Paused:")).to_be_visible()
    async with page.expect_request(f"**{series}?**"):
        await page.get_by_role("button", name="Earlier").click()
    await expect(page).to_have_url(re.compile(r"\?span=900&end=2025-12-31T23%3A55%3A00Z$"))
    await expect(page.get_by_role("img", name="Success")).to_be_visible()
    await api.receives(f"{series}?{query.format(40, 55)}")

    # A part of the window, and the browser's way back.
    lines = page.locator(".u-over").last
    box = await lines.bounding_box()
    assert box
    await lines.hover(position={"x": box["width"] / 3, "y": 20})
    await page.mouse.down()
    await lines.hover(position={"x": 2 * box["width"] / 3, "y": 20})
    await page.mouse.up()
    await expect(page.get_by_role("combobox", name="Time")).to_have_value("300")
    await page.go_back()
    await expect(page.get_by_role("combobox", name="Time")).to_have_value("900")

    await page.get_by_role("button", name="Continue").click()
    await expect(page).to_have_url(re.compile(r"\?span=900$"))
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_text("Paused:")).to_be_visible()
    await expect(page).to_have_url(re.compile("&end="))


@pytest.mark.parametrize(
    "query", ["span=soon&end=never", "span=-1", "span=1e99&end=2026-01-01T00:00:00Z", "end=0001-01-01T00:00:00Z"]
)
async def test_an_invalid_window_in_the_url_is_not_requested(opened: OpenPage, query: str) -> None:
    serve_service(opened.api)
    await opened.open(f"/service/shop/website?{query}")
    await expect(opened.page.get_by_role("img", name="Success")).to_be_visible()


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_in_a_rollback_and_at_a_mark(opened: OpenPage, scheme: Any) -> None:
    serve_service(opened.api)
    serve_history(opened.api, step("update", "website", 50, 90), step("delete", "new", 20, None))
    await opened.page.emulate_media(color_scheme=scheme)
    await open_rollback(opened)
    await assert_accessible(opened.page)
    await opened.open(f"/service/shop/website?{WINDOW}")
    marks = opened.page.get_by_role("group", name="Changes in this time").get_by_role("button")
    await expect(marks).to_have_count(2)
    await marks.last.focus()
    await expect(opened.page.get_by_role("region", name="The change")).to_contain_text("Revision 4")
    await assert_accessible(opened.page)


@pytest.mark.parametrize("width", [390, 640])
async def test_plots_and_rollbacks_fit_a_phone_and_a_zoom_of_200_percent(opened: OpenPage, width: int) -> None:
    serve_service(opened.api)
    serve_history(opened.api, step("update", "a-name-without-any-space" * 4, 50, 90))
    await opened.page.set_viewport_size({"width": width, "height": 450})
    await open_rollback(opened)
    assert await opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await opened.open(f"/service/shop/website?{WINDOW}")
    await expect(opened.page.locator("canvas")).to_have_count(6)
    assert await opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
