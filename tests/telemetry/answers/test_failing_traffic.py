"""The traffic that fails now: callers, Services, causes and the command that explains each."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.make.objects import deployment, pod, service

from headgate.plane.object_graphs import object_info
from headgate.resources.mesh_status import FailingTraffic
from headgate.resources.pod_owners import Ref
from headgate.settings import DEFAULTS
from headgate.telemetry.answers.failing_traffic import FAILING, failing_traffic
from headgate.telemetry.answers.object_graph import ObjectGraph
from headgate.telemetry.counters.counts import (
    CONNECTIONS,
    DENIED_CONNECTIONS,
    DENIED_REQUESTS,
    UNREACHED,
    UNSENT,
    Counts,
    class_index,
)
from headgate.telemetry.counters.flows import GATEWAY, NO_PEER, Flow, Peer, Reading

PAGE = Path(__file__).parents[3] / "src/headgate/dashboard/page/outcome.js"
SERVER = Peer(pod="shop/cart-0")
OK, BROKEN, GRPC, NONE = class_index(200), class_index(500), class_index(200, "14"), class_index(0)


def owned(name: str, kind: str, owner: str) -> Any:
    references = [{"apiVersion": "apps/v1", "kind": kind, "name": owner, "controller": True, "uid": "1"}]
    return pod(name, "10.1.0.1", namespace="shop", metadata={"ownerReferences": references})


def world() -> ObjectGraph:
    objects = [
        deployment("client", namespace="shop"),
        service("cart", 8080, namespace="shop"),
        owned("client-0", "Deployment", "client"),
        owned("client-1", "Deployment", "client"),
        owned("rolled-0", "Rollout", "rolled"),
        pod("alone", "10.1.0.2", namespace="shop"),
    ]
    return ObjectGraph(object_info(Ref(obj["kind"], "shop", obj["metadata"]["name"]), obj, DEFAULTS) for obj in objects)


def flow(caller: Peer | str, service: str = "shop/cart", **fields: Any) -> Flow:
    source = Peer(pod=f"shop/{caller}") if isinstance(caller, str) else caller
    return Flow(source=source, destination=SERVER, service=service, port=8080 if service else 0, **fields)


def failing(flows: dict[Flow, Counts]) -> list[FailingTraffic]:
    return list(failing_traffic(Reading(end=1_900_000_000.0, window=30.0, flows=flows), world()))


def test_all_pods_of_a_workload_are_one_caller_and_the_most_affected_one_comes_first() -> None:
    rows = failing(
        {
            flow("alone"): Counts.of({OK: 9, BROKEN: 1}),
            flow("client-0"): Counts.of({BROKEN: 5}),
            flow("client-1"): Counts.of({BROKEN: 3, NONE: 4}),
            flow("client-1", secured=True): Counts.of({OK: 4}),
        }
    )
    assert [(row.client, row.failed, row.total, row.message) for row in rows] == [
        ("Deployment shop/client", 12, 16, "responses 5xx"),
        ("Pod shop/alone", 1, 10, "responses 5xx"),
    ]
    assert rows[0].caller is not None
    assert rows[0].caller.group == "apps"


@pytest.mark.parametrize(
    ("counts", "failed", "message"),
    [
        ({BROKEN: 3, UNSENT: 3}, 3, "no server got them, the caller's proxy responded"),
        ({GRPC: 2, BROKEN: 1}, 3, "responses grpc-14"),
        ({NONE: 2}, 2, "no response"),
        ({OK: 1, UNREACHED: 4}, 4, "nothing accepts the connections"),
        ({DENIED_REQUESTS: 2, OK: 1}, 0, "access rules deny them"),
        ({CONNECTIONS: 9, DENIED_CONNECTIONS: 2}, 0, "access rules deny them"),
    ],
)
def test_the_most_frequent_cause_is_named(counts: dict[int, int], failed: int, message: str) -> None:
    (row,) = failing({flow("alone"): Counts.of(counts)})
    assert (row.failed, row.message) == (failed, message)


@pytest.mark.parametrize(("failures", "shown"), [(0, False), (9, False), (10, True)])
def test_traffic_fails_from_the_share_at_which_the_dashboard_marks_it(failures: int, shown: bool) -> None:
    assert bool(failing({flow("alone"): Counts.of({OK: 1000 - failures, BROKEN: failures})})) is shown
    assert re.findall(r"const FAILING = (.*);", PAGE.read_text()) == [str(FAILING)]


def test_copies_and_idle_flows_do_not_fail() -> None:
    assert failing({flow("alone", copy=True): Counts.of({BROKEN: 5}), flow("client-0"): Counts()}) == []


@pytest.mark.parametrize(
    ("called", "counts", "command"),
    [
        (flow("client-0"), {UNREACHED: 1}, "headgate explain http://cart.shop:8080/ --from deployment/client -n shop"),
        (flow("alone"), {DENIED_REQUESTS: 1}, "headgate explain http://cart.shop:8080/ --from pod/alone -n shop"),
        (flow("client-0"), {BROKEN: 1}, "kubectl traffic tap service/cart -n shop"),
        (flow("client-0", ""), {UNREACHED: 1}, "headgate explain URL --from deployment/client -n shop"),
        (flow("rolled-0"), {UNREACHED: 1}, "headgate explain http://cart.shop:8080/"),
        (flow(GATEWAY), {BROKEN: 1, UNSENT: 1}, "headgate explain http://cart.shop:8080/"),
    ],
)
def test_a_command_explains_the_cause(called: Flow, counts: dict[int, int], command: str) -> None:
    (row,) = failing({called: Counts.of(counts)})
    assert row.command == command


def test_clients_outside_of_the_mesh_have_no_workload() -> None:
    rows = failing({flow(peer): Counts.of({BROKEN: 1}) for peer in (GATEWAY, NO_PEER, Peer(outside="192.0.2.7"))})
    assert [(row.caller, row.client) for row in rows] == [(None, "192.0.2.7"), (None, "the gateway"), (None, "unknown")]
