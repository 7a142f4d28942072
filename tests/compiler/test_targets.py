"""Authorization by TrafficTargets (R68 to R70, D21); an invalid object never allows additional requests."""

import pytest
from tests.make.objects import (
    account_ref,
    backed_service,
    http_route_group,
    http_rule,
    meshed_pod,
    route,
    rule,
    service,
    smi_tcp_route,
    tcp_rule,
    tls_config,
    traffic_target,
)
from tests.make.values import compiled, findings, workloads

from headgate.compiler.reasons import Reason
from headgate.model.access import OPEN, Access, ConnectionRule
from headgate.model.mutual_tls import TlsMode

WEB = ("web", "10.1.0.1")
MESH = (meshed_pod(*WEB), *backed_service("web", WEB))
GROUP = http_route_group("api", {"read": {"methods": ["GET"]}, "all": {}})
API = http_rule("api")
CLIENT = "spiffe://cluster.local/ns/default/sa/client"


def access(result, name="web"):
    return workloads(result)[name].access


def allowed(result):
    """Return the names of the rules that apply to each source."""
    return {
        (source.rpartition("/")[2], part.name)
        for grant in access(result).grants
        for source in grant.sources
        for part in (*grant.requests, *grant.connections)
    }


def test_pods_without_a_target_are_open():
    assert access(compiled(*MESH)) == OPEN


def test_access_deny_closes_pods_without_a_target():
    """D21."""
    assert access(compiled(*MESH, access="deny")) == Access(closed=True)


def test_a_target_allows_only_its_sources():
    result = compiled(
        *MESH, meshed_pod("other", "10.1.0.2", account="other"), GROUP, traffic_target("t", "web", ["client"], [API])
    )
    assert access(result).closed
    assert [grant.sources for grant in access(result).grants] == [(CLIENT,)]
    assert access(result, "other") == OPEN


def test_grants_of_several_targets_are_combined():
    result = compiled(
        *MESH,
        GROUP,
        traffic_target("one", "web", ["client"], [API | {"matches": ["read"]}]),
        traffic_target("two", "web", ["admin"], [API]),
    )
    assert allowed(result) == {("client", "api/read"), ("admin", "api/read"), ("admin", "api/all")}


@pytest.mark.parametrize(
    ("sources", "rules"), [((), [API]), (("client",), []), (("client",), [{"kind": "HTTPRouteGroup", "name": "gone"}])]
)
def test_a_target_without_sources_or_rules_allows_no_caller(sources, rules):
    assert access(compiled(*MESH, GROUP, traffic_target("t", "web", sources, rules))) == Access(closed=True)


def test_a_rule_with_a_missing_match_does_not_allow_the_whole_group():
    result = compiled(*MESH, GROUP, traffic_target("t", "web", ["client"], [API | {"matches": ["raed"]}]))
    assert access(result) == Access(closed=True)
    (reported,) = findings(result, Reason.RULE_NOT_FOUND)
    assert reported.field == "spec.rules[0].matches[0]"
    assert reported.message.endswith("its matches are: read, all")


def test_a_rule_with_an_invalid_group_allows_nothing():
    broken = http_route_group("api", {"read": {"methods": ["GRAB"]}})
    result = compiled(*MESH, broken, traffic_target("t", "web", ["client"], [API]))
    assert access(result) == Access(closed=True)
    assert "is not valid" in findings(result, Reason.RULE_NOT_FOUND)[0].message


def test_a_tcp_route_of_the_gateway_api_is_not_a_rule():
    other = route("sql", rule({"web": 1}), parents=[], kind="TCPRoute")
    result = compiled(*MESH, other, traffic_target("t", "web", ["client"], [tcp_rule("sql")]))
    assert access(result) == Access(closed=True)


@pytest.mark.parametrize("port", [8080, 80])
def test_a_tcp_rule_accepts_the_port_of_the_pod_or_the_service(port):
    """Specification 003 uses the Service's port; SMI does not specify which of the two ports is meant."""
    services = backed_service("web", WEB, number=80, target=8080, app="tcp")
    result = compiled(
        meshed_pod(*WEB),
        *services,
        smi_tcp_route("sql", port),
        traffic_target("t", "web", ["client"], [tcp_rule("sql")]),
    )
    assert access(result).grants[0].connections == (ConnectionRule(name="sql", ports=(port,)),)
    assert not findings(result, Reason.RULE_NOT_APPLICABLE)


