"""The aggregated API server: authentication by request headers, authorization by SubjectAccessReviews (R99 to R101)."""

import asyncio
import contextlib
import http.client
import itertools
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.api.inspect.inspect_fakes import FakeMesh
from tests.api.metrics.metrics_world import FLOWS, FakeSource, stored

from headgate.api.aggregated_server import create_aggregated_app, refresh_request_header_config, serve_aggregated
from headgate.api.certificate import CertificateFiles
from headgate.api.computed_groups import Handlers
from headgate.api.delegated_auth import (
    DelegatedAuthorizer,
    RequestHeaderConfig,
    authenticate,
    read_request_header_config,
)
from headgate.api.inspect import watches
from headgate.api.inspect.handlers import InspectApi
from headgate.api.metrics.handlers import MetricsApi
from headgate.api.resource_attributes import ResourceAttributes
from headgate.api.status import ApiError
from headgate.errors import ProxyError
from headgate.latest import Latest, until

from .aggregation import CONFIG, AggregationClient, FakeReviewer
from .request_header_ca import FrontProxyAuthority, credential_of

BASE = "/apis/traffic.metrics.k8s.io/v1beta1"
PODS = f"{BASE}/namespaces/default/pods"
JANE = {"x_remote_user": "jane", "x_remote_group": "devs"}


@pytest.fixture
def reviewer() -> FakeReviewer:
    return FakeReviewer()


@pytest.fixture
async def client(reviewer: FakeReviewer) -> AggregationClient:
    store = await stored()
    metrics = MetricsApi(store, FakeSource(FLOWS))
    return AggregationClient(
        create_aggregated_app(
            Handlers(metrics, InspectApi(FakeMesh(), asyncio.Event())),
            Latest(CONFIG),
            DelegatedAuthorizer(reviewer, clock=lambda: 0.0),
        ),
        store,
    )


async def test_an_authenticated_and_authorized_user_gets_an_answer(
    client: AggregationClient, reviewer: FakeReviewer
) -> None:
    answer = await client.call("GET", f"{PODS}/web-5d-c4c4c", **JANE)
    assert (answer.code, answer.body["kind"]) == (200, "TrafficMetrics")
    assert reviewer.requests == [
        {
            "user": "jane",
            "groups": ("devs", "system:authenticated"),
            "extra": {},
            "resourceAttributes": {
                "group": "traffic.metrics.k8s.io",
                "version": "v1beta1",
                "resource": "pods",
                "verb": "get",
                "namespace": "default",
                "name": "web-5d-c4c4c",
            },
        }
    ]


@pytest.mark.parametrize("client_name", [None, "", "another-client"])
async def test_user_headers_without_the_right_client_certificate_are_unauthorized(
    client: AggregationClient, reviewer: FakeReviewer, client_name: str | None
) -> None:
    """Any client can write X-Remote-User, so it counts only with the front proxy's certificate."""
    client.client_name = client_name
    answer = await client.call("GET", PODS, x_remote_user="system:admin", x_remote_group="system:masters")
    assert (answer.code, answer.body["reason"]) == (401, "Unauthorized")
    assert reviewer.requests == []


async def test_a_request_without_a_user_is_unauthorized(client: AggregationClient) -> None:
    assert (await client.call("GET", PODS)).code == 401
    assert (await client.call("GET", PODS, x_remote_user="")).code == 401
    client.client_name = None
    assert (await client.call("GET", "/readyz")).code == 200


