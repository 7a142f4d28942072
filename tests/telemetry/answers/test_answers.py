"""Answers about the traffic of pods, workloads, Services and splits, and about the edges between them (R83 to R96)."""

import itertools

import pytest
from msgspec import structs

from headgate.resources.metrics import MetricsMesh, MetricsSecurity
from headgate.resources.pod_owners import Ref
from headgate.telemetry.answers.answers import Answers, Edge, Traffic
from headgate.telemetry.answers.object_graph import Backend, ObjectGraph, ObjectInfo
from headgate.telemetry.counters.counts import CONNECTIONS, DENIED_REQUESTS, UNREACHED, UNSENT, Counts, class_index
from headgate.telemetry.counters.flows import GATEWAY, NO_PEER, Flow, Peer
from headgate.telemetry.counters.histogram import bucket_of, gathered


def peer(name: str, namespace: str = "default") -> Peer:
    return Peer(pod=f"{namespace}/{name}")


def requests(success: int = 1, failure: int = 0, *, ms: float = 1.0) -> Counts:
    latency = gathered({bucket_of(ms * 1000): success + failure})
    return Counts.of({class_index(200): success, class_index(500): failure}, latency)


def pod_info(name: str, maker: str = "", *, node: str = "", **labels: str) -> ObjectInfo:
    owner = Ref("ReplicaSet", "default", maker) if maker else None
    return ObjectInfo(ref=Ref("Pod", "default", name), owner=owner, node=node, labels=labels)


def deployment_with_set(name: str) -> list[ObjectInfo]:
    made = Ref("Deployment", "default", name)
    return [ObjectInfo(ref=made), ObjectInfo(ref=Ref("ReplicaSet", "default", f"{name}-5d8f"), owner=made)]


INFOS = (
    *deployment_with_set("shop"),
    *deployment_with_set("web"),
    pod_info("shop-5d8f-aaaaa", "shop-5d8f", node="n1", app="shop"),
    pod_info("web-5d8f-bbbbb", "web-5d8f", node="n1", app="web"),
    pod_info("web-5d8f-ccccc", "web-5d8f", node="n2", app="web"),
    pod_info("alone", node="n2"),
    ObjectInfo(ref=Ref("Service", "default", "web"), selector={"app": "web"}, targets=frozenset({80})),
    ObjectInfo(ref=Ref("Service", "default", "shop"), selector={"app": "shop"}, targets=frozenset({80})),
    ObjectInfo(ref=Ref("Namespace", "", "default")),
    ObjectInfo(ref=Ref("Namespace", "", "empty")),
)
SHOP, WEB1, WEB2, ALONE = peer("shop-5d8f-aaaaa"), peer("web-5d8f-bbbbb"), peer("web-5d8f-ccccc"), peer("alone")


def answers(flows: dict[Flow, Counts], infos: tuple[ObjectInfo, ...] = INFOS) -> Answers:
    return Answers(Traffic(flows), ObjectGraph(infos))


def flow(source: Peer, destination: Peer, service: str = "default/web", **fields: object) -> Flow:
    return Flow(
        source=source, destination=destination, **{"service": service, "backend": service, "port": 80, **fields}
    )


def counted(found: Answers, kind: str) -> dict[str, tuple[int, int]]:
    return {str(row.about): (row.sum.counts.success, row.sum.counts.failure) for row in found.all(kind)}


def between(found: Answers, kind: str, name: str, namespace: str = "default", **options: str) -> dict[str, int]:
    rows = found.edges(Ref(kind, namespace, name), **options)
    return {
        f"{row.edge.direction} {row.edge.peer.kind} {row.edge.peer}{' copy' if row.edge.copy else ''}": (
            row.sum.counts.success + row.sum.counts.failure
        )
        for row in rows
    }


TRAFFIC = {
    flow(SHOP, WEB1): requests(90, 10, ms=1),
    flow(SHOP, WEB2): requests(5, ms=500),
    flow(ALONE, WEB1): requests(3),
    flow(WEB1, SHOP, "default/shop"): requests(7),
}


