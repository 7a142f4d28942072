"""The inspect API over HTTP: reading, tables, discovery and errors (D29)."""

import json
from typing import Any

import pytest
from tests.api.inspect.inspect_fakes import FakeMesh
from tests.embedded_api import TOKEN, AsgiClient

from headgate.standalone.apiserver.app import ComputedGroups, create_app
from headgate.standalone.store.memory import MemoryStore

GROUP = "/apis/inspect.headgate.dev/v1beta1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.fixture
def inspect_client() -> AsgiClient:
    store = MemoryStore()
    return AsgiClient(create_app(store, token=TOKEN, computed=ComputedGroups(inspector=FakeMesh())), store)


async def names(client: AsgiClient, path: str) -> list[str]:
    answer = await client.call("GET", f"{GROUP}/{path}")
    assert (answer.code, answer.body["kind"]) == (200, "ProxyList")
    return [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in answer.body["items"]]


async def test_proxies_are_listed_by_namespace_and_read_by_name(inspect_client: AsgiClient) -> None:
    assert await names(inspect_client, "proxies") == ["a/one", "b/one", "b/two"]
    assert await names(inspect_client, "namespaces/b/proxies") == ["b/one", "b/two"]
    one = await inspect_client.call("GET", f"{GROUP}/namespaces/b/proxies/two")
    assert (one.body["kind"], one.body["apiVersion"]) == ("Proxy", "inspect.headgate.dev/v1beta1")
    assert one.body["status"]["types"][0] == {
        "type": "clusters",
        "resources": 3,
        "held": 2,
        "version": "a",
        "heldVersion": "b",
        "lastAcknowledgedTime": None,
    }


async def test_the_sidecar_of_a_pod_is_a_subresource_with_the_verb_get(inspect_client: AsgiClient) -> None:
    found = await inspect_client.call("GET", f"{GROUP}/namespaces/b/pods/one/sidecar")
    assert (found.code, found.body["kind"], found.body["sidecar"]) == (200, "PodSidecar", "explicit")
    missing = await inspect_client.call("GET", f"{GROUP}/namespaces/b/pods/two/sidecar")
    assert (missing.code, missing.body["message"]) == (404, "Pod b/two not found")
    assert (await inspect_client.call("GET", f"{GROUP}/namespaces/b/deployments/one/sidecar")).code == 404
    rows = {row["name"]: row for row in (await inspect_client.call("GET", GROUP)).body["resources"]}
    assert (rows["pods/sidecar"]["kind"], rows["pods/sidecar"]["verbs"]) == ("PodSidecar", ["get"])


async def test_workloads_with_outdated_sidecars_are_listed_with_their_pods(inspect_client: AsgiClient) -> None:
    workloads = (await inspect_client.call("GET", f"{GROUP}/namespaces/b/workloadsidecars")).body
    assert (workloads["kind"], workloads["items"][0]["object"]["name"]) == ("WorkloadSidecarsList", "web")
    assert [pod["messages"] for pod in workloads["items"][0]["pods"]] == [[], ["has no sidecar"]]
    row = await cells(inspect_client, "workloadsidecars")
    assert row == {"Name": "deployment.web", "Pods": "2", "Outdated": "1", "Why": "has no sidecar"}


async def test_the_embedded_api_names_the_option_that_serves_the_metrics(inspect_client: AsgiClient) -> None:
    found = await inspect_client.call("GET", f"{GROUP}/meshstatuses/mesh/metrics")
    assert (found.code, "--metrics-address" in found.body["message"]) == (501, True)
    assert (await inspect_client.call("GET", f"{GROUP}/meshstatuses/other/metrics")).code == 404
    rows = {row["name"]: row for row in (await inspect_client.call("GET", GROUP)).body["resources"]}
    assert (rows["meshstatuses/metrics"]["kind"], rows["meshstatuses/metrics"]["verbs"]) == ("MeshMetrics", ["get"])


