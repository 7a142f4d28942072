"""The server of the dashboard: which browsers it serves, and which requests reach the API server (R110)."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession
from tests.dashboard.running_dashboard import RunningDashboard, running_dashboard

from headgate.api.request_body import LARGEST_BODY
from headgate.dashboard.assets import read_assets
from headgate.dashboard.server import MAX_REQUESTS, POLICY, Dashboard, PageSettings

PODS = "/api/v1/namespaces/shop/pods"
SPLIT = "/apis/split.smi-spec.io/v1alpha4/namespaces/shop/trafficsplits/website"


@pytest.fixture
async def dashboard() -> AsyncIterator[RunningDashboard]:
    async with running_dashboard() as started:
        yield started


async def test_the_url_with_the_token_sets_a_cookie_that_scripts_and_other_sites_never_have(
    dashboard: RunningDashboard,
) -> None:
    async with ClientSession() as stranger, stranger.get(dashboard.address.url(), allow_redirects=False) as response:
        assert (response.status, response.headers["location"]) == (303, "/")
        name, _, rest = response.headers["set-cookie"].partition("=")
        assert name == f"headgate-dashboard-{dashboard.address.host_port.rpartition(':')[2]}"
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in rest.split(";")}


@pytest.mark.parametrize("query", ["", "?token=", "?token=wrong"])
async def test_a_browser_without_the_token_gets_neither_the_page_nor_the_api(
    dashboard: RunningDashboard, query: str
) -> None:
    async with ClientSession() as stranger:
        for path in ("/", PODS, f"/page/{read_assets().digest}/app.js"):
            async with stranger.get(f"{dashboard.origin}{path}{query}") as response:
                assert response.status == 401
                assert "set-cookie" not in response.headers
    assert dashboard.api.requests == []


@pytest.mark.parametrize("cookie", ['prefs={"x":1}', "a b=1", "é=1", "flag", "", "=;;=", 'q="a;b"'])
async def test_cookies_of_other_programs_on_this_machine_do_not_lock_a_browser_out(
    dashboard: RunningDashboard, cookie: str
) -> None:
    """A browser sends the cookies of all ports of a host."""
    own = next(iter(dashboard.browser.cookie_jar))
    async with ClientSession() as browser:
        for header in (f"{cookie}; {own.key}={own.value}", f"{own.key}={own.value}; {cookie}"):
            async with browser.get(f"{dashboard.origin}/", headers={"cookie": header}) as response:
                assert response.status == 200


async def test_the_token_counts_only_at_the_root(dashboard: RunningDashboard) -> None:
    async with (
        ClientSession() as stranger,
        stranger.get(f"{dashboard.origin}{PODS}?token={dashboard.address.token}") as response,
    ):
        assert response.status == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", ""])
async def test_a_name_that_was_rebound_to_loopback_is_rejected(dashboard: RunningDashboard, host: str) -> None:
    response = await dashboard.get(PODS, host=host)
    assert response.status in (400, 403)
    assert dashboard.api.requests == []


async def test_a_forwarded_port_has_another_number_and_is_served(dashboard: RunningDashboard) -> None:
    assert (await dashboard.get("/", host="localhost:9999")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "origin": "http://127.0.0.1:1"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
    ],
)
async def test_a_page_of_another_program_on_this_machine_can_neither_read_nor_write(
    dashboard: RunningDashboard, headers: dict[str, str]
) -> None:
    assert (await dashboard.get(PODS, **headers)).status == 403
    assert (await dashboard.send("PATCH", SPLIT, {}, **headers)).status == 403
    assert dashboard.api.requests == []


async def test_a_link_from_another_site_opens_the_page(dashboard: RunningDashboard) -> None:
    assert (await dashboard.get("/", sec_fetch_site="cross-site", sec_fetch_mode="navigate")).status == 200


async def test_a_write_needs_the_origin_of_the_page(dashboard: RunningDashboard) -> None:
    assert (await dashboard.send("PATCH", SPLIT, {})).status == 403
    response = await dashboard.send("PATCH", SPLIT, {"a": 1}, origin=dashboard.origin, sec_fetch_site="same-origin")
    assert response.status == 200
    assert dashboard.api.bodies == [b'{"a": 1}']


async def test_a_request_has_the_credentials_of_the_kubeconfig_and_nothing_of_the_browser(
    dashboard: RunningDashboard,
) -> None:
    await dashboard.get(
        f"{PODS}?limit=5",
        authorization="Bearer of-the-browser",
        impersonate_user="admin",
        x_remote_user="admin",
        accept="application/json;as=Table",
    )
    (request,) = dashboard.api.requests
    assert request.path_qs == f"{PODS}?limit=5"
    assert request.headers.getall("authorization") == ["Bearer secret"]
    assert request.headers["accept"] == "application/json;as=Table"
    assert {"cookie", "impersonate-user", "x-remote-user"}.isdisjoint(name.lower() for name in request.headers)


async def test_an_error_and_a_warning_of_the_api_reach_the_page(dashboard: RunningDashboard) -> None:
    api = dashboard.api
    api.status, api.body = 403, b'{"kind":"Status","message":"pods is forbidden"}'
    api.headers = {"warning": '299 - "denied"', "set-cookie": "a=b", "location": "http://evil.example"}
    response = await dashboard.get(PODS)
    assert (response.status, await response.json()) == (403, {"kind": "Status", "message": "pods is forbidden"})
    assert response.headers["warning"] == '299 - "denied"'
    assert {"set-cookie", "location"}.isdisjoint(name.lower() for name in response.headers)


async def test_a_warning_in_any_script_reaches_the_page_as_the_bytes_of_the_api(dashboard: RunningDashboard) -> None:
    dashboard.api.headers = {"warning": '299 - "größer → 店"'}
    response = await dashboard.send("PATCH", SPLIT, {}, origin=dashboard.origin)
    assert response.status == 200
    assert dict(response.raw_headers)[b"warning"].decode() == '299 - "größer → 店"'


@pytest.mark.parametrize("content_type", ["text/html", "text/javascript", "image/svg+xml", "application/xhtml+xml"])
async def test_content_of_the_api_never_runs_in_the_browser(dashboard: RunningDashboard, content_type: str) -> None:
    dashboard.api.content_type = content_type
    response = await dashboard.get("/api/v1/namespaces/shop/pods/website/log")
    assert response.content_type == "text/plain"
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/page/no/app.js", PODS, "/api/v1/secrets", "/else"])
async def test_each_response_has_the_policy(dashboard: RunningDashboard, path: str) -> None:
    response = await dashboard.get(path)
    assert response.headers["content-security-policy"] == POLICY
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_an_event_of_a_watch_passes_at_once_and_a_closed_page_ends_the_watch(dashboard: RunningDashboard) -> None:
    async with dashboard.browser.get(f"{dashboard.origin}{PODS}?watch=true") as response:
        for number in range(3):
            event = b'{"type":"ADDED","object":{"n":%d}}\n' % number
            dashboard.api.events.put_nowait(event)
            assert await response.content.readline() == event
        response.close()
    await dashboard.api.watch_ended.wait()


async def test_one_request_more_than_the_most_is_refused(dashboard: RunningDashboard) -> None:
    watches = [await dashboard.browser.get(f"{dashboard.origin}{PODS}?watch=true") for _ in range(MAX_REQUESTS)]
    response = await dashboard.get(PODS)
    assert response.status == 429
    for watch in watches:
        watch.close()


async def test_a_body_that_is_too_large_is_refused(dashboard: RunningDashboard) -> None:
    # The server rejects the declared length before a body arrives.
    response = await dashboard.send("PUT", SPLIT, origin=dashboard.origin, content_length=str(LARGEST_BODY + 1))
    assert response.status == 413
    assert dashboard.api.requests == []


async def test_other_methods_are_refused(dashboard: RunningDashboard) -> None:
    assert (await dashboard.send("OPTIONS", PODS, origin=dashboard.origin)).status == 405


async def test_files_of_the_page_are_cached_forever_below_their_digest(dashboard: RunningDashboard) -> None:
    digest = read_assets().digest
    index = await dashboard.get("/")
    assert index.headers["cache-control"] == "no-store"
    text = await index.text()
    assert f'src="/page/{digest}/app.js"' in text
    assert 'data-context="kind-&lt;shop&gt;" data-namespace="shop"' in text
    script = await dashboard.get(f"/page/{digest}/app.js")
    assert (script.status, script.content_type) == (200, "text/javascript")
    assert "immutable" in script.headers["cache-control"]
    # A page of an earlier version must not mix its modules with those of this one.
    older = await dashboard.get("/page/0123456789abcdef/app.js")
    assert (older.status, older.headers["cache-control"]) == (404, "no-store")


@pytest.mark.parametrize("path", ["../server.py", "..%2fserver.py", "vendor/preact.d.ts", "vendor/vendor.json"])
async def test_only_files_of_the_page_are_served(dashboard: RunningDashboard, path: str) -> None:
    assert (await dashboard.get(f"/page/{read_assets().digest}/{path}")).status in (403, 404)


def test_an_empty_token_is_refused() -> None:
    with pytest.raises(ValueError, match="the token of the dashboard is empty"):
        Dashboard(None, read_assets(), PageSettings("", ""), token="", port=1)  # type: ignore[arg-type]
