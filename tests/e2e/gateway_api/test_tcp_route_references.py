"""The listeners and backends to which TCPRoutes refer, and two routes of one listener."""

import pytest
from tests.e2e.gateway_api.objects import PORT, edge_gateway, gateway_api_object, route_grant, web_listener
from tests.e2e.gateway_api.site import Site
from tests.e2e.gateway_api.test_precedence import wait_for_a_later_creation_time
from tests.e2e.gateway_api.test_tcp_routes import ROUTE, TCP, connect, serve, tcp_route
from tests.wire import Address


def tcp_gateway(*names: str) -> str:
    """Return the Gateway with TCP listeners on consecutive ports."""
    return edge_gateway(*(web_listener(name, protocol="TCP", port=PORT + index) for index, name in enumerate(names)))


def is_closed(site: Site, address: Address) -> bool:
    """Return whether a connection is closed without a response."""
    return site.ask(address, "any/").status == 0


@pytest.mark.conformance("TCPRouteInvalidBackendRefNonexistent")
def test_connections_to_a_missing_service_are_closed(site: Site) -> None:
    site.apply(tcp_gateway("tcp"), tcp_route({"name": "edge"}, "missing"))
    site.wait_for_parent(ROUTE, Accepted="Accepted", ResolvedRefs="BackendNotFound")
    assert is_closed(site, site.accepted())


@pytest.mark.conformance("TCPRouteInvalidCrossNamespaceBackendRef", "TCPRouteReferenceGrant")
def test_connections_to_another_namespace_need_a_grant(site: Site) -> None:
    far = site.neighbor()
    serve(far)
    backend = {"name": "raw-v1", "namespace": far.namespace, "port": TCP}
    spec = {"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [backend]}]}
    site.apply(tcp_gateway("tcp"), gateway_api_object("TCPRoute", "raw", spec))
    site.wait_for_parent(ROUTE, Accepted="Accepted", ResolvedRefs="RefNotPermitted")
    address = site.accepted()
    assert is_closed(site, address)
    far.apply(route_grant("routes", site.namespace, kind="TCPRoute"))
    site.accepted(ROUTE)
    assert site.ask(address, "any/").answered_by == "v1"
    assert far.backends["v1"].requests == 1
    far.delete("referencegrant/routes")
    site.wait_for_parent(ROUTE, Accepted="Accepted", ResolvedRefs="RefNotPermitted")
    site.accepted()
    assert is_closed(site, address)
    assert far.backends["v1"].requests == 1


@pytest.mark.conformance("TCPRouteInvalidNonTCPListener")
def test_a_tcp_route_of_an_http_listener_is_not_accepted(site: Site) -> None:
    serve(site)
    site.apply(edge_gateway(web_listener(), web_listener("tcp", protocol="TCP", port=PORT + 1)))
    site.apply(tcp_route({"name": "edge", "sectionName": "http"}, "raw-v1"))
    site.wait_for_parent(ROUTE, Accepted="NotAllowedByListeners", ResolvedRefs="ResolvedRefs")
    site.wait_for_attached({"http": 0, "tcp": 0})
    assert site.ask(site.accepted(), "any/").status == 404


@pytest.mark.conformance("TCPRouteParentRefAttachAll", "TCPRouteParentRefPortAndSectionName")
def test_a_tcp_route_attaches_to_the_listeners_of_its_parent_reference(site: Site) -> None:
    serve(site)
    site.apply(tcp_gateway("a", "b", "c"), tcp_route({"name": "edge"}, "raw-v1"))
    host = site.accepted(ROUTE).host
    addresses = [Address(host, PORT + index) for index in range(3)]
    site.wait_for_attached({"a": 1, "b": 1, "c": 1})
    assert [site.ask(address, "any/").answered_by for address in addresses] == ["v1", "v1", "v1"]
    site.delete(ROUTE)
    parents = {"v1": {"port": PORT + 2}, "v2": {"sectionName": "b"}, "v3": {"port": PORT, "sectionName": "a"}}
    site.apply(*(tcp_route({"name": "edge", **parent}, f"raw-{name}", name=name) for name, parent in parents.items()))
    site.accepted(*(f"tcproute/{name}" for name in parents))
    site.wait_for_attached({"a": 1, "b": 1, "c": 1})
    assert [site.ask(address, "any/").answered_by for address in addresses] == ["v3", "v2", "v1"]


@pytest.mark.conformance("TCPRouteMultipleRoutesAttachment")
def test_the_older_of_two_tcp_routes_gets_all_connections_and_the_newer_one_says_so(site: Site) -> None:
    """The newer route follows when the older one is gone."""
    serve(site)
    site.apply(tcp_gateway("tcp"), tcp_route({"name": "edge"}, "raw-v1", name="older"))
    wait_for_a_later_creation_time(site, "tcproute/older")
    site.apply(tcp_route({"name": "edge"}, "raw-v2", name="newer"))
    address = site.accepted("tcproute/older", "tcproute/newer")
    site.wait_for_attached({"tcp": 2})
    assert connect(site, address, 20) == {"v1": 20}
    site.wait_for_parent("tcproute/newer", **{"headgate.dev/Programmed": "Invalid"})
    ((accepted, *_),) = (entry["conditions"] for entry in site.status("tcproute/newer")["parents"])
    assert f"the older TCPRoute {site.namespace}/older has all connections of listener tcp" in accepted["message"]
    site.delete("tcproute/older")
    site.wait_for_attached({"tcp": 1})
    site.accepted("tcproute/newer")
    assert connect(site, address, 20) == {"v2": 20}
