"""The custom metrics API over HTTP, with the requests that a HorizontalPodAutoscaler sends (R102)."""

from typing import Any

import pytest
from tests.api.metrics.metrics_world import FLOWS, WEB1, FakeSource, add_idle_pod, flow, requests, stored
from tests.embedded_api import TOKEN, AsgiClient

from headgate.api.metrics.custom import parse_path
from headgate.standalone.apiserver.app import ComputedGroups, create_app
from headgate.telemetry.counters.flows import GATEWAY

API = "/apis/custom.metrics.k8s.io/v1beta2"
DEFAULT = f"{API}/namespaces/default"
METRICS = {
    "requests_per_second",
    "success_rate",
    "p50_response_latency_ms",
    "p90_response_latency_ms",
    "p99_response_latency_ms",
}
RESOURCES = {
    *("pods", "replicationcontrollers", "services", "jobs.batch", "trafficsplits.split.smi-spec.io"),
    *("daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps"),
}
AUTOSCALER = {"accept": "application/vnd.kubernetes.protobuf, */*"}


@pytest.fixture
def source() -> FakeSource:
    return FakeSource(FLOWS)


@pytest.fixture
async def client(source: FakeSource) -> AsgiClient:
    store = await stored()
    return AsgiClient(create_app(store, token=TOKEN, computed=ComputedGroups(traffic=source)), store)


async def get(client: AsgiClient, url: str, **headers: str) -> Any:
    answer = await client.call("GET", url, **AUTOSCALER | headers)
    assert answer.code == 200, answer.body
    return answer.body


async def values(client: AsgiClient, path: str) -> dict[str, str]:
    """Return the value of each object in a response."""
    return {item["describedObject"]["name"]: item["value"] for item in (await get(client, path))["items"]}


async def error(client: AsgiClient, path: str, method: str = "GET") -> tuple[int, str]:
    answer = await client.call(method, path)
    return answer.code, answer.body["message"]


async def test_discovery_lists_each_metric_as_a_subresource(client: AsgiClient) -> None:
    groups = {one["name"]: one for one in (await get(client, "/apis"))["groups"]}
    assert groups["custom.metrics.k8s.io"]["preferredVersion"]["version"] == "v1beta2"
    listed = await get(client, API)
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "custom.metrics.k8s.io/v1beta2")
    names = {row["name"] for row in listed["resources"]}
    assert names == {f"{resource}/{metric}" for resource in RESOURCES for metric in METRICS}
    assert {(row["kind"], row["namespaced"], *row["verbs"]) for row in listed["resources"]} == {
        ("MetricValueList", True, "get")
    }


async def test_aggregated_discovery_lists_each_metric_as_a_subresource(client: AsgiClient) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    groups = {one["metadata"]["name"]: one for one in (await get(client, "/apis", accept=accept))["items"]}
    resources = groups["custom.metrics.k8s.io"]["versions"][0]["resources"]
    assert {one["resource"] for one in resources} == RESOURCES
    assert not any(one["verbs"] for one in resources)
    assert {part["subresource"] for one in resources for part in one["subresources"]} == METRICS


async def test_the_metric_of_selected_pods_has_exactly_the_fields_of_the_specification(client: AsgiClient) -> None:
    """An autoscaler sends this request for a metric of type Pods."""

    def item(name: str, value: str) -> dict[str, Any]:
        return {
            "describedObject": {"kind": "Pod", "namespace": "default", "name": name, "apiVersion": "v1"},
            "metric": {"name": "requests_per_second"},
            "timestamp": "2030-03-17T17:46:40Z",
            "windowSeconds": 30,
            "value": value,
        }

    assert await get(client, f"{DEFAULT}/pods/*/requests_per_second?labelSelector=app%3Dweb") == {
        "kind": "MetricValueList",
        "apiVersion": "custom.metrics.k8s.io/v1beta2",
        "metadata": {},
        "items": [item("web-5d-c4c4c", "3500m"), item("web-5d-d5d5d", "300m")],
    }


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("requests_per_second", "3800m"),
        ("success_rate", "912m"),
        ("p50_response_latency_ms", "10488m"),
        ("p90_response_latency_ms", "10488m"),
        ("p99_response_latency_ms", "249800m"),
    ],
)
async def test_the_metric_of_a_deployment_is_computed_from_all_requests_to_its_pods(
    client: AsgiClient, metric: str, value: str
) -> None:
    """An autoscaler sends this request for a metric of type Object. Of 114 requests, 10 failed and 9 took 250 ms."""
    found = await get(client, f"{DEFAULT}/deployments.apps/web/{metric}")
    assert [item["value"] for item in found["items"]] == [value]
    assert found["items"][0]["describedObject"]["apiVersion"] == "apps/v1"


async def test_the_metric_of_a_service_counts_the_requests_to_its_pods(client: AsgiClient) -> None:
    assert await values(client, f"{DEFAULT}/services/web/requests_per_second") == {"web": "3800m"}


