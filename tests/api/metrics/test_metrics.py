"""The metrics API over HTTP: formats, paths, windows, selectors, tables and errors (R80 to R98, D20)."""

import gc
import json
import weakref
from typing import Any

import pytest
from tests.api.metrics.metrics_world import FLOWS, SHOP, WEB1, WEB2, FakeSource, flow, requests, stored
from tests.decoding import admit
from tests.embedded_api import TOKEN, AsgiClient

from headgate.api.aggregated_server import api_services
from headgate.api.metrics.groups import quantity
from headgate.api.metrics.handlers import MetricsApi
from headgate.api.metrics.query import window
from headgate.options import MeshOptions
from headgate.quantity import parse_quantity
from headgate.standalone.apiserver.app import ComputedGroups, create_app
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.counters.counts import CONNECTIONS, DENIED_CONNECTIONS, DENIED_REQUESTS, SENT, UNREACHED, Counts
from headgate.telemetry.counters.flows import GATEWAY, NO_PEER, Flow, Peer

SEED, MESH, RELEASED = (
    f"/apis/{group}"
    for group in ("traffic.metrics.k8s.io/v1beta1", "mesh.metrics.k8s.io/v1beta1", "metrics.smi-spec.io/v1alpha1")
)
PODS = f"{SEED}/namespaces/default/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TEN = {
    *("namespaces", "nodes", "pods", "replicationcontrollers", "services"),
    *("daemonsets", "deployments", "replicasets", "statefulsets", "jobs"),
}


@pytest.fixture
def source() -> FakeSource:
    return FakeSource(FLOWS)


@pytest.fixture
async def client(source: FakeSource) -> AsgiClient:
    store = await stored()
    return AsgiClient(create_app(store, token=TOKEN, computed=ComputedGroups(traffic=source)), store)


async def get(client: AsgiClient, url: str, **headers: str) -> Any:
    answer = await client.call("GET", url, **headers)
    assert answer.code == 200, answer.body
    return answer.body


def values(item: Any) -> dict[str, str]:
    return {metric["name"]: metric["value"] for metric in item["metrics"]}


def ends(listed: Any) -> dict[str, dict[str, str]]:
    """Return the edges of a list by direction and peer."""
    return {
        f"{item['edge']['direction']} {item['edge']['resource'].get('kind', '')} {item['edge']['resource'].get('name', '')}": values(
            item
        )
        for item in listed["items"]
        if not item["edge"].get("copy")
    }


async def test_the_metrics_of_a_pod_have_exactly_the_specified_fields(client: AsgiClient) -> None:
    """R83 to R85, R87."""
    assert await get(client, f"{PODS}/web-5d-c4c4c") == {
        "kind": "TrafficMetrics",
        "apiVersion": "traffic.metrics.k8s.io/v1beta1",
        "metadata": {
            "name": "web-5d-c4c4c",
            "namespace": "default",
            "selfLink": f"{PODS}/web-5d-c4c4c",
            "creationTimestamp": "2030-03-17T17:46:40Z",
            "labels": {"app": "web"},
        },
        "resource": {"kind": "Pod", "namespace": "default", "name": "web-5d-c4c4c"},
        "edge": {"direction": "to", "resource": {}},
        "timestamp": "2030-03-17T17:46:40Z",
        "window": "30s",
        "metrics": [
            {"name": "p99_response_latency", "value": "10500u", "unit": "seconds"},
            {"name": "p90_response_latency", "value": "10500u", "unit": "seconds"},
            {"name": "p50_response_latency", "value": "10500u", "unit": "seconds"},
            {"name": "success_count", "value": "95"},
            {"name": "failure_count", "value": "10"},
        ],
        "mesh": {"pods": 1, "meshed": 0},
    }


