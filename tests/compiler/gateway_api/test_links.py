"""Routes of Service ports: one kind for a port, and TLSRoutes by the server name of connections."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import pytest
from tests.make.objects import GATEWAY_API, Object, backed_service, route, rule, service_parent, split
from tests.make.values import compiled, findings, snapshot

from headgate.compiler.explain_request import explain_request
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled
from headgate.plan.lines import summary
from headgate.render.omissions import OmissionReason
from headgate.render.proxy_ports import select
from headgate.resources.request_spec import RequestSpec

PORT = 8080
SHADOWED, CONFLICTED, NOTED = Reason.SHADOWED, Reason.CONFLICTED, Reason.CONSUMER_ROUTE


def services(app: str = "tls", *, teams: str = "one") -> list[Object]:
    """Return the Services `web`, `one` and `two`, and one of the namespace `teams`."""
    names = enumerate(("web", "one", "two"), 1)
    own = backed_service(teams, ("", "10.1.1.9"), app=app, namespace="teams")
    return [*chain.from_iterable(backed_service(name, ("", f"10.1.1.{n}"), app=app) for n, name in names), *own]


def made(kind: str, name: str, *, day: int = 1, to: str = "one", home: str = "default", **more: Any) -> Object:
    """Return a route of the Service `web`, which was created on a day of January."""
    metadata = {"creationTimestamp": f"2026-01-{day:02}T00:00:00Z"}
    parent = service_parent("web", PORT, namespace="default")
    return route(name, rule({to: 1}), parents=[parent], kind=kind, namespace=home, metadata=metadata, **more)


def tls(name: str, *hostnames: str, **more: Any) -> Object:
    return made("TLSRoute", name, hostnames=list(hostnames), **more)


def receivers(result: Compiled, objects: Sequence[Object], *names: str) -> Mapping[str, Any]:
    """Return the Service that gets the connections with each server name, or the proxy's status."""
    stored = snapshot(*objects)
    explained = {
        name: explain_request(result, stored, RequestSpec(url=f"https://web.default:{PORT}/", server_name=name))
        for name in names
    }
    return {name: [each.service or each.status_code for each in shown.backends] for name, shown in explained.items()}


def accepted(result: Compiled) -> Mapping[str, str]:
    """Return the reason of each route's condition Accepted."""
    return {
        status.about.name: condition.reason
        for status in chain.from_iterable(result.report.parents_of.values())
        for condition in status.conditions
        if condition.type == "Accepted"
    }


def test_the_most_specific_server_name_decides_then_the_oldest_route():
    objects = [
        *services(),
        tls("all", "*.example", "db.example", to="one", day=2),
        tls("younger", "db.example", "x.y.example", to="two", day=3),
    ]
    result = compiled(*objects)
    expected = {"db.example": ["default/one"], "a.b.example": ["default/one"], "X.Y.Example": ["default/two"]}
    closed = {"example": [503], "other.org": [503], "": [503]}  # without one, that of the URL: web.default
    assert receivers(result, objects, *expected, *closed) == expected | closed
    (shadowed,) = findings(result, SHADOWED)
    assert shadowed.about.name == "younger"
    assert "the older TLSRoute default/all has all connections for db.example to default/web:8080" in shadowed.message
    assert accepted(result) == {"all": "Accepted", "younger": "Accepted"}


def test_a_split_of_the_service_applies_to_the_connections_for_a_name():
    objects = [*services(), split("web", {"two": 1}), tls("own", "db.example", to="web")]
    assert receivers(compiled(*objects), objects, "db.example") == {"db.example": ["default/two"]}


@pytest.mark.parametrize(
    ("app", "preferred", "other"), [("tls", "TLSRoute", "TCPRoute"), ("http", "GRPCRoute", "HTTPRoute")]
)
def test_a_port_has_routes_of_one_kind_whatever_their_age(app: str, preferred: str, other: str):
    """GEP-1294. Routes for clients of a namespace are decided separately."""
    more = {"hostnames": ["db.example"]} if preferred == "TLSRoute" else {}
    objects = [
        *services(app),
        made(other, "old", day=1),
        made(other, "theirs", day=1, home="teams"),
        made(preferred, "new", day=2, to="two", **more),
    ]
    result = compiled(*objects)
    assert accepted(result) == {"old": "Conflicted", "theirs": "Accepted", "new": "Accepted"}
    (conflict,) = findings(result, CONFLICTED)
    assert f"{preferred}s take precedence over {other}s" in conflict.message
    (table,) = (table for table in result.mesh.tables if table.ref.service == "default/web")
    assert {each.origin and each.origin.name for each in table.all_routes} == {"new"}
    assert accepted(compiled(*objects[:-1])) == {"old": "Accepted", "theirs": "Accepted"}


def test_a_route_keeps_the_ports_without_routes_of_a_preferred_kind():
    both = {"ports": [{"name": "tls", "port": PORT}, {"name": "tls-more", "port": 9090}]}
    web, *others = services()
    old = made("TCPRoute", "old", day=1)
    old["spec"]["parentRefs"] = [service_parent("web")]
    objects = [{**web, "spec": {**web["spec"], **both}}, *others, old, tls("new", "db.example", day=2)]
    result = compiled(*objects)
    (status,) = (each for key, (each, *_) in result.report.parents_of.items() if key.name == "old")
    assert [port.port for port in status.ports] == [9090]
    assert accepted(result)["old"] == "Accepted"
    assert [finding.about.name for finding in findings(result, CONFLICTED)] == ["old"]


def test_a_younger_route_of_another_namespace_keeps_the_note_about_its_clients():
    objects = [*services(), tls("first", "a.example", home="teams"), tls("late", "a.example", home="teams", day=2)]
    reasons = {finding.reason for finding in compiled(*objects).report.findings if finding.about.name == "late"}
    assert {NOTED, SHADOWED} <= reasons


@pytest.mark.parametrize("app", ["http", "tcp", "mysql"])
def test_a_tls_route_needs_a_tls_port(app: str):
    result = compiled(*services(app), tls("wrong", "a.example"))
    assert accepted(result) == {"wrong": "NoMatchingParent"}
    assert (
        "no port of Service default/web has a protocol for TLSRoutes"
        in findings(result, Reason.NO_MATCHING_PARENT)[0].message
    )


def test_a_plan_says_which_server_names_move():
    before = compiled(*services(), tls("own", "a.example", "*.b.example"))
    after = compiled(*services(), tls("own", "a.example"), tls("more", "*.b.example", to="two"))
    (line,) = summary(before, after)
    assert line.startswith("Service default/web:8080, host *.b.example: ")
    assert "from default/one:8080 to default/two:8080" in line
    assert not summary(before, before)
    first = " ".join(summary(compiled(*services()), before))
    assert "default/web:8080 to default/one:8080" in first


def test_rendered_proxies_leave_out_a_port_with_server_names():
    selected = select(compiled(*services(), tls("own", "a.example", "b.example")).mesh)
    assert not any(port.owner.name == "web" for port in selected.ports)
    left_out = [each for each in selected.omissions if each.reason is OmissionReason.SERVER_NAME]
    assert [(each.origin.kind, each.where) for each in left_out] == [
        ("TLSRoute", f"port {PORT} of Service default/web, host {host}.example") for host in "ab"
    ]
    assert left_out[0].origin.group == GATEWAY_API
