"""The access rules of a Service on the page: what they decide about its callers, and the rule that is missing (R110, D21)."""

from typing import Any

import pytest
from playwright.async_api import Locator, expect
from tests.browser import assert_accessible, needs_axe, needs_chromium
from tests.dashboard.access_api import (
    EXPLANATIONS,
    GRAPH,
    GROUPS,
    NAME,
    PLANS,
    TARGETS,
    explanation,
    held,
    revise,
    serve,
)
from tests.dashboard.open_page import OpenPage
from tests.dashboard.page_api import PageApi, edge, graph, node

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]


def access(opened: OpenPage) -> Locator:
    return opened.page.get_by_role("region", name="Access of its callers")


async def written_by(opened: OpenPage) -> Locator:
    """Open the Service, and the missing rule of its denied caller."""
    await opened.open("/service/shop/website")
    thief = access(opened).get_by_role("listitem").filter(has_text="Deployment shop/thief")
    button = thief.get_by_role("button", name="Write the missing TrafficTarget")
    await expect(button).to_be_visible()
    await button.click()
    return thief


def writes(api: PageApi) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _ in api.written if path not in (EXPLANATIONS, PLANS)]


async def test_the_missing_rule_is_shown_planned_written_and_undone(opened: OpenPage) -> None:
    api = opened.api
    serve(api)
    thief = await written_by(opened)
    await expect(thief).to_contain_text("112 denied")
    await expect(thief.get_by_label("YAML of the missing rule")).to_contain_text(f"name: {NAME}")
    await expect(thief).to_contain_text(
        "access gained ServiceAccount shop/thief: any request to ServiceAccount shop/website, port 8080"
    )
    await expect(thief.get_by_text(f"kubectl apply -f {NAME}.yaml")).to_be_visible()
    assert writes(api) == []
    await thief.get_by_role("button", name="Apply", exact=True).click()
    await expect(thief.get_by_role("link", name=f"TrafficTarget shop/{NAME}")).to_be_visible()
    assert writes(api) == [("POST", GROUPS), ("POST", TARGETS)]
    undo = thief.get_by_role("button", name="Undo: delete the TrafficTarget")
    await undo.focus()
    await opened.page.keyboard.press("Enter")
    await expect(thief.get_by_role("button", name="Apply", exact=True)).to_be_enabled()
    # The route stays: other rules can refer to it by now.
    assert writes(api)[2:] == [("DELETE", f"{TARGETS}/{NAME}")]
    (deletion,) = [body for method, _, body in api.written if method == "DELETE"]
    assert deletion["preconditions"] == {"uid": "u-2"}
    # The mesh is as before, so the effect is planned again.
    assert len([path for _, path, _ in api.written if path == PLANS]) == 2
    asked = [body["spec"] for _, path, body in api.written if path == EXPLANATIONS]
    assert asked == [
        {
            "url": "http://website.shop:8080/",
            "method": "GET",
            "headers": [],
            "caller": {"kind": "Deployment", "name": "thief"},
        }
    ]


async def test_a_rule_that_can_not_be_written_leaves_no_route_behind(opened: OpenPage) -> None:
    serve(opened.api)
    opened.api.errors[TARGETS] = 409
    thief = await written_by(opened)
    await thief.get_by_role("button", name="Apply", exact=True).click()
    await expect(thief.get_by_role("alert")).to_contain_text("The rule was not written")
    assert writes(opened.api) == [("POST", GROUPS), ("DELETE", f"{GROUPS}/all-requests")]


@pytest.mark.parametrize("resource", ["traffictargets", "httproutegroups"])
async def test_a_rule_is_not_offered_without_the_right_to_write_it(opened: OpenPage, resource: str) -> None:
    serve(opened.api)
    opened.api.denied.add(resource)
    await opened.open("/service/shop/website")
    await expect(access(opened)).to_contain_text("You may not create the TrafficTarget that is missing.")
    await expect(access(opened).get_by_role("button")).to_have_count(0)


async def test_a_rule_can_be_written_again_after_its_undo(opened: OpenPage) -> None:
    """The route stays at an undo, so it exists when the rule is written again."""
    api = opened.api
    serve(api)
    thief = await written_by(opened)
    apply = thief.get_by_role("button", name="Apply", exact=True)
    undo = thief.get_by_role("button", name="Undo: delete the TrafficTarget")
    await apply.click()
    await undo.click()
    await apply.click()
    await expect(undo).to_be_visible()
    assert f"{TARGETS}/{NAME}" in api.objects
    await undo.click()
    await expect(apply).to_be_enabled()
    # A route of this name that allows something else is not used.
    api.objects[f"{GROUPS}/all-requests"]["spec"] = {"matches": [{"name": "all", "methods": ["GET"]}]}
    await apply.click()
    await expect(thief.get_by_role("alert")).to_contain_text('httproutegroups "all-requests" already exists')
    assert f"{GROUPS}/all-requests" in api.objects