@pytest.mark.parametrize(
    ("path", "attributes"),
    [
        ("pods", {"resource": "pods", "verb": "list"}),
        ("namespaces/default/pods", {"resource": "pods", "verb": "list", "namespace": "default"}),
        (
            "namespaces/default/pods/web-5d-c4c4c/edges",
            {"resource": "pods", "subresource": "edges", "verb": "get", "namespace": "default", "name": "web-5d-c4c4c"},
        ),
        ("namespaces", {"resource": "namespaces", "verb": "list"}),
        ("namespaces/default", {"resource": "namespaces", "verb": "get", "namespace": "default", "name": "default"}),
        (
            "namespaces/default/edges",
            {
                "resource": "namespaces",
                "subresource": "edges",
                "verb": "get",
                "namespace": "default",
                "name": "default",
            },
        ),
        ("nodes/node-1", {"resource": "nodes", "verb": "get", "name": "node-1"}),
    ],
)
async def test_a_review_contains_the_resource_attributes_of_the_path(
    client: AggregationClient, reviewer: FakeReviewer, path: str, attributes: dict[str, str]
) -> None:
    assert (await client.call("GET", f"{BASE}/{path}", **JANE)).code == 200
    (spec,) = reviewer.requests
    assert spec["resourceAttributes"] == {"group": "traffic.metrics.k8s.io", "version": "v1beta1", **attributes}


async def test_a_role_for_pod_edges_allows_no_other_resource(client: AggregationClient, reviewer: FakeReviewer) -> None:
    """R100."""
    allowed = ("pods", "edges")
    reviewer.rule = lambda spec: (
        (spec["resourceAttributes"]["resource"], spec["resourceAttributes"].get("subresource")) == allowed
    )
    assert (await client.call("GET", f"{PODS}/web-5d-c4c4c/edges", **JANE)).code == 200
    for path in (f"{PODS}/web-5d-c4c4c", PODS, f"{BASE}/namespaces/default/deployments/web/edges", f"{BASE}/pods"):
        answer = await client.call("GET", path, **JANE)
        assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
    answer = await client.call("GET", f"{BASE}/namespaces/default/deployments/web/edges", **JANE)
    assert answer.body["message"] == (
        'deployments.traffic.metrics.k8s.io "web" is forbidden: User "jane" cannot get resource "deployments/edges"'
        ' in API group "traffic.metrics.k8s.io" in the namespace "default"'
    )


async def test_a_forbidden_user_gets_403_for_existing_and_missing_objects(
    client: AggregationClient, reviewer: FakeReviewer
) -> None:
    reviewer.rule = lambda _: False
    codes = {(await client.call("GET", f"{PODS}/{name}", **JANE)).code for name in ("web-5d-c4c4c", "none")}
    assert codes == {403}


async def test_discovery_is_authorized_by_its_path(client: AggregationClient, reviewer: FakeReviewer) -> None:
    assert (await client.call("GET", "/apis", **JANE)).body["kind"] == "APIGroupList"
    assert (await client.call("GET", BASE, **JANE)).body["kind"] == "APIResourceList"
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    answer = await client.call("GET", "/apis", accept=accept, **JANE)
    assert {one["metadata"]["name"] for one in answer.body["items"]} == {
        "custom.metrics.k8s.io",
        "external.metrics.k8s.io",
        "inspect.headgate.dev",
        "traffic.metrics.k8s.io",
        "mesh.metrics.k8s.io",
        "metrics.smi-spec.io",
    }
    assert [spec["nonResourceAttributes"]["path"] for spec in reviewer.requests] == ["/apis", BASE]
    for path in ("/apis/apps/v1", "/apis/apps", "/api/v1", "/api/v1/pods", "/apis/apps/v1/deployments", "/openapi/v2"):
        assert (await client.call("GET", path, **JANE)).code == 404
    reviewer.rule = lambda _: False
    assert (await client.call("GET", "/apis/mesh.metrics.k8s.io", **JANE)).code == 403


async def test_a_failed_review_answers_503(client: AggregationClient, reviewer: FakeReviewer) -> None:
    reviewer.fails = True
    answer = await client.call("GET", PODS, **JANE)
    assert (answer.code, answer.body["reason"]) == (503, "ServiceUnavailable")


