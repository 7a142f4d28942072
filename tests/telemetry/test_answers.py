"""What is said about traffic: of pods, of what contains pods, of Services, of splits, and between whom (R83 to R96)."""

import itertools

import pytest

from headgate.telemetry.answers import Answers, Edge, Traffic
from headgate.telemetry.counts import CONNECTIONS, Counts, class_lane
from headgate.telemetry.flows import NOBODY, Flow, Peer
from headgate.telemetry.histogram import bucket_of, gathered
from headgate.telemetry.owners import Backend, Ref, Thing, World


def pod(name: str, namespace: str = "default") -> Peer:
    return Peer(pod=f"{namespace}/{name}")


def requests(success: int = 1, failure: int = 0, *, ms: float = 1.0) -> Counts:
    latency = gathered({bucket_of(ms * 1000): success + failure})
    return Counts.of({class_lane(200): success, class_lane(500): failure}, latency)


def pod_thing(name: str, maker: str = "", *, node: str = "", **labels: str) -> Thing:
    owner = Ref("ReplicaSet", "default", maker) if maker else None
    return Thing(ref=Ref("Pod", "default", name), owner=owner, node=node, labels=labels)


def deployment(name: str) -> list[Thing]:
    made = Ref("Deployment", "default", name)
    return [Thing(ref=made), Thing(ref=Ref("ReplicaSet", "default", f"{name}-5d8f"), owner=made)]


THINGS = (
    *deployment("shop"),
    *deployment("web"),
    pod_thing("shop-5d8f-aaaaa", "shop-5d8f", node="n1", app="shop"),
    pod_thing("web-5d8f-bbbbb", "web-5d8f", node="n1", app="web"),
    pod_thing("web-5d8f-ccccc", "web-5d8f", node="n2", app="web"),
    pod_thing("alone", node="n2"),
    Thing(ref=Ref("Service", "default", "web"), selector={"app": "web"}),
    Thing(ref=Ref("Service", "default", "shop"), selector={"app": "shop"}),
    Thing(ref=Ref("Namespace", "", "default")),
    Thing(ref=Ref("Namespace", "", "empty")),
)
SHOP, WEB1, WEB2, ALONE = pod("shop-5d8f-aaaaa"), pod("web-5d8f-bbbbb"), pod("web-5d8f-ccccc"), pod("alone")


def answers(flows: dict[Flow, Counts], things: tuple[Thing, ...] = THINGS) -> Answers:
    return Answers(Traffic(flows), World(things))


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


def test_a_pod_has_received_what_others_sent_it() -> None:
    assert counted(answers(TRAFFIC), "Pod") == {
        "default/alone": (0, 0),
        "default/shop-5d8f-aaaaa": (7, 0),
        "default/web-5d8f-bbbbb": (93, 10),
        "default/web-5d8f-ccccc": (5, 0),
    }
    assert answers(TRAFFIC).one(Ref("Pod", "default", "nobody")) is None


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
def test_what_contains_pods_has_received_what_they_have(kind: str, expected: dict[str, tuple[int, int]]) -> None:
    """R82, R89."""
    assert counted(answers(TRAFFIC), kind) == expected


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "Job", "ReplicationController"])
def test_owners_of_kinds_that_are_not_kept_are_known_by_their_pods(kind: str) -> None:
    thing = Thing(ref=Ref("Pod", "default", "db-0"), owner=Ref(kind, "default", "db"))
    found = answers({flow(SHOP, pod("db-0")): requests(4)}, (thing,))
    assert counted(found, kind) == {"default/db": (4, 0)}


def test_percentiles_of_an_aggregate_are_those_of_all_its_requests() -> None:
    """R89: 103 requests of 1 ms and 5 of 500 ms: the mean of the pods' p90 would be 250 ms."""
    row = answers(TRAFFIC).one(Ref("Deployment", "default", "web"))
    assert row
    _, p90, p99 = row.sum.counts.latencies
    assert p90 == pytest.approx(0.001, rel=0.1)
    assert p99 == pytest.approx(0.5, rel=0.1)


def test_both_ends_tell_the_same_of_an_edge() -> None:
    """R86."""
    found = answers(TRAFFIC)
    assert between(found, "Pod", "shop-5d8f-aaaaa") == {
        "from Pod default/web-5d8f-bbbbb": 7,
        "to Pod default/web-5d8f-bbbbb": 100,
        "to Pod default/web-5d8f-ccccc": 5,
    }
    assert between(found, "Pod", "web-5d8f-bbbbb")["from Pod default/shop-5d8f-aaaaa"] == 100


def test_edges_are_between_resources_of_one_kind() -> None:
    """R105, R107: what the topology of Deployments is made of. A pod that is part of none is told as what it is."""
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


def test_edges_by_namespace_or_kind_alone() -> None:
    """R88."""
    other = {**TRAFFIC, flow(pod("far", "other"), WEB1): requests(2)}
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
    """R88: the two are one when only their namespace, or their kind, is told."""
    twice = (*THINGS, Thing(ref=Ref("Service", "default", "shop-v1"), selector={"app": "shop"}))
    found = answers({flow(SHOP, WEB1): requests(100)}, twice)
    assert between(found, "Service", "web") == {"from Service default/shop": 100, "from Service default/shop-v1": 100}
    assert between(found, "Service", "web", grouping="namespace") == {"from  default": 100}
    assert between(found, "Service", "web", grouping="kind") == {"from Service ": 100}


