"""Tests of a sidecar's inbound side: the resources that a change affects, and the connections that are accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.envoy import inbound, names, pb, secrets
from headgate.envoy.clusters import HTTP_OPTIONS
from headgate.envoy.config import CLUSTER, LISTENER, ROUTES, SECRET
from headgate.envoy.http_connections import IDLE_MS
from headgate.envoy.names import InboundRef
from headgate.model.access import Access, ConnectionRule, Grant, RequestRule
from headgate.model.identities import Credential, PrivateText
from headgate.model.mutual_tls import TlsMode
from headgate.model.probes import HealthCheck, PortCheck
from headgate.model.requests import ANY
from headgate.model.routing import InboundPort, PortProtocol, PortRef, Protocol, Workload
from headgate.resources.meta import Key

HTTP = PortProtocol(protocol=Protocol.HTTP, services=(PortRef("default/web", 80),))
TCP = PortProtocol(protocol=Protocol.TCP, services=(PortRef("default/db", 5432),))
WEB = InboundPort(port=8080, application=18080, protocols=(HTTP,))
DATABASE = InboundPort(port=5432, application=15432, protocols=(TCP,))
SHARED = InboundPort(port=9090, application=19090, protocols=(HTTP, TCP))
CLIENT = "spiffe://cluster.local/ns/default/sa/client"
OTHER = "spiffe://cluster.local/ns/default/sa/other"
TARGET = Key("access.smi-spec.io", "TrafficTarget", "default", "cars")
ALL = Grant(
    origin=TARGET,
    sources=(CLIENT,),
    requests=(RequestRule(name="all/any", match=ANY),),
    connections=(ConnectionRule(name="any"),),
)
CLOSED = Access(closed=True, grants=(ALL,))
POD = Workload(
    name="default/web-1",
    address="127.0.0.9",
    identity="spiffe://cluster.local/ns/default/sa/web",
    ports=(WEB, DATABASE, SHARED),
)
CAPTURES = ["explicit", "transparent"]


def made(workload):
    parts = inbound.parts(workload, domain="cluster.local", trust_domain="cluster.local")
    return {(part.type_url, part.name): part.render(*part.arguments) for part in parts}


def pod_workload(**changes):
    return replace(POD, **changes)


def chains(workload):
    """Return the filter chains of all listeners with an address, by name."""
    found = [
        chain
        for (kind, name), message in made(workload).items()
        if kind == LISTENER and name != "probes" and not name.startswith("callers/")
        for chain in message.filter_chains
    ]
    assert len({chain.name for chain in found}) == len(found)
    return {chain.name: chain for chain in found}


def in_plaintext(workload):
    return {name for name, chain in chains(workload).items() if not chain.HasField("transport_socket")}


def changed(before, after):
    old, new = made(before), made(after)
    return {key for key in {*old, *new} if old.get(key) != new.get(key)}


@given(port=st.integers(1, 65535), protocol=st.sampled_from([None, *Protocol]))
def test_an_inbound_name_is_not_that_of_a_service_or_a_gateway(port, protocol):
    name = names.inbound(InboundRef(port, protocol))
    assert names.parse(name) is None
    assert names.parse_gateway(name) is None


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("tls_mode", TlsMode)
@pytest.mark.parametrize("access", [Access(), CLOSED, Access(closed=True)])
def test_no_two_filter_chains_have_the_same_match(capture, tls_mode, access):
    """Envoy would reject the listener, and so the whole pod."""
    for (kind, _), message in made(pod_workload(capture=capture, tls_mode=tls_mode, access=access)).items():
        if kind == LISTENER and not message.HasField("filter_chain_matcher"):
            matches = [
                chain.filter_chain_match.SerializeToString(deterministic=True) for chain in message.filter_chains
            ]
            assert len(set(matches)) == len(matches)


@pytest.mark.parametrize("capture", CAPTURES)
def test_strict_mode_has_no_filter_chain_for_plaintext(capture):
    own_ports = {"15001/closed", "15006/closed"} if capture == "transparent" else set()
    assert in_plaintext(pod_workload(capture=capture, tls_mode=TlsMode.STRICT)) == own_ports
    assert {"8080/http/plain", "5432/tcp/plain"} <= in_plaintext(pod_workload(capture=capture))


def test_a_listener_needs_the_clusters_that_it_names():
    for capture in CAPTURES:
        parts = list(inbound.parts(pod_workload(capture=capture), domain="cluster.local", trust_domain="cluster.local"))
        clusters = {part.name for part in parts if part.type_url == CLUSTER}
        needed = {name for part in parts for name in part.needs}
        assert needed == clusters


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_changed_access_rule_ends_no_http_connections(capture):
    """R69: rules for requests are in the routes and apply at once."""
    before, after = (
        pod_workload(capture=capture, access=CLOSED),
        pod_workload(capture=capture, access=Access(closed=True)),
    )
    assert changed(before, after) == {
        (ROUTES, "inbound/8080/http"),
        (ROUTES, "inbound/9090/http"),
        (LISTENER, "callers/5432/tcp"),
        (LISTENER, "callers/9090/tcp"),
    }


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_changed_access_rule_changes_only_the_filter_chains_of_its_sources(capture):
    """R69: Envoy ends the connections of a chain that changes."""
    both = replace(ALL, sources=(CLIENT, OTHER))
    before, after = (
        made(pod_workload(capture=capture, access=Access(closed=True, grants=(grant,))))[LISTENER, "callers/5432/tcp"]
        for grant in (ALL, both)
    )
    assert [chain for chain in after.filter_chains if chain not in before.filter_chains] == [
        chain for chain in after.filter_chains if chain.name == OTHER
    ]
    assert all(chain in after.filter_chains for chain in before.filter_chains)
    for message in (before, after):
        message.ClearField("filter_chain_matcher")
        del message.filter_chains[:]
    assert before == after  # Envoy replaces a listener whose own fields change, and ends all connections


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_change_to_strict_mode_keeps_mtls_connections(capture):
    """The filter chains of mTLS connections and the listeners' own fields are unchanged."""
    before, after = pod_workload(capture=capture), pod_workload(capture=capture, tls_mode=TlsMode.STRICT)
    old, new = chains(before), chains(after)
    assert {name for name in old if old[name] == new.get(name)} >= {"8080/http/mesh", "5432/tcp/mesh", "9090/tcp/mesh"}
    for key, message in made(before).items():
        if key[0] == LISTENER:
            other = made(after)[key]
            for listener in (message, other):
                del listener.filter_chains[:]
            assert message == other