@pytest.mark.parametrize(
    "answer", [{}, {"status": {}}, {"status": {"allowed": True, "denied": True}}, {"status": {"allowed": "yes"}}]
)
async def test_a_review_without_an_explicit_allow_denies_the_request(answer: dict[str, Any]) -> None:
    class Odd(FakeReviewer):
        async def create(self, path: str, body: Any) -> dict[str, Any]:
            return {**await super().create(path, body), "status": {}, **answer}

    authorizer = DelegatedAuthorizer(Odd())
    with pytest.raises(ApiError) as refused:
        await authorizer.authorize_path(authenticate(CONFIG, "config-proxy", [("x-remote-user", "jane")]), "/apis")
    assert refused.value.code in {403, 503}


async def test_permissions_are_cached_and_denials_are_not_cached(reviewer: FakeReviewer) -> None:
    """Discovery has no secrets, so permissions for its paths are cached longer."""
    now = 0.0
    authorizer = DelegatedAuthorizer(reviewer, clock=lambda: now)
    jane, john = (authenticate(CONFIG, "config-proxy", [("x-remote-user", name)]) for name in ("jane", "john"))
    for _ in range(3):
        await authorizer.authorize_path(jane, "/apis")
    assert len(reviewer.requests) == 1
    await authorizer.authorize_path(john, "/apis")
    await authorizer.authorize_path(jane, "/apis/x")
    assert len(reviewer.requests) == 3
    pods = ResourceAttributes(verb="list", group="metrics", version="v1", resource="pods")
    for _ in range(3):
        await authorizer.authorize(jane, pods)
    assert len(reviewer.requests) == 4
    now, reviewer.rule = 10.0, lambda _: False
    await authorizer.authorize_path(jane, "/apis")
    for _ in range(2):
        with pytest.raises(ApiError):
            await authorizer.authorize(jane, pods)
    assert len(reviewer.requests) == 6
    now = 300.0
    with pytest.raises(ApiError):
        await authorizer.authorize_path(jane, "/apis")


def test_user_groups_and_extra_attributes_are_read_from_the_request_headers() -> None:
    headers = [
        ("x-remote-user", ""),
        ("x-remote-user", "jane"),
        ("x-remote-group", "devs"),
        ("x-remote-group", "system:authenticated"),
        ("x-remote-extra-acme.com%2Fproject", "one"),
        ("x-remote-extra-acme.com%2fproject", "two"),
        ("authorization", "Bearer x"),
    ]
    user = authenticate(CONFIG, "config-proxy", headers)
    assert (user.name, user.groups) == ("jane", ("devs", "system:authenticated"))
    assert user.extra == (("acme.com/project", ("one", "two")),)
    any_name = structs.replace(CONFIG, names=())
    assert authenticate(any_name, "any-client", headers).name == "jane"
    with pytest.raises(ApiError):
        authenticate(any_name, None, headers)


@pytest.mark.parametrize(
    ("name", "groups", "expected"),
    [
        ("system:aggregator", (), ("system:authenticated",)),
        ("jane", ("system:authenticated", "devs"), ("system:authenticated", "devs")),
        ("system:anonymous", ("system:unauthenticated",), ("system:unauthenticated",)),
    ],
)
def test_each_user_but_the_anonymous_one_is_in_the_group_of_authenticated_users(
    name: str, groups: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    headers = [("x-remote-user", name), *(("x-remote-group", group) for group in groups)]
    assert authenticate(CONFIG, "config-proxy", headers).groups == expected


class FakeConfigMapApi:
    """An API server with one ConfigMap."""

    def __init__(self, data: dict[str, str]) -> None:
        self.data = data
        self.requests = 0

    async def read(self, path: str) -> dict[str, Any]:
        self.requests += 1
        assert path == "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
        return {"kind": "ConfigMap", "data": self.data}

    async def create(self, path: str, body: Any) -> dict[str, Any]:
        raise NotImplementedError


async def test_the_configmap_of_the_cluster_is_parsed() -> None:
    data = {
        "client-ca-file": "another",
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["a","b"]',
        "requestheader-username-headers": '["X-Remote-User","X-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    found = await read_request_header_config(FakeConfigMapApi(data))
    assert found == RequestHeaderConfig(authority="PEM", names=("a", "b"), user_headers=("x-remote-user", "x-user"))
    assert (await read_request_header_config(FakeConfigMapApi({"requestheader-client-ca-file": "PEM"}))).names == ()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "--requestheader-client-ca-file"),
        ({"client-ca-file": "PEM"}, "--requestheader-client-ca-file"),
        ({"requestheader-client-ca-file": "PEM", "requestheader-allowed-names": "a"}, "can't parse the ConfigMap"),
    ],
)
async def test_a_configmap_without_a_valid_ca_is_an_error(data: dict[str, str], said: str) -> None:
    """The CA of ordinary client certificates is not used: their holders must not impersonate users."""
    with pytest.raises(ProxyError, match=said):
        await read_request_header_config(FakeConfigMapApi(data))


