"""Transparent sidecars end to end: what applications see, and what can be read on the wire."""

import ssl
import time

import pytest
from tests.make.objects import endpoint, endpoint_slice, port, service, split, tls_config
from tests.netns.namespaced_mesh import tls_of
from tests.netns.objects import ALL_STRICT, ECHO, ECHO_ONE, GREETING, H2, ONE, OWN_TLS, SELF, TWO, WEB, mirror
from tests.netns.traffic import CLOSED, ask, ask_h2, ask_often, talk
from tests.protocols import certificate
from tests.waiting import until
from tests.wire import Address

from headgate.identity.authority import new_root
from headgate.settings import Settings

OFF = Settings(mtls="off")
MARKER = b"the-marker-that-must-be-encrypted"
SOURCE = "127.0.0.6"
WHOLE = b"GET / HTTP/1.1\r\nhost: any\r\n\r\n"


@pytest.fixture(params=["permissive", "strict"])
def mesh(request, lab, services):
    """Return the lab in permissive and in strict mTLS mode; clients with a sidecar must notice no difference."""
    lab.serve(*services, *(ALL_STRICT if request.param == "strict" else []))
    return lab


def test_http_reaches_the_application_with_the_verified_identity(mesh):
    client, one = mesh.members["client"], mesh.members["one"]
    app = one.apps[8080]
    app.seen.clear()
    answer = mesh.run(ask(client, ONE, "POST", "/path?query", body=b"text", headers=[("x-mine", "1")]))
    assert (answer.status, answer.body) == (200, "one")
    (seen,) = app.seen
    assert (seen.method, seen.path, seen.headers["x-mine"]) == ("POST", "/path?query", "1")
    assert seen.peer == SOURCE  # the sidecar connects from this address
    assert "spiffe://cluster.local/ns/default/sa/client" in str(seen.headers)


def test_http2_reaches_the_application(mesh):
    found = mesh.run(ask_h2(mesh.members["client"], H2, 20))
    assert found == {"one": 10, "two": 10}
    assert mesh.members["one"].apps[8080].seen[-1].method == "HTTP/2"


def test_two_services_of_one_pod_port_use_their_own_protocols(mesh):
    client = mesh.members["client"]  # D15, R67
    assert mesh.run(ask_often(client, WEB, 4)) == {"one": 2, "two": 2}
    assert mesh.members["one"].apps[8080].seen[-1].method == "GET"
    assert mesh.run(ask_h2(client, H2, 4)) == {"one": 2, "two": 2}


def test_tcp_works_when_the_client_speaks_first(mesh):
    assert mesh.run(talk(mesh.members["client"], ECHO, b"hello")) == ("", "hello")


def test_tcp_works_when_the_server_speaks_first(mesh):
    assert mesh.run(talk(mesh.members["client"], GREETING, b"hello", listen_first=True)) == ("one", "hello")


def test_an_applications_own_tls_passes_through(mesh, own_tls):
    assert mesh.run(talk(mesh.members["client"], OWN_TLS, b"hello", ssl=own_tls, server_hostname="db")) == ("", "hello")


@pytest.fixture(scope="module")
def own_tls(lab, tmp_path_factory):
    path = certificate(tmp_path_factory.mktemp("tls"))
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(path)
    lab.listen(lab.members["two"], 7443, "echo", serving)
    return ssl.create_default_context(cafile=str(path))


def strictness(mesh):
    """Return the TLSConfigs that are active."""
    return ALL_STRICT if mesh.compiled.mesh.workloads[0].tls_mode.value == "strict" else []


def test_a_split_is_exact(mesh, services):
    mesh.serve(*services, *strictness(mesh), split("web", {"one": 90, "two": 10}))
    assert mesh.run(ask_often(mesh.members["client"], WEB, 100)) == {"one": 90, "two": 10}


def test_a_split_of_connections_is_exact(mesh, services):
    mesh.serve(*services, *strictness(mesh), split("echo", {"echo-one": 90, "echo-two": 10}))
    one, two = (mesh.members[name].apps[7000].peers for name in ("one", "two"))
    before = len(one), len(two)
    for _ in range(20):
        assert mesh.run(talk(mesh.members["client"], ECHO, b"hello")) == ("", "hello")
    assert (len(one) - before[0], len(two) - before[1]) == (18, 2)