@pytest.mark.parametrize(("app", "kind"), [("http", "TCPRoute"), ("tcp", "HTTPRouteGroup")])
def test_a_rule_for_a_protocol_without_a_port_is_reported(app, kind):
    """R69."""
    name = {"TCPRoute": "sql", "HTTPRouteGroup": "api"}[kind]
    objects = (GROUP, smi_tcp_route("sql"))
    applied = {"kind": kind, "name": name}
    result = compiled(
        meshed_pod(*WEB),
        *backed_service("web", WEB, app=app),
        *objects,
        traffic_target("t", "web", ["client"], [applied]),
    )
    (reported,) = findings(result, Reason.RULE_NOT_APPLICABLE)
    assert reported.field == "spec.rules[0]"
    assert f"8080 ({app})" in reported.message


def test_a_rule_is_not_reported_before_the_process_behind_an_explicit_sidecar_runs():
    found = meshed_pod("web", "127.80.0.1", mode="explicit")
    services = backed_service("web", ("web", "127.80.0.1"))
    result = compiled(found, *services, GROUP, traffic_target("t", "web", ["client"], [API]))
    assert access(result).closed
    assert not findings(result, Reason.RULE_NOT_APPLICABLE)


def test_a_rule_is_not_reported_before_its_service_has_endpoints():
    """Specification 003 has two Services, whose EndpointSlices appear at different times."""
    labeled = meshed_pod(*WEB, labels={"app": "web"})
    first, late = backed_service("first", WEB), service("late", selector={"app": "web"})
    mesh = (labeled, *first, smi_tcp_route("raw", 8080), traffic_target("t", "web", ["client"], [tcp_rule("raw")]))
    assert findings(compiled(*mesh, late | {"spec": {**late["spec"], "ports": []}}), Reason.RULE_NOT_APPLICABLE)
    late["spec"]["ports"] = [{"port": 8080, "appProtocol": "tcp"}]
    assert not findings(compiled(*mesh, late), Reason.RULE_NOT_APPLICABLE)


def test_an_invalid_target_keeps_its_pods_closed():
    broken = traffic_target("t", "web", ["client"], [API | {"kind": "HttpRouteGroup"}])
    assert access(compiled(*MESH, GROUP, broken)) == Access(closed=True)


def test_a_target_does_not_affect_pods_of_another_namespace():
    foreign = traffic_target("t", account_ref("web", "blue"), ["client"], [API])
    elsewhere = foreign | {"metadata": {"name": "t", "namespace": "evil"}}
    other = meshed_pod("web", "10.1.0.9", namespace="blue")
    result = compiled(*MESH, other, GROUP, foreign, elsewhere)
    assert all(item.access == OPEN for item in result.mesh.workloads)


def test_a_pod_with_a_target_accepts_mutual_tls():
    result = compiled(*MESH, GROUP, traffic_target("t", "web", ["client"], [API]), mtls="off")
    assert workloads(result)["web"].target_tls_mode is TlsMode.PERMISSIVE


def test_a_finding_names_the_pods_without_a_sidecar():
    """R77."""
    bare = [meshed_pod(f"bare-{number}", f"10.1.1.{number}", mode="") for number in range(5)]
    result = compiled(*MESH, *bare, GROUP, traffic_target("t", "web", ["client"], [API]))
    (reported,) = findings(result, Reason.NOT_ENFORCED)
    assert "pods default/bare-0, default/bare-1, default/bare-2 and 2 more" in reported.message
    assert 'headgate.dev/inject: "true"' in reported.message
    (selected,) = result.report.selected
    assert selected.workloads == ("default/web",)
    assert len(selected.without_sidecar) == 5


def test_a_pod_without_an_address_yet_is_not_reported():
    result = compiled(meshed_pod("web", ""), GROUP, traffic_target("t", "web", ["client"], [API]), tls_config("c", {}))
    assert result.report.findings == ()
    assert [item.workloads for item in result.report.selected] == [("default/web",), ("default/web",)]