def test_labels_choose_peers_before_these_are_told_by_their_namespace() -> None:
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


def test_without_traffic_there_is_no_edge() -> None:
    """R91: nor with a flow that was quiet in the window."""
    assert between(answers({}), "Pod", "alone") == {}
    assert between(answers({flow(ALONE, WEB1): Counts()}), "Pod", "alone") == {}
    assert between(answers({flow(ALONE, WEB1): Counts.of({CONNECTIONS: 1})}), "Pod", "alone") == {
        "to Pod default/web-5d8f-bbbbb": 0
    }


def test_who_is_outside_the_mesh_shows() -> None:
    """R96."""
    found = answers(
        {
            flow(Peer(outside="gateway"), WEB1): requests(6),
            flow(Peer(outside="10.0.0.9"), WEB1): requests(1),
            flow(NOBODY, WEB1): requests(2),
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


def test_what_no_pod_answered_is_the_services_failure() -> None:
    found = answers({flow(SHOP, NOBODY, backend=""): requests(0, 5)})
    assert counted(found, "Service")["default/web"] == (0, 5)
    assert set(counted(found, "Pod").values()) == {(0, 0)}
    assert between(found, "Pod", "shop-5d8f-aaaaa") == {"to Service default/web": 5}
    assert between(found, "Service", "web") == {"from Service default/shop": 5}


def test_a_service_is_what_was_called_by_its_name() -> None:
    """Whichever backend of a split answered; calls past it, by a pod's address, are the pod's alone."""
    found = answers(
        {
            flow(SHOP, WEB1, "default/shop", backend="default/web"): requests(3),
            flow(SHOP, WEB1, "", backend=""): requests(4),
        }
    )
    assert counted(found, "Service") == {"default/shop": (3, 0), "default/web": (0, 0)}
    assert counted(found, "Pod")["default/web-5d8f-bbbbb"] == (7, 0)


def test_a_split_has_a_row_for_each_backend() -> None:
    """Requirement 2.6: backend{apex, name, weight}."""
    legs = tuple(Backend(name=name, service=f"default/{name}", weight=w) for name, w in (("web-v1", 90), ("web-v2", 0)))
    split = Thing(ref=Ref("TrafficSplit", "default", "canary"), apex=("default/web", "web.default"), backends=legs)
    found = answers(
        {
            flow(SHOP, WEB1, backend="default/web-v1"): requests(8, 1),
            flow(ALONE, WEB1, backend="default/web-v1"): requests(1),
            flow(SHOP, WEB2, "default/web-v2"): requests(50),
        },
        (*THINGS, split),
    )
    rows = [
        (row.apex, row.backend.name, row.backend.weight, row.sum.counts.success)
        for row in found.splits()
        if row.backend
    ]
    assert rows == [("web.default", "web-v1", 90, 9), ("web.default", "web-v2", 0, 0)]
    assert not list(found.splits("default", lambda thing: thing.ref.name == "another"))


def test_copies_are_counted_apart() -> None:
    """D22: never part of success or failure, and marked on the edge."""
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
def test_what_a_pod_did_before_it_went_is_still_its_owners(kind: str, pods: str) -> None:
    """The sum must not fall when a rollout replaces pods."""
    things = (Thing(ref=Ref(kind, "default", "db"), owner=Ref("Deployment", "default", "top")),)
    flows = {flow(SHOP, pod(f"db{pods}")): requests(4), flow(SHOP, pod("db-vowel-a")): requests(8)}
    assert counted(answers(flows, things), kind) == {"default/db": (4, 0)}
    top = Thing(ref=Ref("Deployment", "default", "top"))
    assert counted(answers(flows, (*things, top)), "Deployment") == {"default/top": (4, 0)}


def test_owners_that_own_each_other_do_not_hang() -> None:
    a, b = Ref("ReplicaSet", "default", "a"), Ref("Deployment", "default", "b")
    things = (Thing(ref=a, owner=b), Thing(ref=b, owner=a), Thing(ref=Ref("Pod", "default", "p"), owner=a))
    assert counted(answers({flow(SHOP, pod("p")): requests(2)}, things), "Deployment")["default/b"] == (2, 0)


def test_aggregates_are_the_sums_of_their_pods() -> None:
    """R89, over many combinations: whatever is summed, no request is lost or counted twice."""
    ends = (SHOP, WEB1, WEB2, ALONE)
    flows = {
        flow(source, destination, "default/web"): requests(number, number % 3)
        for number, (source, destination) in enumerate(itertools.product(ends, ends), 1)
    }
    found = answers(flows)
    total = sum(success for success, _ in counted(found, "Pod").values())
    assert total == sum(counts.success for counts in flows.values())
    for kind in ("Namespace", "Node"):
        assert sum(success for success, _ in counted(found, kind).values()) == total
    assert counted(found, "Service")["default/web"][0] == total
