"""Routes for clients of one namespace (GAMMA): their sidecars get them in place of the Service's own routes."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from tests.make.objects import (
    GATEWAY_API,
    Object,
    backed_service,
    http_route_group,
    meshed_pod,
    obj,
    route,
    rule,
    service_parent,
    split,
)
from tests.make.values import compiled, findings, snapshot
from tests.xds.client import XdsClient

from headgate.compiler import arrivals
from headgate.compiler.explain import ExplainInput, explain
from headgate.compiler.reasons import Reason
from headgate.envoy import names
from headgate.envoy.config import SCOPES
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import project, sidecar
from headgate.model.requests import Request
from headgate.model.routing import PortRef
from headgate.plan.lines import summary
from headgate.plane.status.receipts import Progress, Receipts
from headgate.render.omissions import OmissionReason
from headgate.render.proxy_ports import select
from headgate.resources.meta import Key
from headgate.xds.fleet import Fleet

WEB, OWN = PortRef("default/web", 8080), PortRef("teams/own", 8080)
HOMES = ("default", "other", "teams")
URL = "http://web.default:8080/"


def own_route(*rules: Object, name: str = "consumer") -> Object:
    return route(name, *rules, parents=[service_parent("web", 8080, namespace="default")], namespace="teams")


TO_OWN = own_route(rule({"own": 1}))
PRODUCER = route("producer", rule({"one": 1}), parents=[service_parent("web", 8080)])


def site(*objects: Object) -> list[Object]:
    """Return the Services `web` and `one`, the Service `own` of the namespace `teams`, and a client in each namespace."""
    services = (
        service_with_address(name, number, namespace)
        for number, (name, namespace) in enumerate((("web", "default"), ("one", "default"), ("own", "teams")), 1)
    )
    clients = (meshed_pod("client", f"10.1.2.{number}", namespace=home) for number, home in enumerate(HOMES))
    return [*objects, *chain.from_iterable(services), *clients]


def service_with_address(name: str, number: int, namespace: str) -> list[Object]:
    """Return a Service with the address 10.0.0.NUMBER, and its endpoint."""
    made, slice_ = backed_service(name, ("", f"10.1.1.{number}"), namespace=namespace)
    return [{**made, "spec": {**made["spec"], "clusterIP": f"10.0.0.{number}"}}, slice_]


def receivers(*objects: Object) -> Mapping[str, Any]:
    """Return the Services that get the requests of the client in each namespace, and of the gateway."""
    result, stored = compiled(*objects), snapshot(*objects)
    callers = {home: arrivals.pod(result, stored, f"{home}/client") for home in HOMES}
    callers["gateway"] = arrivals.gateway(result.mesh.trust_domain)
    explained = {
        home: explain(
            result,
            stored,
            "web.default:8080",
            ExplainInput(request=Request(authority="web.default:8080"), url=URL, caller=caller),
        )
        for home, caller in callers.items()
    }
    return {
        home: [backend.service or backend.status_code for backend in status.backends]
        for home, status in explained.items()
    }


def test_the_routes_of_a_namespace_replace_those_of_the_service_for_its_clients():
    everywhere = {"default": ["default/web"], "other": ["default/web"], "gateway": ["default/web"]}
    assert receivers(*site(TO_OWN)) == {**everywhere, "teams": ["teams/own"]}
    produced = {home: ["default/one"] for home in everywhere}
    assert receivers(*site(TO_OWN, PRODUCER)) == {**produced, "teams": ["teams/own"]}
    limited = own_route(rule({"own": 1}, matches=[{"path": {"value": "/api"}}]))
    assert receivers(*site(limited, PRODUCER)) == {**produced, "teams": [404]}


def test_only_the_sidecars_of_the_namespace_have_other_resources_and_count():
    mesh, memo, fleet = compiled(*site(TO_OWN)).mesh, Memo(), Fleet()
    scopes = {}
    for workload in mesh.workloads:
        node = sidecar(workload)
        proxy = fleet.expect(node.id)
        proxy.config.set(encode(project(mesh, node), memo))
        XdsClient(proxy).take()
        scopes[workload.name] = proxy.config.get()[SCOPES]
    name = names.outbound(WEB)
    assert scopes["default/client"][name] is scopes["other/client"][name]
    assert scopes["teams/client"][name] != scopes["other/client"][name]
    same = names.outbound(OWN)
    assert scopes["teams/client"][same] is scopes["other/client"][same]
    receipts = Receipts(fleet.connected())
    assert receipts.progress([WEB]) == Progress(holding=3)
    assert receipts.progress([WEB], "teams") == Progress(holding=1)


def test_rules_that_no_request_of_the_namespace_reaches_are_reported():
    api = {"matches": [{"path": {"value": "/api"}}]}
    hidden = own_route(rule({"own": 1}, **api), rule({}, **api))
    shadowed = [finding for finding in compiled(*site(hidden)).report.findings if finding.reason is Reason.SHADOWED]
    assert [finding.about.namespace for finding in shadowed] == ["teams"]


def test_a_plan_names_the_clients_whose_requests_move():
    before, after = compiled(*site(PRODUCER)), compiled(*site(PRODUCER, TO_OWN))
    (line,) = summary(before, after)
    assert line == (
        "Service default/web:8080, clients of namespace teams: all requests: all of them from default/one:8080 to teams/own:8080"
    )


def test_a_rendered_proxy_leaves_out_the_routes_of_single_namespaces():
    omissions = select(compiled(*site(TO_OWN)).mesh).omissions
    left_out = [omission for omission in omissions if omission.reason is OmissionReason.CONSUMER_ROUTE]
    assert [(omission.origin, omission.where) for omission in left_out] == [
        (Key("gateway.networking.k8s.io", "HTTPRoute", "teams", "consumer"), "port 8080 of Service default/web")
    ]


def tcp_route(name: str, namespace: str, created: str) -> Object:
    """Return a TCPRoute from the port of the Service `default/db` to the Service `one` of its namespace."""
    spec = {
        "parentRefs": [service_parent("db", 8080, namespace="default")],
        "rules": [{"backendRefs": [{"name": "one", "port": 8080}]}],
    }
    metadata = {"creationTimestamp": created}
    return obj("TCPRoute", name, namespace=namespace, version=f"{GATEWAY_API}/v1alpha2", spec=spec, metadata=metadata)


def test_an_older_tcp_route_of_another_namespace_leaves_that_of_the_service():
    """Before, a route of any namespace switched off the Service's own one, for all clients."""
    services = [
        *backed_service("db", ("", "10.1.1.1"), app="tcp"),
        *backed_service("one", ("", "10.1.1.2"), app="tcp"),
        *backed_service("one", ("", "10.1.1.3"), app="tcp", namespace="teams"),
    ]
    own = tcp_route("own", "default", "2026-01-02T00:00:00Z")
    theirs = [
        tcp_route("theirs", "teams", "2026-01-01T00:00:00Z"),
        tcp_route("younger", "teams", "2026-01-03T00:00:00Z"),
    ]
    result = compiled(*services, own, *theirs)
    (table,) = (table for table in result.mesh.tables if table.ref.service == "default/db")
    assert [route.origin and route.origin.name for route in table.routes] == ["own"]
    (consumer,) = result.mesh.consumers
    assert [route.origin and route.origin.name for route in consumer.table.routes] == ["theirs"]
    assert [finding.about.name for finding in findings(result, Reason.SHADOWED)] == ["younger"]


def test_findings_about_the_routes_of_a_namespace_leave_splits_of_the_service_alone():
    secure = backed_service("own", ("", "10.1.1.3"), app="https", namespace="teams")
    policy = obj(
        "BackendTLSPolicy",
        "own",
        namespace="teams",
        version=f"{GATEWAY_API}/v1",
        spec={
            "targetRefs": [{"group": "", "kind": "Service", "name": "own"}],
            "validation": {"hostname": "own.example", "wellKnownCACertificates": "System"},
        },
    )
    limited, api = split("web", {"one": 1}, matches=["api"]), http_route_group("api", {"api": {"pathRegex": "/api"}})
    services = [*backed_service("web", ("", "10.1.1.1")), *backed_service("one", ("", "10.1.1.2")), *secure]
    result = compiled(TO_OWN, policy, limited, api, *services)
    (finding,) = findings(result, Reason.UNSUPPORTED_PROTOCOL)
    assert finding.about == Key(GATEWAY_API, "HTTPRoute", "teams", "consumer")
    assert not findings(result, Reason.NO_EFFECT)
    assert findings(compiled(PRODUCER, limited, api, *services), Reason.NO_EFFECT)
