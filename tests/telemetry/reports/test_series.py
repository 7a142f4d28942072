"""The flow and the counters of each series that proxies report."""

import pytest
from tests.telemetry.proxies import series_of

from headgate.envoy.outcomes import parse_code
from headgate.telemetry.counters.counts import RECEIVED, SENT, UNSENT
from headgate.telemetry.counters.flows import NO_PEER, Flow, Peer
from headgate.telemetry.counters.histogram import gathered
from headgate.telemetry.counters.packed_counters import NARROW, by_index
from headgate.telemetry.reports.cumulative_to_delta import Delta
from headgate.telemetry.reports.otlp import Series
from headgate.telemetry.reports.series import counted, dropped_at

CLIENT = Peer(pod="default/client")
WEB = Peer(pod="default/web-0")


def flow_of(
    name,
    *,
    node="sidecar/default/client",
    value=3,
    buckets=None,
    callers=lambda _, address, identity: Peer(outside=identity or address),
    **tags,
):
    found = counted(node, Delta(series_of(f"mesh.{name}", **tags), value, gathered(buckets or {})), callers)
    return found and (found.flow, found.counts)


def requests(**tags):
    return flow_of(
        "flagged" if parse_code(tags.get("code", "200-")).is_flagged else "latency",
        **{"backend": "", "cluster": "outbound/default/web/8080", "code": "200-", "pod": "", **tags},
    )


def test_a_flow_leads_from_the_reporting_pod_to_the_pod_that_answered():
    flow, found = requests(backend="default/v2", cluster="outbound/default/web/8080", pod="default/web-0")
    assert flow == Flow(source=CLIENT, destination=WEB, service="default/web", port=8080, backend="default/v2")
    assert (found.success, found.failure, found.classes) == (3, 0, (("2xx", 3),))


def test_the_source_of_a_gateways_report_is_the_gateway():
    flow, _ = requests(node="gateway", cluster="gateway/default/shop/8443/HTTPRoute/default/r/0", pod="default/web-0")
    assert flow == Flow(source=Peer(outside="gateway"), destination=WEB)


def test_a_request_that_reached_no_pod_is_a_failure():
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
def test_a_response_has_a_class_and_counts_as_success_or_failure(code, grpc, name, is_success):
    _, found = requests(code=f"{code} {grpc}")
    assert found.classes == ((name, 3),)
    assert bool(found.success) is is_success


@pytest.mark.parametrize(
    ("pod", "code", "unsent"),
    [
        ("default/web-0:80 ", "503UF,URX", 3),  # no pod accepted a connection
        ("", "503UH", 3),
        ("", "301-", 3),  # the client's proxy responds
        ("default/web-0:80 ", "200-", 0),
        ("default/web-0:80 ", "200UF", 0),  # Envoy keeps the flag of an attempt that was repeated
        ("default/web-0:80 ", "503UC", 0),  # the pod closed the connection
        ("example.com", "503-", 0),
    ],
)
def test_requests_that_no_server_received_are_counted(pod, code, unsent):
    _, counts = requests(pod=pod, code=code)
    assert counts.count(UNSENT) == unsent


def test_the_flow_of_mirrored_requests_is_marked_as_a_copy():
    """D22."""
    tags = {"cluster": "mirror/default/web/8080", "pod": "default/web-0:80 "}
    for code, outcome in {"200-": (3, 0), "503-": (0, 3), "0UF": (0, 3)}.items():
        flow, found = requests(**tags, code=code)
        assert flow.copy
        assert (flow.service, flow.port, flow.backend, flow.destination) == ("default/web", 8080, "default/web", WEB)
        assert (found.success, found.failure) == outcome


def test_dropped_mirrored_requests_are_counted_by_mirror_and_have_no_flow():
    cluster = "mirror/default/web/8080"
    tags = {"envoy.cluster_name": cluster}
    assert dropped_at(Delta(series_of("mesh.copies_dropped", **tags), 3)) == cluster
    assert flow_of("copies_dropped", **tags) is None
    assert dropped_at(Delta(series_of("mesh.latency", cluster=cluster), 3)) == ""
    assert requests(cluster=cluster, pod="", code="0UO") is None


def test_the_cluster_name_of_a_split_contains_the_called_service():
    flow, _ = requests(cluster="outbound/default/web/8080/split/default/web/8080/default/v2", pod="default/web-0")
    assert (flow.service, flow.port) == ("default/web", 8080)


def test_requests_without_a_service_and_tunnel_connections_are_left_out():
    assert flow_of("flagged", cluster="", pod="", code="404NR") is None
    assert flow_of("connections", cluster="tunnel", pod="") is None
    assert flow_of("connections", cluster="tunnel/default/db/5432", pod="") is None


def test_all_addresses_outside_the_mesh_are_one_destination():
    flow, _ = flow_of("connections", cluster="passthrough")
    assert flow == Flow(source=CLIENT, destination=Peer(outside="elsewhere"))


