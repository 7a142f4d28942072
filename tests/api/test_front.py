"""The metrics API behind an API server: who is believed, who may see what, and that every doubt is a refusal (R99 to R101)."""

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.api.inspect.inspected import Answers
from tests.api.metrics.metrics_world import FLOWS, Numbers, stored
from tests.embedded_api import Client

from headgate.api.aggregated import create_metrics_app, keep_front_proxy, serve_metrics
from headgate.api.certificate import Certificate
from headgate.api.front import FrontProxy, Permissions, front_proxy, user_of
from headgate.api.inspect.handlers import InspectApi
from headgate.api.metrics.handlers import MetricsApi
from headgate.api.status import ApiError
from headgate.errors import ProxyError
from headgate.latest import Latest, until

from .front_authority import Authority

BASE = "/apis/traffic.metrics.k8s.io/v1beta1"
PODS = f"{BASE}/namespaces/default/pods"
FRONT = FrontProxy(authority="", names=("front-proxy",))
JANE = {"x_remote_user": "jane", "x_remote_group": "devs"}


class Rbac:
    """An API server that allows what a rule says, and keeps what it was asked."""

    def __init__(self, rule: Callable[[dict[str, Any]], bool] = lambda _: True) -> None:
        self.rule = rule
        self.asked: list[Any] = []
        self.fails = False

    async def create(self, path: str, body: Any) -> dict[str, Any]:
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        if self.fails:
            raise ProxyError("the API server can't be asked: it is gone")
        self.asked.append(body["spec"])
        return {"status": {"allowed": self.rule(body["spec"])}}

    async def read(self, path: str) -> dict[str, Any]:
        raise NotImplementedError


class Behind(Client):
    """Calls the server as a proxy with a client certificate of this common name; None has none."""

    certified: str | None = "front-proxy"

    async def stream(self, method: str, url: str, body: Any = None, **headers: str) -> AsyncIterator[Any]:
        inner = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            tls = {} if self.certified is None else {"client_cert_name": self.certified}
            await inner({**scope, "extensions": {"tls": tls}}, receive, send)

        self.app = app  # type: ignore[assignment]
        try:
            async for chunk in super().stream(method, url, body, **headers):
                yield chunk
        finally:
            self.app = inner


@pytest.fixture
def rbac() -> Rbac:
    return Rbac()


@pytest.fixture
async def client(rbac: Rbac) -> Behind:
    store = await stored()
    metrics = MetricsApi(store, Numbers(FLOWS))
    return Behind(
        create_metrics_app(
            metrics, Latest(FRONT), Permissions(rbac, clock=lambda: 0.0), InspectApi(Answers(), asyncio.Event())
        ),
        store,
    )