async def test_a_query_with_uncertainty_adds_the_standard_deviation_and_intervals(client: AsgiClient) -> None:
    """Each request took 10 to 11 ms; 95 of 105 succeeded. All other metrics stay the same."""
    latency = {"interval": {"low": "10m", "high": "11m"}}
    plain = (await get(client, f"{PODS}/web-5d-c4c4c"))["metrics"]
    found = (await get(client, f"{PODS}/web-5d-c4c4c?uncertainty=true"))["metrics"]
    *same, deviation, success_rate = found
    unlimited = {"interval": {"low": "10m"}}  # too few requests for an upper limit of the 99th percentile
    assert same == [plain[0] | unlimited, plain[1] | latency, plain[2] | latency, *plain[3:]]
    assert deviation == {"name": "stddev_response_latency", "value": "0", "unit": "seconds"}
    interval = success_rate.pop("interval")
    assert success_rate == {"name": "success_rate", "value": "904761u"}
    low, high = (float(parse_quantity(interval[end])) for end in ("low", "high"))
    assert 0.75 < low < 0.904761 < high < 0.98


async def test_uncertainty_is_in_the_units_of_the_group_and_absent_without_requests(client: AsgiClient) -> None:
    released = (await get(client, f"{RELEASED}/namespaces/default/pods?uncertainty=1"))["items"]
    latencies = {item["metadata"]["name"]: item["metrics"][2] for item in released}
    assert latencies["web-5d-c4c4c"]["interval"] == {"low": "10", "high": "11"}
    assert "interval" not in latencies["shop-5d-b2b2b"]
    assert not {"success_rate", "stddev_response_latency"} & values(released[0]).keys()
    edges = (await get(client, f"{PODS}/shop-5d-b2b2b/edges?uncertainty=true"))["items"]
    assert {"success_rate" in values(item) for item in edges if not item["edge"].get("copy")} == {True}
    assert {"success_rate" in values(item) for item in edges if item["edge"].get("copy")} == {False}


async def test_a_success_rate_is_1_only_without_a_failure(client: AsgiClient, source: FakeSource) -> None:
    source.flows = {flow(SHOP, WEB1): requests(9_999_999, 1), flow(SHOP, WEB2): requests(10_000_000)}
    items = (await get(client, f"{PODS}?uncertainty=true&labelSelector=app%3Dweb"))["items"]
    rates = [next(one for one in item["metrics"] if one["name"] == "success_rate") for item in items]
    assert [(rate["value"], rate["interval"]["high"]) for rate in rates] == [("999999u", "1"), ("1", "1")]


async def test_each_group_follows_the_format_of_its_specification(client: AsgiClient) -> None:
    """D20. The three groups have different formats and equal counts."""
    path = "namespaces/default/pods/web-5d-c4c4c"
    seed, mesh, released = [await get(client, f"{group}/{path}") for group in (SEED, MESH, RELEASED)]
    assert mesh == json.loads(json.dumps(seed).replace("traffic.metrics.k8s.io", "mesh.metrics.k8s.io"))
    assert released["apiVersion"] == "metrics.smi-spec.io/v1alpha1"
    assert released["edge"] == {"direction": "from", "side": "server", "resource": {}}
    assert [metric.get("unit") for metric in released["metrics"]] == ["ms", "ms", "ms", None, None]
    latency = [parse_quantity(values(one)["p99_response_latency"]) for one in (seed, released)]
    assert latency[0] * 1000 == latency[1]
    edges = await get(client, f"{RELEASED}/{path}/edges")
    assert {(one["edge"]["direction"], one["edge"]["side"]) for one in edges["items"]} == {("from", "server")}
    edges = await get(client, f"{RELEASED}/namespaces/default/pods/shop-5d-b2b2b/edges")
    assert {(one["edge"]["direction"], one["edge"]["side"]) for one in edges["items"]} == {("to", "client")}


