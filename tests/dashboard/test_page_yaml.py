"""The page's editor of YAML: checks, plans, writes and undoes a change, and notices other writers (R110)."""

import re
from typing import Any

import pytest
import yaml
from playwright.async_api import Page, expect
from tests.browser import assert_accessible, needs_axe, needs_chromium
from tests.dashboard.open_page import OpenPage
from tests.dashboard.page_api import INSPECT, changed
from tests.dashboard.test_page_writes import SPLITS, backends, replace, serve_split

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]
PLACE = "/yaml/TrafficSplit.split.smi-spec.io/shop/website"


def text_of(page: Page) -> Any:
    return page.get_by_role("textbox", name="YAML of the object")


async def edited(page: Page, old: str, new: str) -> None:
    """Replace a part of the text, as typing does."""
    await expect(text_of(page)).to_have_value(containing(old))
    text = await text_of(page).input_value()
    await text_of(page).fill(text.replace(old, new))


def containing(part: str) -> re.Pattern[str]:
    return re.compile(re.escape(part))


async def test_an_edit_is_checked_planned_applied_and_undone(opened: OpenPage) -> None:
    page, api = opened.page, opened.api
    split = serve_split(api, v1=90, v2=10)
    replace(api, SPLITS, split | {"status": {"observedGeneration": 1}})
    api.warning = '299 - "the weights of v1 are unusual"'
    await opened.open(PLACE)
    apply = page.get_by_role("button", name="Apply", exact=True)
    await expect(apply).to_be_disabled()
    shown = yaml.safe_load(await text_of(page).input_value())
    assert shown == {name: split[name] for name in ("apiVersion", "kind", "spec")} | {
        "metadata": {"name": "website", "namespace": "shop"}
    }
    await edited(page, "weight: 10", "weight: 30")
    await expect(page.get_by_text("The change has no effect on requests and access.")).to_be_visible()
    await expect(page.get_by_text("kubectl apply -f website.yaml")).to_be_visible()
    assert not [path for method, path, _ in api.written if method == "PUT"]
    await expect(page.get_by_text("!warning the weights of v1 are unusual")).to_be_visible()
    await apply.click()
    await expect(page.get_by_text("the weights of v1 are unusual", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Undo the change").click()
    await expect(text_of(page)).to_have_value(containing("weight: 10"))
    await expect(page.get_by_role("button", name="Undo the change")).to_have_count(0)
    puts = [body for method, _, body in api.written if method == "PUT"]
    assert [body["spec"]["backends"] for body in puts] == [backends(v1=90, v2=30), backends(v1=90, v2=10)]
    assert [body["metadata"]["resourceVersion"] for body in puts] == ["1", "2"]
    plans = [body["spec"]["objects"] for _, path, body in api.written if path == f"{INSPECT}/plans"]
    assert plans[0][0]["spec"]["backends"] == backends(v1=90, v2=30)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("weight: 10", "weight: -1", 12, "spec.backends[1].weight: must be 0 or more"),
        ("weight: 90", "weight: [", 11, "(line 11, column 1)"),
    ],
)
async def test_a_mistake_is_shown_at_its_line_and_can_not_be_applied(
    opened: OpenPage, old: str, new: str, line: int, message: str
) -> None:
    page = opened.page
    serve_split(opened.api, v1=90, v2=10)
    await opened.open(PLACE)
    await edited(page, old, new)
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text(f"Line {line}")
    await expect(alert).to_contain_text(message)
    await expect(page.locator(".yaml-numbers .marked")).to_have_text(f"✕ {line}")
    await expect(text_of(page)).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_role("button", name="Apply", exact=True)).to_be_disabled()
    await text_of(page).press("Control+Enter")
    assert not [path for method, path, _ in opened.api.written if method == "PUT"]


async def test_the_write_of_another_writer_is_not_overwritten(opened: OpenPage) -> None:
    page, api = opened.page, opened.api
    split = serve_split(api, v1=90, v2=10)
    await opened.open(PLACE)
    await edited(page, "weight: 10", "weight: 30")
    apply = page.get_by_role("button", name="Apply", exact=True)
    await expect(apply).to_be_enabled()
    # A status changes the version, and is no conflict.
    programmed = {"type": "Programmed", "status": "True", "message": "2 proxies have it"}
    status = {"observedGeneration": 1, "conditions": [programmed]}
    split = split | {"metadata": split["metadata"] | {"resourceVersion": "5"}, "status": status}
    replace(api, SPLITS, split)
    await expect(page.get_by_text("2 proxies have it")).to_be_visible()
    await expect(page.get_by_text("The object has changed meanwhile.")).to_have_count(0)
    replace(api, SPLITS, changed(split, backends=backends(v1=50, v2=50)))
    await expect(page.get_by_text("The object has changed meanwhile.")).to_be_visible()
    await expect(apply).to_be_disabled()
    await page.get_by_role("button", name="Discard").click()
    await expect(text_of(page)).to_have_value(containing("weight: 50"))
    await edited(page, "weight: 50", "weight: 60")
    await expect(apply).to_be_enabled()
    # The write arrives first, and the event of the other writer later.
    api.objects[f"{SPLITS}/website"] = changed(api.objects[f"{SPLITS}/website"], backends=backends(v1=1, v2=1))
    await apply.click()
    await expect(page.get_by_role("alert")).to_contain_text("The change was not written")
    assert not [path for method, path, _ in api.written if method == "PUT"]