async def test_who_is_passed_on_and_allowed_gets_an_answer(client: Behind, rbac: Rbac) -> None:
    answer = await client.call("GET", f"{PODS}/web-5d-c4c4c", **JANE)
    assert (answer.code, answer.body["kind"]) == (200, "TrafficMetrics")
    assert rbac.asked == [
        {
            "user": "jane",
            "groups": ("devs",),
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


@pytest.mark.parametrize("certified", [None, "", "somebody-else"])
async def test_headers_alone_prove_nothing(client: Behind, rbac: Rbac, certified: str | None) -> None:
    """Anybody who reaches the server can write X-Remote-User: only a certificate of the right name makes it true."""
    client.certified = certified
    answer = await client.call("GET", PODS, x_remote_user="system:admin", x_remote_group="system:masters")
    assert (answer.code, answer.body["reason"]) == (401, "Unauthorized")
    assert rbac.asked == []


async def test_a_request_of_nobody_is_refused(client: Behind) -> None:
    assert (await client.call("GET", PODS)).code == 401
    assert (await client.call("GET", PODS, x_remote_user="")).code == 401
    client.certified = None
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
async def test_what_is_asked_of_rbac(client: Behind, rbac: Rbac, path: str, attributes: dict[str, str]) -> None:
    assert (await client.call("GET", f"{BASE}/{path}", **JANE)).code == 200
    (spec,) = rbac.asked
    assert spec["resourceAttributes"] == {"group": "traffic.metrics.k8s.io", "version": "v1beta1", **attributes}


async def test_edges_of_pods_and_nothing_else(client: Behind, rbac: Rbac) -> None:
    """R100."""
    allowed = ("pods", "edges")
    rbac.rule = lambda spec: (
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


async def test_who_may_not_look_does_not_learn_what_exists(client: Behind, rbac: Rbac) -> None:
    rbac.rule = lambda _: False
    codes = {(await client.call("GET", f"{PODS}/{name}", **JANE)).code for name in ("web-5d-c4c4c", "none")}
    assert codes == {403}


async def test_discovery_is_asked_for_by_its_path(client: Behind, rbac: Rbac) -> None:
    assert (await client.call("GET", "/apis", **JANE)).body["kind"] == "APIGroupList"
    assert (await client.call("GET", BASE, **JANE)).body["kind"] == "APIResourceList"
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    answer = await client.call("GET", "/apis", accept=accept, **JANE)
    assert {one["metadata"]["name"] for one in answer.body["items"]} == {
        "inspect.headgate.dev",
        "traffic.metrics.k8s.io",
        "mesh.metrics.k8s.io",
        "metrics.smi-spec.io",
    }
    assert [spec["nonResourceAttributes"]["path"] for spec in rbac.asked] == ["/apis", BASE]
    for path in ("/apis/apps/v1", "/apis/apps", "/api/v1", "/api/v1/pods", "/apis/apps/v1/deployments", "/openapi/v2"):
        assert (await client.call("GET", path, **JANE)).code == 404
    rbac.rule = lambda _: False
    assert (await client.call("GET", "/apis/mesh.metrics.k8s.io", **JANE)).code == 403


async def test_when_rbac_can_t_be_asked_nobody_gets_an_answer(client: Behind, rbac: Rbac) -> None:
    rbac.fails = True
    answer = await client.call("GET", PODS, **JANE)
    assert (answer.code, answer.body["reason"]) == (503, "ServiceUnavailable")


@pytest.mark.parametrize(
    "answer", [{}, {"status": {}}, {"status": {"allowed": True, "denied": True}}, {"status": {"allowed": "yes"}}]
)
async def test_an_answer_that_is_no_yes_is_a_no(answer: dict[str, Any]) -> None:
    class Odd(Rbac):
        async def create(self, path: str, body: Any) -> dict[str, Any]:
            return {**await super().create(path, body), "status": {}, **answer}

    permissions = Permissions(Odd())
    with pytest.raises(ApiError) as refused:
        await permissions.check_path(user_of(FRONT, "front-proxy", [("x-remote-user", "jane")]), "/apis")
    assert refused.value.code in {403, 503}


async def test_a_permission_is_remembered_for_ten_seconds_and_a_refusal_not_at_all(rbac: Rbac) -> None:
    now = 0.0
    permissions = Permissions(rbac, clock=lambda: now)
    jane, john = (user_of(FRONT, "front-proxy", [("x-remote-user", name)]) for name in ("jane", "john"))
    for _ in range(3):
        await permissions.check_path(jane, "/apis")
    assert len(rbac.asked) == 1
    await permissions.check_path(john, "/apis")
    await permissions.check_path(jane, "/apis/x")
    assert len(rbac.asked) == 3
    now, rbac.rule = 10.0, lambda _: False
    for _ in range(2):
        with pytest.raises(ApiError):
            await permissions.check_path(jane, "/apis")
    assert len(rbac.asked) == 5


def test_who_asks_is_read_as_the_api_server_writes_it() -> None:
    headers = [
        ("x-remote-user", ""),
        ("x-remote-user", "jane"),
        ("x-remote-group", "devs"),
        ("x-remote-group", "system:authenticated"),
        ("x-remote-extra-acme.com%2Fproject", "one"),
        ("x-remote-extra-acme.com%2fproject", "two"),
        ("authorization", "Bearer x"),
    ]
    user = user_of(FRONT, "front-proxy", headers)
    assert (user.name, user.groups) == ("jane", ("devs", "system:authenticated"))
    assert user.extra == (("acme.com/project", ("one", "two")),)
    anybody = structs.replace(FRONT, names=())
    assert user_of(anybody, "whoever", headers).name == "jane"
    with pytest.raises(ApiError):
        user_of(anybody, None, headers)


class Config:
    """An API server with one ConfigMap."""

    def __init__(self, data: dict[str, str]) -> None:
        self.data = data
        self.asked = 0

    async def read(self, path: str) -> dict[str, Any]:
        self.asked += 1
        assert path == "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
        return {"kind": "ConfigMap", "data": self.data}

    async def create(self, path: str, body: Any) -> dict[str, Any]:
        raise NotImplementedError


async def test_the_configmap_of_the_cluster_says_whom_to_believe() -> None:
    data = {
        "client-ca-file": "another",
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["a","b"]',
        "requestheader-username-headers": '["X-Remote-User","X-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    found = await front_proxy(Config(data))
    assert found == FrontProxy(authority="PEM", names=("a", "b"), user_headers=("x-remote-user", "x-user"))
    assert (await front_proxy(Config({"requestheader-client-ca-file": "PEM"}))).names == ()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "--requestheader-client-ca-file"),
        ({"client-ca-file": "PEM"}, "--requestheader-client-ca-file"),
        ({"requestheader-client-ca-file": "PEM", "requestheader-allowed-names": "a"}, "can't be understood"),
    ],
)
async def test_without_a_ca_in_the_configmap_nobody_is_believed(data: dict[str, str], said: str) -> None:
    """Never the CA of ordinary client certificates, whose holders may not speak for others."""
    with pytest.raises(ProxyError, match=said):
        await front_proxy(Config(data))


async def test_a_change_of_the_configmap_is_noticed_and_a_failure_forgets_nothing() -> None:
    config = Config({"requestheader-client-ca-file": "old"})
    front = Latest(await front_proxy(config))
    config.data = {}
    following = asyncio.create_task(keep_front_proxy(config, front, every=0))
    while config.asked < 3:
        await asyncio.sleep(0)
    assert front.get().authority == "old"
    config.data = {"requestheader-client-ca-file": "new"}
    await until(lambda: front.get().authority == "new", front)
    following.cancel()


@contextlib.asynccontextmanager
async def serving(rbac: Rbac, certificate: Certificate, front: Latest[FrontProxy]) -> AsyncIterator[int]:
    app = create_metrics_app(MetricsApi(await stored(), Numbers(FLOWS)), front, Permissions(rbac))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(serve_metrics(app, listener, certificate, front))
        try:
            yield listener.getsockname()[1]
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def asked(port: int, certificate: Certificate, client: tuple[Path, Path] | None, path: str = PODS) -> int:
    """Ask over TLS with a client certificate, or without one; return the status, 0 when TLS itself refuses."""

    def ask() -> int:
        trust = ssl.create_default_context(cadata=certificate.pem.decode())
        if client:
            trust.load_cert_chain(*client)
        connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=trust)
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