@pytest.mark.parametrize(("api", "more"), [(SEED, set()), (MESH, set()), (RELEASED, {"trafficsplits"})])
async def test_each_group_has_exactly_the_resources_of_its_specification(
    client: AsgiClient, api: str, more: set[str]
) -> None:
    """R80 to R82."""
    listed = await get(client, api)
    assert (listed["kind"], f"/apis/{listed['groupVersion']}") == ("APIResourceList", api)
    assert {row["name"] for row in listed["resources"]} == TEN | more
    assert {row["name"] for row in listed["resources"] if not row["namespaced"]} == {"namespaces", "nodes"}
    assert {(row["kind"], *row["verbs"]) for row in listed["resources"]} == {("TrafficMetrics", "get", "list")}
    group, version = api.split("/")[2:]
    assert (await get(client, f"/apis/{group}"))["preferredVersion"]["version"] == version
    assert group in {one["name"] for one in (await get(client, "/apis"))["groups"]}


async def test_aggregated_discovery_lists_the_edges(client: AsgiClient) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    groups = {one["metadata"]["name"]: one for one in (await get(client, "/apis", accept=accept))["items"]}
    resources = groups["traffic.metrics.k8s.io"]["versions"][0]["resources"]
    assert {one["resource"] for one in resources} == TEN
    assert {part["subresource"] for one in resources for part in one["subresources"]} == {"edges"}
    kinds = [one["responseKind"]["kind"] for one in resources]
    assert len(set(kinds)) == len(kinds)  # kubectl maps each kind to exactly one resource
    assert "TrafficMetrics" in kinds
    order = list(groups)
    assert order.index("apps") < order.index("traffic.metrics.k8s.io")  # `kubectl get deployments` reads the group apps


async def test_both_ends_of_an_edge_have_the_same_counts(client: AsgiClient) -> None:
    """R86, R92, R95."""
    to = await get(client, f"{PODS}/shop-5d-b2b2b/edges")
    assert to["kind"] == "TrafficMetricsList"
    assert to["resource"] == {"kind": "Pod", "namespace": "default", "name": "shop-5d-b2b2b"}
    assert to["metadata"]["selfLink"] == f"{PODS}/shop-5d-b2b2b/edges"
    taken = await get(client, f"{PODS}/web-5d-c4c4c/edges")
    assert ends(to)["to Pod web-5d-c4c4c"] == ends(taken)["from Pod shop-5d-b2b2b"]
    assert ends(taken)["from Pod shop-5d-b2b2b"]["success_count"] == "90"


async def test_clients_outside_the_mesh_appear_among_the_edges(client: AsgiClient) -> None:
    """R96."""
    edges = await get(client, f"{SEED}/namespaces/default/deployments/web/edges")
    assert ends(edges)["from Outside gateway"]["success_count"] == "5"
    assert set(ends(edges)) == {"from Outside gateway", "from Deployment shop"}


async def test_a_resource_without_traffic_has_no_edges(client: AsgiClient, source: FakeSource) -> None:
    """R91."""
    source.flows = {}
    assert (await get(client, f"{PODS}/shop-5d-b2b2b/edges"))["items"] == []
    quiet = await get(client, f"{PODS}/shop-5d-b2b2b")
    assert set(values(quiet).values()) == {"0"}


async def test_a_request_returns_the_newest_counts(client: AsgiClient, source: FakeSource) -> None:
    """R97. Cached results are used only while the counts are the same."""
    assert values(await get(client, f"{PODS}/web-5d-c4c4c"))["success_count"] == "95"
    source.flows = {flow(SHOP, WEB1): requests(1)}
    assert values(await get(client, f"{PODS}/web-5d-c4c4c"))["success_count"] == "1"
    assert values(await get(client, f"{SEED}/namespaces/default/deployments/web"))["success_count"] == "1"


async def test_a_response_includes_objects_created_after_the_previous_response(client: AsgiClient) -> None:
    url = f"{SEED}/namespaces/default/services"
    before = await get(client, url)
    await client.store.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "new", "namespace": "default"}}
    )
    after = await get(client, url)
    assert len(after["items"]) == len(before["items"]) + 1