def test_connections_and_bytes_are_counted_and_are_not_requests():
    tags = {"cluster": "outbound/default/db/5432", "pod": "default/db-0", "backend": "default/db"}
    found = {name: flow_of(name, **tags)[1] for name in ("connections", "sent", "received", "failed")}
    assert found["connections"].connections == found["sent"].count(SENT) == found["received"].count(RECEIVED) == 3
    assert found["failed"].unreached == 3
    assert not any(
        counts.success or counts.failure for counts in found.values()
    )  # R98: `success` and `failure` count HTTP requests only


def test_the_source_of_plaintext_at_a_server_is_the_callers_address():
    """R96. A caller without a proxy has a flow too."""
    flow, _ = flow_of("latency", node="sidecar/default/web-0", code="200- ", port="8080", source="10.1.2.3")
    assert flow == Flow(source=Peer(outside="10.1.2.3"), destination=WEB, target=8080)


def test_a_request_that_the_callers_proxy_counted_does_not_count_twice():
    tags = {"node": "sidecar/default/web-0", "code": "200- ", "port": "8080", "source": "10.1.2.3"}
    assert flow_of("latency", **tags, callers=lambda *_: None) is None
    flow, _ = flow_of("latency", **tags, callers=lambda *_: CLIENT)
    assert flow == Flow(source=CLIENT, destination=WEB, target=8080)


def test_a_flow_has_the_port_of_the_pod_and_is_marked_as_mutual_tls():
    """R89, D25. The port of the pod decides for which Services a request counts."""
    for text, secured in (("default/web-0:9090 ", False), ("default/web-0:9090 TLSv1.3", True)):
        flow, _ = requests(pod=text)
        assert (flow.destination, flow.target, flow.secured) == (WEB, 9090, secured)
    copies, _ = requests(cluster="mirror/default/web/80", pod="default/web-0:9090 TLSv1.3")
    assert (copies.destination, copies.target, copies.secured) == (WEB, 9090, True)


@pytest.mark.parametrize(("code", "grpc"), [("403-t", ""), ("200-t", "7")])
def test_a_denied_request_is_neither_success_nor_failure_and_has_no_latency(code, grpc):
    """R68. A denial is fast, and its latency says nothing about the application."""
    _, found = requests(code=f"{code} {grpc}", pod="default/web-0:80 ", buckets={17: 3})
    assert (found.denied, found.success, found.failure, found.classes) == (3, 0, 0, (("denied", 3),))
    assert found.latency == 0


def test_a_403_of_the_application_is_a_normal_response():
    _, found = requests(code="403-")
    assert (found.denied, found.success) == (0, 3)


def test_the_server_reports_a_denied_connection():
    tags = {"node": "sidecar/default/web-0", "port": "9000", "source": "10.1.2.3"}
    flow, found = flow_of("denied", **tags, identity="spiffe://a/ns/b/sa/thief")
    assert flow == Flow(source=Peer(outside="spiffe://a/ns/b/sa/thief"), destination=WEB, target=9000, secured=True)
    # the proxy of the client `thief` has counted the connection
    assert (found.denied_connections, found.connections) == (3, 0)


def test_only_the_server_counts_a_denied_plaintext_connection():
    tags = {"node": "sidecar/default/web-0", "port": "9000", "source": "10.1.2.3"}
    flow, found = flow_of("denied", **tags, identity="")
    assert flow == Flow(source=Peer(outside="10.1.2.3"), destination=WEB, target=9000)
    assert (found.denied_connections, found.connections) == (3, 3)


@pytest.mark.parametrize(("code", "success"), [("200-", 3), ("403-a", 3), ("200DC", 0), ("503UF,URX", 0)])
def test_the_latency_series_counts_only_requests_without_flags(code, success):
    """R89. A response with Envoy's response flags counts in `mesh.flagged`; `mesh.latency` has only its latency."""
    tags = {"backend": "default/v2", "cluster": "outbound/default/web/8080", "pod": "default/web-0", "code": code}
    flow, found = flow_of("latency", **tags, buckets={17: 3})
    assert flow == requests(**tags)[0]
    assert (by_index(found.latency, NARROW), found.success) == ({17: 3}, success)
    once = flow_of("flagged", **tags)
    assert (once is None) is bool(success)


def test_a_denied_request_with_flags_counts_once():
    tags = {"cluster": "outbound/default/web/8080", "pod": "default/web-0", "code": "403DCt"}
    assert flow_of("latency", **tags, buckets={17: 3}) is None
    assert flow_of("flagged", **tags)[1].denied == 3


@pytest.mark.parametrize("cluster", ["a/b/c/d", "outbound/default/web/x", "////"])
def test_unknown_cluster_names_and_series_are_ignored(cluster):
    flow, _ = requests(cluster=cluster)
    assert (flow.service, flow.port) == ("", 0)
    assert flow_of("copies", **{"envoy.cluster_name": cluster}) is None
    assert flow_of("unknown_series", cluster=cluster) is None


@pytest.mark.parametrize(
    "attributes", [b"junk", b"\n\x03pod", b"\n\x03pod\x12\x05\n\x03web\n\x03pod", b"\n\x01\xff\x12\x00"]
)
def test_malformed_attributes_are_ignored(attributes):
    assert counted("sidecar/default/client", Delta(Series("mesh.sent", attributes), 3), lambda *_: CLIENT) is None
