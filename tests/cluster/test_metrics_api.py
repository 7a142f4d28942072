"""The metrics API behind a real API server: registered by an APIService, and authorized by RBAC (R81, R99 to R101)."""

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from tests.api.inspect.inspect_fakes import FakeMesh, proxy
from tests.api.metrics.metrics_world import FLOWS, FakeSource, add_idle_pod, stored
from tests.api.request_header_ca import credential_of
from tests.cluster.api_server import ADMIN, UNPRIVILEGED, KubeApiServer, controller
from tests.make.objects import container, deployment, pod

from headgate.api.aggregated_server import api_services, create_aggregated_app, serve_aggregated
from headgate.api.certificate import CertificateFiles
from headgate.api.computed_groups import Handlers
from headgate.api.delegated_auth import DelegatedAuthorizer, read_request_header_config
from headgate.api.inspect import watches
from headgate.api.inspect.handlers import InspectApi
from headgate.api.metrics.handlers import MetricsApi
from headgate.errors import ProxyError
from headgate.latest import Latest
from headgate.options import MeshOptions
from headgate.telemetry.prometheus.text import Family, Line

pytestmark = pytest.mark.asyncio(loop_scope="module")

RBAC = "/apis/rbac.authorization.k8s.io/v1"
INSPECT = "/apis/inspect.headgate.dev/v1beta1"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
SEED = "/apis/traffic.metrics.k8s.io/v1beta1"
CORE = "/api/v1/namespaces/default"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
AUTOSCALERS = "/apis/autoscaling/v2beta2/namespaces/default/horizontalpodautoscalers"
DEFAULT = f"{SEED}/namespaces/default"
POD = f"{DEFAULT}/pods/web-5d-c4c4c"
CLUSTER_WIDE = (f"{SEED}/pods", f"{SEED}/nodes", f"{SEED}/namespaces", f"{SEED}/nodes/node-1/edges")
OF_DEFAULT = (
    f"{DEFAULT}/pods",
    POD,
    f"{POD}/edges",
    f"{DEFAULT}/deployments/web",
    f"{DEFAULT}/deployments/web/edges",
    DEFAULT,
)