async def test_tcp_connections_are_counted_separately_from_requests(client: AsgiClient, source: FakeSource) -> None:
    """R98. A failed connection is not one of the failed requests."""
    tcp = flow(SHOP, WEB1, "default/web-v1")
    source.flows = {flow(SHOP, WEB1): requests(20), tcp: Counts.of({CONNECTIONS: 7, UNREACHED: 2, SENT: 5})}
    found = values(await get(client, f"{PODS}/web-5d-c4c4c"))
    assert (found["success_count"], found["failure_count"]) == ("20", "0")
    assert (found["connection_count"], found["connection_failure_count"]) == ("7", "2")
    service = f"{SEED}/namespaces/default/services/web-v1"
    source.flows = {flow(SHOP, NO_PEER, "default/web-v1"): Counts.of({UNREACHED: 2})}
    found = values(await get(client, service))
    assert (found["success_count"], found["failure_count"], found["connection_failure_count"]) == ("0", "0", "2")
    assert set(ends(await get(client, f"{PODS}/shop-5d-b2b2b/edges"))) == {"to Service web-v1"}


async def test_mirrored_copies_are_marked_and_counted_separately(client: AsgiClient) -> None:
    """D22."""
    edges = (await get(client, f"{PODS}/web-5d-d5d5d/edges"))["items"]
    (copies,) = [one for one in edges if one["edge"].get("copy")]
    assert copies["edge"]["resource"]["name"] == "shop-5d-b2b2b"
    found = values(copies)
    assert (found["success_count"], found["failure_count"]) == ("0", "0")
    assert (found["copy_count"], found["copy_failure_count"]) == ("3", "3")
    assert {found[f"{share}_response_latency"] for share in ("p50", "p90", "p99")} == {"97m"}
    pod = values(await get(client, f"{PODS}/web-5d-d5d5d"))
    assert (pod["success_count"], pod["failure_count"], pod["copy_count"]) == ("9", "0", "3")


@pytest.mark.parametrize(
    ("path", "resource", "names"),
    [
        ("pods", {"kind": "Pod"}, ["shop-5d-b2b2b", "web-5d-c4c4c", "web-5d-d5d5d"]),
        ("namespaces/default/deployments", {"kind": "Deployment", "namespace": "default"}, ["shop", "web"]),
        ("namespaces/other/deployments", {"kind": "Deployment", "namespace": "other"}, []),
        ("namespaces", {"kind": "Namespace"}, ["default", "kube-system"]),
        ("nodes", {"kind": "Node"}, ["node-1"]),
        ("jobs", {"kind": "Job"}, []),
    ],
)
async def test_a_list_names_its_resource_and_contains_its_items(
    client: AsgiClient, path: str, resource: dict[str, str], names: list[str]
) -> None:
    """R82, R93. The field `resource` of a list has an empty name."""
    listed = await get(client, f"{SEED}/{path}")
    assert listed["resource"] == resource
    assert [one["metadata"]["name"] for one in listed["items"]] == names
    assert listed["metadata"]["selfLink"] == f"{SEED}/{path}"


@pytest.mark.parametrize("path", ["namespaces/default", "nodes/node-1"])
async def test_metrics_of_namespaces_and_nodes_sum_their_pods(client: AsgiClient, path: str) -> None:
    item = await get(client, f"{SEED}/{path}")
    assert (values(item)["success_count"], values(item)["failure_count"]) == ("104", "10")
    assert item["metadata"]["selfLink"] == f"{SEED}/{path}"
    assert "namespace" not in item["resource"]
    edges = await get(client, f"{SEED}/{path}/edges")
    assert ends(edges)["from Outside gateway"]["success_count"] == "5"


