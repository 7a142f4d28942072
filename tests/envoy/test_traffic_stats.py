"""The statistics of proxies, their reports, and the parsers of their attributes."""

import json

import pytest
from google.protobuf import json_format

from headgate.envoy import descriptors, names, pb, stats_sink
from headgate.envoy.bootstrap import XdsAddress, bootstrap
from headgate.envoy.listeners import gateway_listener, proxy_listener, service_listener
from headgate.envoy.names import GatewayRef
from headgate.envoy.outcomes import Code, parse_code
from headgate.envoy.planned_routes import ClusterWeight
from headgate.envoy.tcp_proxy import listener, outbound_listener, pod_listener
from headgate.envoy.traffic_stats import (
    CalledServer,
    parse_backend,
    parse_pod,
    route_name_without_cluster,
    split_backend,
)
from headgate.model import latency_buckets, size_buckets
from headgate.model.routing import Endpoint, PortRef
from headgate.telemetry.counters import histogram

REF = PortRef("default/web", 80)
NAME = names.outbound(REF)
POD = Endpoint(address="10.1.1.1", port=8080, workload="default/web-1")
SHARE = ClusterWeight(cluster=NAME, weight=1)
XDS = XdsAddress(host="headgate.headgate-system.svc", port=15010, name="xds.headgate", roots="/etc/headgate/roots.json")


def started(**where):
    text = bootstrap(node_id="sidecar/default/web-1", admin_socket="/run/admin.sock", **where)
    return json_format.ParseDict(json.loads(text), pb.Bootstrap(), descriptor_pool=descriptors.pool())


def loggers(rendered):
    """Yield the loggers that write statistics in a listener's filters."""
    for chain in rendered.filter_chains:
        for item in chain.filters:
            kind = pb.TcpProxy if item.typed_config.type_url == pb.type_url(pb.TcpProxy) else pb.HttpConnectionManager
            found = kind.FromString(item.typed_config.value).access_log
            yield from (logger for logger in found if logger.typed_config.type_url == pb.type_url(pb.StatsAccessLog))


def scope(logger):
    return pb.StatsAccessLog.FromString(logger.typed_config.value).stats_scope


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("200-", Code(200)),
        ("503UF,URX", Code(503, frozenset({"UF", "URX"}))),
        ("0DC", Code(0, frozenset({"DC"}))),
        ("404", Code(404)),
        ("", Code(0)),
        ("-", Code(0)),
        ("403-t", Code(403, marked=True)),
        ("403-x", Code(403)),
        ("200-a", Code(200, audited=True)),
        ("503UFa", Code(503, frozenset({"UF"}), audited=True)),
        ("403DCt", Code(403, frozenset({"DC"}), marked=True)),
        ("200- ", Code(200)),
        ("200- 14", Code(200, grpc="14")),
        ("200UFt 7", Code(200, frozenset({"UF"}), marked=True, grpc="7")),
    ],
)
def test_a_code_has_the_status_and_the_response_flags(text, code):
    assert parse_code(text) == code


@pytest.mark.parametrize(
    ("code", "grpc", "denied"),
    [("403-t", "", True), ("200-t", "7", True), ("403-", "", False), ("200-t", "", False), ("200-t", "0", False)],
)
def test_a_denial_has_the_proxys_mark_and_the_status_of_a_denial(code, grpc, denied):
    """An application without a sidecar may send the mark with other statuses, which are not denials."""
    assert parse_code(f"{code} {grpc}").is_denied is denied


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("default/web-1:8080 TLSv1.3", CalledServer("default/web-1", 8080, secured=True)),
        ("default/web-1:8080 ", CalledServer("default/web-1", 8080, secured=False)),
        ("default/web-1", CalledServer("default/web-1", 0, secured=False)),
        ("", CalledServer("", 0, secured=False)),
        ("10.1.1.1:8080", CalledServer("", 0, secured=False)),
        ("[fd00::1]:8080", CalledServer("", 0, secured=False)),
        ("api.example.com", CalledServer("", 0, secured=False)),
    ],
)
def test_a_pod_attribute_has_the_pod_its_port_and_the_tls_version(text, server):
    assert parse_pod(text) == server


@pytest.mark.parametrize(
    ("attributes", "backend"),
    [
        ({"cluster": NAME, "pod": "default/web-1:8080 "}, "default/web"),
        ({"cluster": NAME, "pod": "default/v1-1:8080 ", "backend": "default/v1"}, "default/v1"),
        ({"cluster": route_name_without_cluster(NAME) + NAME, "pod": "10.1.1.1:8080"}, "default/web"),
        ({"cluster": "gateway/default/edge/80/none", "pod": "10.1.1.1:8080"}, ""),
        ({"cluster": NAME}, ""),
        ({"cluster": "a/b/c/d", "pod": "10.1.1.1:8080"}, ""),
    ],
)
def test_the_backend_is_the_clusters_service_unless_the_attribute_names_another(attributes, backend):
    assert parse_backend(attributes) == backend


