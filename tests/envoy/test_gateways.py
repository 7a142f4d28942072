"""Gateway ports as Envoy resources, and the redaction of their certificates."""

import pytest

from headgate.cli.compile import Stage, documents
from headgate.compiler.report import Compiled, Report
from headgate.envoy import names
from headgate.envoy.config import CLUSTER, LISTENER, ROUTES, SCOPES, SECRET
from headgate.envoy.encode import Memo, encode
from headgate.envoy.resource_json import content
from headgate.envoy.view import Node, project
from headgate.model.edge_tls import ListenerCertificate
from headgate.model.host_names import by_host
from headgate.model.identities import PrivateText
from headgate.model.resilience import Limits, Resilience
from headgate.model.routing import (
    Endpoint,
    Endpoints,
    Frontend,
    GatewayPort,
    HostRoutes,
    Mesh,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    Split,
    Target,
)
from headgate.resources.meta import Key

BLUE, GREEN = PortRef("default/blue", 80), PortRef("default/green", 80)
PRIVATE = "-----BEGIN PRIVATE KEY-----"
RULE = Key("gateway.networking.k8s.io", "HTTPRoute", "default", "shop")
NAME = "gateway/default/edge/443"


def certificate(secret, chain="CHAIN"):
    return ListenerCertificate(secret=secret, chain=chain, key=PrivateText(PRIVATE))


def mesh(*weights, chain="CHAIN", **more):
    targets = tuple(Target(ref=ref, weight=weight) for ref, weight in zip((BLUE, GREEN), weights, strict=True))
    route = Route(split=Split(targets=targets), origin=RULE, name="0")
    port = GatewayPort(
        gateway="default/edge",
        address="127.0.0.5",
        port=443,
        hosts=by_host(HostRoutes(host="shop.example", routes=(route,), listener="*.example")),
        tls=(("*.example", certificate("default/all", chain)), ("*", certificate("default/rest"))),
    )
    return Mesh(
        domain="cluster.local",
        endpoints=tuple(
            Endpoints(ref=ref, ready=(Endpoint(address=f"10.0.0.{ref.port}", port=80),)) for ref in (BLUE,)
        ),
        gateways=(port,),
        **more,
    )


def build(memo, world):
    memo.begin_build()
    return encode(project(world, Node(id="gateway")), memo)


def test_a_change_of_weights_changes_one_resource():
    memo = Memo()
    build(memo, mesh(9, 1))
    before = memo.encoded
    build(memo, mesh(8, 2))
    assert memo.encoded == before + 1


def test_a_new_certificate_changes_one_resource():
    memo = Memo()
    first = build(memo, mesh(1, 1))
    before = memo.encoded
    second = build(memo, mesh(1, 1, chain="NEW"))
    assert memo.encoded == before + 1
    assert first[LISTENER] == second[LISTENER]
    assert first[SECRET]["secret/default/all"] != second[SECRET]["secret/default/all"]
    assert first[SECRET]["secret/default/rest"] == second[SECRET]["secret/default/rest"]


def test_the_name_of_a_gateways_cluster_contains_its_route():
    config = build(Memo(), mesh(1, 1))
    (needed,) = config[SCOPES][f"{NAME}/shop.example"].needs
    assert names.parse_rule(needed) == RULE
    assert names.parse_gateway(needed) == names.GatewayRef("default/edge", 443)
    assert names.parse(needed) is None


def test_a_tcp_port_without_a_route_has_a_cluster_without_endpoints():
    port = GatewayPort(gateway="default/edge", address="127.0.0.5", port=443, protocol=Protocol.TCP)
    config = build(Memo(), Mesh(domain="cluster.local", gateways=(port,)))
    assert list(config[SCOPES]) == []
    assert config[LISTENER][NAME].needs == {NAME}


