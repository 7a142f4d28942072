"""Every field of a Service has an effect, or a finding that says that it has none (D38)."""

from typing import Any

import pytest
from tests.make.objects import service
from tests.make.values import compiled, findings

from headgate.compiler.reasons import Reason
from headgate.resources.schema.catalog import schemas

SPEC = schemas()["", "v1", "Service"]["properties"]["spec"]["properties"]
EFFECTIVE = {
    "clusterIP",
    "clusterIPs",
    "externalName",
    "ipFamilies",
    "ipFamilyPolicy",  # the API server assigns addresses by it
    "ports",
    "publishNotReadyAddresses",  # the controller of EndpointSlices follows it
    "selector",
    "type",
}
EFFECTIVE_PARTS = {"sessionAffinityConfig", "allocateLoadBalancerNodePorts"}
"""Fields that only say more about a field with a finding."""
EFFECTIVE_OF_PORTS = {"appProtocol", "name", "port", "protocol", "targetPort"}
MACHINE, NODES = {"gateway_pods": False}, {"gateway_pods": True}
IGNORED: dict[str, tuple[Any, dict[str, bool]]] = {
    "sessionAffinity": ("ClientIP", {}),
    "internalTrafficPolicy": ("Local", NODES),
    "trafficDistribution": ("PreferClose", NODES),
    "topologyKeys": (["*"], NODES),
    "type": ("NodePort", MACHINE),
    "externalTrafficPolicy": ("Local", MACHINE),
    "externalIPs": (["192.0.2.1"], MACHINE),
    "loadBalancerIP": ("192.0.2.1", MACHINE),
    "loadBalancerClass": ("example.com/lb", MACHINE),
    "loadBalancerSourceRanges": (["192.0.2.0/24"], MACHINE),
    "healthCheckNodePort": (30000, MACHINE),
}
"""Fields with a finding: a value, and the only host that ignores it; the other one carries it out."""


def ignored(host: dict[str, bool], **spec: Any) -> list[str]:
    """Return the fields of a Service with a finding."""
    return [item.field for item in findings(compiled(service("web", 80, **spec), **host), Reason.FIELD_IGNORED)]


def test_each_field_of_the_schema_has_an_effect_or_a_finding() -> None:
    assert SPEC.keys() == EFFECTIVE | EFFECTIVE_PARTS | IGNORED.keys()
    assert SPEC["ports"]["items"]["properties"].keys() == EFFECTIVE_OF_PORTS | {"nodePort"}


@pytest.mark.parametrize("field", IGNORED)
@pytest.mark.parametrize("host", [MACHINE, NODES], ids=["machine", "cluster"])
def test_a_field_without_effect_has_one_finding(field: str, host: dict[str, bool]) -> None:
    value, only = IGNORED[field]
    assert ignored(host, **{field: value}) == ([f"spec.{field}"] if only in ({}, host) else [])


def test_the_port_of_a_node_has_a_finding_on_one_machine() -> None:
    ports = [{"port": 80, "nodePort": 30080}]
    assert ignored(MACHINE, ports=ports) == ["spec.ports[0].nodePort"]
    assert ignored(NODES, ports=ports) == []


@pytest.mark.parametrize(("value", "expected"), [("Auto", 1), ("auto", 1), ("Disabled", 0), ("disabled", 0), ("", 0)])
def test_topology_modes_have_a_finding_on_a_cluster(value: str, expected: int) -> None:
    name = "service.kubernetes.io/topology-mode"
    found = ignored(NODES, annotations={name: value})
    assert found == [f"metadata.annotations.{name}"] * expected


def test_the_values_that_an_api_server_sets_have_no_finding() -> None:
    defaults = {"sessionAffinity": "None", "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster"}
    assert ignored(MACHINE, **defaults) == ignored(NODES, **defaults) == []