async def test_a_selector_selects_items_and_changes_no_count(client: AsgiClient) -> None:
    """R94."""
    everything = {one["metadata"]["name"]: one for one in (await get(client, PODS))["items"]}
    listed = await get(client, f"{PODS}?labelSelector=app%3Dweb")
    assert listed["selector"] == {"matchLabels": {"app": "web"}}
    assert [one["metadata"]["name"] for one in listed["items"]] == ["web-5d-c4c4c", "web-5d-d5d5d"]
    assert all(one == everything[one["metadata"]["name"]] for one in listed["items"])
    listed = await get(client, f"{PODS}?labelSelector=app+notin+(web),!old,app")
    assert listed["selector"]["matchExpressions"] == [
        {"key": "app", "operator": "NotIn", "values": ["web"]},
        {"key": "old", "operator": "DoesNotExist"},
        {"key": "app", "operator": "Exists"},
    ]
    assert [one["metadata"]["name"] for one in listed["items"]] == ["shop-5d-b2b2b"]
    one = await get(client, f"{PODS}?fieldSelector=metadata.name%3Dweb-5d-c4c4c")
    assert len(one["items"]) == 1
    edges = await get(
        client, f"{PODS}/web-5d-c4c4c/edges?labelSelector=app%3Dshop"
    )  # on edges, the selector applies to the labels of the peer
    assert set(ends(edges)) == {"from Pod shop-5d-b2b2b"}
    assert edges["selector"] == {"matchLabels": {"app": "shop"}}


async def test_edges_can_be_grouped_by_namespace_or_kind(client: AsgiClient) -> None:
    """R88."""
    url = f"{PODS}/web-5d-c4c4c/edges"
    by = [(await get(client, f"{url}?by={word}"))["items"] for word in ("namespace", "kind")]
    assert [one["edge"]["resource"] for one in by[0]] == [{"namespace": "default"}, {"kind": "Outside"}]
    assert [one["edge"]["resource"] for one in by[1]] == [{"kind": "Outside"}, {"kind": "Pod"}]
    assert (await client.call("GET", f"{url}?by=color")).code == 400


async def test_a_split_has_metrics_of_each_backend(client: AsgiClient) -> None:
    """Requirement 2.6."""
    url = f"{RELEASED}/namespaces/default/trafficsplits"
    listed = await get(client, f"{url}/canary")
    assert listed["resource"] == {"kind": "TrafficSplit", "namespace": "default", "name": "canary"}
    rows = [(one["backend"], values(one)["success_count"], one["edge"]) for one in listed["items"]]
    edge = {"direction": "from", "side": "client", "resource": {}}
    assert rows == [
        ({"apex": "web", "name": "web-v1", "weight": 90}, "90", edge),
        ({"apex": "web", "name": "web-v2", "weight": 10}, "9", edge),
    ]
    assert (await get(client, url))["items"] == listed["items"]
    assert (await client.call("GET", f"{url}/none")).code == 404
    assert (await client.call("GET", f"{url}/canary/edges")).code == 404
    assert (await client.call("GET", f"{SEED}/namespaces/default/trafficsplits/canary")).code == 404


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30s", 30), ("1m", 60), ("1m30s", 90), ("1.5m", 90), ("1500ms", 1.5), ("500ms", 1), ("1ns", 1), (".5h", 1800), ("+10s", 10), ("240h", 86400),
        *((wrong, 30) for wrong in ("", "soon", "10", "-5s", "0s", "1d", "s", "5 s", "\u0661s", "1e3s", ".s")),
    ],
)  # fmt: skip
def test_the_parameter_t_sets_the_window_and_its_default_is_30_seconds(written: str, seconds: float) -> None:
    """R85, requirement 2.6. smi-metrics has the same parameter."""
    assert window({"t": written}) == pytest.approx(seconds)
    assert window({}) == 30


async def test_the_response_contains_the_window(client: AsgiClient, source: FakeSource) -> None:
    assert (await get(client, f"{PODS}/web-5d-c4c4c?t=1m30s"))["window"] == "1m30s"
    assert (await get(client, f"{PODS}/web-5d-c4c4c?t=nonsense"))["window"] == "30s"
    assert source.windows == [90, 30]