@pytest.mark.parametrize(
    "metadata",
    [
        "metadata: # mine\n  name: website\n  namespace: shop\n",
        '"metadata":\n  name: website\n  namespace: shop\n',
        "metadata: {name: website, namespace: shop}\n",
    ],
)
async def test_a_write_has_the_version_however_the_metadata_is_written(opened: OpenPage, metadata: str) -> None:
    page, api = opened.page, opened.api
    split = serve_split(api, v1=90, v2=10)
    await opened.open(PLACE)
    await expect(text_of(page)).to_have_value(containing("weight: 10"))
    text = await text_of(page).input_value()
    written, _, spec = text.partition("spec:")
    await text_of(page).fill(f"{written.partition('metadata:')[0]}{metadata}spec:{spec.replace('10', '30')}")
    apply = page.get_by_role("button", name="Apply", exact=True)
    await expect(apply).to_be_enabled()
    # Another writer, whose event has not reached the page.
    api.objects[f"{SPLITS}/website"] = changed(split, backends=backends(v1=1, v2=1))
    await apply.click()
    await expect(page.get_by_role("alert")).to_contain_text("The change was not written")
    assert api.objects[f"{SPLITS}/website"]["spec"]["backends"] == backends(v1=1, v2=1)


async def test_an_object_that_the_caller_may_not_change_is_shown(opened: OpenPage) -> None:
    serve_split(opened.api, v1=90, v2=10)
    opened.api.denied.add("trafficsplits")
    await opened.open(PLACE)
    await expect(opened.page.get_by_text("You may not change this object.")).to_be_visible()
    await expect(opened.page.get_by_text("weight: 90")).to_be_visible()
    await expect(text_of(opened.page)).to_have_count(0)


@pytest.mark.parametrize(
    "place", ["/yaml/Secret./shop/website", "/yaml/constructor/shop/website", "/yaml/TrafficSplit.split.smi-spec.io"]
)
async def test_other_kinds_are_not_edited(opened: OpenPage, place: str) -> None:
    await opened.open(place)
    await expect(opened.page.get_by_text("The page does not edit such an object")).to_be_visible()


async def module(page: Page, script: str, argument: Any) -> Any:
    """Run a function of `yaml.js` in the page."""
    source = "new URL('yaml.js', document.querySelector('script[src]').src)"
    return await page.evaluate(f"async value => {{ const yaml = await import({source}); return {script}; }}", argument)


async def test_what_the_editor_writes_is_yaml_with_the_same_content(opened: OpenPage) -> None:
    texts = [
        "",
        "no",
        "1",
        "1e3",
        "0x1",
        "~",
        "null",
        "a: b",
        "# c",
        "- d",
        "x\ny",
        "é\u2028",
        "'",
        '"',
        "{}",
        "*a",
        "&b",
        "@c",
        "2026-01-01",
    ]
    odd: dict[str, Any] = {
        "texts": texts,
        "keys": {text: index for index, text in enumerate(texts)},
        "empty": [{}, [], None, True, 1.5],
    }
    nested = {"rules": [{"matches": [{"path": {"value": "/"}}, {}], "names": [["a", ["b"]], []]}], "on": "on"}
    await opened.open()
    for value in (odd, nested):
        text = await module(opened.page, "yaml.toYaml(value)", value)
        assert yaml.safe_load(text) == value


async def test_lines_of_fields(opened: OpenPage) -> None:
    text = (
        "metadata:\n  annotations:\n    headgate.dev/x: a\nspec:\n  rules:\n  - matches:\n    # why\n    - path:\n        value: /\n"
        "    - headers:\n      - name: a\n        value: b\n  - filters: []\n  hosts: [a]\n"
    )
    lines = {
        "spec.rules[0].matches[0].path.value": 9,
        "spec.rules[0].matches[1].headers[0].value": 12,
        "spec.rules[1].filters": 13,
        "spec.rules[2].filters": 5,
        "spec.hosts[0]": 14,
        "spec.rules.filters": 5,
        "spec.rules[0].matches.path": 6,
        "spec.rules[0].matches[1].headers.value": 12,
        "metadata.annotations[headgate.dev/x]": 3,
        "status.x": 0,
    }
    await opened.open()
    assert await module(opened.page, "value[1].map(field => yaml.lineOf(value[0], field))", [text, [*lines]]) == [
        *lines.values()
    ]


async def test_lines_in_messages_are_those_of_the_text(opened: OpenPage) -> None:
    await opened.open()
    duplicate = 'duplicate key "a", first at line 5 (line 9, column 3)'
    cases = {
        (duplicate, 3): ('duplicate key "a", first at line 4 (line 8, column 3)', 8),
        (duplicate, 7): ('duplicate key "a", first at line 5 (line 8, column 3)', 8),
        (duplicate, 0): (duplicate, 9),
        ("yaml: line 3: bad", 4): ("yaml: line 3: bad", 3),
        ("no position", 4): ("no position", 0),
    }
    shown = await module(opened.page, "value.map(([message, added]) => yaml.placed(message, added))", [*cases])
    assert [(each["message"], each["line"]) for each in shown] == [*cases.values()]


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_in_the_editor(opened: OpenPage, scheme: Any) -> None:
    serve_split(opened.api, v1=90, v2=10)
    await opened.page.emulate_media(color_scheme=scheme)
    await opened.open(PLACE)
    await edited(opened.page, "weight: 10", "weight: -1")
    await expect(opened.page.get_by_role("alert")).to_be_visible()
    await assert_accessible(opened.page)
