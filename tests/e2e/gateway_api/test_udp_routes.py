"""UDPRoutes of Gateways, with DNS queries counted at the servers."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from tests.datagrams import DnsClient, DnsServer
from tests.draws import fits
from tests.e2e.gateway_api.hosts import NAMES, Machine
from tests.e2e.gateway_api.objects import (
    PORT,
    edge_gateway,
    gateway_api_object,
    route_grant,
    rule_of,
    web_listener,
)
from tests.e2e.gateway_api.site import Site
from tests.e2e.gateway_api.test_precedence import wait_for_a_later_creation_time
from tests.e2e.gateway_api.test_tcp_routes import serve as serve_tcp
from tests.e2e.gateway_api.test_tcp_routes import tcp_route
from tests.make import objects
from tests.make.objects import manifest
from tests.waiting import until
from tests.wire import Address

QUERIES, BATCH = 400, 40
DNS = 5353
ROUTE = "udproute/dns"


def serve(site: Site, *names: str) -> Mapping[str, DnsServer]:
    """Start DNS servers, by default one for each of NAMES; create their Services."""
    servers = {name: DnsServer(site.host.network, name) for name in names or NAMES}
    for name, server in servers.items():
        lead(site, f"dns-{name}", server)
    return servers


def lead(site: Site, name: str, server: DnsServer, index: int = 0) -> None:
    """Create a Service whose UDP port leads to a server in the test's process."""
    port = {"name": "dns", "port": DNS, "protocol": "UDP"}
    slice_ = objects.endpoint_slice(name, [server.address.host], {}, name=f"{name}-{index}", namespace="")
    slice_["ports"] = [{"name": "dns", "port": server.address.port, "protocol": "UDP"}]
    site.apply(manifest(objects.service(name, port, namespace=""), slice_))


def udp_route(parent: Mapping[str, Any], *backends: str, name: str = "dns", version: str = "v1") -> str:
    """Return a UDPRoute with backends `NAME:WEIGHT`."""
    spec = {"parentRefs": [parent], "rules": [rule_of(*backends, port=DNS)]}
    return gateway_api_object("UDPRoute", name, spec, version)


def udp_gateway(*names: str) -> str:
    """Return the Gateway with UDP listeners on consecutive ports."""
    return edge_gateway(*(web_listener(name, protocol="UDP", port=PORT + index) for index, name in enumerate(names)))


def ask(site: Site, address: Address, **query: Any) -> str:
    """Return the name of the server that answers a query of a new client."""
    with DnsClient(site.host.network, address) as client:
        return client.ask(**query)


def ask_often(site: Site, address: Address, servers: Mapping[str, DnsServer], count: int) -> Counter[str]:
    """Send queries of new clients; return how many of them each server received."""
    before = {name: server.queries for name, server in servers.items()}
    answers = Counter(ask(site, address) for _ in range(count))
    assert answers == +Counter({name: server.queries - before[name] for name, server in servers.items()})
    return answers


def dropped(site: Site) -> int:
    """Return how many datagrams the Gateway's listeners have dropped because no backend is usable."""
    assert isinstance(site.host, Machine)
    lines = site.host.client_stats(rf"^udp[.]gateway-udp/{site.namespace}/.*downstream_sess_no_route$").splitlines()
    return sum(int(line.rpartition(": ")[2]) for line in lines)


def wait_for_dropped(site: Site, address: Address, count: int = 3) -> None:
    """Send queries; wait until the Gateway has counted that it dropped them."""
    before = dropped(site)
    with DnsClient(site.host.network, address) as client:
        for _ in range(count):
            client.send()
        until(lambda: dropped(site) == before + count, f"{count} dropped datagrams")


