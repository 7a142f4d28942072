"""XBackends as backends of routes: findings, shares, TLS and names (GEP-4488)."""

from typing import Any

import pytest
from tests.authority import Authority
from tests.make.objects import (
    Object,
    backed_service,
    backend_ref,
    external_backend,
    external_ref,
    gateway,
    grant,
    listener,
    namespace,
    obj,
    route,
    service,
    service_parent,
)
from tests.make.values import compiled

from headgate.compiler.explain import auth_words
from headgate.compiler.report import Compiled
from headgate.envoy.names import GatewayRef
from headgate.envoy.route_filters import ListenerInfo
from headgate.envoy.route_plan import Planner
from headgate.errors import Cause
from headgate.model.routing import Protocol, Route
from headgate.plane.status.findings import dropped_copies
from headgate.resources.gateway_api.backend import backend_causes
from headgate.resources.registry import BACKEND

EDGE = gateway("edge", listener(8000), status={"addresses": [{"value": "127.0.0.10"}]})
CA = obj("ConfigMap", "ca", data={"ca.crt": Authority("trusted").pem})
HOST = "api.example.com"
SERVER_ONLY = {"mode": "ServerOnly"}
BOTH_SIDES = {"mode": "ClientAndServer", "clientCertificateRef": {"name": "own"}}


def validation(**more: Any) -> Object:
    refs = [{"group": "", "kind": "ConfigMap", "name": "ca"}]
    return {"hostname": "server.example.com", "caCertificateRefs": refs, **more}


def routed(*objects: Object, kind: str = "HTTPRoute", **ref: Any) -> Compiled:
    """Return what the compiler makes of a route of the Gateway `edge` to the XBackend `api`."""
    out = route("out", {"backendRefs": [{**external_ref("api"), **ref}]}, parents=[{"name": "edge"}], kind=kind)
    return compiled(EDGE, *objects, out)


def only_route(result: Compiled) -> Route:
    (port,) = result.mesh.gateways
    (host,) = port.hosts.values()
    return host.routes[0]


def reasons(result: Compiled) -> list[tuple[str, str, str]]:
    return [(finding.about.kind, finding.reason.value, finding.field) for finding in result.report.findings]


def causes(backend: Object) -> list[Cause]:
    return list(backend_causes(backend))


@pytest.mark.parametrize(
    ("number", "spec", "host"),
    [
        (443, {"tls": SERVER_ONLY}, HOST),
        (80, {}, HOST),
        (443, {}, f"{HOST}:443"),
        (80, {"tls": SERVER_ONLY}, f"{HOST}:80"),
        (8443, {"tls": {"mode": "None"}}, f"{HOST}:8443"),
    ],
)
def test_requests_have_the_hostname_and_an_unusual_port_as_host(number: int, spec: Object, host: str) -> None:
    (target,) = only_route(routed(external_backend("api", HOST, number, **spec))).split.targets
    assert target.filters.rewrite
    assert target.filters.rewrite.hostname == host
    assert (target.tls is not None) == (spec.get("tls") == SERVER_ONLY)


@pytest.mark.parametrize(
    ("kind", "protocol", "spoken"),
    [
        ("HTTPRoute", "", Protocol.HTTP),
        ("HTTPRoute", "HTTP2", Protocol.HTTP2),
        ("HTTPRoute", "H2C", Protocol.HTTP2),
        ("HTTPRoute", "HTTP11", Protocol.HTTP),
        ("HTTPRoute", "MCP", Protocol.HTTP),
        ("GRPCRoute", "HTTP", Protocol.HTTP2),
        ("GRPCRoute", "", Protocol.HTTP2),
    ],
)
def test_the_server_is_called_over_its_protocol_and_by_grpc_routes_over_http2(
    kind: str, protocol: str, spoken: Protocol
) -> None:
    spec = {"protocol": protocol} if protocol else {}
    (target,) = only_route(routed(external_backend("api", HOST, **spec), kind=kind)).split.targets
    assert target.protocol is spoken


def test_the_certificate_is_for_the_hostname_by_default_and_for_the_names_of_the_validation_otherwise() -> None:
    by_default = only_route(routed(external_backend("api", HOST, tls=SERVER_ONLY))).split.targets[0].tls
    assert by_default
    assert (by_default.hostname, by_default.roots) == (HOST, "")
    tls = {**SERVER_ONLY, "validation": validation()}
    written = only_route(routed(CA, external_backend("api", HOST, tls=tls))).split.targets[0].tls
    assert written
    assert written.hostname == "server.example.com"
    assert written.roots == CA["data"]["ca.crt"]