async def test_a_window_can_end_earlier(client: AsgiClient, source: FakeSource) -> None:
    """R85. A time without counts is not found, which is not the same as no requests."""
    for end in ("2030-03-17T12:00:00Z", "2030-03-17T13:00:00%2B01:00", "2030-03-17T13:00:00+01:00"):
        answer = await get(client, f"{PODS}/web-5d-c4c4c?t=5m&end={end}")
        assert (answer["timestamp"], answer["window"]) == ("2030-03-17T12:00:00Z", "5m0s")
    assert (source.windows, set(source.ends)) == ([300] * 3, {1_899_979_200.0})
    answer = await client.call("GET", f"{PODS}/web-5d-c4c4c?end=2020-01-01T00:00:00Z")
    assert (answer.code, answer.body["message"]) == (404, "the stored windows begin later")
    for end in (
        "yesterday",
        "2030-03-17T12:00:00",
        "1900000000",
        "0001-01-01T00:00:00%2B01:00",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59-01:00",
    ):
        answer = await client.call("GET", f"{PODS}?end={end}")
        assert (answer.code, "must be a time as in RFC 3339" in answer.body["message"]) == (400, True)


async def test_an_earlier_window_is_not_kept_in_memory() -> None:
    class Flows(dict[Flow, Counts]):
        """Flows to which a test has a weak reference."""

    source = FakeSource(Flows(FLOWS))
    api = MetricsApi(await stored(), source)
    flows = weakref.ref(source.flows)
    await api.answers("Pod", 300, 1_899_979_200.0)
    source.flows = {}
    gc.collect()
    assert flows() is None


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (0.01, "10m"),
        (0.0105, "10500u"),
        (1.0, "1"),
        (1.23456, "1230m"),
        (60, "60"),
        (0.000105, "105u"),
        (12345, "12300"),
    ],
)
def test_values_are_formatted_as_quantities(value: float, written: str) -> None:
    """R84. `10m` seconds are 10 ms."""
    assert quantity(value) == written
    assert float(parse_quantity(written)) == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("method", "url", "code", "reason"),
    [
        ("GET", f"{PODS}/none", 404, "NotFound"),
        ("GET", f"{PODS}/none/edges", 404, "NotFound"),
        ("GET", f"{PODS}/web-5d-c4c4c/edges/x", 404, "NotFound"),
        ("GET", f"{PODS}/web-5d-c4c4c/log", 404, "NotFound"),
        ("GET", f"{SEED}/pods/web-5d-c4c4c", 404, "NotFound"),
        ("GET", f"{SEED}/namespaces/default/nodes", 404, "NotFound"),
        ("GET", f"{SEED}/namespaces//pods", 404, "NotFound"),
        ("GET", f"{SEED}/configmaps", 404, "NotFound"),
        ("GET", "/apis/traffic.metrics.k8s.io/v1", 404, "NotFound"),
        ("GET", f"{PODS}?labelSelector=a+b", 400, "BadRequest"),
        ("GET", f"{PODS}?fieldSelector=status.phase%3DRunning", 400, "BadRequest"),
        ("GET", f"{PODS}?watch=true", 405, "MethodNotAllowed"),
        ("POST", PODS, 405, "MethodNotAllowed"),
        ("DELETE", f"{PODS}/web-5d-c4c4c", 405, "MethodNotAllowed"),
    ],
)
async def test_an_invalid_request_gets_a_status_with_its_code(
    client: AsgiClient, method: str, url: str, code: int, reason: str
) -> None:
    """R90, R92."""
    answer = await client.call(method, url, {} if method == "POST" else None)
    assert (answer.code, answer.body["kind"], answer.body["reason"]) == (code, "Status", reason)