def test_a_pod_has_the_requests_that_other_pods_sent() -> None:
    assert counted(answers(TRAFFIC), "Pod") == {
        "default/alone": (0, 0),
        "default/shop-5d8f-aaaaa": (7, 0),
        "default/web-5d8f-bbbbb": (93, 10),
        "default/web-5d8f-ccccc": (5, 0),
    }
    assert answers(TRAFFIC).one(Ref("Pod", "default", "missing")) is None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Deployment", {"default/shop": (7, 0), "default/web": (98, 10)}),
        ("ReplicaSet", {"default/shop-5d8f": (7, 0), "default/web-5d8f": (98, 10)}),
        ("Namespace", {"default": (105, 10), "empty": (0, 0)}),
        ("Node", {"n1": (100, 10), "n2": (5, 0)}),
        ("Service", {"default/shop": (7, 0), "default/web": (98, 10)}),
        ("Job", {}),
    ],
)
def test_the_traffic_of_a_resource_is_the_sum_over_its_pods(kind: str, expected: dict[str, tuple[int, int]]) -> None:
    """R82, R89."""
    assert counted(answers(TRAFFIC), kind) == expected


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "Job", "ReplicationController"])
def test_an_owner_has_the_traffic_of_its_pods_even_if_its_own_object_is_unknown(kind: str) -> None:
    info = ObjectInfo(ref=Ref("Pod", "default", "db-0"), owner=Ref(kind, "default", "db"))
    found = answers({flow(SHOP, peer("db-0")): requests(4)}, (info,))
    assert counted(found, kind) == {"default/db": (4, 0)}


def test_percentiles_of_an_aggregate_are_over_all_its_requests() -> None:
    """R89. With 103 requests of 1 ms and 5 of 500 ms, the mean of the pods' p90 would be 250 ms."""
    row = answers(TRAFFIC).one(Ref("Deployment", "default", "web"))
    assert row
    _, p90, p99 = row.sum.counts.latencies
    assert p90 == pytest.approx(0.001, rel=0.1)
    assert p99 == pytest.approx(0.5, rel=0.1)


def test_both_ends_of_an_edge_have_the_same_counts() -> None:
    """R86."""
    found = answers(TRAFFIC)
    assert between(found, "Pod", "shop-5d8f-aaaaa") == {
        "from Pod default/web-5d8f-bbbbb": 7,
        "to Pod default/web-5d8f-bbbbb": 100,
        "to Pod default/web-5d8f-ccccc": 5,
    }
    assert between(found, "Pod", "web-5d8f-bbbbb")["from Pod default/shop-5d8f-aaaaa"] == 100


def test_edges_are_between_resources_of_one_kind() -> None:
    """R105, R107. The topology of Deployments uses these edges. A pod without a Deployment appears as a pod."""
    found = answers(TRAFFIC)
    assert between(found, "Deployment", "web") == {
        "from Deployment default/shop": 105,
        "from Pod default/alone": 3,
        "to Deployment default/shop": 7,
    }
    assert between(found, "Service", "web") == {
        "from Pod default/alone": 3,
        "from Service default/shop": 105,
        "to Service default/shop": 7,
    }
    assert between(found, "Node", "n1", "")["to Node n2"] == 5
    assert between(found, "Namespace", "default", "") == {"from Namespace default": 115, "to Namespace default": 115}


def test_edges_can_be_grouped_by_namespace_or_kind() -> None:
    """R88."""
    other = {**TRAFFIC, flow(peer("far", "other"), WEB1): requests(2)}
    assert between(answers(other), "Pod", "web-5d8f-bbbbb", grouping="namespace") == {
        "from  default": 103,
        "from  other": 2,
        "to  default": 7,
    }
    assert between(answers(other), "Deployment", "web", grouping="kind") == {
        "from Deployment ": 105,
        "from Pod ": 5,
        "to Deployment ": 7,
    }


def test_a_pod_of_two_services_counts_once_in_their_namespace() -> None:
    """R88. Grouped by namespace or kind, the two Services are one peer."""
    twice = (*INFOS, ObjectInfo(ref=Ref("Service", "default", "shop-v1"), selector={"app": "shop"}))
    found = answers({flow(SHOP, WEB1): requests(100)}, twice)
    assert between(found, "Service", "web") == {"from Service default/shop": 100, "from Service default/shop-v1": 100}
    assert between(found, "Service", "web", grouping="namespace") == {"from  default": 100}
    assert between(found, "Service", "web", grouping="kind") == {"from Service ": 100}