@pytest.mark.parametrize(("limits", "most"), [(Limits(), 1024), (Limits(connections=7), 7)])
@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.2"], ids=["a shared endpoint", "one cluster"])
def test_each_cluster_of_a_udp_port_has_a_limit_of_sessions(limits, most, address):
    """Any client can begin sessions, and each is an open file of the proxy."""
    refs = [PortRef(f"default/{name}", 53, is_udp=True) for name in ("blue", "green")]
    targets = tuple(Target(ref=ref, weight=1, resilience=Resilience(limits=limits)) for ref in refs)
    port = GatewayPort(
        gateway="default/edge",
        address="127.0.0.5",
        port=53,
        protocol=Protocol.UDP,
        connections=Route(split=Split(targets=targets), origin=RULE, name="0"),
    )
    endpoints = tuple(
        Endpoints(ref=ref, ready=(Endpoint(address=place, port=53),))
        for ref, place in zip(refs, ("10.0.0.1", address), strict=True)
    )
    config = build(Memo(), Mesh(domain="cluster.local", endpoints=endpoints, gateways=(port,)))
    clusters = [
        content(CLUSTER, encoded) for name, encoded in config[CLUSTER].items() if name.startswith("gateway-udp/")
    ]
    assert len(clusters) == 1 + (address == "10.0.0.1")
    for cluster in clusters:
        (threshold,) = cluster["circuit_breakers"]["thresholds"]
        assert threshold["max_connections"] == most


@pytest.mark.parametrize(
    ("network", "wildcard", "more"), [("10.96.0.", "0.0.0.0", {}), ("fd00:96::", "::", {"ipv4_compat": True})]
)
def test_the_proxy_of_one_gateway_has_no_other_listeners_and_listens_on_all_addresses(network, wildcard, more):
    """Its port needs no privilege. Clients reach the proxy by the Service of the Gateway, and the kubelet by the pod's address."""
    ports = [
        GatewayPort(gateway=f"default/{name}", address=address, port=443, protocol=Protocol.TCP)
        for name, address in (("edge", f"{network}1"), ("other", f"{network}2"))
    ]
    services = (Frontend(service="default/kubernetes", address=f"{network}3", ports=(443,)),)
    world = Mesh(domain="cluster.local", gateways=tuple(ports), frontends=services)
    config = encode(project(world, Node(id="gateway/edge-1", gateway="default/edge")), Memo())
    assert list(config[LISTENER]) == [NAME, names.SCOPES, names.PROBES]
    for name, port in ((NAME, 61443), (names.PROBES, 15020)):
        address = content(LISTENER, config[LISTENER][name])["address"]["socket_address"]
        assert address == {"address": wildcard, "port_value": port, **more}


def test_the_proxy_of_one_service_has_its_routes_and_listens_on_all_addresses_without_a_privilege():
    """R32: clients reach it by the address of the Service; it has neither Gateways nor the listeners of other Services."""
    gateways = (GatewayPort(gateway="default/edge", address="10.96.0.1", port=443, protocol=Protocol.TCP),)
    fronts = tuple(
        Frontend(service=f"default/{name}", address=f"10.96.0.{number}", ports=(80, 5432))
        for number, name in enumerate(("web", "web-next"), 2)
    )
    targets = (Target(ref=PortRef("default/web-next", 80), weight=1),)
    tables = (
        RouteTable(ref=PortRef("default/web", 80), routes=(Route(split=Split(targets=targets)),)),
        RouteTable(ref=PortRef("default/web", 5432), routes=(Route(split=Split(targets=())),), protocol=Protocol.TCP),
        RouteTable(ref=PortRef("default/web-next", 80), routes=(Route(split=Split(targets=targets)),)),
    )
    world = Mesh(domain="cluster.local", gateways=gateways, frontends=fronts, tables=tables)
    config = encode(project(world, Node(id="gateway/web-1", service="default/web")), Memo())
    assert list(config[ROUTES]) == ["outbound/default/web/80"]
    places = {
        name: content(LISTENER, config[LISTENER][name])["address"]["socket_address"]["port_value"]
        for name in config[LISTENER]
    }
    assert places == {
        "outbound/default/web/80": 61080,
        "outbound/default/web/5432": 5432,
        names.SCOPES: 0,
        names.PROBES: 15020,
    }


@pytest.mark.parametrize("stage", Stage)
def test_a_private_key_is_never_printed(stage):
    compiled = Compiled(revision=1, mesh=mesh(1, 1), report=Report(seen={}))
    text = str(list(documents(compiled, stage)))
    assert PRIVATE not in text
    assert ("[redacted]" in text) == (stage is not Stage.REPORT)