async def test_an_unavailable_source_causes_an_error_instead_of_zero_counts(
    client: AsgiClient, source: FakeSource
) -> None:
    source.fails = "Prometheus does not answer"
    answer = await client.call("GET", PODS)
    assert (answer.code, answer.body["reason"]) == (503, "ServiceUnavailable")
    assert "Prometheus does not answer" in answer.body["message"]
    store = MemoryStore(admit=admit)
    silent = AsgiClient(create_app(store, token=TOKEN), store)
    assert (await silent.call("GET", PODS)).code == 501


async def test_omitted_edges_are_reported_as_a_warning(client: AsgiClient, source: FakeSource) -> None:
    source.cut = ("12 of 5012 edges are not counted",)
    answer = await client.call("GET", PODS)
    assert answer.header("warning") == ['299 - "12 of 5012 edges are not counted"']


async def test_a_request_without_the_token_is_unauthorized(client: AsgiClient) -> None:
    assert (await client.call("GET", PODS, authorization="")).code == 401


async def test_kubectl_tables_have_a_row_for_each_item(client: AsgiClient) -> None:
    table = await get(client, PODS, accept=TABLE)
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == [
        "Name",
        "Success",
        "RPS",
        "Latency_P50",
        "Latency_P90",
        "Latency_P99",
        "Requests",
        "Failures",
        "Connections",
        "Conn_Failures",
        "Denied",
        "Conn_Denied",
        "Meshed",
    ]
    assert [row["cells"] for row in table["rows"]] == [
        ["shop-5d-b2b2b", "-", "-", "-", "-", "-", 0, 0, 0, 0, 0, 0, "0/1"],
        ["web-5d-c4c4c", "90.48%", "3.5rps", "10.5ms", "10.5ms", "10.5ms", 105, 10, 0, 0, 0, 0, "0/1"],
        ["web-5d-d5d5d", "100.00%", "0.3rps", "250ms", "250ms", "250ms", 9, 0, 0, 0, 0, 0, "0/1"],
    ]
    assert table["rows"][0]["object"]["metadata"]["namespace"] == "default"
    edges = await get(client, f"{PODS}/web-5d-d5d5d/edges?includeObject=None", accept=TABLE)
    assert [row["cells"][:5] for row in edges["rows"]] == [
        ["web-5d-d5d5d", "from", "Pod default/shop-5d-b2b2b", "", "100.00%"],
        ["web-5d-d5d5d", "from", "Pod default/shop-5d-b2b2b", "yes", "0.00%"],
    ]
    splits = await get(client, f"{RELEASED}/trafficsplits", accept=TABLE)
    assert splits["rows"][0]["cells"][:4] == ["canary", "web-v1", "90", "90.00%"]
    alone = await get(
        client, f"{PODS}/web-5d-c4c4c", accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    )
    assert (alone["kind"], alone["metadata"]["name"]) == ("PartialObjectMetadata", "web-5d-c4c4c")


async def test_rounding_in_tables_hides_no_failure_and_no_request(client: AsgiClient, source: FakeSource) -> None:
    """As in `kubectl traffic`, one failure prevents 100 %, one request is not 0.0rps, and 1.05 s are not 1e+03ms."""
    slow = requests(99_999, 1, ms=1050)
    source.flows = {
        flow(SHOP, WEB1): slow.plus(Counts.of({CONNECTIONS: 4, UNREACHED: 2})),
        flow(SHOP, WEB2): requests(1).plus(Counts.of({DENIED_REQUESTS: 6, DENIED_CONNECTIONS: 3})),
    }
    _, web1, web2 = (row["cells"] for row in (await get(client, PODS, accept=TABLE))["rows"])
    assert web1[1:] == ["99.99%", "3333.3rps", "1.05s", "1.05s", "1.05s", 100_000, 1, 4, 2, 0, 0, "0/1"]
    assert web2[2] == "0.033rps"
    assert web2[-3:] == [6, 3, "0/1"]