def test_labels_select_peers_before_they_are_grouped_by_namespace() -> None:
    """R88, R94."""
    found = list(
        answers(TRAFFIC).edges(
            Ref("Pod", "default", "web-5d8f-bbbbb"), "namespace", lambda peer: peer.labels.get("app") == "shop"
        )
    )
    assert [(row.edge.direction, row.edge.peer, row.sum.counts.success) for row in found] == [
        ("from", Ref("", "default"), 90),
        ("to", Ref("", "default"), 7),
    ]


def test_an_idle_flow_makes_no_edge() -> None:
    """R91. A flow with only connections has an edge."""
    assert between(answers({}), "Pod", "alone") == {}
    assert between(answers({flow(ALONE, WEB1): Counts()}), "Pod", "alone") == {}
    assert between(answers({flow(ALONE, WEB1): Counts.of({CONNECTIONS: 1})}), "Pod", "alone") == {
        "to Pod default/web-5d8f-bbbbb": 0
    }


def test_a_peer_outside_the_mesh_has_an_edge() -> None:
    """R96."""
    found = answers(
        {
            flow(Peer(outside="gateway"), WEB1): requests(6),
            flow(Peer(outside="10.0.0.9"), WEB1): requests(1),
            flow(NO_PEER, WEB1): requests(2),
            flow(WEB1, Peer(outside="192.0.2.1"), ""): requests(4),
        }
    )
    assert counted(found, "Deployment")["default/web"] == (9, 0)
    for kind, name in (("Pod", "web-5d8f-bbbbb"), ("Deployment", "web")):
        assert between(found, kind, name) == {
            "from Outside 10.0.0.9": 1,
            "from Outside gateway": 6,
            "from Outside unknown": 2,
            "to Outside 192.0.2.1": 4,
        }


def test_a_request_that_no_pod_answered_is_a_failure_of_the_service() -> None:
    found = answers({flow(SHOP, NO_PEER, backend=""): requests(0, 5)})
    assert counted(found, "Service")["default/web"] == (0, 5)
    assert set(counted(found, "Pod").values()) == {(0, 0)}
    assert between(found, "Pod", "shop-5d8f-aaaaa") == {"to Service default/web": 5}
    assert between(found, "Service", "web") == {"from Service default/shop": 5}


def service_info(name: str, *targets: int | str, **selector: str) -> ObjectInfo:
    return ObjectInfo(ref=Ref("Service", "default", name), selector=selector, targets=frozenset(targets))


ROOT, V1, V2, ADMIN = (
    service_info("root", 8080, app="web"),
    service_info("v1", "http", app="web", version="v1"),
    service_info("v2", "http", app="web", version="v2"),
    service_info("admin", 9090, app="web"),
)
VERSIONS = tuple(
    ObjectInfo(
        ref=Ref("Pod", "default", name), labels={"app": "web", "version": name}, ports={"http": 8080, "admin": 9090}
    )
    for name in ("v1", "v2")
)
SPLIT_TRAFFIC = {
    flow(SHOP, peer("v1"), "default/root", backend="default/v1", target=8080): requests(90, ms=1),
    flow(SHOP, peer("v2"), "default/root", backend="default/v2", target=8080): requests(7, 3, ms=500),
    flow(ALONE, peer("v1"), "default/v1", target=8080): requests(5),
    flow(ALONE, peer("v1"), "default/admin", target=9090): requests(2),
}


def test_a_service_counts_requests_to_its_pods_and_ports_even_if_the_client_called_another_service() -> None:
    """R89, D25. The root of a split has the sum of its backends; `admin` selects the same pods, but another port."""
    found = answers(SPLIT_TRAFFIC, (ROOT, V1, V2, ADMIN, *VERSIONS))
    assert counted(found, "Service") == {
        "default/admin": (2, 0),
        "default/root": (102, 3),
        "default/v1": (95, 0),
        "default/v2": (7, 3),
    }
    row = found.one(ROOT.ref)
    assert row
    p50, _, p99 = row.sum.counts.latencies
    assert (p50, p99) == pytest.approx((0.001, 0.5), rel=0.1)  # the percentiles of all requests of the Service


