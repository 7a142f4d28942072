"""Tests of the second stats sink: the collector receives headgate's reports, and the bootstrap is deterministic."""

import json

import pytest

from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.collector_export import with_collector
from headgate.option import HostPort

PLAIN = bootstrap(node_id="sidecar/default/web-1", admin_socket="/a", xds_socket="/x", token="/t")


def test_without_a_collector_the_bootstrap_is_unchanged():
    assert with_collector(PLAIN, None) is PLAIN


@pytest.mark.parametrize(
    ("host", "kind"), [("127.0.0.1", "STATIC"), ("::1", "STATIC"), ("collector.otel", "STRICT_DNS")]
)
def test_the_collector_gets_the_same_reports_as_headgate(host, kind):
    found = json.loads(with_collector(PLAIN, HostPort(host=host, port=4317)))
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
    assert len({with_collector(PLAIN, HostPort(host="127.0.0.1", port=4317)) for _ in range(20)}) == 1