def test_a_mirror_gets_a_copy_of_every_request(mesh, services):
    mesh.serve(*services, *strictness(mesh), mirror("copies", "one", ONE.port, "two"))
    two = mesh.members["two"].apps[8080]
    before = len(two.seen)
    assert mesh.run(ask_often(mesh.members["client"], ONE, 10)) == {"one": 10}
    mesh.run(two.until_seen(before + 10))
    assert {seen.path for seen in two.seen[before:]} == {"/"}


def test_a_pod_can_call_its_own_service_and_addresses(mesh):
    client = mesh.members["client"]
    app = client.apps[8080]
    app.seen.clear()
    assert mesh.run(ask_often(client, SELF, 3)) == {"client": 3}
    assert {seen.peer for seen in app.seen} == {SOURCE}
    assert mesh.run(ask(client, Address("127.0.0.1", 8080))).body == "client"
    assert mesh.run(ask(client, Address(client.address, 8080))).body == "client"


def test_a_pod_can_call_a_service_with_several_pods_including_itself(mesh):
    assert mesh.run(ask_often(mesh.members["one"], WEB, 10)) == {"one": 5, "two": 5}
    assert mesh.run(talk(mesh.members["one"], ECHO, b"hello")) == ("", "hello")
    assert mesh.run(talk(mesh.members["one"], ECHO, b"hello")) == ("", "hello")


def test_a_headless_service_is_reached_by_its_pods_addresses(mesh):
    client = mesh.members["client"]
    for name in ("one", "two"):
        assert mesh.run(ask(client, Address(mesh.members[name].address, 8080))).body == name


def test_a_tcp_connection_to_a_pod_with_a_name_reaches_this_pod_whatever_splits_its_headless_service(lab, services):
    """D37. The addresses of the names `db-1.db` and `db` are equal. Without names, connections to them are split."""
    client, one, two = (lab.members[name] for name in ("client", "one", "two"))
    split_db = (
        service("db", port(7001, "main", app="tcp-server-first"), clusterIP="None"),
        service("db-two", port(7001, "main", app="tcp-server-first"), clusterIP="None"),
        endpoint_slice("db-two", [endpoint(two.address, "two")], {"main": 7001}),
        split("db", {"db-two": 1}),
    )
    for more, reached in (({"hostname": "db-1"}, "one"), ({}, "two")):
        db = endpoint_slice("db", [endpoint(one.address, "one", **more)], {"main": 7001})
        lab.serve(*services, *split_db, *ALL_STRICT, db)
        assert lab.run(talk(client, Address(one.address, 7001), listen_first=True)) == (reached, "")


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_tcp_probe_fails_when_nothing_listens(mesh, name):
    """By the rules of the pod, the proxy accepts connections to all of its ports."""
    member, plain = mesh.members[name], mesh.members["plain"]
    until(lambda: mesh.run(ask(plain, Address(member.address, 15020), path="/app/liveness")).status == 200)
    assert mesh.run(ask(plain, Address(member.address, 15020), path="/app/startup")).status == 503


@pytest.mark.parametrize("name", ["one", "two"])
def test_probes_and_excluded_ports_need_no_identity(mesh, name):
    member, plain = mesh.members[name], mesh.members["plain"]
    app = member.apps[8080]
    app.seen.clear()
    probed = mesh.run(ask(plain, Address(member.address, 15020), path="/app/readiness"))
    assert (probed.status, probed.body) == (200, name)
    assert [(seen.method, seen.path, seen.peer) for seen in app.seen] == [("GET", "/healthy", SOURCE)]
    assert mesh.run(ask(plain, Address(member.address, 15020), path="/other")).status == 404
    assert mesh.run(ask(plain, Address(member.address, 15020), path="/app/readiness?all=1")).status == 404
    metrics = mesh.run(ask(plain, Address(member.address, 9090), path="/metrics"))
    assert (metrics.status, metrics.body) == (200, name)
    assert member.apps[9090].seen[-1].peer == plain.address  # no proxy in between