@pytest.mark.parametrize(
    ("tls", "reason", "field"),
    [
        ({**SERVER_ONLY, "validation": validation()}, "NoValidCACertificate", "spec.tls.validation.caCertificateRefs"),
        (
            {**SERVER_ONLY, "validation": {"hostname": HOST, "wellKnownCACertificates": "example.com/own"}},
            "UnsupportedValue",
            "spec.tls.validation.wellKnownCACertificates",
        ),
        (BOTH_SIDES, "UnsupportedValue", "spec.tls.mode"),
    ],
)
def test_a_server_that_can_not_be_verified_gets_no_request(tls: Object, reason: str, field: str) -> None:
    result = routed(external_backend("api", HOST, tls=tls))
    assert ("XBackend", reason, field) in reasons(result)
    split = only_route(result).split
    assert split.targets == ()
    assert [(share.reason, share.status) for share in split.broken] == [(reason, 503)]


def test_a_mirror_to_a_server_that_can_not_be_verified_is_dropped() -> None:
    copy = {"type": "RequestMirror", "requestMirror": {"backendRef": external_ref("api")}}
    rule = {"backendRefs": [external_ref("other")], "filters": [copy]}
    tls = {**SERVER_ONLY, "validation": validation()}
    backends = external_backend("api", HOST, tls=tls), external_backend("other", HOST)
    parents = [{"name": "edge"}]
    assert only_route(compiled(EDGE, *backends, route("out", rule, parents=parents))).mirrors == ()
    (mirror,) = only_route(compiled(EDGE, CA, *backends, route("out", rule, parents=parents))).mirrors
    assert mirror.targets[0].tls


@pytest.mark.parametrize(
    ("spec", "ref", "kind", "reason"),
    [
        ({}, {"name": "gone"}, "HTTPRoute", "BackendNotFound"),
        ({}, {"port": 80}, "HTTPRoute", "BackendNotFound"),
        ({}, {"namespace": "shop"}, "HTTPRoute", "RefNotPermitted"),
        ({"protocol": "TCP"}, {}, "HTTPRoute", "UnsupportedProtocol"),
        ({}, {}, "UDPRoute", "UnsupportedProtocol"),
    ],
)
def test_a_reference_that_can_not_be_used_has_a_finding(spec: Object, ref: Object, kind: str, reason: str) -> None:
    result = routed(external_backend("api", HOST, **spec), kind=kind, **ref)
    assert (kind, reason) in [(about, named) for about, named, _ in reasons(result)]


def guarded(*objects: Object, protocol: str = "HTTP") -> Compiled:
    """Return what the compiler makes of a route to a Service, whose authorization server is the XBackend `auth`."""
    auth = {"protocol": protocol, "backendRef": external_ref("auth"), protocol.lower(): {}}
    rule = {"backendRefs": [backend_ref("web")], "filters": [{"type": "ExternalAuth", "externalAuth": auth}]}
    return compiled(
        EDGE, *backed_service("web", ("", "10.1.0.1")), *objects, route("out", rule, parents=[{"name": "edge"}])
    )


@pytest.mark.parametrize("tls", [{}, {"tls": SERVER_ONLY}, {"tls": BOTH_SIDES}])
def test_a_route_leads_to_its_authorization_server_so_that_the_server_has_a_status(tls: Object) -> None:
    """GEP-4488: the status has an entry for each parent of the routes that lead to the XBackend."""
    (passing,) = guarded(external_backend("auth", HOST, **tls)).report.passing_routes.values()
    assert passing.passed == (BACKEND.key("default", "auth"),)


@pytest.mark.parametrize(
    ("protocol", "spoken", "words"),
    [("H2C", Protocol.HTTP2, "HTTP/2"), ("HTTP", Protocol.HTTP, "HTTP"), ("MCP", Protocol.HTTP, "HTTP")],
)
def test_an_authorization_server_is_called_over_its_protocol(protocol: str, spoken: Protocol, words: str) -> None:
    auth = only_route(guarded(external_backend("auth", HOST, protocol=protocol))).external_auth
    assert auth
    assert auth.server_protocol is spoken
    assert auth_words(auth) == f"default/auth.xbackend:443 over {words}"