def test_both_ends_of_an_edge_between_services_have_the_sum_over_the_pods() -> None:
    """R86, R89. An edge includes requests that named another Service of the same pods; `called` excludes these."""
    found = answers(SPLIT_TRAFFIC, (ROOT, V1, V2, ADMIN, *VERSIONS, *INFOS))
    assert between(found, "Service", "v1") == {"from Pod default/alone": 5, "from Service default/shop": 90}
    assert between(found, "Service", "root") == {"from Pod default/alone": 5, "from Service default/shop": 100}
    sent = between(found, "Service", "shop")
    assert sent == {"to Service default/root": 100, "to Service default/v1": 90, "to Service default/v2": 10}
    called = {str(row.edge.peer): row.called for row in found.edges(Ref("Service", "default", "shop"))}
    assert called == {"default/root": 100, "default/v1": 0, "default/v2": 0}
    (alone,) = [row for row in found.edges(ROOT.ref) if row.edge.peer == Ref("Pod", "default", "alone")]
    assert alone.called == 0


def test_requests_to_a_port_without_a_service_count_only_for_the_pod() -> None:
    found = answers({flow(SHOP, peer("v1"), "", backend="", target=7000): requests(4)}, (ROOT, V1, *VERSIONS))
    assert counted(found, "Service") == {"default/root": (0, 0), "default/v1": (0, 0)}
    assert counted(found, "Pod")["default/v1"] == (4, 0)
    assert between(found, "Service", "root") == {}


def test_a_service_without_a_selector_has_the_requests_that_its_endpoints_answered() -> None:
    """D25. The user writes its endpoints: addresses of pods, or other addresses."""
    written = service_info("written", 8080)
    flows = {
        flow(SHOP, peer("v1"), "default/root", backend="default/written", target=8080): requests(3),
        flow(SHOP, NO_PEER, "default/root", backend="default/written"): requests(4),
        flow(SHOP, NO_PEER, "default/root", backend=""): requests(0, 5),
    }
    found = answers(flows, (ROOT, written, *VERSIONS))
    assert counted(found, "Service") == {"default/root": (3, 5), "default/written": (7, 0)}


def listing(service: ObjectInfo, *endpoints: tuple[str, int]) -> ObjectInfo:
    """Return a hand-written EndpointSlice of a Service."""
    return ObjectInfo(
        ref=Ref("EndpointSlice", "default", service.ref.name), lists_for=service.ref, endpoints=frozenset(endpoints)
    )


@pytest.mark.parametrize("place", ["default/v1", "10.0.0.1"], ids=["by name", "by address"])
@pytest.mark.parametrize("called", ["v1", "written", "other"])
@pytest.mark.parametrize("service", ["default/root", ""], ids=["through a split", "itself"])
def test_every_service_that_lists_or_selects_a_pod_has_its_requests(place: str, called: str, service: str) -> None:
    """D25: whatever the client called, also a Service without a selector that lists the address of a selected pod."""
    pod = structs.replace(VERSIONS[0], address="10.0.0.1")
    written, other, port = service_info("written", 80), service_info("other", 80), service_info("port", 80)
    lists = listing(written, (place, 8080)), listing(other, (place, 8080)), listing(port, (place, 7070))
    name = f"default/{called}"
    flows = {flow(SHOP, peer("v1"), service or name, backend=name, target=8080): requests(5)}
    found = answers(flows, (V1, V2, written, other, port, pod, *lists))
    assert counted(found, "Service") == {
        **dict.fromkeys(("default/v1", "default/written", "default/other"), (5, 0)),
        **dict.fromkeys(("default/v2", "default/port"), (0, 0)),
    }
    assert counted(found, "Pod") == {"default/v1": (5, 0)}


def test_the_selector_of_a_service_decides_beside_hand_written_endpoints() -> None:
    flows = {flow(SHOP, peer("v1"), "default/v1", target=8080): requests(5)}
    found = answers(flows, (V1, V2, *VERSIONS, listing(V2, ("default/v1", 8080))))
    assert counted(found, "Service") == {"default/v1": (5, 0), "default/v2": (0, 0)}


