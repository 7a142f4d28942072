"""Default Gateways, to which routes attach without naming them (GEP-3793)."""

from typing import Any

import pytest
from tests.make.objects import Object, gateway, listener, namespace, route, rule, service, service_parent
from tests.make.values import compiled, snapshot

from headgate.compiler.compile import Compiler
from headgate.compiler.report import Compiled
from headgate.settings import Settings

FROM_ALL = {"namespaces": {"from": "All"}}


def default(name: str, number: int = 8000, address: str = "127.0.0.10", **more: Any) -> Object:
    """Return a default Gateway; `more` has fields of its listener."""
    status = {"addresses": [{"value": address}]}
    return gateway(name, listener(number, **more), defaultScope="All", status=status)


def website(*parents: Object, **more: Any) -> Object:
    return route("website", rule({"web": 1}), parents=parents, **{"useDefaultGateways": "All", **more})


def parents(result: Compiled) -> list[tuple[str, str]]:
    """Return the parents in the status of the route, with the reasons of Accepted."""
    return [(str(status.parent), status.conditions[0].reason) for status in result.report.parents]


WEB = service("web", 8080, type="ExternalName", externalName="web.example.com")


@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute", "TCPRoute"])
def test_a_route_attaches_to_all_default_gateways_and_to_its_own_parents(kind: str) -> None:
    protocol = "TCP" if kind == "TCPRoute" else "HTTP"
    port_protocol = {"appProtocol": "tcp"} if kind == "TCPRoute" else {}
    web = service("web", {"port": 8080, "name": "web", **port_protocol})
    result = compiled(
        web,
        default("one", protocol=protocol),
        default("two", address="127.0.0.11", protocol=protocol),
        gateway("other", listener(8001)),
        website(service_parent("web"), kind=kind),
    )
    accepted = [
        ("Service default/web", "Accepted"),
        ("Gateway default/one", "Accepted"),
        ("Gateway default/two", "Accepted"),
    ]
    assert sorted(parents(result)) == sorted(accepted)
    assert {port.gateway for port in result.mesh.gateways if port.hosts or port.connections} >= {
        "default/one",
        "default/two",
    }


@pytest.mark.parametrize("scope", ["", "None"])
def test_other_routes_do_not_attach_to_a_default_gateway(scope: str) -> None:
    result = compiled(WEB, default("one"), website(useDefaultGateways=scope or None))
    assert parents(result) == []
    assert [finding for finding in result.report.findings if finding.about.kind == "HTTPRoute"] == []


def test_a_named_default_gateway_has_one_entry_with_its_own_parent_ref() -> None:
    result = compiled(WEB, default("one"), website({"name": "one"}))
    assert [(status.parent.name, status.index) for status in result.report.parents] == [("one", 0)]


def test_default_gateways_that_do_not_allow_the_route_are_left_out_unless_none_does() -> None:
    elsewhere = default("closed", address="127.0.0.11") | {}
    elsewhere["metadata"] = {"name": "closed", "namespace": "front"}
    objects = WEB, namespace("front"), elsewhere, website()
    assert parents(compiled(*objects, default("one"))) == [("Gateway default/one", "Accepted")]
    refused = compiled(*objects)
    assert parents(refused) == [("Gateway front/closed", "NotAllowedByListeners")]
    (finding,) = [finding for finding in refused.report.findings if finding.about.kind == "HTTPRoute"]
    assert finding.field == "spec.useDefaultGateways"


def test_a_default_gateway_says_so_in_its_status_and_no_other_one_does() -> None:
    result = compiled(default("one"), gateway("other"))
    shown = {
        outcome.about.name: [condition.type for condition in outcome.conditions if condition.type == "DefaultGateway"]
        for outcome in result.report.gateways
    }
    assert shown == {"one": ["DefaultGateway"], "other": []}


def test_routes_follow_when_a_gateway_becomes_a_default_one() -> None:
    """The compiler reuses results of the last compilation."""
    compiler, plain = Compiler(), gateway("one", listener(8000))
    before, after = (compiler.compile(snapshot(WEB, each, website()), Settings()) for each in (plain, default("one")))
    assert [parents(result) for result in (before, after)] == [[], [("Gateway default/one", "Accepted")]]
