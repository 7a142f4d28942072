"""The external metrics API over HTTP, with the requests that Flagger and HorizontalPodAutoscalers send."""

from typing import Any
from urllib.parse import quote

import pytest
from tests.api.metrics.metrics_world import FLOWS, FakeSource, stored
from tests.embedded_api import TOKEN, AsgiClient

from headgate.standalone.apiserver.app import ComputedGroups, create_app

API = "/apis/external.metrics.k8s.io/v1beta1"
RATES = f"{API}/namespaces/default/requests_per_second"


@pytest.fixture
async def client() -> AsgiClient:
    store = await stored()
    return AsgiClient(create_app(store, token=TOKEN, computed=ComputedGroups(traffic=FakeSource(FLOWS))), store)


async def get(client: AsgiClient, url: str) -> Any:
    """Send a GET as autoscalers do; return the content of the response."""
    answer = await client.call("GET", url, accept="application/vnd.kubernetes.protobuf, */*")
    assert answer.code == 200, answer.body
    return answer.body


async def test_discovery_lists_each_metric_as_a_resource(client: AsgiClient) -> None:
    groups = {group["name"]: group for group in (await get(client, "/apis"))["groups"]}
    assert groups["external.metrics.k8s.io"]["preferredVersion"]["version"] == "v1beta1"
    rows = (await get(client, API))["resources"]
    assert {row["name"] for row in rows} >= {"requests_per_second", "success_rate", "p99_response_latency_ms"}
    assert {(row["kind"], row["namespaced"], *row["verbs"]) for row in rows} == {
        ("ExternalMetricValueList", True, "list")
    }


async def test_a_label_selects_an_object_and_the_value_has_exactly_the_fields_of_the_specification(
    client: AsgiClient,
) -> None:
    """The value of a Deployment is the same as in `custom.metrics.k8s.io`."""
    assert await get(client, f"{RATES}?labelSelector=deployment%3Dweb") == {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "metricName": "requests_per_second",
                "metricLabels": {"deployment": "web"},
                "timestamp": "2030-03-17T17:46:40Z",
                "window": 30,
                "value": "3800m",
            }
        ],
    }


async def test_a_selector_of_several_objects_returns_a_value_for_each(client: AsgiClient) -> None:
    items = (await get(client, f"{RATES}?labelSelector=pod%20in%20(web-5d-c4c4c,web-5d-d5d5d)"))["items"]
    assert {item["metricLabels"]["pod"]: item["value"] for item in items} == {
        "web-5d-c4c4c": "3500m",
        "web-5d-d5d5d": "300m",
    }


async def test_an_object_without_a_known_value_is_missing(client: AsgiClient) -> None:
    assert (await get(client, f"{RATES}?labelSelector=deployment%3Dnone"))["items"] == []


@pytest.mark.parametrize(
    ("query", "found"),
    [("", "no label"), ("?labelSelector=app%3Dweb", "app"), ("?labelSelector=pod%3Da,service%3Db", "pod, service")],
)
async def test_a_selector_must_name_one_kind(client: AsgiClient, query: str, found: str) -> None:
    """Clients add up the values of a response: those of a Deployment and of its pods would be counted twice."""
    answer = await client.call("GET", f"{RATES}{query}")
    assert answer.code == 400
    assert answer.body["message"].startswith(
        "the labelSelector must name objects by one of the labels daemonset, deployment"
    )
    assert answer.body["message"].endswith(f"it has {found}")


@pytest.mark.parametrize("selector", ["deployment", "!deployment", "deployment!=web", "deployment notin (web)"])
async def test_a_selector_must_list_the_objects(client: AsgiClient, selector: str) -> None:
    answer = await client.call("GET", f"{RATES}?labelSelector={quote(selector)}")
    assert answer.code == 400
    assert "write deployment=value or deployment in (a, b)" in answer.body["message"]


async def test_unknown_metrics_and_other_methods_are_refused(client: AsgiClient) -> None:
    unknown = await client.call("GET", f"{API}/namespaces/default/rate?labelSelector=deployment%3Dweb")
    assert (unknown.code, "it serves p50" in unknown.body["message"]) == (404, True)
    for method, query in (("DELETE", ""), ("GET", "&watch=true")):
        assert (await client.call(method, f"{RATES}?labelSelector=deployment%3Dweb{query}")).code == 405
