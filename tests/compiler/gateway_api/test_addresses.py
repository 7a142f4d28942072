"""A Gateway without an address gets a finding with the field to change."""

import re
from typing import Any

import pytest

from headgate.compiler.compile import compile_mesh
from headgate.kinds import GATEWAY
from headgate.model.gateway_pods import GatewayPod
from headgate.plane.feed import snapshot_of
from headgate.resources.gateway_api.proxies import proxy_name
from headgate.resources.registry import key_of
from headgate.settings import Settings


@pytest.mark.parametrize(
    ("spec", "reason", "field", "words"),
    [
        ({}, "AddressNotAssigned", "status.addresses", "has no address yet"),
        (
            {"addresses": [{"value": "10.0.0.1"}]},
            "AddressNotUsable",
            "spec.addresses[0].value",
            "has no address yet; it gets 10.0.0.1, unless this address is in use",
        ),
    ],
)
def test_a_gateway_without_an_address_gets_a_finding(spec: dict[str, Any], reason: str, field: str, words: str) -> None:
    listeners = [{"name": "http", "port": 8080, "protocol": "HTTP"}]
    gateway = {
        "apiVersion": f"{GATEWAY}/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "headgate", "listeners": listeners, **spec},
    }
    compiled = compile_mesh(snapshot_of({key_of(gateway): gateway}), Settings())
    (finding,) = compiled.report.findings
    assert (finding.reason.value, finding.field) == (reason, field)
    assert re.search(words, finding.message)


def test_a_gateway_that_is_not_accepted_gets_no_finding_about_an_address() -> None:
    """headgate assigns no address to it."""
    gateway = {
        "apiVersion": f"{GATEWAY}/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {
            "gatewayClassName": "headgate",
            "listeners": [{"name": "http", "port": 8080, "protocol": "HTTP"}],
            "addresses": [{"type": "Hostname", "value": "edge.example.com"}],
        },
    }
    compiled = compile_mesh(snapshot_of({key_of(gateway): gateway}), Settings())
    assert [finding.reason.value for finding in compiled.report.findings] == ["UnsupportedAddress"]


@pytest.mark.parametrize(
    ("gateway_pods", "words"),
    [(False, "headgate's loopback range"), (True, "the cluster's range of Services")],
)
def test_the_message_about_an_address_names_the_range_of_the_host(words: str, *, gateway_pods: bool) -> None:
    gateway = {
        "apiVersion": f"{GATEWAY}/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {
            "gatewayClassName": "headgate",
            "listeners": [{"name": "http", "port": 8080, "protocol": "HTTP"}],
            "addresses": [{"value": "192.0.2.1"}],
        },
    }
    snapshot = snapshot_of({key_of(gateway): gateway})
    (finding,) = compile_mesh(snapshot, Settings(gateway_pods=gateway_pods)).report.findings
    assert words in finding.message


def test_a_gateway_on_a_cluster_has_the_address_of_its_own_service() -> None:
    """The compiler does not report that the Service already has the address."""
    gateway = {
        "apiVersion": f"{GATEWAY}/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "headgate", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
        "status": {"addresses": [{"type": "IPAddress", "value": "10.96.0.7"}]},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": proxy_name("default", "edge"), "namespace": "headgate-system"},
        "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]},
    }
    compiled = compile_mesh(snapshot_of({key_of(obj): obj for obj in (gateway, service)}), Settings())
    assert [port.address for port in compiled.mesh.gateways] == ["10.96.0.7"]
    assert compiled.report.findings == ()


@pytest.mark.parametrize(
    ("namespace", "account", "phase", "found"),
    [
        ("headgate-system", "gateway", "Running", True),
        ("headgate-system", "gateway", "Failed", False),
        ("headgate-system", "default", "Running", False),
        ("default", "gateway", "Running", False),
    ],
)
def test_only_pods_with_the_gateways_account_run_the_proxy_of_a_gateway(
    namespace: str, account: str, phase: str, *, found: bool
) -> None:
    """A pod of a user with the annotation does not get the certificates of a Gateway."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "edge-1",
            "namespace": namespace,
            "annotations": {"headgate.dev/proxy-of-gateway": "default/edge"},
        },
        "spec": {"serviceAccountName": account, "containers": [{"name": "proxy"}]},
        "status": {"phase": phase},
    }
    mesh = compile_mesh(snapshot_of({key_of(pod): pod}), Settings()).mesh
    assert mesh.gateway_pods == ((GatewayPod(name="edge-1", gateway="default/edge"),) if found else ())