class RegisteredMetrics:
    """A metrics server that is registered in a cluster. Its inspect API shows `mesh`."""

    def __init__(self, cluster: KubeApiServer, port: int, mesh: FakeMesh) -> None:
        self.cluster = cluster
        self.port = port
        self.mesh = mesh
        self.cluster_wide: set[tuple[str, str]] = set()

    async def through(self, user: str, path: str) -> tuple[int, Any]:
        """Call the API server as a user; it forwards the request to the metrics server."""
        headers = {"authorization": f"Bearer {ADMIN}"} | ({"impersonate-user": user} if user else {})
        return await asyncio.to_thread(self._get, self.cluster.port, "api.crt", path, headers, "")

    async def past(
        self, user: str, path: str, *, certificate: str = "front-proxy", group: str = "system:authenticated"
    ) -> tuple[int, Any]:
        """Call the metrics server directly, as the API server does after it authorized the user."""
        headers = {"x-remote-user": user} | ({"x-remote-group": group} if group else {})
        return await asyncio.to_thread(self._get, self.port, "front.crt", path, headers, certificate)

    def _get(self, port: int, roots: str, path: str, headers: dict[str, str], certificate: str) -> tuple[int, Any]:
        root = self.cluster.root
        trust = ssl.create_default_context(cafile=str(root / roots))
        if certificate:
            trust.load_cert_chain(root / f"{certificate}.crt", root / f"{certificate}.key")
        connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=trust)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(content) if content.startswith(b"{") else content.decode()

    @contextlib.asynccontextmanager
    async def watching(self, user: str, path: str) -> AsyncIterator[asyncio.StreamReader]:
        """Watch a path through the API server as a user; the reader begins after the head of the response."""
        trust = ssl.create_default_context(cafile=str(self.cluster.root / "api.crt"))
        reader, writer = await asyncio.open_connection("localhost", self.cluster.port, ssl=trust)
        head = ("GET {} HTTP/1.1", "host: localhost", f"authorization: Bearer {ADMIN}", f"impersonate-user: {user}")
        writer.write("\r\n".join((head[0].format(path), *head[1:], "", "")).encode())
        try:
            assert b" 200 " in await reader.readline()
            while (await reader.readline()).strip():
                pass
            yield reader
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def allow(
        self, user: str, *resources: str, namespace: str = "default", group: str = "traffic.metrics.k8s.io"
    ) -> None:
        """Bind a user to a role with every verb on these resources, in a namespace or (empty) in all namespaces."""
        scope, kind = (f"/namespaces/{namespace}", "Role") if namespace else ("", "ClusterRole")
        self.cluster_wide |= set() if namespace else {("clusterroles", user), ("clusterrolebindings", user)}
        rule = {"apiGroups": [group], "resources": list(resources), "verbs": ["*"]}
        self.cluster.make(f"{RBAC}{scope}/{kind.lower()}s", {"metadata": {"name": user}, "rules": [rule]})
        self.bind(user, user, namespace=namespace, kind=kind)

    def revoke(self) -> None:
        """Delete the roles for all namespaces; those of a namespace end with it."""
        for kind, name in sorted(self.cluster_wide):
            assert self.cluster.call("DELETE", f"{RBAC}/{kind}/{name}")[0] == 200

    def bind(self, user: str, role_name: str, *, namespace: str, kind: str) -> None:
        """Bind a user to a role, in a namespace or (empty) in all namespaces."""
        scope = f"/namespaces/{namespace}" if namespace else ""
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role_name}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        binding = {"metadata": {"name": user}, "roleRef": role, "subjects": [subject]}
        self.cluster.make(f"{RBAC}{scope}/{'rolebindings' if namespace else 'clusterrolebindings'}", binding)

    def workload(self, name: str, *pods: str) -> None:
        """Create a Deployment and its ready pods, which no kubelet runs."""
        self.cluster.make(DEPLOYMENTS, deployment(name, container("main", image="main"), replicas=len(pods)))
        self._set_status(f"{DEPLOYMENTS}/{name}", {"replicas": len(pods)})
        for one in pods:
            self.cluster.make(f"{CORE}/pods", pod(one, labels={"app": name}, containers=[container(image="main")]))
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self._set_status(f"{CORE}/pods/{one}", ready)

    def _set_status(self, path: str, status: Any) -> None:
        kind = "application/merge-patch+json"
        assert self.cluster.call("PATCH", f"{path}/status", {"status": status}, content_type=kind)[0] == 200

    def autoscaler(self, name: str, metric: Any) -> None:
        """Create a HorizontalPodAutoscaler of a Deployment, which scales down without delay."""
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        spec = {"scaleTargetRef": target, "maxReplicas": 10, "metrics": [metric]}
        spec["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
        self.cluster.make(AUTOSCALERS, {"metadata": {"name": name}, "spec": spec})

    async def scaled(self, name: str, before: int) -> int:
        """Poll until a Deployment has another number of replicas than `before`; return the new number."""
        try:
            async with asyncio.timeout(90):
                while (found := (await self._read(f"{DEPLOYMENTS}/{name}"))["spec"]["replicas"]) == before:
                    await asyncio.sleep(0.05)
                return int(found)
        except TimeoutError:
            raise AssertionError((await self._read(f"{AUTOSCALERS}/{name}"))["status"]) from None

    async def _read(self, path: str) -> Any:
        return (await asyncio.to_thread(self.cluster.call, "GET", path))[1]

    async def settled(self, user: str, path: str) -> None:
        """Poll until the API server uses new roles and APIServices."""
        async with asyncio.timeout(90):
            while (await self.through(user, path))[0] != 200:
                await asyncio.sleep(0.05)

    async def ready(self) -> None:
        """Wait until the API server forwards requests."""
        for service in api_services("mesh/metrics", b"", MeshOptions(custom_metrics=True, external_metrics=True)):
            group, version = service["spec"]["group"], service["spec"]["version"]
            await self.settled("", f"/apis/{group}/{version}")


@pytest.fixture(scope="module")
def reader(cluster: KubeApiServer) -> None:
    """Allow headgate to read the CA of the API server's client certificate, as aggregated API servers may."""
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "extension-apiserver-authentication-reader",
    }
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "headgate"}
    path = f"{RBAC}/namespaces/kube-system/rolebindings"
    cluster.make(path, {"metadata": {"name": "headgate-metrics"}, "roleRef": role, "subjects": [subject]})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def metrics(cluster: KubeApiServer, reader: None) -> AsyncIterator[RegisteredMetrics]:
    root = cluster.root
    own = CertificateFiles(root / "metrics.crt", root / "metrics.key", (root / "front.crt").read_bytes())
    store = await stored()
    for name in ("idle-1", "idle-2"):
        await add_idle_pod(store, name)
    front, mesh = Latest(await read_request_header_config(cluster.api())), FakeMesh()
    app = create_aggregated_app(
        Handlers(
            MetricsApi(store, FakeSource(FLOWS)),
            InspectApi(mesh, asyncio.Event(), lambda: [Family("headgate_proxies", "gauge", "Proxies.", [Line(2)])]),
        ),
        front,
        DelegatedAuthorizer(cluster.api()),
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(serve_aggregated(app, listener, Latest(credential_of(own)), front))
        registered = RegisteredMetrics(cluster, port, mesh)
        try:
            with _published(cluster, own.pem, port):
                await registered.ready()
                yield registered
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            registered.revoke()


@contextlib.contextmanager
def _published(cluster: KubeApiServer, authority: bytes, port: int) -> Iterator[None]:
    """Let headgate's APIServices name a Service of this machine during the `with` block."""
    cluster.make("/api/v1/namespaces", {"metadata": {"name": "mesh"}})
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    cluster.make("/api/v1/namespaces/mesh/services", {"metadata": {"name": "metrics"}, "spec": spec})
    before = {}
    for service in api_services(
        "mesh/metrics", authority, MeshOptions(custom_metrics=True, external_metrics=True), port=port
    ):
        path = f"/apis/apiregistration.k8s.io/v1/apiservices/{service['metadata']['name']}"
        _, before[path] = cluster.call("GET", path)
        _replace_spec(cluster, path, service["spec"])
    yield
    for path, service in before.items():
        _replace_spec(cluster, path, service["spec"])


def _replace_spec(cluster: KubeApiServer, path: str, spec: Any) -> None:
    _, live = cluster.call("GET", path)
    status, answer = cluster.call("PUT", path, {**live, "spec": spec})
    assert status == 200, answer


async def test_the_cluster_serves_the_metrics_groups(metrics: RegisteredMetrics) -> None:
    """R80 to R82: discovery and responses through the API server."""
    _, groups = await metrics.through("", "/apis")
    names = [one["name"] for one in groups["groups"]]
    assert {"traffic.metrics.k8s.io", "mesh.metrics.k8s.io", "metrics.smi-spec.io"} <= set(names)
    assert names.index("apps") < names.index("traffic.metrics.k8s.io")
    for group in ("traffic.metrics.k8s.io/v1beta1", "mesh.metrics.k8s.io/v1beta1", "metrics.smi-spec.io/v1alpha1"):
        _, listed = await metrics.through("", f"/apis/{group}")
        assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", group)
        code, pods = await metrics.through("", f"/apis/{group}/namespaces/default/pods?t=1m")
        assert (code, pods["kind"], len(pods["items"]), pods["items"][0]["window"]) == (
            200,
            "TrafficMetricsList",
            5,
            "1m0s",
        )


async def test_a_role_for_all_resources_reads_all_metrics(metrics: RegisteredMetrics) -> None:
    """R99."""
    metrics.allow("alice", "*", namespace="")
    await metrics.settled("alice", f"{SEED}/nodes")
    for path in (*CLUSTER_WIDE, *OF_DEFAULT, f"{DEFAULT}/edges"):
        for way in (metrics.through, metrics.past):
            assert (await way("alice", path))[0] == 200, (way, path)


async def test_a_role_for_edges_of_pods_reads_only_edges_of_pods(metrics: RegisteredMetrics) -> None:
    """R100."""
    metrics.allow("edgar", "pods/edges")
    await metrics.settled("edgar", f"{POD}/edges")
    for way in (metrics.through, metrics.past):
        assert (await way("edgar", f"{POD}/edges"))[0] == 200
        for path in {*CLUSTER_WIDE, *OF_DEFAULT, f"{DEFAULT}/edges"} - {f"{POD}/edges"}:
            code, said = await way("edgar", path)
            assert (code, said["kind"], said["reason"]) == (403, "Status", "Forbidden"), (way, path)


async def test_a_role_of_a_namespace_reads_only_its_metrics(metrics: RegisteredMetrics) -> None:
    """R101."""
    metrics.allow("nadia", "*")
    await metrics.settled("nadia", POD)
    for way in (metrics.through, metrics.past):
        for path in OF_DEFAULT:
            assert (await way("nadia", path))[0] == 200, (way, path)
        for path in (*CLUSTER_WIDE, f"{SEED}/namespaces/kube-system/pods", f"{SEED}/namespaces/kube-system"):
            assert (await way("nadia", path))[0] == 403, (way, path)


async def test_the_installed_role_of_users_reads_metrics_of_its_namespace_only(metrics: RegisteredMetrics) -> None:
    """Kubernetes' own roles `view`, `edit` and `admin` include this role."""
    metrics.bind("vera", "headgate-view", namespace="default", kind="ClusterRole")
    await metrics.settled("vera", POD)
    for way in (metrics.through, metrics.past):
        for path in {*OF_DEFAULT} - {DEFAULT}:
            assert (await way("vera", path))[0] == 200, (way, path)
        series = "trafficseries/service.web"
        assert (await way("vera", f"{INSPECT}/namespaces/default/{series}"))[
            0
        ] == 501  # allowed; the fake mesh has none
        elsewhere = (
            f"{SEED}/namespaces/kube-system/pods",
            f"{INSPECT}/namespaces/default/proxies",
            f"{INSPECT}/namespaces/kube-system/{series}",
        )
        for path in (*CLUSTER_WIDE, DEFAULT, *elsewhere):
            assert (await way("vera", path))[0] == 403, (way, path)


async def test_a_role_of_a_namespace_reads_only_its_part_of_the_inspect_api(metrics: RegisteredMetrics) -> None:
    """D29: `headgate status` and `headgate check` read the whole mesh, so they need a ClusterRole."""
    metrics.cluster.namespace("b")
    metrics.allow("irene", "*", namespace="b", group="inspect.headgate.dev")
    await metrics.settled("irene", f"{INSPECT}/namespaces/b/proxies")
    for way in (metrics.through, metrics.past):
        code, found = await way("irene", f"{INSPECT}/namespaces/b/proxies")
        assert (code, [item["metadata"]["name"] for item in found["items"]]) == (200, ["one", "two"])
        for path in ("proxies/two", "proxies/two/config", "pods/one/sidecar"):
            assert (await way("irene", f"{INSPECT}/namespaces/b/{path}"))[0] == 200, (way, path)
        for path in ("meshstatuses", "meshstatuses/mesh", "proxies", "findings", "plans"):
            assert (await way("irene", f"{INSPECT}/{path}"))[0] == 403, (way, path)
        for path in (
            "proxies",
            "proxies/one",
            "proxies/one/config",
            "pods/one/sidecar",
            "pods/one/tap",
            "explanations",
        ):
            assert (await way("irene", f"{INSPECT}/namespaces/a/{path}"))[0] == 403, (way, path)


async def test_changes_are_streamed_through_the_api_server_to_users_that_may_watch(
    metrics: RegisteredMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server itself decides about the verb `watch`, and about the selected name."""
    path = f"{INSPECT}/namespaces/watched/proxies"
    metrics.cluster.namespace("watched")
    metrics.allow("wanda", "proxies", namespace="watched", group="inspect.headgate.dev")
    await metrics.settled("wanda", path)
    metrics.mesh.rows = [*metrics.mesh.rows, proxy("watched", "w", held=1), proxy("watched", "other")]
    async with (
        asyncio.timeout(60),
        metrics.watching("wanda", f"{path}?watch=1&fieldSelector=metadata.name%3Dw") as stream,
    ):
        first = await _event(stream)
        metrics.mesh.rows = [*metrics.mesh.rows[:3], proxy("watched", "w")]
        events = [first, await _event(stream)]
        monkeypatch.setattr(watches, "MOST_OF_USER", 1)
        code, text = await metrics.through("wanda", f"{path}/w?watch=1")
        assert (code, "the user wanda watches 1 different paths" in str(text)) == (429, True)
    states = [
        (event["type"], event["object"]["metadata"]["name"], event["object"]["status"]["state"]) for event in events
    ]
    assert states == [("ADDED", "w", "Lagging"), ("MODIFIED", "w", "InSync")]
    for way in (metrics.through, metrics.past):
        assert (await way("wanda", f"{INSPECT}/proxies?watch=1"))[0] == 403


async def _event(stream: asyncio.StreamReader) -> Any:
    """Return the next event of a chunked response."""
    while not (line := await stream.readline()).startswith(b"{"):
        assert line
    return json.loads(line)


async def test_a_prometheus_reads_all_metrics_with_one_permission(metrics: RegisteredMetrics) -> None:
    path = f"{INSPECT}/meshstatuses/mesh"
    metrics.allow("prometheus", "meshstatuses/metrics", namespace="", group="inspect.headgate.dev")
    await metrics.settled("prometheus", f"{path}/metrics")
    for way in (metrics.through, metrics.past):
        code, text = await way("prometheus", f"{path}/metrics")
        assert (code, text.splitlines()[-1]) == (200, "headgate_proxies 2")
        assert (await way("prometheus", path))[0] == 403
        assert (await way("irene", f"{path}/metrics"))[0] == 403


async def test_the_api_server_learns_that_the_apis_have_no_openapi_document(metrics: RegisteredMetrics) -> None:
    """It requests the document as a user without groups; after any status but 404 it repeats the request each minute."""
    assert (await metrics.past("system:aggregator", "/openapi/v2", group=""))[0] == 404


async def test_a_role_for_one_api_group_gives_no_access_to_another_group(metrics: RegisteredMetrics) -> None:
    metrics.allow("gustav", "pods", group="metrics.smi-spec.io")
    released = "/apis/metrics.smi-spec.io/v1alpha1/namespaces/default/pods"
    await metrics.settled("gustav", released)
    for way in (metrics.through, metrics.past):
        assert (await way("gustav", released))[0] == 200
        assert (await way("gustav", f"{DEFAULT}/pods"))[0] == 403


async def test_the_autoscaler_reads_custom_metrics_with_its_default_role(metrics: RegisteredMetrics) -> None:
    """R102. Kubernetes' own ClusterRole of the HorizontalPodAutoscaler controller allows it."""
    _, groups = await metrics.through("", "/apis")
    (group,) = [one for one in groups["groups"] if one["name"] == "custom.metrics.k8s.io"]
    assert group["preferredVersion"]["version"] == "v1beta2"
    _, listed = await metrics.through(AUTOSCALER, CUSTOM)
    assert "pods/requests_per_second" in {one["name"] for one in listed["resources"]}
    pods = f"{CUSTOM}/namespaces/default/pods/%2A/requests_per_second?labelSelector=app%3Dweb"
    for way in (metrics.through, metrics.past):
        code, found = await way(AUTOSCALER, pods)
        assert (code, [item["value"] for item in found["items"]]) == (200, ["3500m", "300m"])
        code, found = await way(AUTOSCALER, f"{CUSTOM}/namespaces/default/deployments.apps/web/requests_per_second")
        assert (code, [item["value"] for item in found["items"]]) == (200, ["3800m"])


async def test_kubernetes_own_autoscaler_scales_deployments_by_custom_metrics(metrics: RegisteredMetrics) -> None:
    """R102. Two ready pods of `web` have 3.5 and 0.3 requests per second; the p99 latency of `web` is 249.8 ms.

    Two pods of `idle` have no requests, and their latency is 0; if it was missing, the autoscaler would keep both pods.
    """
    metrics.workload("web", "web-5d-c4c4c", "web-5d-d5d5d")
    metrics.workload("worker", "worker-1")
    metrics.workload("idle", "idle-1", "idle-2")
    described = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    by_requests = {
        "metric": {"name": "requests_per_second"},
        "target": {"type": "AverageValue", "averageValue": "1300m"},
    }
    by_latency = {
        "metric": {"name": "p99_response_latency_ms"},
        "describedObject": described,
        "target": {"type": "Value", "value": "100"},
    }
    by_pod_latency = {"metric": by_latency["metric"], "target": {"type": "AverageValue", "averageValue": "100"}}
    metrics.autoscaler("web", {"type": "Pods", "pods": by_requests})
    metrics.autoscaler("worker", {"type": "Object", "object": by_latency})
    metrics.autoscaler("idle", {"type": "Pods", "pods": by_pod_latency})
    options = {"horizontal_pod_autoscaler_sync_period": "1s"}
    with controller(metrics.cluster, "horizontalpodautoscaling", **options):
        assert await metrics.scaled("idle", 2) == 1
        assert await metrics.scaled("web", 2) == 3
        assert await metrics.scaled("worker", 1) == 3


async def test_a_role_for_one_custom_metric_gives_no_access_to_another_metric(metrics: RegisteredMetrics) -> None:
    metrics.allow("carla", "pods/requests_per_second", group="custom.metrics.k8s.io")
    await metrics.settled("carla", f"{CUSTOM}/namespaces/default/pods/*/requests_per_second")
    for way in (metrics.through, metrics.past):
        assert (await way("carla", f"{CUSTOM}/namespaces/default/pods/*/requests_per_second"))[0] == 200
        for path in (
            "default/pods/*/success_rate",
            "default/services/web/requests_per_second",
            "kube-system/pods/*/requests_per_second",
        ):
            assert (await way("carla", f"{CUSTOM}/namespaces/{path}"))[0] == 403, (way, path)


async def test_a_role_for_one_external_metric_gives_no_access_to_another_metric(metrics: RegisteredMetrics) -> None:
    """Flagger's ServiceAccount needs such a role."""
    metrics.allow("flagger", "success_rate", group="external.metrics.k8s.io")
    query = "labelSelector=deployment%3Dweb"
    await metrics.settled("flagger", f"{EXTERNAL}/success_rate?{query}")
    for way in (metrics.through, metrics.past):
        code, found = await way("flagger", f"{EXTERNAL}/success_rate?{query}")
        assert (code, [item["value"] for item in found["items"]]) == (200, ["912m"])
        assert (await way("flagger", f"{EXTERNAL}/requests_per_second?{query}"))[0] == 403


async def test_edges_of_a_namespace_need_permission_for_both_readings_of_the_path(metrics: RegisteredMetrics) -> None:
    """The API server also reads .../namespaces/default/edges as a list of `edges` in the namespace."""
    metrics.allow("nora", "namespaces/edges", "edges")
    await metrics.settled("nora", f"{DEFAULT}/edges")
    assert (await metrics.past("nora", f"{DEFAULT}/edges"))[0] == 200
    metrics.allow("nils", "edges", "pods")
    await metrics.settled("nils", POD)
    assert (await metrics.past("nils", f"{DEFAULT}/edges"))[0] == 403


async def test_a_client_without_the_api_servers_certificate_is_rejected(metrics: RegisteredMetrics) -> None:
    """Otherwise any client could claim to be any user in the request headers."""
    for certificate in ("", "other-client"):
        code, said = await metrics.past("admin", POD, certificate=certificate)
        assert (code, said["reason"]) == (401, "Unauthorized")
    assert (await metrics.past("", "/healthz", certificate=""))[0] == 200


async def test_the_error_without_permission_names_the_missing_role(cluster: KubeApiServer) -> None:
    with pytest.raises(ProxyError, match="extension-apiserver-authentication-reader"):
        await read_request_header_config(cluster.api(UNPRIVILEGED))
