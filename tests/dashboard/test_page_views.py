"""Views of the page other than its overview: questions, histories, Services, and the commands that they show (R110)."""

import asyncio
import shlex
from urllib.parse import urlencode

import pytest
from playwright.async_api import expect
from tests.browser import needs_chromium
from tests.dashboard.open_page import OpenPage
from tests.dashboard.page_api import INSPECT, graph

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]


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
    revision = {"revision": 7, "recordTime": None, "reason": "Written", "changes": [], "effectMessages": []}
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
