"""Explain on the page: the rule that a denied request lacks, and the decision after it is written (R110)."""

import asyncio
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect
from tests.browser import needs_chromium
from tests.dashboard.access_api import (
    EXPLAIN,
    EXPLANATIONS,
    GROUP,
    GROUPS,
    NAME,
    NARROW,
    PLANS,
    REVISIONS,
    TARGETS,
    decision,
    held,
    revise,
    serve,
)
from tests.dashboard.open_page import OpenPage

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]
ALLOWED: dict[str, Any] = {"allowed": True, "remedyMessage": "", "remedyObjects": [], "wideRemedyObjects": []}


async def test_explain_offers_a_rule_once_and_only_about_the_mesh_as_it_is(opened: OpenPage) -> None:
    serve(opened.api)
    opened.api.objects[EXPLANATIONS] = decision()
    await opened.open(EXPLAIN)
    button = opened.page.get_by_role("button", name="Write the missing TrafficTarget")
    await expect(opened.page.get_by_text("It allows the requests GET /items$ of this caller")).to_be_visible()
    await expect(button).to_have_count(1)
    await opened.open(f"{EXPLAIN}&at=3")
    await expect(opened.page.get_by_label("At the revision (empty: now)")).to_have_value("3")
    await expect(opened.page.get_by_text("To allow it").first).to_be_visible()
    await expect(button).to_have_count(0)


async def test_the_rule_of_an_explained_request_is_narrow_or_for_all_requests(opened: OpenPage) -> None:
    serve(opened.api)
    opened.api.objects[EXPLANATIONS] = decision()
    await opened.open(EXPLAIN)
    page = opened.page
    await page.get_by_role("button", name="Write the missing TrafficTarget").click()
    text = page.get_by_label("YAML of the missing rule")
    await expect(text).to_contain_text('pathRegex: "/items$"')
    await page.get_by_label("all requests").check()
    await expect(text).to_contain_text("name: all-requests")
    await expect(page.get_by_text("It allows all requests, with any method and path, of this caller")).to_be_visible()
    await page.get_by_label("only this method and path").check()
    await page.get_by_role("button", name="Apply", exact=True).click()
    await expect(page.get_by_role("link", name=f"TrafficTarget shop/{NAME}")).to_be_visible()
    assert [body for _, path, body in opened.api.written if path in (GROUPS, TARGETS)] == [GROUP, NARROW]


async def test_a_decision_is_old_after_a_write_until_the_mesh_has_the_rule(opened: OpenPage) -> None:
    api = opened.api
    serve(api)
    api.objects[EXPLANATIONS] = decision()
    await opened.open(EXPLAIN)
    page = opened.page
    await page.get_by_role("button", name="Write the missing TrafficTarget").click()
    await page.get_by_role("button", name="Apply", exact=True).click()
    old = page.get_by_text("This is the decision before the write")
    await expect(old).to_be_visible()
    api.objects[EXPLANATIONS] = decision(**ALLOWED)
    revise(api, 5)
    await expect(page.get_by_text("To allow it")).to_have_count(0)
    await expect(old).to_have_count(0)
    await page.get_by_role("button", name="Undo: delete the TrafficTarget").click()
    await expect(old).to_be_visible()
    api.objects[EXPLANATIONS] = decision()
    revise(api, 6)
    await expect(page.get_by_text("To allow it").first).to_be_visible()
    await expect(old).to_have_count(0)


def old(page: Page) -> Locator:
    return page.get_by_text("This is the decision before the write")


async def drafted(opened: OpenPage) -> Page:
    """Explain a denied request, and open the draft of its missing rule."""
    opened.api.objects[EXPLANATIONS] = decision()
    await opened.open(EXPLAIN)
    await opened.page.get_by_role("button", name="Write the missing TrafficTarget").click()
    return opened.page


async def apply(page: Page) -> None:
    """Write the rule, and wait for the explanation that the page requests at once."""
    async with page.expect_response("**/explanations"):
        await page.get_by_role("button", name="Apply", exact=True).click()
    await expect(old(page)).to_be_visible()


async def test_a_decision_is_explained_again_without_the_right_to_read_revisions(opened: OpenPage) -> None:
    serve(opened.api)
    opened.api.errors[REVISIONS] = 403
    await opened.page.clock.install()
    page = await drafted(opened)
    await apply(page)
    opened.api.objects[EXPLANATIONS] = decision(**ALLOWED)
    await page.clock.fast_forward(1_000)
    await expect(page.get_by_text("To allow it")).to_have_count(0)
    await expect(old(page)).to_have_count(0)


async def test_a_decision_that_stays_as_it_was_is_left_to_the_user(opened: OpenPage) -> None:
    serve(opened.api)
    opened.api.errors[REVISIONS] = 403
    await opened.page.clock.install()
    page = await drafted(opened)
    await apply(page)
    for pause in (1_000, 2_000, 4_000, 8_000, 16_000):
        async with page.expect_response("**/explanations"):
            await page.clock.fast_forward(pause)
    unseen = page.get_by_text("Choose Explain to explain the request again.")
    await expect(unseen).to_be_visible()
    await expect(old(page)).to_have_count(0)
    await page.get_by_role("button", name="Explain", exact=True).click()
    await expect(unseen).to_have_count(0)
    await expect(page.get_by_text("To allow it").first).to_be_visible()


