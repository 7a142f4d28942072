"""UDP listeners of the real Envoy: shares of sessions, and what the proxy counts."""

from collections import Counter
from collections.abc import Mapping

import pytest
from msgspec import structs
from tests.datagrams import DnsClient, DnsServer
from tests.draws import fits
from tests.envoy.counting import ReportingRig
from tests.envoy.gateway_ports import gateway_port
from tests.waiting import until
from tests.wire import Address

from headgate.model.resilience import DEFAULT, Resilience, ServiceTimeouts
from headgate.model.routing import Broken, Endpoint, Endpoints, PortRef, Protocol, Route, Split, Target
from headgate.resources.meta import Key

DNS = Key("gateway.networking.k8s.io", "UDPRoute", "default", "dns")
QUERIES, BATCH = 300, 30
SHORT = Resilience(timeouts=ServiceTimeouts(idle=50))
"""Settings with which a session ends soon after its only datagram."""
CONNECTIONS, FAILED, SENT = "mesh.connections", "mesh.failed", "mesh.sent"


def push(
    rig: ReportingRig,
    address: Address,
    servers: Mapping[str, DnsServer],
    *broken: Broken,
    settings: Resilience = DEFAULT,
) -> str:
    """Push a UDP port of the Gateway with one share for each server; return the name of its listener."""
    refs = {name: PortRef(f"default/{name}", 53, is_udp=True) for name in servers}
    targets = tuple(
        Target(ref=ref, weight=weight, resilience=settings) for weight, ref in enumerate(refs.values(), start=1)
    )
    route = Route(split=Split(targets=targets, broken=broken), name="0", origin=DNS)
    port = structs.replace(gateway_port(address, protocol=Protocol.UDP), connections=route)
    endpoints = tuple(
        Endpoints(ref=refs[name], ready=(Endpoint(address=server.address.host, port=server.address.port),))
        for name, server in servers.items()
    )
    mesh = rig.apply()
    rig.push(structs.replace(mesh, endpoints=(*mesh.endpoints, *endpoints), gateways=(port,)))
    return f"gateway-udp/default/edge/{address.port}"


@pytest.fixture(scope="module")
def rig():
    """Run a proxy that reports its counts."""
    with ReportingRig() as rig:
        yield rig


def test_separate_clusters_share_sessions_by_the_hash_of_the_port_of_the_client(rig: ReportingRig) -> None:
    """The last of three shares fails, so that each of them has a cluster. All datagrams are counted."""
    address = rig.free()
    servers = {name: DnsServer(rig.network, name) for name in ("one", "two")}
    name = push(rig, address, servers, Broken(weight=3, reason="BackendNotFound"), settings=SHORT)

    def counted() -> Counter[str]:
        received = {name: server.queries for name, server in servers.items()}
        return Counter(received | {"dropped": rig.reports.total(FAILED, cluster=name)})

    for sent in range(BATCH, QUERIES + 1, BATCH):  # few at once, as the kernel drops those that fit into no buffer
        clients = [DnsClient(rig.network, address) for _ in range(BATCH)]
        for client in clients:
            client.send()
        until(lambda sent=sent: counted().total() == sent, "the datagrams")
        for client in clients:
            client.close()
    counts = counted()
    assert all(fits(counts[name], share, of=QUERIES) for name, share in (("one", 1 / 6), ("two", 2 / 6))), counts
    cluster = f"{name}/UDPRoute/default/dns/0"
    ended = {f"{cluster}/default/{name}/53": counts[name] for name in servers}
    until(lambda: ended.items() <= rig.reports.counts(CONNECTIONS, "cluster").items(), "the ends of the sessions")
    assert rig.reports.total(SENT) > QUERIES


def test_a_gateway_forwards_the_largest_datagrams_both_ways(rig: ReportingRig) -> None:
    address, server = rig.free(), DnsServer(rig.network, "one")
    push(rig, address, {"one": server})
    server.padding = 250
    with DnsClient(rig.network, address) as client:
        assert client.ask(padding=65_000) == "one"
    assert server.queries == 1