async def test_a_refresh_adopts_a_new_configmap_and_a_failed_refresh_keeps_the_old_one() -> None:
    api = FakeConfigMapApi({"requestheader-client-ca-file": "old"})
    config = Latest(await read_request_header_config(api))
    api.data = {}
    refreshing = asyncio.create_task(refresh_request_header_config(api, config, every=0))
    while api.requests < 3:
        await asyncio.sleep(0)
    assert config.get().authority == "old"
    api.data = {"requestheader-client-ca-file": "new"}
    await until(lambda: config.get().authority == "new", config)
    refreshing.cancel()


@contextlib.asynccontextmanager
async def serving(
    reviewer: FakeReviewer, certificate: CertificateFiles, config: Latest[RequestHeaderConfig]
) -> AsyncIterator[int]:
    handlers = Handlers(MetricsApi(await stored(), FakeSource(FLOWS)), InspectApi(FakeMesh(), asyncio.Event()))
    app = create_aggregated_app(handlers, config, DelegatedAuthorizer(reviewer))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(serve_aggregated(app, listener, Latest(credential_of(certificate)), config))
        try:
            yield listener.getsockname()[1]
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def status_of(
    port: int, certificate: CertificateFiles, client: tuple[Path, Path] | None, path: str = PODS
) -> int:
    """Send a request over TLS, with or without a client certificate; return the status, 0 when the handshake fails."""

    def ask() -> int:
        trust = ssl.create_default_context(cadata=certificate.pem.decode())
        if client:
            trust.load_cert_chain(*client)
        connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=trust)
        try:
            connection.request("GET", path, headers={"X-Remote-User": "jane"})
            answer = connection.getresponse()
            assert json.loads(answer.read())["kind"] in {"Status", "TrafficMetricsList"}
        except OSError:
            return 0
        else:
            return answer.status
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def test_only_the_front_proxys_certificate_of_the_request_header_ca_is_accepted(
    reviewer: FakeReviewer, certificate: CertificateFiles, tmp_path: Path
) -> None:
    """Over real TLS: the right CA and name, the right CA with another name, another CA, and no certificate."""
    authority, stranger = FrontProxyAuthority(), FrontProxyAuthority()
    config = Latest(structs.replace(CONFIG, authority=authority.pem.decode()))
    async with serving(reviewer, certificate, config) as port:
        assert await status_of(port, certificate, authority.write(tmp_path, "config-proxy")) == 200
        assert await status_of(port, certificate, authority.write(tmp_path, "another-client")) == 401
        assert await status_of(port, certificate, stranger.write(tmp_path, "config-proxy")) == 0
        assert await status_of(port, certificate, None) == 401


