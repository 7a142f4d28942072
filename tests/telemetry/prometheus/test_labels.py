"""The labels in `/metrics` for the source, the destination and the security of connections."""

import pytest

from headgate.resources.pod_owners import Ownership, Ref
from headgate.telemetry.counters.flows import GATEWAY, NO_PEER, Flow, Peer
from headgate.telemetry.prometheus.labels import FlowLabels
from headgate.telemetry.reports.series import ELSEWHERE


def owned(kind, name, template_hash=""):
    return Ownership(Ref(kind, "default", name), template_hash)


@pytest.fixture
def objects():
    return {
        Ref("Pod", "default", "web-7d8f9-bcdfg"): owned("ReplicaSet", "web-7d8f9"),
        Ref("ReplicaSet", "default", "web-7d8f9"): owned("Deployment", "web"),
        Ref("Pod", "default", "api-5b6d4-bcdfg"): owned("ReplicaSet", "api-5b6d4", "5b6d4"),
        Ref("Pod", "default", "lonely-7d8f9-bcdfg"): owned("ReplicaSet", "lonely-7d8f9"),
        Ref("Pod", "default", "db-0"): owned("StatefulSet", "db"),
        Ref("Pod", "default", "bare"): Ownership(),
    }


def labels(objects, **options):
    describe = FlowLabels(objects.get, **options)
    return lambda flow: dict(describe(flow))


def side(found, name):
    """Return the labels of one end; `name` is `source` or `destination`."""
    return {key.removeprefix(name): value for key, value in found.items() if key.startswith(f"{name}_")}


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("web-7d8f9-bcdfg", "web"),
        ("api-5b6d4-bcdfg", "api"),
        ("lonely-7d8f9-bcdfg", "lonely-7d8f9"),
        ("db-0", "db"),
        ("bare", "bare"),
        ("gone-7d8f9-bcdfg", "gone"),
        ("gone", "gone"),
    ],
)
def test_a_pod_is_labeled_with_its_workload(objects, pod, workload):
    """A deleted pod is labeled with its own name."""
    found = labels(objects)(Flow(source=Peer(pod=f"default/{pod}"), destination=NO_PEER))
    assert side(found, "source") == {"_workload": workload, "_workload_namespace": "default"}
    assert side(found, "destination") == {}
    found = labels(objects, by_pod=True)(Flow(source=Peer(pod=f"default/{pod}"), destination=NO_PEER))
    assert side(found, "source") == {"_workload": workload, "_workload_namespace": "default", "_pod": pod}


def test_a_deleted_pod_keeps_its_workload_label(objects):
    describe = labels(objects)
    flow = Flow(source=Peer(pod="default/db-0"), destination=NO_PEER)
    before = describe(flow)
    objects.clear()
    assert describe(flow) == before


def test_all_outside_peers_share_one_series_unless_labels_name_pods(objects):
    """A label per address would make an unlimited number of series."""
    stranger = Flow(source=Peer(outside="192.0.2.1"), destination=ELSEWHERE)
    assert side(labels(objects)(stranger), "source") == {"_workload": "outside"}
    assert side(labels(objects)(stranger), "destination") == {"_workload": "elsewhere"}
    found = labels(objects, by_pod=True)(stranger)
    assert side(found, "source") == {"_workload": "outside", "_outside": "192.0.2.1"}
    found = labels(objects)(Flow(source=GATEWAY, destination=NO_PEER))
    assert side(found, "source") == {"_workload": "gateway", "_workload_namespace": "headgate-system"}


@pytest.mark.parametrize("secured", [True, False])
def test_traffic_is_labeled_mutual_tls_if_the_proxy_reports_it(objects, secured):
    """R74."""
    flow = Flow(source=Peer(pod="default/db-0"), destination=Peer(pod="default/bare"), secured=secured)
    assert labels(objects)(flow)["connection_security_policy"] == ("mutual_tls" if secured else "none")


def test_the_port_of_the_pod_is_a_label_only_if_labels_name_pods(objects):
    flow = Flow(source=NO_PEER, destination=Peer(pod="default/bare"), target=8080)
    assert "destination_pod_port" not in labels(objects)(flow)
    assert labels(objects, by_pod=True)(flow)["destination_pod_port"] == "8080"
