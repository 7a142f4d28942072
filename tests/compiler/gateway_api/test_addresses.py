"""A Gateway without an address gets a finding with the field to change."""

import re
from typing import Any

import pytest

from headgate.compiler.compile import compile_mesh
from headgate.kinds import GATEWAY
from headgate.plane.feed import snapshot_of
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
            "can't have the address 10.0.0.1: .* remove spec.addresses",
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
