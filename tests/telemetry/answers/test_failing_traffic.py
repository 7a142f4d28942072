"""The traffic that fails now: callers, Services, causes and the command that explains each."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.make.objects import deployment, pod, service
from tests.telemetry.proxies import series_of

from headgate.model.access import OPEN, Access, Grant, RequestRule
from headgate.model.identities import spiffe_id
from headgate.model.requests import ANY
from headgate.model.routing import Mesh, Workload
from headgate.plane.object_graphs import object_info
from headgate.resources.mesh_status import FailingTraffic
from headgate.resources.meta import Key
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
from headgate.telemetry.counters.histogram import gathered
from headgate.telemetry.reports.cumulative_to_delta import Delta
from headgate.telemetry.reports.series import counted

PAGE = Path(__file__).parents[3] / "src/headgate/dashboard/page/outcome.js"
SERVER = Peer(pod="shop/cart-0")
OK, BROKEN, GRPC, NONE = class_index(200), class_index(500), class_index(200, "14"), class_index(0)


def owned(name: str, kind: str, owner: str) -> Any:
    references = [{"apiVersion": "apps/v1", "kind": kind, "name": owner, "controller": True, "uid": "1"}]
    return pod(name, "10.1.0.1", namespace="shop", metadata={"ownerReferences": references})


def world() -> ObjectGraph:
    objects = [
        deployment("client", namespace="shop"),
        service("cart", 8080, namespace="shop", selector={"app": "cart"}),
        service("cart-v1", 8080, namespace="shop", selector={"app": "cart", "version": "v1"}),
        pod("cart-1", "10.1.0.3", namespace="shop", labels={"app": "cart", "version": "v1"}),
        owned("client-0", "Deployment", "client"),
        owned("client-1", "Deployment", "client"),
        owned("rolled-0", "Rollout", "rolled"),
        pod("alone", "10.1.0.2", namespace="shop"),
    ]
    return ObjectGraph(object_info(Ref(obj["kind"], "shop", obj["metadata"]["name"]), obj, DEFAULTS) for obj in objects)


def flow(caller: Peer | str, service: str = "shop/cart", **fields: Any) -> Flow:
    source = Peer(pod=f"shop/{caller}") if isinstance(caller, str) else caller
    return Flow(source=source, destination=SERVER, service=service, port=8080 if service else 0, **fields)


def failing(
    flows: dict[Flow, Counts], mesh: Mesh | None = None, recent: dict[Flow, Counts] | None = None
) -> list[FailingTraffic]:
    later = None if recent is None else Reading(end=1_900_000_000.0, window=10.0, flows=recent)
    return list(failing_traffic(Reading(end=1_900_000_000.0, window=30.0, flows=flows), world(), mesh, later))


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


def test_traffic_that_succeeds_again_is_marked_and_comes_last() -> None:
    """Without recent requests it is not known whether it succeeds again."""
    flows = {flow(name): Counts.of({OK: 9, BROKEN: number}) for number, name in enumerate(("alone", "client-0"), 1)}
    idle = {flow("rolled-0"): Counts.of({OK: 1, BROKEN: 5})}
    recent = {flow("alone"): Counts.of({OK: 30, DENIED_REQUESTS: 1}), flow("client-0"): Counts.of({OK: 17})}
    rows = failing(flows | idle, recent=recent)
    assert [(row.client, row.recovered_seconds, row.recovered_total) for row in rows] == [
        ("Rollout shop/rolled", 0, 0),
        ("Pod shop/alone", 0, 0),
        ("Deployment shop/client", 10, 17),
    ]
    assert not any(row.recovered_seconds for row in failing(flows))


@pytest.mark.parametrize(
    ("before", "succeeded", "recovered"),
    [
        ({OK: 58, BROKEN: 2}, 20, False),  # fails now and then: a third of such windows has no failure
        ({OK: 294, BROKEN: 6}, 100, False),
        ({OK: 20, BROKEN: 40}, 4, False),
        ({OK: 20, BROKEN: 40}, 5, True),
        ({OK: 50, DENIED_REQUESTS: 10}, 17, False),
        ({OK: 50, DENIED_REQUESTS: 10}, 18, True),
        ({CONNECTIONS: 30, UNREACHED: 30}, 6, True),
    ],
)
def test_traffic_recovered_only_if_its_successes_are_unlikely_at_the_rate_of_its_failures(
    before: dict[int, int], succeeded: int, recovered: bool
) -> None:
    (row,) = failing({flow("alone"): Counts.of(before)}, recent={flow("alone"): Counts.of({OK: succeeded})})
    assert (row.recovered_seconds, row.recovered_total) == ((10, succeeded) if recovered else (0, 0))


@pytest.mark.parametrize(
    ("counts", "failed", "message"),
    [
        ({BROKEN: 3, UNSENT: 3}, 3, "no server got them, the caller's proxy responded"),
        ({GRPC: 2, BROKEN: 1}, 3, "responses grpc-14"),
        ({NONE: 2}, 2, "no response"),
        ({OK: 1, UNREACHED: 4}, 4, "nothing accepts the connections"),
        ({DENIED_REQUESTS: 2, OK: 1}, 0, "access rules deny them"),
        ({CONNECTIONS: 9, DENIED_CONNECTIONS: 2}, 0, "access rules deny them"),
        ({DENIED_CONNECTIONS: 2}, 0, "access rules deny them"),
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
        (flow("alone"), {DENIED_REQUESTS: 1}, "kubectl traffic tap service/cart -n shop"),
        (flow("alone"), {DENIED_CONNECTIONS: 1}, "headgate explain http://cart.shop:8080/ --from pod/alone -n shop"),
        (flow("client-0"), {BROKEN: 1}, "kubectl traffic tap service/cart -n shop"),
        (flow("client-0", ""), {UNREACHED: 1}, "headgate explain URL --from deployment/client -n shop"),
        (flow("rolled-0"), {UNREACHED: 1}, "headgate explain http://cart.shop:8080/"),
        (flow(GATEWAY), {BROKEN: 1, UNSENT: 1}, "headgate explain http://cart.shop:8080/"),
    ],
)
def test_a_command_explains_the_cause(called: Flow, counts: dict[int, int], command: str) -> None:
    (row,) = failing({called: Counts.of(counts)})
    assert row.command == command


GRANTED = Grant(
    origin=Key("access.smi-spec.io", "TrafficTarget", "shop", "readers"),
    sources=(spiffe_id("cluster.local", "shop", "reader"),),
    requests=(RequestRule(name="books/look", match=ANY),),
)
CART = Workload(name="shop/cart-0", address="10.1.0.1", identity="", access=Access(closed=True, grants=(GRANTED,)))
NO_TARGET = "no TrafficTarget or XAuthorizationPolicy allows this caller"
NO_IDENTITY = "it allows only callers with an identity, and plaintext has none"


@pytest.mark.parametrize(
    ("called", "server", "message"),
    [
        (flow("thief-0", secured=True), CART, NO_TARGET),
        (flow("reader-0", secured=True), CART, "no rule for this caller matches these calls"),
        (flow("reader-0", secured=False), CART, NO_IDENTITY),
        (flow("ended", secured=True), CART, "access rules deny them"),
        (flow(Peer(outside="192.0.2.7"), secured=True), CART, "access rules deny them"),
        (flow("ended"), CART, NO_IDENTITY),
        (flow(NO_PEER), CART, NO_IDENTITY),
        (flow(GATEWAY, secured=True), CART, NO_TARGET),
        (flow(Peer(outside=spiffe_id("cluster.local", "shop", "thief")), secured=True), CART, NO_TARGET),
        (flow("thief-0", secured=True), structs.replace(CART, access=OPEN), "access rules deny them"),
        (flow("thief-0", secured=True), structs.replace(CART, name="shop/other"), "access rules deny them"),
    ],
)
def test_a_denied_caller_has_the_reason_by_the_current_rules(called: Flow, server: Workload, message: str) -> None:
    """A server that is open now, or that ended, has no such reason. The identity of a caller that ended is unknown, so it may have one."""
    callers = [
        structs.replace(CART, name=f"shop/{name}-0", identity=spiffe_id("cluster.local", "shop", name), access=OPEN)
        for name in ("thief", "reader")
    ]
    mesh = Mesh(domain="cluster.local", workloads=(server, *callers))
    (row,) = failing({called: Counts.of({DENIED_REQUESTS: 3})}, mesh)
    assert row.message == message


def test_reasons_of_denials_read_each_source_of_the_pods_of_a_server_once() -> None:
    """3,000 denied flows to a server with 500 sources took a second of a thread."""
    reads = Counter[str]()

    class Source(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            reads[self] += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

        def endswith(self, *args: Any) -> bool:
            reads[self] += 1
            return str.endswith(self, *args)

    sources = tuple(Source(spiffe_id("cluster.local", "shop", f"allowed-{number}")) for number in range(50))
    access = Access(closed=True, grants=(structs.replace(GRANTED, sources=sources),))
    servers = tuple(structs.replace(CART, name=f"shop/cart-{number}", access=access) for number in range(3))
    callers = [Peer(outside=spiffe_id("cluster.local", "shop", f"thief-{number}")) for number in range(100)]
    denied = {
        structs.replace(flow(caller, secured=True), destination=Peer(pod=server.name)): Counts.of({DENIED_REQUESTS: 1})
        for caller in callers
        for server in servers
    }
    rows = failing(denied, Mesh(domain="cluster.local", workloads=servers), denied)
    assert {row.message for row in rows} == {NO_TARGET}
    assert set(reads) == set(sources)
    assert max(reads.values()) <= 1


def test_the_most_frequent_reason_of_a_denied_caller_is_named() -> None:
    secured, plaintext = flow("alone", secured=True), flow("alone")
    proven = structs.replace(CART, name="shop/alone", identity=spiffe_id("cluster.local", "shop", "alone"), access=OPEN)
    mesh = Mesh(domain="cluster.local", workloads=(CART, proven))
    for first, second, message in ((2, 3, NO_IDENTITY), (3, 2, NO_TARGET)):
        denied = {secured: Counts.of({DENIED_REQUESTS: first}), plaintext: Counts.of({DENIED_REQUESTS: second})}
        assert [row.message for row in failing(denied, mesh)] == [message]
    failed = failing({plaintext: Counts.of({DENIED_REQUESTS: 2, BROKEN: 3})}, mesh)
    assert [row.message for row in failed] == ["responses 5xx"]


def test_all_addresses_outside_of_the_mesh_are_one_client_without_a_workload() -> None:
    addresses = [Peer(outside=f"192.0.2.{number}") for number in range(200)]
    identity = Peer(outside="spiffe://other/ns/a/sa/b")
    rows = failing({flow(peer): Counts.of({BROKEN: 1}) for peer in (GATEWAY, NO_PEER, identity, *addresses)})
    assert [(row.caller, row.client, row.failed) for row in rows] == [
        (None, "clients outside of the mesh", 200),
        (None, identity.outside, 1),
        (None, "the gateway", 1),
        (None, "unknown", 1),
    ]


def test_an_outage_comes_before_a_few_denials() -> None:
    rows = failing({flow("alone"): Counts.of({DENIED_REQUESTS: 1}), flow("client-0"): Counts.of({OK: 60, BROKEN: 40})})
    assert [row.client for row in rows] == ["Deployment shop/client", "Pod shop/alone"]


def reported(node: str, name: str, value: int, **attributes: str) -> dict[Flow, Counts]:
    """Return the flow that a proxy's series reports. The client of a server's series is the pod `alone`."""
    delta = Delta(series_of(f"mesh.{name}", **attributes), value, gathered({}))
    counts = counted(node, delta, lambda *_: Peer(pod="shop/alone"))
    assert counts
    return {counts.flow: counts.counts}


def test_a_denied_connection_of_mutual_tls_belongs_to_the_service_that_the_client_called() -> None:
    """The client's proxy counts it as opened, and only the server's as denied. One report comes before the other."""
    tags = {"port": "8080", "source": "10.1.0.2", "identity": "spiffe://cluster.local/ns/shop/sa/alone"}
    denied = reported("sidecar/shop/cart-0", "denied", 3, **tags)
    to_server = {"cluster": "outbound/shop/cart/80", "pod": "shop/cart-0:8080 mtls"}
    opened = reported("sidecar/shop/alone", "connections", 2, **to_server)
    (alone,) = failing(denied)
    assert (alone.client, alone.service, alone.port, alone.denied, alone.total) == ("Pod shop/alone", "", 0, 3, 3)
    (row,) = failing(denied | opened)
    assert (row.service, row.port, row.denied, row.total) == ("shop/cart", 80, 3, 3)
    (row,) = failing(denied | reported("sidecar/shop/alone", "connections", 6, **to_server))
    assert (row.denied, row.total) == (3, 6)
    assert row.command == "headgate explain http://cart.shop:80/ --from pod/alone -n shop"


def test_a_service_is_named_without_its_port_if_only_the_servers_proxy_counts() -> None:
    """So for plaintext clients, and for requests through a gateway; of several Services, the one that selects most narrowly."""
    tags = {"source": "192.0.2.7", "port": "8080", "identity": ""}
    plain = reported("sidecar/shop/cart-1", "denied", 1, **tags)
    cluster = "gateway/shop/edge/443/HTTPRoute/shop/r/0"
    routed = reported(
        "gateway", "latency", 2, cluster=cluster, backend="shop/cart", pod="shop/cart-1:8080", code="503-"
    )
    rows = failing(plain | routed)
    assert [(row.client, row.service, row.port, row.command) for row in rows] == [
        ("the gateway", "shop/cart", 0, "kubectl traffic tap service/cart -n shop"),
        ("Pod shop/alone", "shop/cart-v1", 0, "headgate explain URL --from pod/alone -n shop"),
    ]
