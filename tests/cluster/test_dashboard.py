"""The dashboard in front of a real API server: the caller's rights decide, and watches stream (R110)."""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar
from playwright.async_api import expect
from tests.browser import chromium, needs_chromium, visit
from tests.cluster.api_server import ADMIN, UNPRIVILEGED, KubeApiServer
from tests.cluster.control_planes import eventually
from tests.make import objects

from headgate.dashboard.local import Address, serving
from headgate.dashboard.server import PageSettings

SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces/default/trafficsplits"
WEBSITE = objects.split("website", {"website-v1": 1}, name="website", namespace="")
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
Login = Callable[[str], contextlib.AbstractAsyncContextManager[ClientSession]]


@pytest.fixture
def login(cluster: KubeApiServer) -> Login:
    """Return a function that opens the dashboard of a user with a token in a browser."""

    @contextlib.asynccontextmanager
    async def opened(token: str) -> AsyncIterator[ClientSession]:
        settings = PageSettings("", "default")
        async with serving(cluster.credentials(token), settings, port=0, last=Address()) as address:
            origin = f"http://{address.host_port}"
            cookies = CookieJar(unsafe=True)
            async with (
                ClientSession(origin, cookie_jar=cookies, headers={"origin": origin}) as browser,
                browser.get(f"/?token={address.token}"),
            ):
                yield browser

    return opened


def review(verb: str) -> dict[str, Any]:
    """Return the question whether the caller may do something with TrafficSplits."""
    attributes = {"verb": verb, "group": "split.smi-spec.io", "resource": "trafficsplits", "namespace": "default"}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    return {**kind, "spec": {"resourceAttributes": attributes}}


async def test_a_caller_without_rights_gets_the_words_of_the_api_server(login: Login) -> None:
    async with login(UNPRIVILEGED) as browser:
        async with browser.get(SPLITS) as response:
            assert response.status == 403
            assert 'cannot list resource "trafficsplits"' in (await response.json())["message"]
        async with browser.post(REVIEWS, json=review("list")) as response:
            assert (response.status, (await response.json())["status"]["allowed"]) == (201, False)


async def test_a_write_of_the_page_is_the_callers_and_reaches_its_watch(login: Login) -> None:
    async with login(ADMIN) as browser, browser.get(f"{SPLITS}?watch=true") as watch:
        async with browser.post(REVIEWS, json=review("create")) as response:
            assert (await response.json())["status"]["allowed"]
        async with browser.post(SPLITS, json=WEBSITE) as response:
            assert response.status == 201, await response.text()
        event = json.loads(await watch.content.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "website")
        async with browser.delete(f"{SPLITS}/website") as response:
            assert response.status == 200
        async with browser.get("/api/v1/namespaces/default/secrets") as response:
            assert response.status == 403
            assert "the dashboard does not serve" in (await response.json())["message"]


@needs_chromium
async def test_a_reader_sees_what_it_may_and_is_not_offered_the_rest(cluster: KubeApiServer) -> None:
    """The reader may read TrafficSplits in one namespace, and nothing else."""
    cluster.namespace("readers")
    cluster.make("/apis/split.smi-spec.io/v1alpha4/namespaces/readers/trafficsplits", WEBSITE)
    access = "/apis/rbac.authorization.k8s.io/v1/namespaces/readers"
    rule = {"apiGroups": ["split.smi-spec.io"], "resources": ["trafficsplits"], "verbs": ["get", "list", "watch"]}
    cluster.make(f"{access}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "unprivileged"}],
    }
    cluster.make(f"{access}/rolebindings", binding)
    may_watch = {"verb": "watch", "group": "split.smi-spec.io", "resource": "trafficsplits", "namespace": "readers"}
    question = {"spec": {"user": "unprivileged", "resourceAttributes": may_watch}}
    try:
        await eventually(lambda: cluster.make(ACCESS_REVIEWS, question)["status"]["allowed"])
        settings = PageSettings("", "readers")
        async with (
            serving(cluster.credentials(UNPRIVILEGED), settings, port=0, last=Address()) as address,
            chromium() as browser,
        ):
            page = await browser.new_page()
            await visit(page, address.url())
            await expect(page.get_by_text("You may not see the status of the mesh")).to_be_visible()
            views = page.get_by_role("navigation", name="Views").get_by_role("link")
            await expect(views).to_have_text(["Overview", "Splits", "Rollouts"])
            await views.filter(has_text="Splits").click()
            card = page.get_by_role("article").filter(has_text="website")
            await expect(card).to_contain_text("You may not change this TrafficSplit.")
            await expect(card.get_by_role("listitem")).to_contain_text("100 %")
            await expect(card.get_by_role("button")).to_have_count(0)
            await views.filter(has_text="Rollouts").click()
            await expect(page.get_by_text("You may not see the Canaries")).to_be_visible()
    finally:
        for kind in ("rolebindings", "roles"):
            cluster.call("DELETE", f"{access}/{kind}/reader")


@needs_chromium
async def test_the_page_edits_yaml_with_the_checks_of_the_api_server(cluster: KubeApiServer, login: Login) -> None:
    split = {
        "apiVersion": "split.smi-spec.io/v1alpha4",
        "kind": "TrafficSplit",
        "metadata": {"name": "edited"},
        "spec": {"service": "website", "backends": [{"service": "website-v1", "weight": 1}]},
    }
    async with login(ADMIN) as session, session.post(SPLITS, json=split) as response:
        assert response.status == 201, await response.text()
    settings = PageSettings("", "default")
    async with (
        serving(cluster.credentials(ADMIN), settings, port=0, last=Address()) as address,
        chromium() as browser,
    ):
        page = await browser.new_page()
        await visit(page, f"{address.url()}#/yaml/TrafficSplit.split.smi-spec.io/default/edited")
        text, alert = page.get_by_role("textbox", name="YAML of the object"), page.get_by_role("alert")
        await expect(text).to_have_value(re.compile("weight: 1"))
        written = await text.input_value()
        line = written[: written.index("weight: 1")].count("\n") + 1
        for new, place, message in (
            ("weight: -1", f"Line {line}:", "spec.backends.weight in body should be greater than or equal to 0"),
            ("weight: [", "Line ", "yaml: line "),
        ):
            await text.fill(written.replace("weight: 1", new))
            await expect(alert.filter(has_text=place).filter(has_text=message)).to_be_visible()
        await text.fill(written.replace("weight: 1", "weight: 7"))
        await page.get_by_role("button", name="Apply", exact=True).click(timeout=60_000)
        await page.get_by_role("button", name="Undo the change").click(timeout=60_000)
        await expect(page.get_by_role("button", name="Undo the change")).to_have_count(0)
        await expect(text).to_have_value(written)
    async with login(ADMIN) as session, session.delete(f"{SPLITS}/edited") as response:
        assert (await response.json())["details"]["name"] == "edited"