@pytest.mark.conformance("UDPRoute", "UDPRouteWeightedRouting")
def test_a_udp_route_divides_the_sessions_of_clients(site: Site) -> None:
    """The listener waits for its route. The weight 0 gets no session, and a session stays with its server."""
    servers = serve(site)
    site.apply(udp_gateway("udp"))
    until(lambda: site.listener("udp")["conditions"]["Programmed"] == ("False", "Pending"), "the listener")
    site.apply(udp_route({"name": "edge", "sectionName": "udp"}, "dns-v1:1", "dns-v2:3", "dns-v3:0"))
    address = site.accepted(ROUTE)
    assert site.listener("udp")["supportedKinds"] == [{"group": "gateway.networking.k8s.io", "kind": "UDPRoute"}]
    counts = ask_often(site, address, servers, QUERIES)
    assert counts.total() == QUERIES
    assert fits(counts["v2"], 3 / 4, of=QUERIES), counts
    assert not counts["v3"]
    with DnsClient(site.host.network, address) as client:
        assert len({client.ask() for _ in range(20)}) == 1
    site.apply(udp_route({"name": "edge"}, "dns-v1:0", "dns-v2:1", version="v1alpha2"))
    site.accepted(ROUTE)
    assert ask_often(site, address, servers, 20) == {"v2": 20}


@pytest.mark.conformance("UDPRouteInvalidBackendRefNonexistent")
def test_datagrams_of_an_unusable_share_are_dropped_and_counted(site: Site) -> None:
    """Of the sessions, the port of the client decides which ones belong to the share."""
    servers = serve(site, "v1")
    site.apply(udp_gateway("udp"), udp_route({"name": "edge"}, "missing"))
    site.wait_for_parent(ROUTE, Accepted="Accepted", ResolvedRefs="BackendNotFound")
    address = site.accepted()
    wait_for_dropped(site, address)
    site.apply(udp_route({"name": "edge"}, "dns-v1:1", "missing:1"))
    site.wait_for_parent(ROUTE, **{"headgate.dev/Programmed": "Programmed"})
    site.host.settle()
    before = dropped(site)
    for sent in range(BATCH, QUERIES + 1, BATCH):  # few at once, as the kernel drops those that fit into no buffer
        clients = [DnsClient(site.host.network, address) for _ in range(BATCH)]
        for client in clients:
            client.send()
        until(lambda sent=sent: servers["v1"].queries + dropped(site) - before == sent, "the datagrams")
        for client in clients:
            client.close()
    assert fits(servers["v1"].queries, 1 / 2, of=QUERIES), servers["v1"].queries


