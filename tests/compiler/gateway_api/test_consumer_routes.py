"""Routes for clients of one namespace (GAMMA): their sidecars get them in place of the Service's own routes."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from tests.make.objects import Object, backed_service, meshed_pod, route, rule, service_parent
from tests.make.values import compiled, snapshot
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
    found = [finding for finding in compiled(*site(hidden)).report.findings if finding.reason is Reason.SHADOWED]
    assert [finding.about.namespace for finding in found] == ["teams"]


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