@pytest.mark.parametrize(
    ("tls", "fault"),
    [(BOTH_SIDES, "UnsupportedValue"), ({**SERVER_ONLY, "validation": validation()}, "NoValidCACertificate")],
)
def test_a_route_whose_authorization_server_can_not_be_verified_says_so_and_answers_503(
    tls: Object, fault: str
) -> None:
    result = guarded(external_backend("auth", HOST, tls=tls))
    closed = only_route(result)
    assert (closed.split.targets, closed.external_auth) == ((), None)
    assert [(share.reason, share.status) for share in closed.split.broken] == [(fault, 503)]
    (parent,) = result.report.parents
    refs = next(condition for condition in parent.conditions if condition.type == "ResolvedRefs")
    assert (refs.status, refs.reason) == (False, "UnsupportedProtocol")


def test_each_kind_of_route_mirrors_to_one_server_over_its_own_protocol() -> None:
    copy = {"type": "RequestMirror", "requestMirror": {"backendRef": external_ref("api")}}
    rule = {"backendRefs": [external_ref("other")], "filters": [copy]}
    backends = external_backend("api", HOST), external_backend("other", HOST)
    parents = [{"name": "edge"}]
    both = [
        route(kind.lower(), rule, parents=parents, kind=kind, hostnames=[f"{kind.lower()}.example"])
        for kind in ("HTTPRoute", "GRPCRoute")
    ]
    mesh = compiled(EDGE, *backends, *both).mesh
    (port,) = mesh.gateways
    planner = Planner(GatewayRef("default/edge", 8000), {entry.ref: entry.ready for entry in mesh.endpoints})
    planned = planner.plan_routes(port.routes, ListenerInfo(scheme="http", port=8000))
    mirrored = {plan.origin.split()[0]: plan.mirrors[0].cluster for plan in planned}
    assert {kind: planner.clusters[name].protocol for kind, name in mirrored.items()} == {
        "HTTPRoute": Protocol.HTTP,
        "GRPCRoute": Protocol.HTTP2,
    }
    for kind, name in mirrored.items():
        (finding,) = dropped_copies(mesh, {name: 1})
        assert finding.about.kind == kind


def test_a_reference_to_another_namespace_needs_a_grant_for_xbackends() -> None:
    objects = namespace("shop"), external_backend("api", HOST) | {"metadata": {"name": "api", "namespace": "shop"}}
    source = ("gateway.networking.k8s.io", "HTTPRoute", "default")
    allowed = [
        grant("out", source, (group, kind), namespace="shop")
        for group, kind in (("gateway.networking.x-k8s.io", "XBackend"), ("", "Service"))
    ]
    assert [len(only_route(routed(*objects, each, namespace="shop")).split.targets) for each in allowed] == [1, 0]


def test_a_name_of_this_machine_gets_503() -> None:
    result = routed(external_backend("api", "a.localhost"))
    assert ("XBackend", "NameNotResolved", "spec.externalHostname.hostname") in reasons(result)
    assert [share.status for share in only_route(result).split.broken] == [503]


def test_a_service_of_the_same_name_stays_another_backend() -> None:
    rule = {"backendRefs": [external_ref("api"), {"name": "api", "port": 443}]}
    result = compiled(
        EDGE,
        external_backend("api", HOST),
        service("api", 443, type="ExternalName", externalName="other.example.com"),
        route("out", rule, parents=[{"name": "edge"}]),
    )
    assert [str(target.ref) for target in only_route(result).split.targets] == [
        "default/api.xbackend:443",
        "default/api:443",
    ]


def test_clients_in_the_mesh_call_the_server_over_tls_too() -> None:
    out = route("out", {"backendRefs": [external_ref("api")]}, parents=[service_parent("web")])
    result = compiled(service("web", 80), external_backend("api", HOST, tls=SERVER_ONLY), out)
    (table,) = result.mesh.tables
    assert table.routes[0].split.targets[0].tls


def test_mistakes_that_the_schema_does_not_express_are_named() -> None:
    written = external_backend(
        "api", "web.cluster.local", tls={"mode": "ClientAndServer", "validation": {"hostname": HOST}}
    )
    assert [cause.field for cause in causes(written)] == [
        "spec.externalHostname.hostname",
        "spec.tls.clientCertificateRef",
        "spec.tls.validation",
    ]
    superfluous = external_backend("api", HOST, tls={**SERVER_ONLY, "clientCertificateRef": {"name": "own"}})
    assert [cause.field for cause in causes(superfluous)] == ["spec.tls.clientCertificateRef"]
