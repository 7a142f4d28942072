"""The traffic graph over HTTP: its names, its window, its parts by namespace, and its table (R110)."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.api.metrics.metrics_world import FLOWS, FakeSource, stored
from tests.api.running_plane import RunningPlane
from tests.embedded_api import TOKEN, AsgiClient
from tests.plane.test_inspector import Host

from headgate.latest import Latest
from headgate.plane.inspector import Inspector, TrafficAnswers
from headgate.plane.traffic_graphs import TrafficGraphs
from headgate.standalone.apiserver.app import ComputedGroups, create_app

GROUP = "/apis/inspect.headgate.dev/v1beta1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class GraphClient(AsgiClient):
    """A client of an embedded API whose proxies report to `source`."""

    source: FakeSource


@pytest_asyncio.fixture
async def graphs() -> AsyncIterator[GraphClient]:
    store, source = await stored(), FakeSource(FLOWS)
    plane = RunningPlane(store)
    await plane.live_state.wait_compiled()
    inspector = Inspector(
        plane.live_state, Host(), traffic=TrafficAnswers(TrafficGraphs(plane.live_state, store, source, Latest({})))
    )
    client = GraphClient(create_app(store, token=TOKEN, computed=ComputedGroups(inspector=inspector)), store)
    client.source = source
    yield client
    plane.stop()


async def test_both_graphs_are_listed_and_each_is_read_by_its_name(graphs: GraphClient) -> None:
    listed = (await graphs.call("GET", f"{GROUP}/trafficgraphs")).body
    assert (listed["kind"], [graph["metadata"]["name"] for graph in listed["items"]]) == (
        "TrafficGraphList",
        ["services", "workloads"],
    )
    whole = (await graphs.call("GET", f"{GROUP}/trafficgraphs/services?window=1m")).body
    assert (whole["kind"], whole["metadata"], graphs.source.windows) == (
        "TrafficGraph",
        {"name": "services", "namespace": ""},
        [30.0, 30.0, 60.0],
    )
    status = whole["status"]
    assert [node["name"] for node in status["nodes"]] == ["gateway", "shop", "web", "web-v1", "web-v2"]
    (split,) = status["splits"]
    assert [(backend["service"], backend["requests"]) for backend in split["backends"]] == [(3, 100), (4, 9)]
    assert split["backends"][0]["wanted"] == {"numerator": 0, "denominator": 1}  # without ready endpoints
    of_namespace = (await graphs.call("GET", f"{GROUP}/namespaces/default/trafficgraphs/services")).body
    assert (of_namespace["metadata"]["namespace"], len(of_namespace["status"]["edges"])) == ("default", 3)


async def test_kubectl_prints_a_row_for_each_graph(graphs: GraphClient) -> None:
    table = (await graphs.call("GET", f"{GROUP}/namespaces/default/trafficgraphs", accept=TABLE)).body
    titles = [column["name"] for column in table["columnDefinitions"]]
    assert titles == ["Name", "Nodes", "Edges", "Requests", "Reason"]
    assert [row["cells"][::3] for row in table["rows"]] == [["services", "114"], ["workloads", "114"]]


@pytest.mark.parametrize(("path", "code"), [("trafficgraphs/pods", 404), ("trafficgraphs/services?window=soon", 400)])
async def test_an_unknown_graph_and_an_invalid_window_are_errors(graphs: GraphClient, path: str, code: int) -> None:
    assert (await graphs.call("GET", f"{GROUP}/{path}")).code == code


async def test_counts_that_are_unavailable_are_an_error_with_the_reason(graphs: GraphClient) -> None:
    graphs.source.fails = "the Prometheus is down"
    answer = await graphs.call("GET", f"{GROUP}/trafficgraphs/services")
    assert (answer.code, answer.body["message"]) == (503, "the Prometheus is down")
