"""What the proxies' series mean: between whom, and what counts."""

import pytest
from tests.telemetry.proxies import series_of

from headgate.envoy.traffic_stats import parse_code
from headgate.telemetry.counters.counts import RECEIVED, SENT
from headgate.telemetry.counters.flows import NO_PEER, Flow, Peer
from headgate.telemetry.counters.histogram import gathered
from headgate.telemetry.counters.packed_counters import NARROW, by_index
from headgate.telemetry.reports.cumulative_to_delta import Delta
from headgate.telemetry.reports.otlp import Series
from headgate.telemetry.reports.series import counted, dropped_at

CLIENT = Peer(pod="default/client")
WEB = Peer(pod="default/web-0")


def told(
    name,
    *,
    node="sidecar/default/client",
    value=3,
    buckets=None,
    callers=lambda _, address, identity: Peer(outside=identity or address),
    **tags,
):
    return counted(node, Delta(series_of(f"mesh.{name}", **tags), value, gathered(buckets or {})), callers)


def requests(**tags):
    return told(
        "flagged" if parse_code(tags.get("code", "200-")).is_flagged else "latency",
        **{"backend": "", "cluster": "outbound/default/web/8080", "code": "200-", "grpc": "", "pod": "", **tags},
    )


def test_a_request_is_from_the_pod_that_reports_to_the_pod_that_answered():
    flow, found = requests(backend="default/v2", cluster="outbound/default/web/8080", pod="default/web-0")
    assert flow == Flow(source=CLIENT, destination=WEB, service="default/web", port=8080, backend="default/v2")
    assert (found.success, found.failure, found.classes) == (3, 0, (("2xx", 3),))


def test_what_a_gateway_sends_is_from_the_gateway():
    flow, _ = requests(node="gateway", cluster="gateway/default/shop/8443/HTTPRoute/default/r/0", pod="default/web-0")
    assert flow == Flow(source=Peer(outside="gateway"), destination=WEB)


def test_a_request_that_reached_nobody_failed():
    flow, found = requests(cluster="outbound/default/web/8080", code="503UH")
    assert flow.destination == NO_PEER
    assert (flow.service, found.failure, found.success) == ("default/web", 3, 0)


@pytest.mark.parametrize(
    ("code", "grpc", "name", "is_success"),
    [
        ("404-", "", "4xx", True),
        ("503UF,URX", "", "5xx", False),
        ("0DC", "", "none", False),
        ("200-", "0", "grpc-0", True),
        ("200-", "5", "grpc-5", True),
        ("200-", "14", "grpc-14", False),
        ("101-", "", "1xx", True),
        ("200DC", "", "2xx", True),
        ("200UPE", "", "none", False),
        ("206UC", "", "none", False),
        ("404UR,LR", "", "none", False),
        ("503UC", "", "5xx", False),
        ("504UT", "", "5xx", False),
        ("101SI", "", "1xx", True),
        ("200UC", "14", "grpc-14", False),
        ("nonsense", "", "none", False),
    ],
)
def test_an_answer_has_a_class_and_is_a_success_or_not(code, grpc, name, is_success):
    _, found = requests(code=code, grpc=grpc)
    assert found.classes == ((name, 3),)
    assert bool(found.success) is is_success


def test_copies_are_marked():
    """D22."""
    tags = {"envoy.cluster_name": "mirror/default/web/8080", "envoy.endpoint_hostname": "default/web-0"}
    for name, outcome in {"copies": (3, 0), "copies_failed": (0, 3)}.items():
        flow, found = told(name, **tags)
        assert flow.copy
        assert (flow.service, flow.port, flow.destination) == ("default/web", 8080, WEB)
        assert (found.success, found.failure) == outcome


def test_copies_that_were_dropped_are_of_no_flow():
    cluster = "mirror/default/web/8080"
    tags = {"envoy.cluster_name": cluster}
    assert dropped_at(Delta(series_of("mesh.copies_dropped", **tags), 3)) == cluster
    assert told("copies_dropped", **tags) is None
    assert dropped_at(Delta(series_of("mesh.copies", **tags), 3)) == ""


def test_where_the_cluster_comes_after_the_routes_they_tell_what_was_called():
    flow, _ = requests(cluster="outbound/default/web/8080/split/default/web/8080/default/v2", pod="default/web-0")
    assert (flow.service, flow.port) == ("default/web", 8080)


def test_what_is_no_services_and_what_is_counted_twice_is_left_out():
    assert told("flagged", cluster="", pod="", code="404NR") is None
    assert told("connections", cluster="tunnel", pod="") is None


def test_connections_to_addresses_outside_the_mesh_go_elsewhere():
    flow, _ = told("connections", cluster="passthrough")
    assert flow == Flow(source=CLIENT, destination=Peer(outside="elsewhere"))


def test_connections_and_bytes_are_told_and_are_no_requests():
    tags = {"cluster": "outbound/default/db/5432", "pod": "default/db-0", "backend": "default/db"}
    found = {name: told(name, **tags)[1] for name in ("connections", "sent", "received", "failed")}
    assert found["connections"].connections == found["sent"].count(SENT) == found["received"].count(RECEIVED) == 3
    assert found["failed"].unreached == 3
    assert not any(counts.success or counts.failure for counts in found.values())  # R98: these are of HTTP


