"""BackendTLSPolicies in the model: which backends Gateways call over TLS, and which get nothing (GEP-1897)."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.authority import Authority
from tests.compiler.gateway_api.route_meshes import edge, edge_route, mirror, ref, services
from tests.make.objects import GATEWAY_API, Object, config_map, obj, route, service_parent, split
from tests.make.server_certificates import PAIRS, of_unknown_version, secret
from tests.make.values import compiled, findings

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled
from headgate.envoy.names import GatewayRef
from headgate.envoy.pb import UpstreamTlsContext
from headgate.envoy.route_filters import ListenerInfo
from headgate.envoy.route_plan import Planner
from headgate.envoy.upstream_tls import transport_socket
from headgate.model.edge_tls import AltName
from headgate.model.evaluate import decide
from headgate.model.requests import Request
from headgate.model.routing import Protocol, Route, Target
from headgate.plan.treatment import treatment_of
from headgate.plan.words import changes
from headgate.render.omissions import OmissionReason
from headgate.render.proxy_ports import select
from headgate.resources.decode import check
from headgate.resources.smi.split_fields import STICKY

CA = config_map("ca", {"ca.crt": Authority().pem})


def policy(name: str, *services_of: str, section: str = "", **validation: Any) -> Object:
    """Return a policy for Services; `validation` replaces or adds fields."""
    targets = [
        {"group": "", "kind": "Service", "name": named, **({"sectionName": section} if section else {})}
        for named in services_of
    ]
    refs = (
        {}
        if "wellKnownCACertificates" in validation
        else {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}
    )
    spec = {"targetRefs": targets, "validation": {"hostname": "web.example", **refs, **validation}}
    return obj("BackendTLSPolicy", name, version=f"{GATEWAY_API}/v1", spec=spec)


def only_route(result: Compiled) -> Route:
    """Return the only route of the Gateway."""
    (port,) = result.mesh.gateways
    (only,) = port.routes
    return only


def names(targets: tuple[Target, ...]) -> dict[str, str]:
    """Return the policy of each target, by the name of the Service; empty without one."""
    return {
        target.ref.service.removeprefix("default/"): target.tls.origin.name if target.tls else "" for target in targets
    }


def test_the_policy_of_a_backend_comes_before_that_of_its_root() -> None:
    weights = split("web", {"v1": 1, "v2": 1})
    objects = [
        *services("web", "v1", "v2", app="https"),
        edge(),
        edge_route({"backendRefs": [ref("web")]}),
        weights,
        CA,
    ]
    result = compiled(*objects, policy("root", "web"), policy("own", "v2"))
    assert names(only_route(result).split.targets) == {"v1": "root", "v2": "own"}
    assert {target.protocol for target in only_route(result).split.targets} == {Protocol.HTTP}


def routed(*objects: Object, **weights: int) -> Route:
    """Return the Gateway's route whose rule has these backends, with sessions if one has the weight 0."""
    rule: Object = {"backendRefs": [ref(name, weight=weight) for name, weight in weights.items()]}
    if 0 in weights.values():
        rule["sessionPersistence"] = {"sessionName": "user"}
    names_of = ("web", "shop", "v1", "v2")
    return only_route(
        compiled(*services(*names_of), edge(), edge_route(rule), split("web", {"v1": 1, "v2": 1}), CA, *objects)
    )


def test_a_root_decides_about_backends_that_the_rule_also_names_itself() -> None:
    root = policy("root", "web")
    assert names(routed(root, web=9, v1=1).split.targets) == {"v1": "root", "v2": "root"}
    assert names(routed(root, web=9, v1=1, shop=1).split.targets) == {"v1": "root", "v2": "root", "shop": ""}
    assert names(routed(root, web=0, shop=1).split.targets) == {"shop": "", "v1": "root", "v2": "root"}


def test_a_backend_of_two_roots_with_different_policies_gets_nothing() -> None:
    other = split("shop", {"v1": 1, "v2": 1})
    assert names(routed(other, policy("both", "web", "shop"), web=1, shop=1).split.targets) == {
        "v1": "both",
        "v2": "both",
    }
    found_split = routed(other, policy("web", "web"), policy("shop", "shop"), policy("v2", "v2"), web=1, shop=1).split
    assert names(found_split.targets) == {"v2": "v2"}
    assert [(share.reason, share.status) for share in found_split.broken] == [("Conflicted", 503)]


def test_a_backend_without_a_usable_ca_loses_its_share_and_its_users_and_its_copies() -> None:
    rule = {"backendRefs": [ref("web")], "filters": [mirror("v2"), mirror("v1")]}
    weights = split("web", {"v1": 1, "v2": 1}, annotations={STICKY: "header:x-user"})
    missing = policy("v2", "v2", caCertificateRefs=[{"group": "", "kind": "ConfigMap", "name": "gone"}])
    result = compiled(*services("web", "v1", "v2"), edge(), edge_route(rule), weights, CA, missing, policy("v1", "v1"))
    found_route = only_route(result)
    assert names(found_route.split.targets) == {"v1": "v1"}
    assert [(share.reason, share.status) for share in found_route.split.broken] == [("NoValidCACertificate", 503)]
    assert found_route.split.sticky
    assert {(side.ref.service if side.ref else side.status) for side in found_route.split.sticky.slot_ranges} == {
        "default/v1",
        503,
    }
    assert [names(copies.targets) for copies in found_route.mirrors] == [{"v1": "v1"}]


