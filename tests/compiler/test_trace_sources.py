"""In whose name sidecars send spans, and the share of traces that they begin."""

import pytest
from tests.make.objects import meshed_pod, namespace, pod
from tests.make.values import compiled, workloads

from headgate.compiler.trace_sources import NAME_LABEL, SERVICE_NAME
from headgate.model.traces import TraceSource
from headgate.resources.trace_sampling import TRACE_SAMPLING

COLLECTOR = {"otlp_traces": "127.0.0.1:4317", "trace_sampling": 100}
OWNED = {
    "metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-6d4f", "uid": "1"}]}
}


def source(*objects, **settings):
    return workloads(compiled(*objects, **{**COLLECTOR, **settings}))["web"].traces


def test_without_a_collector_nothing_is_compiled_for_traces():
    result = compiled(meshed_pod("web", "10.1.0.1"), namespace("default", annotations={TRACE_SAMPLING: "50"}))
    assert result.mesh.tracing is None
    assert workloads(result)["web"].traces is None


@pytest.mark.parametrize(
    ("own", "of_namespace", "share"),
    [("", "", 100), ("0.5", "", 50), ("", "25", 2500), ("0", "25", 0), ("half", "25", 2500), ("", "half", 100)],
)
def test_the_pod_decides_before_its_namespace_and_the_mesh(own, of_namespace, share):
    """An invalid percentage is a mistake of its object, and has no effect."""
    written = meshed_pod("web", "10.1.0.1", annotations={TRACE_SAMPLING: own} if own else {})
    space = namespace("default", annotations={TRACE_SAMPLING: of_namespace} if of_namespace else {})
    assert source(written, space) == TraceSource(service="web", sampling=share)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"annotations": {SERVICE_NAME: "cart"}, "labels": {NAME_LABEL: "other"}}, "cart"),
        ({"labels": {NAME_LABEL: "cart"}}, "cart"),
        ({"labels": {"pod-template-hash": "6d4f"}, **OWNED}, "shop"),
        (OWNED, "shop-6d4f"),
        ({}, "web"),
    ],
)
def test_the_name_of_a_service_follows_opentelemetry(more, name):
    assert source(meshed_pod("web", "10.1.0.1", **more)).service == name


def test_the_pods_of_a_gateway_have_the_share_of_the_gateways_namespace():
    proxy = pod(
        "edge-1",
        "10.1.0.1",
        account="gateway",
        namespace="headgate-system",
        annotations={"headgate.dev/proxy-of-gateway": "shop/edge"},
    )
    (found,) = compiled(proxy, namespace("shop", annotations={TRACE_SAMPLING: "5"}), **COLLECTOR).mesh.gateway_pods
    assert found.sampling == 500