async def test_the_first_revisions_that_are_read_may_contain_the_write(opened: OpenPage) -> None:
    serve(opened.api)
    late = opened.api.late_watches[REVISIONS] = asyncio.Event()
    await opened.page.clock.install()
    page = await drafted(opened)
    await apply(page)
    opened.api.objects[EXPLANATIONS] = decision(**ALLOWED)
    revise(opened.api, 5)
    late.set()
    await expect(old(page)).to_have_count(0)
    await expect(page.get_by_text("To allow it")).to_have_count(0)


async def test_a_request_that_another_rule_allows_is_current_after_the_undo(opened: OpenPage) -> None:
    serve(opened.api)
    page = await drafted(opened)
    await opened.api.receives(f"{REVISIONS}?newest=200")
    await apply(page)
    opened.api.objects[EXPLANATIONS] = decision(**ALLOWED)
    revise(opened.api, 5)
    await expect(old(page)).to_have_count(0)
    await page.get_by_role("button", name="Undo: delete the TrafficTarget").click()
    await expect(old(page)).to_be_visible()
    revise(opened.api, 6)
    await expect(old(page)).to_have_count(0)
    await expect(page.get_by_text("allowed").first).to_be_visible()


async def test_steady_revisions_leave_the_running_explanation_and_renew_the_plan(opened: OpenPage) -> None:
    serve(opened.api)
    ended: list[str] = []
    page = opened.page
    page.on("requestfailed", lambda request: ended.append(request.url))
    async with page.expect_response("**/plans"):
        await drafted(opened)
    await opened.api.receives(f"{REVISIONS}?newest=200")
    opened.api.objects[EXPLANATIONS] = decision(**ALLOWED)
    async with held(page, "**/explanations"):
        for revision in (5, 6, 7):
            async with page.expect_response("**/plans"):
                revise(opened.api, revision)
        assert ended == []
    await expect(page.get_by_text("To allow it")).to_have_count(0)
    await expect(page.get_by_label("The decision")).to_have_attribute("aria-busy", "false")
    # The first, that after revision 5, and one for all revisions since.
    assert len([path for _, path, _ in opened.api.written if path == EXPLANATIONS]) == 3
    assert len([path for _, path, _ in opened.api.written if path == PLANS]) >= 4


async def test_an_unchanged_request_is_shown_as_being_explained_again(opened: OpenPage) -> None:
    serve(opened.api)
    opened.api.objects[EXPLANATIONS] = decision()
    await opened.open(EXPLAIN)
    section = opened.page.get_by_label("The decision")
    await expect(section).to_contain_text("denied")
    async with held(opened.page, "**/explanations"):
        await opened.page.get_by_role("button", name="Explain", exact=True).click()
        await expect(section).to_contain_text("Explaining again")
        await expect(section).to_have_attribute("aria-busy", "true")
        await expect(section).to_contain_text("denied")
    await expect(section).not_to_contain_text("Explaining again")
    await expect(section).to_have_attribute("aria-busy", "false")


async def test_the_scope_of_a_rule_can_not_change_while_it_is_written(opened: OpenPage) -> None:
    serve(opened.api)
    page = await drafted(opened)
    scope = page.get_by_role("group", name="The rule allows this caller")
    async with held(page, "**/httproutegroups"):
        await page.get_by_role("button", name="Apply", exact=True).click()
        await expect(scope.get_by_label("all requests")).to_be_disabled()
    await expect(page.get_by_role("link", name=f"TrafficTarget shop/{NAME}")).to_be_visible()
    await expect(page.get_by_label("YAML of the missing rule")).to_contain_text('pathRegex: "/items$"')


async def test_explain_shows_that_an_authorization_server_denies_the_call_about_a_request(opened: OpenPage) -> None:
    serve(opened.api)
    allowed, denied = (decision(**changes)["status"] for changes in (ALLOWED, {}))
    server = {"service": "shop/auth", "port": 9000, "readyEndpoints": 1, "arrivals": denied["backends"][0]["arrivals"]}
    opened.api.objects[EXPLANATIONS] = {"status": allowed | {"authorizationServer": server}}
    await opened.open(EXPLAIN)
    permission = opened.page.locator(".backend", has_text="shop/auth:9000 must allow the request first")
    await expect(permission).to_contain_text("denied")
    await expect(permission).not_to_contain_text("no ready endpoint")
    await expect(opened.page.locator(".backend", has_text="shop/website:8080")).not_to_contain_text("denied")
    unready = server | {"readyEndpoints": 0, "arrivals": []}
    opened.api.objects[EXPLANATIONS] = {"status": allowed | {"authorizationServer": unready}}
    await opened.page.reload()
    await expect(permission).to_contain_text("It has no ready endpoint, so the proxy denies every request.")
