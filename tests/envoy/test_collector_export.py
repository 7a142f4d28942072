"""Tests of the second stats sink: the collector receives headgate's reports, and the bootstrap is deterministic."""

import json

import pytest

from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.collector_export import Collector, parse_collector, with_collector
from headgate.errors import HeadgateError

PLAIN = bootstrap(node_id="sidecar/default/web-1", admin_socket="/a", xds_socket="/x", token="/t")


def test_without_a_collector_the_bootstrap_is_unchanged():
    assert with_collector(PLAIN, None) is PLAIN


@pytest.mark.parametrize(
    ("host", "kind"), [("127.0.0.1", "STATIC"), ("::1", "STATIC"), ("collector.otel", "STRICT_DNS")]
)
def test_the_collector_gets_the_same_reports_as_headgate(host, kind):
    found = json.loads(with_collector(PLAIN, Collector(host=host, port=4317)))
    before = json.loads(PLAIN)
    assert found["stats_sinks"][0] == before["stats_sinks"][0]
    own, theirs = (sink["typed_config"] for sink in found["stats_sinks"])
    assert theirs["grpc_service"]["envoy_grpc"]["cluster_name"] == "collector"
    (detector,) = theirs["resource_detectors"]
    assert detector["typed_config"]["attributes"] == {
        "node": "sidecar/default/web-1",
        "service.instance.id": "sidecar/default/web-1",
        "service.name": "headgate-proxy",
    }
    for part in ("grpc_service", "resource_detectors"):
        del own[part], theirs[part]
    assert own == theirs
    cluster = found["static_resources"]["clusters"].pop()
    assert cluster["type"] == kind
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert endpoint["endpoint"]["address"]["socket_address"] == {"address": host, "port_value": 4317}
    del found["stats_sinks"][1]
    assert {**found, "stats_sinks": before["stats_sinks"]} == before


def test_equal_arguments_give_equal_bytes():
    """A running Envoy is adopted only if its bootstrap is unchanged."""
    assert len({with_collector(PLAIN, Collector(host="127.0.0.1", port=4317)) for _ in range(20)}) == 1


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("collector.monitoring:4317", "collector.monitoring"),
        ("10.0.0.1:4317", "10.0.0.1"),
        ("[fd00::1]:4317", "fd00::1"),
    ],
)
def test_an_address_has_a_host_and_a_port(text, host):
    assert parse_collector(text) == Collector(host=host, port=4317)


@pytest.mark.parametrize("text", ["collector", "http://collector:4317", "collector:0", ":4317", "collector:4317/v1"])
def test_a_wrong_address_is_rejected_with_an_example(text):
    with pytest.raises(HeadgateError, match="write HOST:PORT without http://, for example"):
        parse_collector(text)


def test_an_empty_address_is_no_collector():
    assert parse_collector("") is None
