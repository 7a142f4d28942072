"""The traffic graph: each flow on one edge, wanted shares beside counts, and why a graph is empty (R83 to R96, R110)."""

from typing import Any

from tests.make.objects import (
    Object,
    backed_service,
    backend_ref,
    grant,
    headgate_keys,
    http_route_group,
    meshed_pod,
    pod,
    route,
    rule,
    service,
    service_parent,
    split,
)
from tests.make.values import compiled

from headgate.compiler.report import StatusCondition
from headgate.plane.object_graphs import object_info
from headgate.resources.meta import Key
from headgate.resources.pod_owners import Ref
from headgate.resources.traffic_graphs import GraphEdge, TrafficGraph
from headgate.settings import DEFAULTS
from headgate.telemetry.answers.divided_traffic import MeshFacts, band
from headgate.telemetry.answers.object_graph import ObjectGraph
from headgate.telemetry.answers.traffic_graph import in_namespace, traffic_graph
from headgate.telemetry.counters.counts import (
    CONNECTIONS,
    DENIED_REQUESTS,
    RECEIVED,
    SENT,
    UNREACHED,
    UNSENT,
    Counts,
    class_index,
)
from headgate.telemetry.counters.flows import GATEWAY, NO_PEER, Flow, Peer, Reading
from headgate.telemetry.counters.histogram import bucket_of, gathered

OWNER = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web-v1-5d", "controller": True}]}
WEB = {"app": "web"}


def requests(success: int, failure: int = 0, *, ms: float = 10.0) -> Counts:
    latency = gathered({bucket_of(ms * 1000): success + failure})
    return Counts.of({class_index(200): success, class_index(500): failure}, latency)


def mesh(*more: Object) -> list[Object]:
    """Return Services `web`, `web-v1`, `web-v2` and `copy`, their pods, and a client without a Service."""
    return [
        *backed_service("web", ("v1", "10.1.0.1"), ("v2", "10.1.0.2"), selector=WEB),
        *backed_service("web-v1", ("v1", "10.1.0.1"), selector={**WEB, "version": "1"}),
        *backed_service("web-v2", ("v2", "10.1.0.2"), selector={**WEB, "version": "2"}),
        *backed_service("copy", ("v2", "10.1.0.2"), selector={"app": "copy"}),
        meshed_pod("v1", "10.1.0.1", labels={**WEB, "version": "1"}, metadata=OWNER),
        meshed_pod("v2", "10.1.0.2", labels={**WEB, "version": "2"}),
        pod("client", "10.1.0.9", namespace="test"),
        *more,
    ]


V1, V2, CLIENT = Peer(pod="default/v1"), Peer(pod="default/v2"), Peer(pod="test/client")


def flow(source: Peer, destination: Peer, backend: str = "", service: str = "default/web", **fields: Any) -> Flow:
    return Flow(source=source, destination=destination, service=service, port=8080, backend=backend, **fields)


FLOWS = {
    flow(CLIENT, V1, "default/web-v1", secured=True): requests(900, 20, ms=5),
    flow(CLIENT, V2, "default/web-v2"): requests(80),
    flow(GATEWAY, V1, "default/web-v1"): requests(100),
    flow(CLIENT, V2, "default/copy", service="default/copy", copy=True): requests(40, 1),
    flow(V1, V2, "default/web-v2", service="default/web-v2"): requests(7),
}