async def test_proxies_are_served_as_a_table_for_kubectl(inspect_client: AsgiClient) -> None:
    found = (await inspect_client.call("GET", f"{GROUP}/namespaces/b/proxies", accept=TABLE)).body
    assert found["kind"] == "Table"
    titles = [column["name"] for column in found["columnDefinitions"]]
    rows = [dict(zip(titles, row["cells"], strict=True)) for row in found["rows"]]
    assert [(row["Name"], row["State"], row["Clusters"]) for row in rows] == [
        ("one", "InSync", "3"),
        ("two", "Lagging", "2/3"),
    ]
    assert found["rows"][0]["object"]["metadata"] == {"name": "one", "namespace": "b"}


async def cells(client: AsgiClient, path: str) -> dict[str, str]:
    """Return the first row of a table as a mapping from column to cell."""
    found = (await client.call("GET", f"{GROUP}/{path}", accept=TABLE)).body
    return dict(zip((column["name"] for column in found["columnDefinitions"]), found["rows"][0]["cells"], strict=True))


async def test_findings_and_the_mesh_status_are_served_as_tables_and_objects(inspect_client: AsgiClient) -> None:
    row = await cells(inspect_client, "findings")
    assert (row["Severity"], row["Object"], row["Message"]) == ("Error", "Service/web", "spec: is wrong")
    found = (await inspect_client.call("GET", f"{GROUP}/namespaces/b/findings")).body
    assert (found["kind"], found["objects"], found["items"][0]["object"]["name"]) == ("FindingList", 3, "web")
    assert (await inspect_client.call("GET", f"{GROUP}/namespaces/a/findings")).body["items"] == []
    row = await cells(inspect_client, "meshstatuses")
    assert (row["Name"], row["Healthy"], row["Proxies"], row["Errors"]) == ("mesh", "no", "2/3", "1")
    mesh = (await inspect_client.call("GET", f"{GROUP}/meshstatuses/mesh")).body
    assert mesh["status"]["revisions"] == {"stored": 3, "compiled": 2, "current": True, "failures": 0}


async def test_recorded_calls_are_served_by_the_namespace_of_the_called_account(inspect_client: AsgiClient) -> None:
    row = await cells(inspect_client, "callrecords")
    assert [row[title] for title in ("Name", "Port", "Caller", "Calls", "Would_Refuse")] == [
        *("web", "80", "b/client", "5", "2"),
    ]
    found = (await inspect_client.call("GET", f"{GROUP}/namespaces/b/callrecords")).body
    assert (found["kind"], found["recordingStartTime"], len(found["items"])) == (
        "CallRecordList",
        "2026-01-01T00:00:00Z",
        1,
    )
    assert (await inspect_client.call("GET", f"{GROUP}/namespaces/a/callrecords")).body["items"] == []


