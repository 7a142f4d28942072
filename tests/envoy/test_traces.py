"""Traces in the configuration of proxies: off costs nothing, and on it changes no other listener."""

from uuid import uuid4

import pytest
from tests.envoy.rig import NODE
from tests.make.objects import (
    backed_service,
    endpoint_slice,
    http_route_group,
    meshed_pod,
    namespace,
    port,
    service,
    split,
)
from tests.make.values import compiled, snapshot

from headgate.compiler.arrivals import gateway
from headgate.compiler.explain import ExplainInput, explain
from headgate.envoy import names, pb, traces
from headgate.envoy.collector_export import traces_cluster
from headgate.envoy.config import CLUSTER, LISTENER, RUNTIME
from headgate.envoy.encode import Memo, encode, with_runtime
from headgate.envoy.view import Node, project, sidecar
from headgate.model.requests import Request
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


CLIENTS_ID = "order-7"
UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.mark.parametrize(
    "sent", [{}, {"X-Request-ID": CLIENTS_ID}, {"x-request-id": str(uuid4())}], ids=["none", "own", "uuid"]
)
@pytest.mark.parametrize("pattern", [CLIENTS_ID, "order-.*", ".+", UUID])
def test_routes_see_the_id_that_the_proxy_chooses_and_explain_says_so(envoy, pattern, sent):
    names_of = ("web", "other")
    for name in names_of:
        envoy.echo(name)
    number = envoy.echoes["web"].port
    objects = [
        *(service(name, port(number, "http"), clusterIP="None") for name in names_of),
        *(endpoint_slice(name, ["127.0.0.1"], {"http": envoy.echoes[name].port}) for name in names_of),
        http_route_group("by-id", {"own": {"headers": [{"x-request-id": pattern}]}}),
        split("web", {"other": 1}, matches=["by-id"]),
    ]
    found = compiled(*objects, **SETTINGS)
    proxy = envoy.free()
    envoy.push(found.mesh, Node(id=NODE.id, proxy_address=proxy.host, proxy_port=proxy.port))
    envoy.ask_when_listening(address=proxy)
    host = f"web.default:{number}"
    answer = envoy.ask(address=proxy, host=host, **sent)
    request = Request(authority=host, headers=tuple(sent.items()))
    asked = ExplainInput(request=request, url=f"http://{host}/", caller=gateway("cluster.local"))
    said = explain(found, snapshot(*objects), host, asked)
    assert said.backends[0].service == f"default/{answer.answered_by}"
    assert (answer.answered_by == "other") == (pattern in {".+", UUID})
    assert any("x-request-id" in line for line in (said.sanitizing.messages if said.sanitizing else ())) == bool(sent)