@pytest.mark.conformance("UDPRouteInvalidCrossNamespaceBackendRef", "UDPRouteReferenceGrant")
def test_datagrams_to_another_namespace_need_a_grant(site: Site) -> None:
    far = site.neighbor()
    servers = serve(far, "v1")
    backend = {"name": "dns-v1", "namespace": far.namespace, "port": DNS}
    spec = {"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [backend]}]}
    site.apply(udp_gateway("udp"), gateway_api_object("UDPRoute", "dns", spec))
    site.wait_for_parent(ROUTE, Accepted="Accepted", ResolvedRefs="RefNotPermitted")
    address = site.accepted()
    wait_for_dropped(site, address)
    far.apply(route_grant("routes", site.namespace, kind="UDPRoute"))
    site.accepted(ROUTE)
    assert ask(site, address) == "v1"
    far.delete("referencegrant/routes")
    site.wait_for_parent(ROUTE, Accepted="Accepted", ResolvedRefs="RefNotPermitted")
    site.accepted()
    wait_for_dropped(site, address)
    assert servers["v1"].queries == 1


@pytest.mark.conformance("UDPRouteNotAllowedByListeners")
def test_a_udp_route_of_a_tcp_listener_is_not_accepted(site: Site) -> None:
    """Neither is one of a UDP listener that allows no kind."""
    serve(site, "v1")
    no_kind = web_listener("none", protocol="UDP", port=PORT + 1, allowedRoutes={"kinds": [{"kind": "TCPRoute"}]})
    site.apply(edge_gateway(web_listener("tcp", protocol="TCP"), no_kind))
    for section in ("tcp", "none"):
        site.apply(udp_route({"name": "edge", "sectionName": section}, "dns-v1", name=section))
        site.wait_for_parent(f"udproute/{section}", Accepted="NotAllowedByListeners", ResolvedRefs="ResolvedRefs")
    site.wait_for_attached({"tcp": 0, "none": 0})
    assert site.listener("none")["conditions"]["ResolvedRefs"] == ("False", "InvalidRouteKinds")


@pytest.mark.conformance("UDPRouteParentRefAttachAllListeners", "UDPRouteParentRefPortAndSectionName")
def test_a_udp_route_attaches_to_the_listeners_of_its_parent_reference(site: Site) -> None:
    serve(site)
    site.apply(udp_gateway("a", "b", "c"), udp_route({"name": "edge"}, "dns-v1"))
    host = site.accepted(ROUTE).host
    addresses = [Address(host, PORT + index) for index in range(3)]
    site.wait_for_attached({"a": 1, "b": 1, "c": 1})
    assert [ask(site, address) for address in addresses] == ["v1", "v1", "v1"]
    site.delete(ROUTE)
    parents = {"v1": {"port": PORT + 2}, "v2": {"sectionName": "b"}, "v3": {"port": PORT, "sectionName": "a"}}
    site.apply(*(udp_route({"name": "edge", **parent}, f"dns-{name}", name=name) for name, parent in parents.items()))
    site.accepted(*(f"udproute/{name}" for name in parents))
    site.wait_for_attached({"a": 1, "b": 1, "c": 1})
    assert [ask(site, address) for address in addresses] == ["v3", "v2", "v1"]


@pytest.mark.conformance("UDPRouteMultipleRoutesAttachment")
def test_the_older_of_two_udp_routes_gets_all_datagrams_and_the_newer_one_says_so(site: Site) -> None:
    """The newer route follows when the older one is gone."""
    servers = serve(site)
    site.apply(udp_gateway("udp"), udp_route({"name": "edge"}, "dns-v1", name="older"))
    wait_for_a_later_creation_time(site, "udproute/older")
    site.apply(udp_route({"name": "edge"}, "dns-v2", name="newer"))
    address = site.accepted("udproute/older", "udproute/newer")
    site.wait_for_attached({"udp": 2})
    assert ask_often(site, address, servers, 20) == {"v1": 20}
    site.wait_for_parent("udproute/newer", **{"headgate.dev/Programmed": "Invalid"})
    ((accepted, *_),) = (entry["conditions"] for entry in site.status("udproute/newer")["parents"])
    assert f"the older UDPRoute {site.namespace}/older has all datagrams of listener udp" in accepted["message"]
    site.delete("udproute/older")
    site.wait_for_attached({"udp": 1})
    site.accepted("udproute/newer")
    assert ask_often(site, address, servers, 20) == {"v2": 20}


def test_a_tcp_and_a_udp_listener_share_a_port_number(site: Site) -> None:
    """The UDP listener forwards large datagrams both ways, and sessions move on when their server leaves."""
    servers = serve(site, "v1", "v2")
    serve_tcp(site)
    lead(site, "dns-v1", servers["v2"], index=1)
    site.apply(edge_gateway(web_listener("tcp", protocol="TCP"), web_listener("udp", protocol="UDP")))
    site.apply(udp_route({"name": "edge"}, "dns-v1"), tcp_route({"name": "edge"}, "raw-v3"))
    address = site.accepted(ROUTE, "tcproute/raw")
    site.wait_for_attached({"tcp": 1, "udp": 1})
    assert site.ask(address, "any/").answered_by == "v3"
    with DnsClient(site.host.network, address) as client:
        first = client.ask()
        servers[first].padding = 16
        assert client.ask(padding=4096) == first
        left = {"v1": 0, "v2": 1}[first]
        site.delete(f"endpointslice/dns-v1-{left}")
        site.host.settle()
        (other,) = servers.keys() - {first}
        assert client.ask() == other
    assert site.ask(address, "any/").answered_by == "v3"


def test_a_udp_route_of_a_service_is_not_accepted(site: Site) -> None:
    serve(site, "v1")
    site.apply(udp_route({"group": "", "kind": "Service", "name": "dns-v1", "port": DNS}, "dns-v1"))
    site.wait_for_parent(ROUTE, Accepted="NoMatchingParent", ResolvedRefs="ResolvedRefs")
    ((accepted, *_),) = (entry["conditions"] for entry in site.status(ROUTE)["parents"])
    assert re.search(r"spec\.parentRefs\[0\]\.kind: .*a Gateway with a UDP listener", accepted["message"])
