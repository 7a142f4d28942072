"""No request passes an authorization server by another spelling of its path."""

from collections.abc import Iterable

import pytest
from tests.compiler.gateway_api.route_meshes import edge, edge_route, ref, services
from tests.compiler.gateway_api.test_listener_sets import listener_set, open_gateway
from tests.make.objects import Object, path_match, route, service_parent
from tests.make.values import compiled

from headgate.model.evaluate import EntryPort, decide
from headgate.model.requests import Request
from headgate.model.routing import Mesh, PortRef

SPELLINGS = ("//admin/x", "/a/../admin/x", "/%61dmin/x", "/admin%2fx", "/a%2Dmin", "/%7euser", "/./admin")
NOT_ASCII = ("/é", "/admin/\udcff", "/\udcc0\udcae\udcc0\udcae/admin")
"""Paths that only HTTP/2 can carry; the last two are not UTF-8."""
OTHER_PATHS = ("/", "/na%C3%AFve", "/a%20b", "/user%40example.com", "/a%3Db%2Bc", "/a?next=//x/%61", "/a;b/c~d_e.f-g")
SHOP = PortRef("default/shop", 80)
AMBIGUOUS = [(400, "AmbiguousPath")]


def guarded(path: str, server: str = "auth") -> Object:
    """Return a rule for a path that an authorization server decides about."""
    asked = {"protocol": "HTTP", "backendRef": ref(server), "http": {}}
    return {
        "matches": [path_match(path)],
        "filters": [{"type": "ExternalAuth", "externalAuth": asked}],
        "backendRefs": [ref("shop")],
    }


OPEN = {"backendRefs": [ref("shop")]}


def answers(
    mesh: Mesh, where: EntryPort, target: str, home: str = "default", host: str = "a.example"
) -> list[tuple[int, str]]:
    """Return the proxy's own answers to a request; 0 stands for those of a backend."""
    decision = decide(mesh.seen_from(home), where, Request(authority=host, target=target), home)
    return [(portion.status, portion.reason) for portion in decision.shares]


def at_gateway(*rules: Object) -> Mesh:
    return compiled(edge(), *services("shop", "auth", "other"), edge_route(*rules)).mesh


@pytest.mark.parametrize("target", SPELLINGS)
def test_a_request_cannot_pass_by_another_spelling_of_the_path(target):
    mesh = at_gateway(guarded("/admin"), OPEN)
    assert answers(mesh, mesh.gateways[0], target) == AMBIGUOUS


@pytest.mark.parametrize("target", NOT_ASCII)
def test_a_request_cannot_pass_with_bytes_that_are_not_ascii(target):
    port = at_gateway(guarded("/admin"), OPEN).gateways[0]
    decision = decide(Mesh(domain=""), port, Request(authority="a.example", target=target, version="2"))
    assert [(portion.status, portion.reason) for portion in decision.shares] == AMBIGUOUS


@pytest.mark.parametrize("target", OTHER_PATHS)
def test_other_paths_are_as_before(target):
    mesh = at_gateway(guarded("/admin"), OPEN)
    assert answers(mesh, mesh.gateways[0], target) == [(0, "")]


def test_a_server_that_cannot_be_called_opens_no_spelling():
    mesh = at_gateway(guarded("/admin", "missing"), OPEN)
    assert answers(mesh, mesh.gateways[0], "/admin") == [(500, "BackendNotFound")]
    assert answers(mesh, mesh.gateways[0], "//admin") == AMBIGUOUS


def test_rules_with_different_servers_have_no_other_spelling():
    mesh = at_gateway(guarded("/admin"), guarded("/", "other"))
    assert answers(mesh, mesh.gateways[0], "//admin") == AMBIGUOUS


@pytest.mark.parametrize("rules", [[OPEN], [guarded("/admin"), guarded("/")], [guarded("/admin", "auth")]])
def test_hosts_whose_rules_all_need_the_same_permission_forward_all_paths(rules: Iterable[Object]):
    mesh = at_gateway(*rules)
    assert answers(mesh, mesh.gateways[0], "//admin") != AMBIGUOUS


def test_the_same_holds_for_clients_of_a_service_and_for_those_of_a_namespace():
    parents = [service_parent("shop", 80)]
    of_all = compiled(*services("shop", "auth"), route("shop", guarded("/admin"), OPEN, parents=parents)).mesh
    assert answers(of_all, SHOP, "//admin") == AMBIGUOUS
    own = route(
        "own", guarded("/admin"), OPEN, parents=[service_parent("shop", 80, namespace="default")], namespace="teams"
    )
    of_some = compiled(*services("shop"), *services("shop", "auth", namespace="teams"), own).mesh
    assert answers(of_some, SHOP, "//admin", home="teams") == AMBIGUOUS
    assert answers(of_some, SHOP, "//admin", home="default") == [(0, "")]
    (table,) = (consumer.table for consumer in of_some.consumers)
    assert {str(each.external_auth.ref) for each in table.routes if each.external_auth} == {"teams/auth:80"}


def test_the_same_holds_for_listener_sets():
    attached = route("shop", guarded("/admin"), OPEN, parents=[{"kind": "ListenerSet", "name": "a"}])
    mesh = compiled(open_gateway(), listener_set("a", "a.example"), *services("shop", "auth"), attached).mesh
    port = mesh.gateways[0]
    assert answers(mesh, port, "//admin") == AMBIGUOUS
    assert [bool(each.external_auth) for each in port.hosts["a.example"].routes] == [False, True, False]