async def test_an_explanation_is_created_with_a_request_as_its_spec(inspect_client: AsgiClient) -> None:
    spec = {
        "url": "http://web/",
        "method": "POST",
        "headers": [{"name": "a", "value": "b"}],
        "caller": {"kind": "Pod", "name": "x"},
        "gateway": "g",
        "revision": 7,
    }
    answer = await inspect_client.call("POST", f"{GROUP}/namespaces/b/explanations", {"spec": spec})
    assert answer.code == 404
    assert answer.body["message"] == "b POST http://web/ Pod/x gateway/g (('a', 'b'),) 7"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"url": 1},
        {"url": "ftp://web/"},
        {"url": "http://web/", "caller": {"kind": "Service", "name": "web"}},
        {"url": f"http://{'a.' * 16_000}a/"},
        {"url": "https://web/", "serverName": "a." * 127},
    ],
)
async def test_an_explanation_of_a_wrong_request_is_rejected(inspect_client: AsgiClient, spec: dict[str, Any]) -> None:
    answer = await inspect_client.call("POST", f"{GROUP}/namespaces/b/explanations", {"spec": spec})
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "namespaces/b/proxies/three", 404),
        ("GET", "proxies/one", 404),
        ("GET", "nothing", 404),
        ("GET", "meshstatuses/other", 404),
        ("GET", "namespaces/b/findings/web.1", 404),
        ("GET", "namespaces/b/explanations", 405),
        ("GET", "namespaces/b/explanations/a", 404),
        ("POST", "explanations", 404),
        ("GET", "namespaces/b/proxies/three/config", 404),
        ("GET", "namespaces/b/proxies/two/config?type=clutsers", 400),
        ("GET", "namespaces/b/proxies/two/nothing", 404),
        ("GET", "namespaces//proxies", 404),
        ("GET", "namespaces/b/proxies/two/config?watch=1", 405),
        ("GET", "proxies?labelSelector=a%3Db", 400),
        ("GET", "proxies?fieldSelector=status.state%3DInSync", 400),
        ("GET", "proxies?watch=1&fieldSelector=status.state%3DInSync", 400),
        ("GET", "namespaces/b/proxies/two?fieldSelector=metadata.name%3Dtwo", 400),
        ("GET", "proxies?watch=1&timeoutSeconds=soon", 400),
        ("POST", "namespaces/b/proxies", 405),
        ("DELETE", "namespaces/b/proxies/two", 405),
        ("PATCH", "namespaces/b/proxies/two", 405),
    ],
)
async def test_an_invalid_request_gets_a_status_with_its_code(
    inspect_client: AsgiClient, method: str, path: str, code: int
) -> None:
    answer = await inspect_client.call(method, f"{GROUP}/{path}")
    assert (answer.code, answer.body["kind"]) == (code, "Status")


async def test_plans_are_answers_to_posts_and_are_not_stored(inspect_client: AsgiClient) -> None:
    wrong = await inspect_client.call("POST", f"{GROUP}/plans", {"spec": {"objects": 1}})
    assert (wrong.code, wrong.body["message"].startswith("the body is not a Plan")) == (400, True)
    assert (await inspect_client.call("GET", f"{GROUP}/plans")).code == 405
    assert (await inspect_client.call("GET", f"{GROUP}/plans/a")).code == 404
    rows = {row["name"]: row for row in (await inspect_client.call("GET", GROUP)).body["resources"]}
    assert (rows["plans"]["kind"], rows["plans"]["verbs"], rows["plans"]["namespaced"]) == ("Plan", ["create"], False)


async def test_plain_and_aggregated_discovery_list_the_group_with_read_verbs_except_for_questions(
    inspect_client: AsgiClient,
) -> None:
    groups = (await inspect_client.call("GET", "/apis")).body["groups"]
    assert "inspect.headgate.dev" in {group["name"] for group in groups}
    plain = (await inspect_client.call("GET", GROUP)).body["resources"]
    assert {row["name"] for row in plain} >= {"proxies"}
    assert {verb for row in plain if row["name"] not in ("plans", "explanations") for verb in row["verbs"]} <= {
        "get",
        "list",
        "watch",
    }
    verbs = {row["name"]: row["verbs"] for row in plain}
    assert (verbs["proxies"], verbs["findings"], verbs["proxies/config"]) == (
        ["get", "list", "watch"],
        ["list", "watch"],
        ["get"],
    )
    aggregated = (await inspect_client.call("GET", "/apis", accept=DISCOVERY)).body["items"]
    found = next(item for item in aggregated if item["metadata"]["name"] == "inspect.headgate.dev")
    assert {row["resource"] for row in found["versions"][0]["resources"]} >= {"proxies"}


async def test_without_a_running_mesh_the_api_answers_501(client: AsgiClient) -> None:
    answer = await client.call("GET", f"{GROUP}/proxies")
    assert (answer.code, answer.body["reason"]) == (501, "NotImplemented")
    assert "headgate up" in json.dumps(answer.body)