def test_a_deleted_pod_still_counts_for_its_services() -> None:
    """The sum must not fall when a rollout replaces pods. The Service `bare` selects no pod, so its sum stays 0."""
    flows = {
        flow(SHOP, peer("gone"), "default/root", backend="default/v1", target=8080): requests(6),
        flow(SHOP, peer("gone"), "default/bare", backend="default/v1", target=8080): requests(1),
    }
    found = answers(flows, (ROOT, V1, service_info("bare", 8080), *VERSIONS))
    assert counted(found, "Service") == {"default/bare": (0, 0), "default/root": (6, 0), "default/v1": (7, 0)}


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "ReplicaSet", "Namespace", "Node"])
def test_a_client_whose_requests_reach_no_pod_has_their_number(kind: str) -> None:
    """It receives nothing, so its row would be empty. Failures of a pod count for that pod, and copies for nothing."""
    traffic = answers(
        {
            flow(SHOP, NO_PEER): requests(0, 3),
            flow(SHOP, NO_PEER, "default/tcp"): Counts.of({UNREACHED: 2}),
            flow(SHOP, WEB1): requests(1, 5),
            flow(SHOP, NO_PEER, copy=True): requests(0, 7),
            flow(GATEWAY, NO_PEER): requests(0, 11),
        }
    )
    names = {"Pod": SHOP.pod.partition("/")[2], "ReplicaSet": "shop-5d8f", "Namespace": "default", "Node": "n1"}
    ref = Ref(kind, "" if kind in {"Namespace", "Node"} else "default", names.get(kind, "shop"))
    row = traffic.one(ref)
    assert row
    assert row.unreached == 5
    rows = {row.about: row.unreached for row in traffic.all(kind)}
    assert rows == {about: 5 if about == ref else 0 for about in rows}
    assert {row.unreached for row in traffic.all("Service")} == {0}


def test_denied_requests_are_counted_separately() -> None:
    refused = Counts.of({DENIED_REQUESTS: 8})
    row = answers({flow(SHOP, WEB1): requests(2).plus(refused)}).one(Ref("Deployment", "default", "web"))
    assert row
    assert (row.sum.counts.success, row.sum.counts.failure, row.sum.counts.denied) == (2, 0, 8)


def test_an_answer_counts_the_meshed_pods_of_a_resource() -> None:
    owner = Ref("ReplicaSet", "default", "web-5d8f")
    more = (
        ObjectInfo(ref=Ref("Pod", "default", "meshed"), owner=owner, identity="spiffe://a", labels={"app": "web"}),
        ObjectInfo(ref=Ref("Pod", "default", "ended"), owner=owner, identity="spiffe://a", ended=True),
    )
    found = answers({}, (*INFOS, *more))
    for kind, name in (("Deployment", "web"), ("Service", "web")):
        row = found.one(Ref(kind, "default", name))
        assert row
        assert row.mesh == MetricsMesh(pods=3, meshed=1)


def test_an_edge_has_the_requests_over_mutual_tls_and_the_identities() -> None:
    """R74, R76. The number includes denied requests and connections, and no requests that reached no server.

    The identities are those of both ends.
    """
    client, server = "spiffe://a/ns/default/sa/shop", "spiffe://a/ns/default/sa/web"
    pods = (
        ObjectInfo(ref=Ref("Pod", "default", "shop-5d8f-aaaaa"), identity=client),
        ObjectInfo(ref=Ref("Pod", "default", "web-5d8f-bbbbb"), identity=server),
    )
    gateway = Flow(source=GATEWAY, destination=WEB1, secured=True)
    flows = {
        flow(SHOP, WEB1, secured=True): requests(5).plus(Counts.of({DENIED_REQUESTS: 2, CONNECTIONS: 1})),
        flow(SHOP, WEB1): requests(4).plus(
            Counts.of({class_index(503): 3, UNSENT: 3})
        ),  # to a pod that refuses connections
        gateway: requests(1),
    }
    found = Answers(Traffic(flows), ObjectGraph(pods, gateway="spiffe://a/gateway"))
    edges = {str(row.edge.peer): row.security for row in found.edges(pods[1].ref)}
    assert edges == {
        "default/shop-5d8f-aaaaa": MetricsSecurity(exchanged=12, secured=8, clients=(client,), servers=(server,)),
        "gateway": MetricsSecurity(exchanged=1, secured=1, clients=("spiffe://a/gateway",), servers=(server,)),
    }