def test_a_client_without_a_sidecar_is_served_until_the_server_is_strict(lab, services):
    plain, one = lab.members["plain"], lab.members["one"]
    places = Address(one.address, 8080), Address(one.address, 7000), Address(one.address, 7001)
    for settings in (OFF, Settings()):
        lab.serve(*services, settings=settings)
        assert lab.run(ask(plain, places[0])).body == "one"
        assert lab.run(talk(plain, places[1], b"hello")) == ("", "hello")
        assert lab.run(talk(plain, places[2], b"hello", listen_first=True)) == ("one", "hello")
    lab.serve(*services, tls_config("one", {"app": "one"}))
    one.apps[7001].peers.clear()
    assert lab.run(ask(plain, places[0])).status == 0
    assert lab.run(talk(plain, places[1], b"hello")) == CLOSED
    assert not one.apps[7001].peers  # no connection reached the server
    assert lab.run(ask(plain, Address(lab.members["two"].address, 8080))).body == "two"
    for place in (ONE, TWO, WEB):
        assert lab.run(ask(lab.members["client"], place)).status == 200


def test_tls_without_a_certificate_of_the_mesh_is_refused(lab, services, own_tls, stranger_tls):
    lab.serve(*services, *ALL_STRICT)
    plain, one = lab.members["plain"], lab.members["one"]
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    for context in (blind, stranger_tls):
        for number in (8080, 7000):
            assert (
                lab.run(talk(plain, Address(one.address, number), WHOLE, ssl=context, server_hostname="one")) == CLOSED
            )
    known = lab.tls_of("spiffe://cluster.local/ns/default/sa/client")
    assert lab.run(talk(plain, Address(one.address, 7000), b"hello", ssl=known, server_hostname="one")) == ("", "hello")


@pytest.fixture(scope="module")
def stranger_tls(tmp_path_factory):
    """Return the TLS context of a client with a valid identity from another certificate authority."""
    return tls_of(new_root("cluster.local", time.time()), "spiffe://cluster.local/ns/default/sa/client")


def test_traffic_between_sidecars_is_encrypted(lab, services):
    client, one = lab.members["client"], lab.members["one"]

    def sent():
        with one.capture() as wire:
            assert lab.run(ask(client, ONE, "POST", body=MARKER)).status == 200
            assert lab.run(talk(client, ECHO_ONE, MARKER)) == ("", MARKER.decode())
            frames = wire.frames()
        assert frames
        return sum(MARKER in frame for frame in frames)

    lab.serve(*services, settings=OFF)
    assert sent() >= 3  # two requests and one echo; the kernel may retransmit
    lab.serve(*services)
    assert sent() == 0
    lab.serve(*services, *ALL_STRICT)
    assert sent() == 0


def test_the_outbound_setting_forwards_or_refuses_connections_to_unknown_addresses(lab, services):
    client, plain = lab.members["client"], lab.members["plain"]
    place = Address(plain.address, 8080)
    lab.serve(*services)
    assert lab.run(ask(client, place)).body == "plain"
    assert plain.apps[8080].seen[-1].peer == client.address
    lab.serve(*services, settings=Settings(outbound="refuse"))
    assert lab.run(ask(client, place)).status == 0
    assert lab.run(ask(client, ONE)).body == "one"
    lab.serve(*services, settings=Settings(outbound="refuse", access="deny"))
    assert lab.run(ask(client, ONE)).status == 0  # the sidecar lacks Services that its workload may not call


@pytest.mark.parametrize("port", [15001, 15006])
def test_connections_to_a_sidecars_own_ports_are_closed(mesh, port):
    for name in ("plain", "client"):
        there = Address(mesh.members["one"].address, port)
        assert mesh.run(ask(mesh.members[name], there)).status == 0
    assert mesh.run(ask(mesh.members["client"], ONE)).body == "one"  # the proxies did not loop and still work
    assert mesh.run(ask(mesh.members["one"], Address(mesh.members["one"].address, port))).status == 0
    assert mesh.run(ask(mesh.members["one"], Address("127.0.0.1", port))).status == 0