def test_an_invalid_policy_keeps_its_services_from_plaintext() -> None:
    invalid = policy("web", "web", hostname="1.2.3.4")
    assert [cause.field for cause in check(invalid).causes] == ["spec.validation.hostname"]
    result = compiled(*services("web"), edge(), edge_route({"backendRefs": [ref("web")]}), CA, invalid)
    assert [share.status for share in only_route(result).split.broken] == [503]


def test_an_invalid_policy_keeps_its_age_and_its_readable_targets() -> None:
    """The oldest policy for a Service decides, and null is a missing field."""
    invalid = policy("invalid", "web", "v1", "v2", hostname="1.2.3.4")
    invalid["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    _, with_null, unreadable = invalid["spec"]["targetRefs"]
    with_null["sectionName"], unreadable["name"] = None, 1
    valid = policy("valid", "web")
    valid["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    rule = {"backendRefs": [ref("web"), ref("v1"), ref("v2")]}
    result = compiled(*services("web", "v1", "v2"), edge(), edge_route(rule), CA, invalid, valid)
    assert names(only_route(result).split.targets) == {"web": "valid", "v2": ""}
    assert [share.status for share in only_route(result).split.broken] == [503]
    messages = [finding.message for finding in findings(result, Reason.INVALID)]
    assert messages
    assert all(message.endswith("its Services get no requests of Gateways") for message in messages)


def test_a_ca_certificate_of_an_unknown_version_is_a_mistake_of_one_policy() -> None:
    """The library reports it with an exception of its own, which stopped each build of the mesh."""
    odd = config_map("odd", {"ca.crt": of_unknown_version(Authority().pem)})
    refs = [{"group": "", "kind": "ConfigMap", "name": "odd"}]
    rule = {"backendRefs": [ref("web"), ref("v1")]}
    objects = [*services("web", "v1"), edge(), edge_route(rule), CA, odd]
    result = compiled(*objects, policy("web", "web", caCertificateRefs=refs), policy("v1", "v1"))
    assert names(only_route(result).split.targets) == {"v1": "v1"}
    (finding,) = findings(result, Reason.INVALID_CA_CERTIFICATE_REF)
    assert finding.message == "ConfigMap default/odd has no CA certificates in PEM in its key ca.crt; correct it"


def test_http_over_tls_is_for_gateways_only() -> None:
    parents = [{"name": "edge"}, service_parent("front")]
    both = route("both", {"backendRefs": [ref("web", weight=3), ref("front")]}, parents=parents)
    objects = [*services("web", app="https"), *services("front"), edge(), both, CA]
    result = compiled(*objects, policy("web", "web"))
    assert names(only_route(result).split.targets) == {"web": "web", "front": ""}
    table = next(table for table in result.mesh.tables if table.ref.service == "default/front")
    (in_mesh,) = table.routes
    assert [(share.weight, share.status) for share in in_mesh.split.broken] == [(3, 500)]
    assert [finding.about.name for finding in findings(result, Reason.UNSUPPORTED_PROTOCOL)] == ["both"]
    (refused,) = findings(compiled(*objects), Reason.UNSUPPORTED_PROTOCOL)
    assert refused.message.endswith("set the port's appProtocol to http, or use a BackendTLSPolicy")


def guarded(*objects: Object, app: str = "", protocol: str = "HTTP", parents: Sequence[Object] = ()) -> Compiled:
    """Return a mesh in which the Service `auth` decides about requests to `web`, of the Gateway unless there are `parents`."""
    auth = {
        "type": "ExternalAuth",
        "externalAuth": {"protocol": protocol, "backendRef": ref("auth"), protocol.lower(): {}},
    }
    rule = {"backendRefs": [ref("web")], "filters": [auth]}
    routed_by = route("guarded", rule, parents=parents or [{"name": "edge"}])
    return compiled(*services("web"), *services("auth", app=app), edge(), routed_by, CA, *objects)


@pytest.mark.parametrize("protocol", ["HTTP", "GRPC"])
@pytest.mark.parametrize("app", ["", "https"])
def test_gateways_call_an_authorization_server_with_the_tls_of_its_policy(app: str, protocol: str) -> None:
    result = guarded(policy("auth", "auth"), app=app, protocol=protocol)
    (port,) = result.mesh.gateways
    endpoints = {entry.ref: entry.ready for entry in result.mesh.endpoints}
    protocols = {table.ref: table.protocol for table in result.mesh.tables}
    for ready in (endpoints, {}):
        planner = Planner(GatewayRef("default/edge", 80), ready, protocols)
        (planned,) = planner.plan_routes(port.routes, ListenerInfo(scheme="http", port=80))
        cluster = planner.clusters[planned.auth_cluster]
        assert [peer.origin.name for peer in cluster.servers] == ["auth"]
        assert cluster.peers == cluster.servers
        assert cluster.protocol is (Protocol.HTTP if protocol == "HTTP" else Protocol.HTTP2)
    suffix = "/grpc" if protocol == "GRPC" else ""
    assert planned.auth_cluster == f"auth/default/auth/80{suffix}/from/gateway/default/edge/80"
    (outcome,) = result.report.policies
    assert [ancestor.key.name for ancestor in outcome.ancestors] == ["edge"]


def test_without_a_usable_ca_of_the_authorization_server_no_request_passes() -> None:
    missing = policy("auth", "auth", caCertificateRefs=[{"group": "", "kind": "ConfigMap", "name": "gone"}])
    closed = only_route(guarded(missing))
    assert closed.external_auth is None
    assert (closed.split.targets, [share.status for share in closed.split.broken]) == ((), [503])


def test_clients_in_the_mesh_call_no_authorization_server_over_tls() -> None:
    for app, refused in (("https", True), ("", False)):
        result = guarded(policy("auth", "auth"), app=app, parents=[service_parent("web")])
        table = next(table for table in result.mesh.tables if table.ref.service == "default/web")
        assert [share.status for share in table.routes[0].split.broken] == [500] * refused
        assert [finding.field for finding in findings(result, Reason.UNSUPPORTED_PROTOCOL)] == [
            "spec.rules[0].filters"
        ] * refused
        assert [route.external_auth.tls for route in table.routes if route.external_auth] == [None] * (not refused)


def test_only_a_listener_that_ends_tls_starts_it_again() -> None:
    tls_route = obj(
        "TLSRoute",
        "web",
        version=f"{GATEWAY_API}/v1",
        spec={"parentRefs": [{"name": "edge"}], "hostnames": ["web.example"], "rules": [{"backendRefs": [ref("web")]}]},
    )
    objects = [*services("web", app="tls"), tls_route, CA, policy("web", "web"), secret("cert", PAIRS["P-256"])]
    for mode, called in (("Terminate", {"web": "web"}), ("Passthrough", {"web": ""})):
        listener = {"protocol": "TLS", "tls": {"mode": mode, "certificateRefs": [{"name": "cert"}]}}
        assert names(only_route(compiled(*objects, edge(**listener))).split.targets) == called


def test_the_names_of_a_server_are_those_of_the_policy() -> None:
    uri = {"type": "URI", "uri": "spiffe://example/web"}
    cases: list[tuple[dict[str, Any], tuple[AltName, ...]]] = [
        ({}, (AltName(kind="dns", value="web.example"),)),
        ({"subjectAltNames": [uri]}, (AltName(kind="uri", value="spiffe://example/web"),)),
    ]
    for given, expected in cases:
        result = compiled(
            *services("web"), edge(), edge_route({"backendRefs": [ref("web")]}), CA, policy("web", "web", **given)
        )
        (target,) = only_route(result).split.targets
        assert target.tls
        assert target.tls.names == expected
        context = UpstreamTlsContext.FromString(transport_socket(target.tls).typed_config.value)
        assert context.sni == "web.example"


@pytest.mark.parametrize(
    ("validation", "reason"),
    [
        ({"wellKnownCACertificates": "example.com/roots"}, Reason.UNSUPPORTED_VALUE),
        ({"caCertificateRefs": [{"group": "", "kind": "Secret", "name": "opaque"}]}, Reason.INVALID_CA_CERTIFICATE_REF),
        (
            {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "empty"}]},
            Reason.INVALID_CA_CERTIFICATE_REF,
        ),
        ({"caCertificateRefs": [{"group": "", "kind": "Pod", "name": "ca"}]}, Reason.INVALID_KIND),
    ],
)
def test_a_ca_that_cannot_be_used_is_reported_with_its_field(validation: dict[str, Any], reason: Reason) -> None:
    objects = [
        *services("web"),
        config_map("empty", {}),
        obj("Secret", "opaque", data={"ca.crt": ""}),
        policy("web", "web", **validation),
    ]
    (finding,) = findings(compiled(*objects), reason)
    assert finding.field.startswith("spec.validation.")


def test_a_plan_and_rendered_proxies_name_the_tls_of_a_backend() -> None:
    objects = [*services("web"), edge(), edge_route({"backendRefs": [ref("web")]}), CA]
    before, after = compiled(*objects), compiled(*objects, policy("web", "web"))
    ready = {entry.ref: entry.ready for entry in after.mesh.endpoints}
    (line,) = changes(*(treatment_of(only_route(result), ready) for result in (before, after)))
    assert line.startswith(
        "default/web:80: no TLS by a policy -> TLS by BackendTLSPolicy default/web: server name web.example, "
    )
    (portion,) = decide(
        after.mesh, after.mesh.gateways[0], Request(authority="a.example", method="GET", target="/")
    ).shares
    assert portion.tls
    rendered = select(after.mesh)
    assert [omission.reason for omission in rendered.omissions] == [OmissionReason.BACKEND_TLS]
    edge_port = next(port for port in rendered.ports if port.owner.kind == "Gateway")
    assert [share.status for share in edge_port.hosts[0].routes[0].split.broken] == [503]
