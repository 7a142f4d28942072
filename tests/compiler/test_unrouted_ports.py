"""On a cluster, only UDP ports of Services that concern the mesh have a finding."""

import pytest
from tests.make.objects import Object, meshed_pod, pod, route, rule, service, service_parent, split
from tests.make.values import compiled, findings

from headgate.compiler.reasons import Reason

LABELS = {"app": "dns"}
DNS = service("dns", {"name": "udp", "port": 53, "protocol": "UDP"}, selector=LABELS)
WEB = service("web", 8080)


def noted(*objects: Object, cluster: bool = True) -> list[tuple[str, str]]:
    """Return the object and the field of each finding about ports that are not routed."""
    result = compiled(*objects, gateway_pods=cluster)
    return [(str(finding.about), finding.field) for finding in findings(result, Reason.NOT_ROUTED)]


NOTE = ("Service default/dns", "spec.ports[0].protocol")


@pytest.mark.parametrize(
    "more",
    [
        (),
        (pod("dns", "10.0.0.1", labels=LABELS),),
        (meshed_pod("web", "10.0.0.2", labels={"app": "web"}),),
        (WEB, split("web", {"web": 1})),
        (meshed_pod("dns", "10.0.0.1", labels=LABELS, namespace="other"), split("dns", {"web": 1}, namespace="other")),
    ],
)
def test_a_udp_service_outside_the_mesh_has_no_finding_on_a_cluster(more: tuple[Object, ...]) -> None:
    assert NOTE not in noted(DNS, *more)


@pytest.mark.parametrize(
    "more",
    [
        (meshed_pod("dns", "10.0.0.1", labels=LABELS),),
        (WEB, split("web", {"dns": 1})),
        (split("dns", {"dns": 1}),),
        (route("dns", rule({"dns": 1}, port=53), parents=[{"name": "edge"}], kind="UDPRoute"),),
        (WEB, route("web", rule({"web": 1}), parents=[service_parent("dns")])),
    ],
)
def test_a_udp_service_with_a_split_a_route_or_a_sidecar_has_one(more: tuple[Object, ...]) -> None:
    assert NOTE in noted(DNS, *more)


def test_sctp_ports_have_the_finding_and_tcp_ports_have_none() -> None:
    ports = [{"name": "tcp", "port": 80}, {"name": "sctp", "port": 81, "protocol": "SCTP"}]
    mixed = service("mixed", *ports, selector=LABELS)
    about = [("Service default/mixed", "spec.ports[1].protocol")]
    assert noted(mixed, meshed_pod("mixed", "10.0.0.1", labels=LABELS)) == about


def test_on_one_machine_every_udp_port_has_a_finding_since_nothing_serves_it() -> None:
    assert noted(DNS, cluster=False) == [NOTE]