async def test_only_certificates_of_the_request_header_ca_speak_for_others(
    rbac: Rbac, certificate: Certificate, tmp_path: Path
) -> None:
    """Over real TLS: of the right CA and name, of the right CA and another name, of another CA, and none."""
    authority, stranger = Authority(), Authority()
    front = Latest(structs.replace(FRONT, authority=authority.pem.decode()))
    async with serving(rbac, certificate, front) as port:
        assert await asked(port, certificate, authority.write(tmp_path, "front-proxy")) == 200
        assert await asked(port, certificate, authority.write(tmp_path, "somebody")) == 401
        assert await asked(port, certificate, stranger.write(tmp_path, "front-proxy")) == 0
        assert await asked(port, certificate, None) == 401


async def test_a_new_ca_holds_without_a_restart(rbac: Rbac, certificate: Certificate, tmp_path: Path) -> None:
    old, new = Authority(), Authority()
    certificates = [old.write(tmp_path, "front-proxy")]
    front = Latest(structs.replace(FRONT, authority=old.pem.decode()))
    async with serving(rbac, certificate, front) as port:
        assert await asked(port, certificate, certificates[0]) == 200
        again = new.write(tmp_path, "front-proxy")
        front.set(structs.replace(front.get(), authority=new.pem.decode()))
        while await asked(port, certificate, again) != 200:
            await asyncio.sleep(0)  # a connection of the change itself may still meet the old server
        old.write(tmp_path, "front-proxy")
        assert await asked(port, certificate, certificates[0]) == 0


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
    ],
)
async def test_the_inspect_api_asks_rbac_by_resource(
    client: Behind, rbac: Rbac, path: str, attributes: dict[str, str]
) -> None:
    """D29: who may see the state of proxies need not be allowed to see their configuration."""
    assert (await client.call("GET", f"/apis/inspect.headgate.dev/v1/{path}", **JANE)).code == 200
    group = {"group": "inspect.headgate.dev", "version": "v1"}
    assert [asked["resourceAttributes"] for asked in rbac.asked] == [group | attributes]


async def test_the_inspect_api_lets_nobody_in_directly_and_nobody_do_what_rbac_forbids(
    client: Behind, rbac: Rbac
) -> None:
    path = "/apis/inspect.headgate.dev/v1/namespaces/b/proxies/two/config"
    rbac.rule = lambda _spec: False
    answer = await client.call("GET", path, **JANE)
    assert answer.code == 403
    assert (
        'proxies.inspect.headgate.dev "two" is forbidden: User "jane" cannot get resource "proxies/config"'
        in (answer.body["message"])
    )
    client.certified = None
    assert (await client.call("GET", path, **JANE)).code == 401