async def test_denied_requests_are_counted_separately(client: AsgiClient, source: FakeSource) -> None:
    """R68, R83. A denied request is neither a success nor a failure. Without denied requests, their metrics are omitted."""
    refused = Counts.of({DENIED_REQUESTS: 6, CONNECTIONS: 4, DENIED_CONNECTIONS: 3})
    source.flows = {flow(SHOP, WEB1): requests(1).plus(refused)}
    for group in (SEED, MESH, RELEASED):
        found = values(await get(client, f"{group}/namespaces/default/deployments/web"))
        assert (found["success_count"], found["failure_count"]) == ("1", "0")
        assert (found["denied_count"], found["connection_count"], found["connection_denied_count"]) == ("6", "4", "3")
    assert "denied_count" not in values(await get(client, f"{PODS}/web-5d-d5d5d"))


async def test_a_client_whose_requests_reach_no_pod_has_their_number(client: AsgiClient, source: FakeSource) -> None:
    source.flows = {flow(WEB1, NO_PEER): requests(0, 4), flow(SHOP, WEB2): requests(1)}
    for group in (SEED, MESH, RELEASED):
        sent = values(await get(client, f"{group}/namespaces/default/deployments/web"))
        assert (sent["success_count"], sent["failure_count"], sent["unreached_count"]) == ("1", "0", "4")
    assert "unreached_count" not in values(await get(client, f"{PODS}/web-5d-d5d5d"))


async def test_resources_show_meshed_pods_and_edges_show_spiffe_ids(client: AsgiClient, source: FakeSource) -> None:
    """R74, R76, R83."""
    sidecar = {"headgate.dev/sidecar-mode": "transparent"}
    meshed = {"kind": "Pod", "metadata": {"name": "db-0", "namespace": "default", "annotations": sidecar}}
    spec = {"serviceAccountName": "db", "containers": [{"name": "main", "image": "main"}]}
    await client.store.create({"apiVersion": "v1", **meshed, "spec": spec})
    secured = Flow(source=GATEWAY, destination=Peer(pod="default/db-0"), secured=True)
    source.flows = {secured: requests(3), flow(SHOP, WEB1): requests(1)}
    assert (await get(client, f"{PODS}/db-0"))["mesh"] == {"pods": 1, "meshed": 1}
    assert (await get(client, f"{SEED}/namespaces/default"))["mesh"] == {"pods": 4, "meshed": 1}
    (edge,) = (await get(client, f"{PODS}/db-0/edges"))["items"]
    assert "mesh" not in edge
    assert edge["edge"]["security"] == {
        "exchanged": 3,
        "secured": 3,
        "clients": ["spiffe://cluster.local/ns/headgate-system/sa/gateway"],
        "servers": ["spiffe://cluster.local/ns/default/sa/db"],
    }
    (plain,) = (await get(client, f"{PODS}/web-5d-c4c4c/edges"))["items"]
    assert plain["edge"]["security"] == {"exchanged": 1, "secured": 0}


async def test_the_apiservices_have_the_lowest_priority() -> None:
    """R81. With a higher priority, `kubectl get pods` would return metrics."""
    services = api_services("mesh/metrics", b"PEM", MeshOptions())
    specs = {service["metadata"]["name"]: service["spec"] for service in services}
    assert set(specs) == {
        "v1beta1.inspect.headgate.dev",
        "v1beta1.traffic.metrics.k8s.io",
        "v1beta1.mesh.metrics.k8s.io",
        "v1alpha1.metrics.smi-spec.io",
    }
    spec = specs["v1beta1.mesh.metrics.k8s.io"]
    assert spec["service"] == {"namespace": "mesh", "name": "metrics", "port": 443}
    assert (spec["group"], spec["version"], spec["caBundle"]) == ("mesh.metrics.k8s.io", "v1beta1", "UEVN")
    assert all(one["groupPriorityMinimum"] < 1000 for one in specs.values())