class Rig:
    """The objects and the compiled mesh of a Reading."""

    def __init__(self, *objects: Object, flows: Any = FLOWS, **facts: Any) -> None:
        infos = [
            object_info(Ref(obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"]), obj, DEFAULTS)
            for obj in objects
            if obj["kind"] in ("Pod", "Service", "EndpointSlice")
        ]
        self.world = ObjectGraph(infos)
        result = compiled(*objects) if objects else None
        self.facts = MeshFacts(result, result.report.findings_of if result else {}, **facts)
        self.reading = Reading(end=1_900_000_000.0, window=30.0, flows=flows)

    def graph(self, name: str = "services") -> TrafficGraph:
        return traffic_graph(name, self.reading, self.world, self.facts)


def names(graph: TrafficGraph) -> list[str]:
    return [f"{node.kind} {node.namespace}/{node.name}".replace(" /", " ") for node in graph.status.nodes]


def edges(graph: TrafficGraph) -> dict[str, GraphEdge]:
    named = [node.name for node in graph.status.nodes]
    return {
        f"{named[edge.source]} > {named[edge.target]}{' copy' if edge.copy else ''}": edge
        for edge in graph.status.edges
    }


def test_each_request_is_on_one_edge_from_the_closest_service_to_the_called_one() -> None:
    graph = Rig(*mesh(split("web", {"web-v1": 9, "web-v2": 1}))).graph()
    assert names(graph) == [
        *("Outside gateway", "Service default/copy", "Service default/web", "Service default/web-v1"),
        *("Service default/web-v2", "Pod test/client"),
    ]
    counted = {between: edge.requests for between, edge in edges(graph).items()}
    assert counted == {"gateway > web": 100, "web-v1 > web-v2": 7, "client > web": 1000, "client > copy copy": 41}
    assert sum(counted.values()) == sum(counts.success + counts.failure for counts in FLOWS.values())
    assert (graph.status.reason, graph.status.window_milliseconds) == ("", 30000)
    assert graph.status.start_time == "2030-03-17T17:46:10Z"


def test_the_graph_of_workloads_has_the_topmost_owners_of_pods() -> None:
    graph = Rig(*mesh()).graph("workloads")
    counted = {between: edge.requests for between, edge in edges(graph).items()}
    assert counted == {
        "gateway > web-v1-5d": 100,
        "web-v1-5d > v2": 7,
        "client > v2": 80,
        "client > v2 copy": 41,
        "client > web-v1-5d": 920,
    }
    (maker,) = [node for node in graph.status.nodes if node.kind == "ReplicaSet"]
    assert (maker.pods, maker.meshed) == (1, 1)
    assert (graph.status.splits, graph.status.mirrors) == ((), ())


def test_an_edge_counts_failures_denials_connections_and_mutual_tls_separately() -> None:
    tcp = Counts.of({CONNECTIONS: 5, UNREACHED: 2, SENT: 300, RECEIVED: 40})
    refused = Counts.of({DENIED_REQUESTS: 4})
    unsent = Counts.of({class_index(503): 3, UNSENT: 3})
    flows = {**FLOWS, flow(CLIENT, V1): refused, flow(CLIENT, NO_PEER): unsent, flow(V2, V1, target=9, service=""): tcp}
    graph = Rig(*mesh(), flows=flows).graph()
    http = edges(graph)["client > web"]
    assert (http.requests, http.failures, http.denied, http.bytes) == (1007, 23, 4, None)
    assert (http.exchanged, http.secured) == (1004, 920)
    latencies = (http.p50_microseconds or 0, http.p99_microseconds or 0)
    assert [round(latency, -3) for latency in latencies] == [5000, 10000]
    connections = edges(graph)["web-v2 > web-v1"]
    assert (connections.connections, connections.failed_connections, connections.bytes) == (5, 2, 340)
    assert (connections.requests, connections.p50_microseconds) == (0, None)


def test_a_split_has_wanted_shares_counts_and_the_band_of_three_sigma() -> None:
    graph = Rig(*mesh(split("web", {"web-v1": 9, "web-v2": 1}))).graph()
    (shown,) = graph.status.splits
    assert (str(shown.object), graph.status.nodes[shown.service].name) == ("TrafficSplit default/web", "web")
    rows = [
        (graph.status.nodes[backend.service].name, str(backend.wanted), backend.requests) for backend in shown.backends
    ]
    assert rows == [("web-v1", "9/10", 1020), ("web-v2", "1/10", 80)]
    assert [(backend.expected_low, backend.expected_high) for backend in shown.backends] == [(961, 1019), (81, 139)]
    assert band(shown.backends[0].wanted.fraction, 1200) == (1049, 1111)
    assert band(shown.backends[0].wanted.fraction, 0) == (0, 0)


def test_a_split_of_matching_requests_has_no_band_because_counts_include_other_requests() -> None:
    group = http_route_group("beta", {"header": {"headers": [{"user": "beta"}]}})
    graph = Rig(*mesh(group, split("web", {"web-v1": 1, "web-v2": 1}, matches=["beta"]))).graph()
    (shown,) = graph.status.splits
    assert (shown.match, {backend.expected_low for backend in shown.backends}) == ("beta/header", {None})


def test_a_mirror_has_its_share_its_copies_and_the_verdict_of_its_route() -> None:
    mirroring = rule(
        {"web": 1},
        filters=[{"type": "RequestMirror", "requestMirror": {"backendRef": backend_ref("copy"), "percent": 4}}],
    )
    key = Key("gateway.networking.k8s.io", "HTTPRoute", "default", "web")
    worse = StatusCondition(type="headgate.dev/CopiesWorse", status=True, reason="MoreFailures", message="they fail")
    objects = mesh(route("web", mirroring, parents=[service_parent("web", 8080)]))
    graph = Rig(*objects, verdicts={key: (worse,)}).graph()
    (mirror,) = graph.status.mirrors
    ends = [graph.status.nodes[index].name for index in (mirror.service, mirror.target)]
    assert (mirror.object, ends, str(mirror.share)) == (key, ["web", "copy"], "1/25")
    assert (mirror.copies, mirror.failures, mirror.verdict, mirror.message) == (41, 1, "MoreFailures", "they fail")
    by_split = split("web", {"web-v1": 1, "copy": 0}, annotations=headgate_keys(mirror="copy=10%"))
    (mirror,) = Rig(*mesh(by_split)).graph().status.mirrors
    assert (str(mirror.object), str(mirror.share), mirror.verdict) == ("TrafficSplit default/web", "1/10", "")


def test_a_node_counts_the_findings_about_its_object_and_about_the_origins_of_its_routes() -> None:
    graph = Rig(*mesh(split("web", {"web-v1": 9, "gone": 1}))).graph()
    (web,) = [node for node in graph.status.nodes if node.name == "web"]
    assert (web.pods, web.meshed, web.errors + web.warnings) == (2, 2, 1)


def test_a_graph_of_a_namespace_has_its_nodes_and_the_names_of_their_peers() -> None:
    rig = Rig(*mesh(split("web", {"web-v1": 9, "web-v2": 1})))
    whole = rig.graph()
    part = in_namespace(whole, "test", rig.world, rig.facts)
    assert part.metadata.namespace == "test"
    assert {between: edge.requests for between, edge in edges(part).items()} == {
        "client > web": 1000,
        "client > copy copy": 41,
    }
    assert {node.name: (node.pods, dict(node.labels)) for node in part.status.nodes} == {
        "copy": (0, {}),
        "web": (0, {}),
        "client": (1, {}),
    }
    assert part.status.splits == ()
    inner = in_namespace(whole, "default", rig.world, rig.facts)
    assert (edges(inner), len(inner.status.splits)) == (edges(whole), 1)


def test_a_graph_of_a_namespace_has_no_verdict_about_an_object_of_another_namespace() -> None:
    """The verdict compares responses of another namespace's Services (R110)."""
    target = backend_ref("copy", namespace="other")
    mirroring = rule({"web": 1}, filters=[{"type": "RequestMirror", "requestMirror": {"backendRef": target}}])
    worse = StatusCondition(type="headgate.dev/CopiesWorse", status=True, reason="MoreFailures", message="they fail")
    key = Key("gateway.networking.k8s.io", "HTTPRoute", "default", "web")
    rig = Rig(
        *mesh(route("web", mirroring, parents=[service_parent("web", 8080)])),
        service("copy", port=8080, namespace="other"),
        grant("mirrors", (key.group, "HTTPRoute", "default"), ("", "Service"), namespace="other"),
        verdicts={key: (worse,)},
    )
    verdicts = {
        namespace: [(mirror.verdict, mirror.message) for mirror in graph.status.mirrors]
        for namespace in ("default", "other")
        for graph in (in_namespace(rig.graph(), namespace, rig.world, rig.facts),)
    }
    assert verdicts == {"default": [("MoreFailures", "they fail")], "other": [("", "")]}


def test_an_empty_graph_says_why() -> None:
    assert Rig(flows={}).graph().status.reason == "NothingRouted"
    plain = Rig(*backed_service("web", ("v1", "10.1.0.1")), pod("v1", "10.1.0.1"), flows={})
    assert plain.graph().status.reason == "NoSidecars"
    quiet = Rig(*mesh(), flows={})
    status = quiet.graph().status
    assert (status.reason, "in the last 30s" in status.message, len(status.nodes)) == ("NoTraffic", True, 3)
    reasons = [
        in_namespace(quiet.graph(), name, quiet.world, quiet.facts).status.reason for name in ("default", "elsewhere")
    ]
    assert reasons == ["NoTraffic", "NothingRouted"]