def test_a_split_has_a_row_for_each_backend() -> None:
    """Requirement 2.6: backend{apex, name, weight}."""
    legs = tuple(Backend(name=name, service=f"default/{name}", weight=w) for name, w in (("web-v1", 90), ("web-v2", 0)))
    split = ObjectInfo(ref=Ref("TrafficSplit", "default", "canary"), apex=("default/web", "web.default"), backends=legs)
    found = answers(
        {
            flow(SHOP, WEB1, backend="default/web-v1"): requests(8, 1),
            flow(ALONE, WEB1, backend="default/web-v1"): requests(1),
            flow(SHOP, WEB2, "default/web-v2"): requests(50),
        },
        (*INFOS, split),
    )
    rows = [
        (row.apex, row.backend.name, row.backend.weight, row.sum.counts.success)
        for row in found.splits()
        if row.backend
    ]
    assert rows == [("web.default", "web-v1", 90, 9), ("web.default", "web-v2", 0, 0)]
    assert not list(found.splits("default", lambda info: info.ref.name == "another"))


def test_mirrored_requests_are_counted_separately() -> None:
    """D22. Mirrored requests are never part of success or failure, and their edges are marked as copies."""
    copies = requests(0, 4)
    found = answers({flow(SHOP, WEB1): requests(9), flow(SHOP, WEB2, backend="default/copy", copy=True): copies})
    row = found.one(Ref("Deployment", "default", "web"))
    assert row
    assert (row.sum.counts.success, row.sum.counts.failure, row.sum.copies.failure) == (9, 0, 4)
    assert counted(found, "Service")["default/web"] == (9, 0)
    assert between(found, "Deployment", "shop") == {"to Deployment default/web": 9, "to Deployment default/web copy": 0}
    (edge,) = found.edges(Ref("Pod", "default", "web-5d8f-ccccc"))
    assert edge.edge == Edge(direction="from", peer=Ref("Pod", "default", "shop-5d8f-aaaaa"), copy=True)
    assert edge.sum.copies.failure == 4


@pytest.mark.parametrize(("kind", "pods"), [("ReplicaSet", "-x7k2p"), ("DaemonSet", "-x7k2p"), ("StatefulSet", "-3")])
def test_a_deleted_pod_still_counts_for_its_owner(kind: str, pods: str) -> None:
    """The sum must not fall when a rollout replaces pods."""
    infos = (ObjectInfo(ref=Ref(kind, "default", "db"), owner=Ref("Deployment", "default", "top")),)
    flows = {flow(SHOP, peer(f"db{pods}")): requests(4), flow(SHOP, peer("db-vowel-a")): requests(8)}
    assert counted(answers(flows, infos), kind) == {"default/db": (4, 0)}
    top = ObjectInfo(ref=Ref("Deployment", "default", "top"))
    assert counted(answers(flows, (*infos, top)), "Deployment") == {"default/top": (4, 0)}


def test_owners_that_own_each_other_do_not_cause_a_loop() -> None:
    a, b = Ref("ReplicaSet", "default", "a"), Ref("Deployment", "default", "b")
    infos = (
        ObjectInfo(ref=a, owner=b),
        ObjectInfo(ref=b, owner=a),
        ObjectInfo(ref=Ref("Pod", "default", "p"), owner=a),
    )
    assert counted(answers({flow(SHOP, peer("p")): requests(2)}, infos), "Deployment")["default/b"] == (2, 0)


def test_aggregates_are_the_sums_of_their_pods() -> None:
    """R89. No aggregate loses a request or counts a request twice."""
    ends = (SHOP, WEB1, WEB2, ALONE)
    flows = {
        flow(source, destination, "default/web", target=80): requests(number, number % 3)
        for number, (source, destination) in enumerate(itertools.product(ends, ends), 1)
    }
    found = answers(flows)
    total = sum(success for success, _ in counted(found, "Pod").values())
    assert total == sum(counts.success for counts in flows.values())
    for kind in ("Namespace", "Node"):
        assert sum(success for success, _ in counted(found, kind).values()) == total
    pods = counted(found, "Pod")
    for name, members in {"web": (WEB1, WEB2), "shop": (SHOP,)}.items():
        assert counted(found, "Service")[f"default/{name}"][0] == sum(pods[one.pod][0] for one in members)
