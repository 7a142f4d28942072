"""TCPRoutes of Gateways and Services, with connections counted at the backends."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from tests.draws import fits
from tests.e2e.gateway_api.hosts import NAMES
from tests.e2e.gateway_api.objects import (
    PORT,
    edge_gateway,
    gateway_api_object,
    rule_of,
    web_listener,
)
from tests.e2e.gateway_api.site import Site
from tests.waiting import until
from tests.wire import Address

CONNECTIONS = 400
TCP = 9000
ROUTE = "tcproute/raw"


def serve(site: Site) -> None:
    """Create a TCP Service for each backend."""
    for name in NAMES:
        site.serve(f"raw-{name}", name, tcp=TCP)


def tcp_route(parent: Mapping[str, Any], *backends: str, name: str = "raw") -> str:
    """Return a TCPRoute with backends `NAME:WEIGHT`."""
    spec = {"parentRefs": [parent], "rules": [rule_of(*backends, port=TCP)]}
    return gateway_api_object("TCPRoute", name, spec)


def connect(site: Site, address: Address, count: int) -> Counter[str]:
    """Open connections, and send a request over each; return how many requests each backend received."""
    before = {name: site.backends[name].requests for name in NAMES}
    answers = Counter(site.ask(address, "any/").answered_by for _ in range(count))
    assert answers == +Counter({name: site.backends[name].requests - before[name] for name in NAMES})
    return answers


@pytest.mark.conformance("TCPRouteWeightedRouting")
def test_a_tcp_route_of_a_gateway_divides_connections(site: Site) -> None:
    """The listener waits for its route. The weight 0 gets no connection."""
    serve(site)
    site.apply(edge_gateway(web_listener(protocol="TCP")))
    until(lambda: site.listener()["conditions"]["Programmed"] == ("False", "Pending"), "the listener")
    site.apply(tcp_route({"name": "edge"}, "raw-v1:1", "raw-v2:3"))
    address = site.accepted(ROUTE)
    counts = connect(site, address, CONNECTIONS)
    assert counts.total() == CONNECTIONS
    assert fits(counts["v2"], 3 / 4, of=CONNECTIONS), counts
    site.apply(tcp_route({"name": "edge"}, "raw-v1:0", "raw-v2:1"))
    site.accepted(ROUTE)
    assert connect(site, address, 20) == {"v2": 20}
    assert address.port == PORT


def test_a_tcp_route_of_a_service_divides_the_connections_of_its_clients(site: Site) -> None:
    mesh = site.in_mesh()
    serve(mesh)
    mesh.serve("raw", *NAMES, tcp=TCP)
    address = mesh.address("raw", TCP)
    assert connect(mesh, address, 12).keys() == {*NAMES}
    parent = {"group": "", "kind": "Service", "name": "raw", "port": TCP}
    mesh.apply(tcp_route(parent, "raw-v1:1", "raw-v2:1"))
    mesh.wait_for_parent(
        ROUTE, Accepted="Accepted", ResolvedRefs="ResolvedRefs", **{"headgate.dev/Programmed": "Programmed"}
    )
    counts = connect(mesh, address, CONNECTIONS)
    assert counts.total() == CONNECTIONS
    assert fits(counts["v1"], 1 / 2, of=CONNECTIONS), counts
    mesh.apply(tcp_route(parent, "raw-v1:1"))
    mesh.wait_for_parent(ROUTE, **{"headgate.dev/Programmed": "Programmed"})
    assert connect(mesh, address, 20) == {"v1": 20}