def test_plaintext_at_a_server_is_from_its_callers_address():
    """R96: who has no proxy is seen all the same."""
    flow, _ = told("latency", node="sidecar/default/web-0", code="200-", grpc="", port="8080", source="10.1.2.3")
    assert flow == Flow(source=Peer(outside="10.1.2.3"), destination=WEB, target=8080)


def test_a_caller_whose_own_proxy_has_counted_does_not_count_twice():
    tags = {"node": "sidecar/default/web-0", "code": "200-", "grpc": "", "port": "8080", "source": "10.1.2.3"}
    assert told("latency", **tags, callers=lambda *_: None) is None
    flow, _ = told("latency", **tags, callers=lambda *_: CLIENT)
    assert flow == Flow(source=CLIENT, destination=WEB, target=8080)


def test_the_port_of_the_pod_and_mutual_tls_are_told():
    """R89, D25: which Services a request counts for depends on the port of the pod that took it."""
    for text, secured in (("default/web-0:9090 ", False), ("default/web-0:9090 TLSv1.3", True)):
        flow, _ = requests(pod=text)
        assert (flow.destination, flow.target, flow.secured) == (WEB, 9090, secured)
    names = {"envoy.cluster_name": "mirror/default/web/80", "envoy.endpoint_hostname": "default/web-0:9090 TLSv1.3"}
    copies, _ = told("copies", **names)
    assert (copies.destination, copies.target, copies.secured) == (WEB, 9090, True)


@pytest.mark.parametrize(("code", "grpc"), [("403-t", ""), ("200-t", "7")])
def test_what_access_rules_refused_is_no_success_no_failure_and_has_no_latency(code, grpc):
    """R68: a refusal is quick, and says nothing about the application."""
    _, found = requests(code=code, grpc=grpc, pod="default/web-0:80 ", buckets={17: 3})
    assert (found.denied, found.success, found.failure, found.classes) == (3, 0, 0, (("denied", 3),))
    assert found.latency == 0


def test_the_applications_own_403_is_an_answer():
    _, found = requests(code="403-")
    assert (found.denied, found.success) == (0, 3)


def test_a_connection_that_access_rules_refused_is_told_by_the_server():
    tags = {"node": "sidecar/default/web-0", "port": "9000", "source": "10.1.2.3"}
    flow, found = told("denied", **tags, identity="spiffe://a/ns/b/sa/thief")
    assert flow == Flow(source=Peer(outside="spiffe://a/ns/b/sa/thief"), destination=WEB, target=9000, secured=True)
    assert (found.denied_connections, found.connections) == (3, 0)  # the thief's proxy has counted that it connected


def test_a_connection_in_plaintext_that_was_refused_is_counted_by_the_server_alone():
    tags = {"node": "sidecar/default/web-0", "port": "9000", "source": "10.1.2.3"}
    flow, found = told("denied", **tags, identity="")
    assert flow == Flow(source=Peer(outside="10.1.2.3"), destination=WEB, target=9000)
    assert (found.denied_connections, found.connections) == (3, 3)


@pytest.mark.parametrize(("code", "success"), [("200-", 3), ("403-a", 3), ("200DC", 0), ("503UF,URX", 0)])
def test_a_request_without_flags_counts_with_its_latency_and_another_one_apart(code, success):
    """R89: of one with flags and a whole response, `mesh.latency` has the latency and `mesh.flagged` the request."""
    tags = {"backend": "default/v2", "cluster": "outbound/default/web/8080", "pod": "default/web-0", "code": code}
    flow, found = told("latency", **tags, buckets={17: 3})
    assert flow == requests(**tags)[0]
    assert (by_index(found.latency, NARROW), found.success) == ({17: 3}, success)
    once = told("flagged", **tags)
    assert (once is None) is bool(success)


def test_a_refusal_with_flags_counts_once():
    tags = {"cluster": "outbound/default/web/8080", "pod": "default/web-0", "code": "403DCt"}
    assert told("latency", **tags, buckets={17: 3}) is None
    assert told("flagged", **tags)[1].denied == 3


@pytest.mark.parametrize("cluster", ["a/b/c/d", "outbound/default/web/x", "////"])
def test_a_name_that_is_none_of_ours_harms_nobody(cluster):
    flow, _ = requests(cluster=cluster)
    assert (flow.service, flow.port) == ("", 0)
    assert told("copies", **{"envoy.cluster_name": cluster}) is None
    assert told("unheard_of", cluster=cluster) is None


@pytest.mark.parametrize(
    "attributes", [b"junk", b"\n\x03pod", b"\n\x03pod\x12\x05\n\x03web\n\x03pod", b"\n\x01\xff\x12\x00"]
)
def test_attributes_that_are_none_harm_nobody(attributes):
    assert counted("sidecar/default/client", Delta(Series("mesh.sent", attributes), 3), lambda *_: CLIENT) is None