async def test_the_metric_of_a_split_counts_the_backends_that_the_metric_selector_selects(client: AsgiClient) -> None:
    path = f"{DEFAULT}/trafficsplits.split.smi-spec.io/canary/requests_per_second"
    assert await values(client, path) == {"canary": "3633m"}
    assert await values(client, f"{path}?metricLabelSelector=backend%3Dweb-v2") == {"canary": "300m"}
    code, message = await error(client, f"{path}?metricLabelSelector=backend%3Dweb-v3")
    assert code == 404
    assert "has no metric requests_per_second with the labels backend=web-v3" in message
    selected = await get(client, f"{path}?metricLabelSelector=backend%3Dweb-v1")
    (item,) = selected["items"]
    assert item["value"] == "3333m"
    assert item["metric"] == {"name": "requests_per_second", "selector": {"matchLabels": {"backend": "web-v1"}}}
    assert item["describedObject"]["apiVersion"] == "split.smi-spec.io/v1alpha4"


async def test_an_idle_pod_with_a_sidecar_has_no_requests_and_no_latency(client: AsgiClient) -> None:
    """With a missing metric, an autoscaler would not scale an idle workload down."""
    await add_idle_pod(client.store, "idle")
    for metric in METRICS - {"success_rate"}:
        assert await values(client, f"{DEFAULT}/pods/*/{metric}?labelSelector=app%3Didle") == {"idle": "0"}
    assert await values(client, f"{DEFAULT}/pods/*/success_rate?labelSelector=app%3Didle") == {}


async def test_a_pod_without_a_sidecar_and_without_requests_has_no_metric(client: AsgiClient) -> None:
    """Its requests may be unknown; an autoscaler must not take it for an idle pod."""
    found = await values(client, f"{DEFAULT}/pods/*/requests_per_second")
    assert set(found) == {"web-5d-c4c4c", "web-5d-d5d5d"}
    code, message = await error(client, f"{DEFAULT}/pods/shop-5d-b2b2b/requests_per_second")
    assert code == 404
    assert "pods default/shop-5d-b2b2b has no metric requests_per_second" in message
    assert "its pods have no sidecar" in message


async def test_the_success_rate_is_1_only_without_a_failure(client: AsgiClient, source: FakeSource) -> None:
    source.flows = {flow(GATEWAY, WEB1): requests(99_999, 1)}
    path = f"{DEFAULT}/pods/web-5d-c4c4c/success_rate"
    assert await values(client, path) == {"web-5d-c4c4c": "999m"}
    source.flows = {flow(GATEWAY, WEB1): requests(99_999)}
    assert await values(client, path) == {"web-5d-c4c4c": "1"}


async def test_custom_metrics_have_the_default_window_of_the_metrics_api(
    client: AsgiClient, source: FakeSource
) -> None:
    await get(client, f"{DEFAULT}/pods/*/requests_per_second")
    assert source.windows == [30.0]


@pytest.mark.parametrize(
    ("path", "expected", "message"),
    [
        ("namespaces/default/pods/*/requests", 404, "has no metric 'requests'; it serves p50_response_latency_ms, "),
        ("namespaces/default/deployments/web/success_rate", 404, "has no resource 'deployments'; it serves daemonsets.apps, "),
        ("namespaces/default/deployments.apps/none/success_rate", 404, "deployments.apps default/none has no metric success_rate"),
        ("namespaces/default/pods/web-5d-c4c4c/success_rate?metricLabelSelector=a%3Db", 404, "with the labels a=b; only TrafficSplits"),
        ("namespaces/default/pods/*/success_rate?labelSelector=a%20b", 400, "unable to parse requirement"),
        ("namespaces/default/pods/*/success_rate?metricLabelSelector=a%20b", 400, "unable to parse requirement"),
        ("namespaces/default/metrics/success_rate", 404, "could not find the requested resource"),
        ("namespaces/default/pods/web/success_rate/more", 404, "could not find the requested resource"),
        ("pods/*/success_rate", 404, "could not find the requested resource"),
    ],
)  # fmt: skip
async def test_an_error_says_what_is_wrong_with_the_request(
    client: AsgiClient, path: str, expected: int, message: str
) -> None:
    code, said = await error(client, f"{API}/{path}")
    assert code == expected
    assert message in said


async def test_custom_metrics_are_read_only(client: AsgiClient) -> None:
    code, _ = await error(client, f"{DEFAULT}/pods/*/success_rate", "POST")
    assert code == 405


async def test_an_unavailable_source_causes_an_error_instead_of_zero(client: AsgiClient, source: FakeSource) -> None:
    """An autoscaler keeps the number of replicas after an error."""
    source.fails = "no source"
    assert (await error(client, f"{DEFAULT}/pods/*/requests_per_second"))[0] == 503


def test_rbac_authorizes_a_metric_as_a_subresource() -> None:
    attributes = parse_path(["namespaces", "shop", "deployments.apps", "web", "success_rate"]).attributes
    assert attributes.to_object() == {
        "group": "custom.metrics.k8s.io",
        "version": "v1beta2",
        "resource": "deployments.apps",
        "subresource": "success_rate",
        "verb": "get",
        "namespace": "shop",
        "name": "web",
    }