@pytest.mark.parametrize("capture", CAPTURES)
def test_plain_mode_has_no_tls_inspector(capture):
    """The inspector would wait for the client's first bytes, which delays a server that speaks first."""
    for tls_mode in TlsMode:
        for (kind, name), message in made(pod_workload(capture=capture, tls_mode=tls_mode)).items():
            if kind == LISTENER and name != "probes":
                filters = {item.name.rpartition(".")[2] for item in message.listener_filters}
                assert ("tls_inspector" in filters) == (tls_mode is not TlsMode.PLAIN)


def test_an_explicit_sidecar_calls_the_application_port():
    cluster = made(pod_workload(capture="explicit"))[CLUSTER, "inbound/8080/http"]
    (endpoint,) = cluster.load_assignment.endpoints[0].lb_endpoints
    assert endpoint.endpoint.address.socket_address == pb.SocketAddress(address="127.0.0.9", port_value=18080)


@pytest.mark.parametrize(
    ("address", "wildcard", "source"), [("10.0.0.7", "0.0.0.0", "127.0.0.6"), ("fd00::7", "::", "::6")]
)
def test_a_transparent_sidecar_listens_on_the_wildcard_and_calls_from_a_loopback_address(address, wildcard, source):
    checks = (PortCheck(name="app/readiness", port=9000, grpc=True), PortCheck(name="app/startup", port=8080))
    found = made(
        pod_workload(
            address=address, probes=(HealthCheck(name="app/liveness", port=8080, path="/"),), port_checks=checks
        )
    )
    assert found[LISTENER, "inbound"].address.socket_address == pb.SocketAddress(address=wildcard, port_value=15006)
    expected = pb.SocketAddress(address=wildcard, port_value=15020, ipv4_compat=wildcard == "::")
    assert found[LISTENER, "probes"].address.socket_address == expected
    sources = {
        message.upstream_bind_config.source_address.address for (kind, _), message in found.items() if kind == CLUSTER
    }
    assert sources == {source}