@pytest.mark.parametrize(
    ("text", "cluster", "backend"),
    [
        (f"{NAME} default/v1 default/web", NAME, "default/v1 default/web"),
        (f"{NAME} ", NAME, ""),
        (names.PASSTHROUGH, names.PASSTHROUGH, ""),
        (" ", "", ""),
    ],
)
def test_the_backend_follows_the_name_of_the_cluster_after_a_blank(text, cluster, backend):
    attributes = {"cluster": text, "pod": "default/v1-1:8080 "}
    assert split_backend(attributes) == {**attributes, "cluster": cluster, "backend": backend}


def test_the_address_of_a_passthrough_connection_is_not_an_attribute():
    rendered = outbound_listener(names.OUTBOUND, "0.0.0.0", 15001, ClusterWeight(cluster=names.PASSTHROUGH, weight=1))
    stats = [
        counter.stat
        for logger in loggers(rendered)
        for counter in pb.StatsAccessLog.FromString(logger.typed_config.value).counters
    ]
    assert stats
    assert {tag.value_format for stat in stats for tag in stat.tags} == {names.PASSTHROUGH}


@pytest.mark.parametrize(
    "rendered",
    [
        service_listener(NAME, "10.0.0.1", 80),
        proxy_listener("127.0.0.1", 15001),
        gateway_listener("gateway/default/edge/80", "10.0.0.2", 80, "gateway/default/edge/80"),
        listener(NAME, "10.0.0.1", 80, (SHARE,)),
        pod_listener(names.pod(REF, "10.1.1.1", 8080), POD, SHARE),
    ],
)
def test_all_loggers_use_the_scope_that_the_bootstrap_keeps_alive(rendered):
    """Otherwise counter values would be lost with the last listener of their scope."""
    (anchor,) = started(xds_socket="/run/xds.sock").admin.access_log
    found = list(loggers(rendered))
    assert found
    assert all(scope(logger) == scope(anchor) for logger in found)
    assert scope(anchor).sharing_name


def test_the_name_of_a_routes_parent_can_be_parsed_with_and_without_a_cluster():
    gateway = GatewayRef("default/edge", 443)
    for parent, found in ((NAME, names.backend(REF, "default/v1")), (NAME, "")):
        assert names.parse(route_name_without_cluster(parent) + found) == REF
    for found in (names.gateway(gateway) + "/HTTPRoute/default/shop/0", ""):
        assert names.parse_gateway(route_name_without_cluster(names.gateway(gateway)) + found) == gateway


def test_connections_to_a_pods_address_have_the_pod_as_an_attribute():
    name = names.pod(REF, "10.1.1.1", 8080)
    first, *_ = loggers(pod_listener(name, POD, SHARE))
    (counter,) = pb.StatsAccessLog.FromString(first.typed_config.value).counters
    attributes = split_backend({tag.name: tag.value_format for tag in counter.stat.tags})
    pod = "default/web-1:8080 %UPSTREAM_TLS_VERSION%"
    assert attributes == {"cluster": name, "pod": pod, "backend": "default/web"}
    assert names.parse(attributes["cluster"]) == REF


def test_envoy_and_the_receiver_have_the_same_buckets():
    settings = started(xds_socket="/run/xds.sock").stats_config.histogram_bucket_settings
    wanted = (stats_sink.BOUNDS, latency_buckets.BOUNDS_US), (stats_sink.SIZE_BOUNDS, size_buckets.BOUNDS_BYTES)
    assert histogram.BOUNDS_US == latency_buckets.BOUNDS_US
    for setting, (bounds, nominal) in zip(settings, wanted, strict=True):
        assert tuple(setting.buckets) == bounds
        assert all(0.99 * bound < given < bound for given, bound in zip(bounds, nominal, strict=True))


@pytest.mark.parametrize(("where", "seconds"), [({"xds_socket": "/run/xds.sock"}, 2), ({"xds": XDS}, 5)])
def test_the_report_interval_is_longer_in_a_cluster(where, seconds):
    message = started(**where)
    assert message.stats_flush_interval.seconds == seconds
    assert message.stats_eviction_interval.seconds % seconds == 0  # Envoy requires a multiple of the report interval
    flushes = message.stats_eviction_interval.seconds / message.stats_flush_interval.seconds
    assert stats_sink.reports_per_eviction(seconds) == flushes  # the receiver must use the same number


def test_reports_are_sent_to_headgate_with_the_node_id():
    message = started(xds=XDS, token="/run/hg/token.json")
    (cluster,) = message.static_resources.clusters
    (sink,) = message.stats_sinks
    config = pb.OpenTelemetrySink.FromString(sink.typed_config.value)
    assert config.grpc_service.envoy_grpc.cluster_name == cluster.name
    (detector,) = config.resource_detectors
    static = pb.StaticResourceDetector.FromString(detector.typed_config.value)
    assert dict(static.attributes) == {"node": "sidecar/default/web-1"}
    assert not config.report_counters_as_deltas
    assert not config.report_histograms_as_deltas
    assert 0 < config.max_data_points_per_request * 4096 < 4 << 20  # gRPC's limit
