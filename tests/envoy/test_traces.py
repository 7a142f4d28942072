"""Traces in the configuration of proxies: off costs nothing, and on it changes no other listener."""

import pytest
from tests.make.objects import backed_service, meshed_pod, namespace
from tests.make.values import compiled

from headgate.envoy import names, pb, traces
from headgate.envoy.collector_export import traces_cluster
from headgate.envoy.config import CLUSTER, LISTENER, RUNTIME
from headgate.envoy.encode import Memo, encode, with_runtime
from headgate.envoy.view import Node, project, sidecar
from headgate.resources.trace_sampling import TRACE_SAMPLING

OBJECTS = (meshed_pod("web", "10.1.0.1", mode="explicit"), *backed_service("web", ("web", "10.1.0.1"), app="http"))
SETTINGS = {"otlp_traces": "127.0.0.1:4317", "trace_sampling": 100}
GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001, try_socket="/try")


def mesh(*more, **settings):
    return compiled(*OBJECTS, *more, **settings).mesh


def nodes(found):
    return [GATEWAY, *map(sidecar, found.workloads)]


@pytest.mark.parametrize("share", ["0", "5"])
def test_a_share_without_a_collector_changes_no_byte(share):
    plain, annotated = mesh(), mesh(namespace("default", annotations={TRACE_SAMPLING: share}), trace_sampling=7)
    for node in nodes(plain):
        assert encode(project(plain, node), Memo()) == encode(project(annotated, node), Memo())
        assert traces.sampling_shares(annotated)(node.id) is None


def test_a_changed_share_changes_only_the_runtime_layer_of_its_proxies():
    before, after = mesh(**SETTINGS), mesh(namespace("default", annotations={TRACE_SAMPLING: "5"}), **SETTINGS)
    shares = [traces.sampling_shares(found) for found in (before, after)]
    for node, expected in zip(nodes(before), ([100, 100], [100, 500]), strict=True):
        configs = [encode(project(found, node), Memo()) for found in (before, after)]
        assert configs[0] == configs[1]
        assert [share(node.id) for share in shares] == expected
        layers = [
            with_runtime(config, 0, share(node.id))[RUNTIME]["tap"].digest
            for config, share in zip(configs, shares, strict=True)
        ]
        assert (layers[0] == layers[1]) == (expected[0] == expected[1])


def test_a_collector_is_a_cluster_of_each_proxy_and_changes_only_http_listeners():
    plain, traced = mesh(), mesh(**SETTINGS)
    for node in nodes(plain):
        before, after = (encode(project(found, node), Memo()) for found in (plain, traced))
        assert after[CLUSTER].keys() - before[CLUSTER].keys() == {names.TRACES}
        changed = {name for kind in before for name in before[kind] if before[kind][name] != after[kind][name]}
        assert changed
        assert changed <= set(before[LISTENER])
        assert names.SCOPES not in changed


def test_a_slow_collector_costs_a_proxy_a_bounded_number_of_messages():
    found = traces_cluster("collector.otel:4317")
    (limits,) = found.circuit_breakers.thresholds
    assert limits.max_requests.value == limits.max_pending_requests.value == 8
    assert not found.wait_for_warm_on_init.value
    assert found.type == pb.Cluster.DiscoveryType.STRICT_DNS