async def test_a_new_ca_replaces_the_old_one_without_a_restart(
    reviewer: FakeReviewer, certificate: CertificateFiles, tmp_path: Path
) -> None:
    old, new = FrontProxyAuthority(), FrontProxyAuthority()
    certificates = [old.write(tmp_path, "config-proxy")]
    config = Latest(structs.replace(CONFIG, authority=old.pem.decode()))
    async with serving(reviewer, certificate, config) as port:
        assert await status_of(port, certificate, certificates[0]) == 200
        again = new.write(tmp_path, "config-proxy")
        config.set(structs.replace(config.get(), authority=new.pem.decode()))
        while await status_of(port, certificate, again) != 200:
            await asyncio.sleep(0)  # a connection opened during the change may reach the old server
        old.write(tmp_path, "config-proxy")
        assert await status_of(port, certificate, certificates[0]) == 0


@pytest.mark.parametrize(
    ("path", "attributes"),
    [
        ("proxies", {"resource": "proxies", "verb": "list"}),
        ("namespaces/b/proxies/two", {"resource": "proxies", "verb": "get", "namespace": "b", "name": "two"}),
        (
            "namespaces/b/proxies/two/config?content=true",
            {"resource": "proxies", "subresource": "config", "verb": "get", "namespace": "b", "name": "two"},
        ),
        ("namespaces/b/findings", {"resource": "findings", "verb": "list", "namespace": "b"}),
        ("meshstatuses/mesh", {"resource": "meshstatuses", "verb": "get", "name": "mesh"}),
        (
            "namespaces/b/proxies?fieldSelector=metadata.name%3Dtwo",
            {"resource": "proxies", "verb": "list", "namespace": "b", "name": "two"},
        ),
    ],
)
async def test_the_inspect_api_is_authorized_by_resource(
    client: AggregationClient, reviewer: FakeReviewer, path: str, attributes: dict[str, str]
) -> None:
    """D29. A Role can allow reading the state of proxies without their configuration."""
    assert (await client.call("GET", f"/apis/inspect.headgate.dev/v1beta1/{path}", **JANE)).code == 200
    group = {"group": "inspect.headgate.dev", "version": "v1beta1"}
    assert [spec["resourceAttributes"] for spec in reviewer.requests] == [group | attributes]


async def test_a_watch_is_authorized_as_one_and_ends_when_its_user_loses_the_permission(
    reviewer: FakeReviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "CHECK_S", 0.001)
    times = itertools.count(0.0, 11.0)  # each check is later than the last permission is cached
    handlers = Handlers(MetricsApi(await stored(), FakeSource(FLOWS)), InspectApi(FakeMesh(), asyncio.Event()))
    authorizer = DelegatedAuthorizer(reviewer, clock=lambda: next(times))
    client = AggregationClient(create_aggregated_app(handlers, Latest(CONFIG), authorizer), await stored())
    path = "/apis/inspect.headgate.dev/v1beta1/namespaces/b/proxies/two?watch=true"
    async with contextlib.aclosing(client.watch(path, **JANE)) as events:
        assert (await anext(events))["type"] == "ADDED"
        reviewer.rule = lambda _spec: False
        last = [event async for event in events]
    assert [(event["type"], event["object"]["code"]) for event in last] == [("ERROR", 403)]
    attributes = {"group": "inspect.headgate.dev", "version": "v1beta1", "resource": "proxies", "verb": "watch"}
    reviews = [spec["resourceAttributes"] for spec in reviewer.requests]
    assert reviews[0] == reviews[-1] == attributes | {"namespace": "b", "name": "two"}
    assert (await client.call("GET", path, **JANE)).code == 403


async def test_the_inspect_api_denies_forbidden_users_and_direct_requests(
    client: AggregationClient, reviewer: FakeReviewer
) -> None:
    path = "/apis/inspect.headgate.dev/v1beta1/namespaces/b/proxies/two/config"
    reviewer.rule = lambda _spec: False
    answer = await client.call("GET", path, **JANE)
    assert answer.code == 403
    assert (
        'proxies.inspect.headgate.dev "two" is forbidden: User "jane" cannot get resource "proxies/config"'
        in (answer.body["message"])
    )
    client.client_name = None
    assert (await client.call("GET", path, **JANE)).code == 401
