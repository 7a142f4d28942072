"""The dashboard in front of a real API server: the caller's rights decide, and watches stream (R110)."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar
from tests.cluster.api_server import ADMIN, UNPRIVILEGED, KubeApiServer

from headgate.dashboard.local import Address, serving
from headgate.dashboard.server import PageSettings

SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces/default/trafficsplits"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
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
    split = {
        "apiVersion": "split.smi-spec.io/v1alpha4",
        "kind": "TrafficSplit",
        "metadata": {"name": "website"},
        "spec": {"service": "website", "backends": [{"service": "website-v1", "weight": 1}]},
    }
    async with login(ADMIN) as browser, browser.get(f"{SPLITS}?watch=true") as watch:
        async with browser.post(REVIEWS, json=review("create")) as response:
            assert (await response.json())["status"]["allowed"]
        async with browser.post(SPLITS, json=split) as response:
            assert response.status == 201, await response.text()
        event = json.loads(await watch.content.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "website")
        async with browser.delete(f"{SPLITS}/website") as response:
            assert response.status == 200
        async with browser.get("/api/v1/namespaces/default/secrets") as response:
            assert response.status == 403
            assert "the dashboard does not serve" in (await response.json())["message"]