def test_connections_to_the_sidecars_own_ports_are_closed():
    taken = InboundPort(port=15006, application=15006, protocols=(HTTP,))
    found = chains(pod_workload(ports=(WEB, taken)))
    assert [name for name in found if name.startswith("15006/")] == ["15006/closed"]


def test_only_open_workloads_that_accept_plaintext_serve_ports_without_a_service():
    assert "other" in chains(pod_workload())
    assert "other" not in chains(pod_workload(access=CLOSED))
    assert "other" not in chains(pod_workload(tls_mode=TlsMode.STRICT))


def test_a_second_protocol_of_a_port_is_selected_by_sni():
    """R67, D15."""
    found = chains(pod_workload(capture="explicit", ports=(SHARED,)))
    named = {name: list(chain.filter_chain_match.server_names) for name, chain in found.items()}
    db = ["5432.db.default.svc.cluster.local"]
    assert named == {"9090/http/mesh": [], "9090/http/plain": [], "9090/tcp/mesh": db, "9090/tcp/passed": db}


def test_transparent_sidecars_serve_probes_and_explicit_ones_do_not():
    probed = (HealthCheck(name="app/readiness", port=8443, path="/", https=True),)
    assert (LISTENER, "probes") not in made(pod_workload(capture="explicit", probes=probed))
    cluster = made(pod_workload(probes=probed))[CLUSTER, "probes/8443/https"]
    assert cluster.transport_socket.name.endswith(".tls")


def test_a_probe_route_rejects_a_query_of_the_client():
    found = made(pod_workload(probes=(HealthCheck(name="app/liveness", port=8080, path="/healthy?deep=1"),)))[
        LISTENER, "probes"
    ]
    manager = pb.HttpConnectionManager()
    assert found.filter_chains[0].filters[0].typed_config.Unpack(manager)
    ready, route = manager.route_config.virtual_hosts[0].routes
    assert (ready.match.path, ready.direct_response.status) == ("/ready", 200)
    wanted = {header.name: header.string_match.exact for header in route.match.headers}
    assert wanted == {":method": "GET", ":path": "/app/liveness"}  # Envoy's :path includes the query
    assert route.route.prefix_rewrite == "/healthy?deep=1"


@pytest.mark.parametrize("capture", CAPTURES)
def test_an_invalid_pod_address_does_not_stop_the_build(capture):
    assert made(pod_workload(capture=capture, address="nonsense"))


def test_a_credential_becomes_two_secrets_and_is_never_printed():
    credential = Credential(chain="CHAIN", key=PrivateText("PRIVATE"), roots="ROOTS")
    parts = [part for part in secrets.parts(credential) if part.type_url == SECRET]
    assert [part.name for part in parts] == ["identity", "roots"]
    assert "PRIVATE" not in str(parts)
    own, roots = (part.render(*part.arguments) for part in parts)
    assert own.tls_certificate.private_key.inline_string == "PRIVATE"
    assert roots.validation_context.trusted_ca.inline_string == "ROOTS"


@pytest.mark.parametrize(("idle_ms", "expected"), [(0, IDLE_MS), (30_000, 30_000)])
def test_a_service_sets_the_idle_time_of_connections_to_its_application(idle_ms, expected):
    rendered = inbound.cluster("inbound/8080/http", Protocol.HTTP, idle_ms, ("127.0.0.1", 8080))
    options = pb.HttpProtocolOptions()
    rendered.typed_extension_protocol_options[HTTP_OPTIONS].Unpack(options)
    assert options.common_http_protocol_options.idle_timeout.ToMilliseconds() == expected