async def test_a_caller_that_a_rule_names_has_its_denied_requests_explained(opened: OpenPage) -> None:
    """The page knows no request of the caller: it neither offers a rule for all of them, nor one for a request that no client sent."""
    serve(opened.api)
    opened.api.objects[EXPLANATIONS] = explanation(wideRemedyObjects=[])
    async with opened.page.expect_response("**/explanations"):
        await opened.open("/service/shop/website")
    await expect(access(opened)).to_contain_text("112 denied")
    denied = access(opened).get_by_role("link", name="Denied requests as they happen")
    await expect(denied).to_have_attribute("href", "#/service/shop/website?tap=live&tap-status=denied")
    await expect(access(opened).get_by_role("status")).to_have_count(0)  # the decision is known
    await expect(access(opened).get_by_text("To allow it")).to_have_count(0)
    await expect(access(opened).get_by_role("button")).to_have_count(0)


async def test_a_pod_that_only_a_policy_closes_gets_the_words_and_no_rule(opened: OpenPage) -> None:
    """A TrafficTarget would close open pods, so headgate has none to offer."""
    serve(opened.api)
    message = "add a rule for ServiceAccount shop/thief and port 8080 to XAuthorizationPolicy shop/p"
    opened.api.objects[EXPLANATIONS] = explanation(remedyMessage=message, remedyObjects=[], wideRemedyObjects=[])
    await opened.open("/service/shop/website")
    await expect(access(opened).get_by_text("no TrafficTarget allows it")).to_be_visible()
    await expect(access(opened).get_by_text(f"To allow it: {message}")).to_be_visible()
    await expect(access(opened).get_by_role("button")).to_have_count(0)


async def test_a_new_revision_brings_new_decisions_and_keeps_what_was_written(opened: OpenPage) -> None:
    api = opened.api
    serve(api)
    thief = await written_by(opened)
    await thief.get_by_role("button", name="Apply", exact=True).click()
    undo = thief.get_by_role("button", name="Undo: delete the TrafficTarget")
    await expect(undo).to_be_visible()
    allowed: dict[str, Any] = {"allowed": True, "remedyMessage": "", "remedyObjects": [], "wideRemedyObjects": []}
    await expect(thief.get_by_text("no TrafficTarget allows it")).to_be_visible()
    api.objects[EXPLANATIONS] = explanation(**allowed)
    revise(api, 5)
    await expect(thief.get_by_text("no TrafficTarget allows it")).to_have_count(0)
    # The caller pauses: its card stays, with the way back.
    api.objects[GRAPH] = graph([node("website"), node("cart")], [edge(1, 0)])
    api.change(GRAPH, "MODIFIED", api.objects[GRAPH])
    await expect(thief).to_contain_text("none denied")
    await undo.click()
    await expect(thief.get_by_role("button", name="Apply", exact=True)).to_be_enabled()
    await thief.get_by_role("button", name="Discard").click()
    await expect(thief).to_have_count(0)


async def test_steady_revisions_leave_the_running_decisions(opened: OpenPage) -> None:
    serve(opened.api)
    page = opened.page
    ended: list[str] = []
    page.on("requestfailed", lambda request: ended.append(request.url))
    async with page.expect_response("**/plans"):
        thief = await written_by(opened)
    async with held(page, "**/explanations"):
        for revision in (5, 6, 7):
            async with page.expect_response("**/plans"):
                revise(opened.api, revision)
        assert ended == []
        opened.api.objects[EXPLANATIONS] = explanation(message="no rule names it")
    await expect(thief.get_by_text("no rule names it")).to_be_visible()


async def test_a_caller_without_the_right_to_explain_sees_the_counts(opened: OpenPage) -> None:
    serve(opened.api)
    opened.api.denied.add("explanations")
    await opened.open("/service/shop/website")
    await expect(access(opened)).to_contain_text("112 denied")
    assert not [path for path in opened.api.requested if path == EXPLANATIONS]


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_in_a_missing_rule(opened: OpenPage, scheme: Any) -> None:
    serve(opened.api)
    await opened.page.emulate_media(color_scheme=scheme)
    await expect((await written_by(opened)).get_by_role("button", name="Apply", exact=True)).to_be_enabled()
    await assert_accessible(opened.page)
