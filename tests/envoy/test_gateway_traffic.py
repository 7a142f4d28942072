"""Gateways in a real Envoy: hosts, certificates, TCP connections."""

import contextlib
import socket
import ssl
from collections import Counter

import pytest
from tests.envoy.gateway_ports import SHOP, certificate, gateway_port, routed
from tests.waiting import until
from tests.wire import DEADLINE_S, listens

from headgate.envoy import http_connections
from headgate.model.edge_tls import ListenerCertificate
from headgate.model.evaluate import Request, decide
from headgate.model.requests import Match, Redirect
from headgate.model.requests import Path as PathMatch
from headgate.model.routing import Protocol, Route, Split
from headgate.resources.meta import Key


def test_the_most_specific_host_selects_the_route_and_the_port_in_the_host_header_is_ignored(rig):
    address = rig.free()
    hosts = [
        ("*", routed(rig, "other", number=0)),
        ("*.example", routed(rig, "two", number=1)),
        ("shop.example", routed(rig, "one", number=2, match=Match(path=PathMatch(kind="prefix", value="/in")))),
    ]
    rig.apply(gateways=(gateway_port(address, *hosts),))
    rig.ask_when_listening(address=address)
    expected = {
        "shop.example/in": "one",
        f"shop.example:{address.port}/in": "one",
        "shop.example:1/in": "one",
        "SHOP.example/in": "one",
        "shop.example/": "404",
        "a.example/": "two",
        "a.b.example:99/": "two",
        "example/": "other",
        "127.0.0.1/": "other",
    }
    answers = {}
    for url in expected:
        host, _, path = url.partition("/")
        answers[url] = rig.ask(f"/{path}", host=host, address=address).answered_by
    assert answers == expected


def test_a_host_without_routes_on_its_port_gets_404(rig):
    first, second = rig.free(), rig.free()
    rig.apply(
        gateways=(
            gateway_port(first, ("a.example", routed(rig, "one"))),
            gateway_port(second, ("a.example", routed(rig, "two"))),
        )
    )
    assert rig.ask_when_listening(address=first, host="a.example").answered_by == "one"
    assert rig.ask_when_listening(address=second, host="a.example").answered_by == "two"
    assert rig.ask(address=first, host="b.example").answered_by == "404"


def test_a_gateway_overwrites_forwarded_proto_and_appends_to_forwarded_for(rig):
    address = rig.free()
    rig.apply(gateways=(gateway_port(address, ("*", routed(rig, "one"))),))
    rig.ask_when_listening(address=address, x_forwarded_proto="https", x_forwarded_for="10.9.9.9")
    seen = rig.last_headers("one")
    assert seen["x-forwarded-proto"] == "http"
    assert seen["x-forwarded-for"].startswith("10.9.9.9,")


@pytest.mark.conformance("HTTPRouteRedirectPortAndScheme")
@pytest.mark.parametrize(
    ("tls", "redirect", "location"),
    [
        (False, Redirect(scheme="https"), "https://shop.example/p"),
        (False, Redirect(), "http://shop.example:{port}/p"),
        (False, Redirect(port=80), "http://shop.example/p"),
        (False, Redirect(scheme="https", port=8443), "https://shop.example:8443/p"),
        (True, Redirect(hostname="out.example"), "https://out.example:{port}/p"),
        (True, Redirect(scheme="http"), "http://shop.example/p"),
    ],
)
def test_a_redirect_defaults_to_scheme_and_port_of_its_listener(rig, tls, redirect, location):
    address = rig.free()
    route = Route(split=Split(targets=()), redirect=redirect, origin=SHOP, name="0")
    certificates = (("*", certificate("all")),) if tls else ()
    rig.apply(gateways=(gateway_port(address, ("shop.example", route), tls=certificates),))
    host = f"shop.example:{address.port}"
    answer = rig.ask_when_listening("/p", address=address, host=host, tls="shop.example" if tls else "")
    assert answer.headers["location"] == location.format(port=address.port)


def test_a_listener_selects_a_certificate_by_server_name_and_serves_a_replaced_certificate(rig):
    address = rig.free()
    shop, wildcard = certificate("shop"), certificate("wildcard")

    def serve(first: ListenerCertificate) -> None:
        tls = (("shop.example", first), ("*.example", wildcard))
        hosts = [("shop.example", routed(rig, "one")), ("*.example", routed(rig, "one"))]
        rig.apply(gateways=(gateway_port(address, *hosts, tls=tls),))

    serve(shop)
    assert rig.ask_when_listening(address=address, tls="shop.example", host="shop.example").answered_by == "one"
    assert rig.handshake(address, "shop.example", alpn=["h2", "http/1.1"]) == (shop.chain, "h2", "TLSv1.3")
    assert rig.handshake(address, "a.example", alpn=["http/1.1"])[:2] == (wildcard.chain, "http/1.1")
    with pytest.raises(OSError, match=r".*"):
        rig.handshake(address, "unknown.net")
    newer = certificate("shop")
    serve(newer)
    until(lambda: rig.handshake(address, "shop.example")[0] == newer.chain, "the new certificate")
    assert rig.ask(address=address, tls="shop.example", host="shop.example").answered_by == "one"


LISTENERS = {"*": "one", "second.example": "two", "*.wildcard.example": "other", "fourth.wildcard.example": "one"}
MISDIRECTED = [  # server name of the TLS connection, host of the request, answering backend or status
    ("first.example", "first.example", "one"),
    ("first.example", "second.example", "421"),
    ("first.example", "SECOND.example.:443", "421"),
    ("first.example", "a.wildcard.example", "421"),
    ("second.example", "second.example", "two"),
    ("second.example", "Second.Example.", "two"),
    ("second.example", "first.example", "421"),
    ("a.wildcard.example", "a.wildcard.example", "other"),
    ("a.wildcard.example", "b.wildcard.example", "other"),
    ("a.wildcard.example", "fourth.wildcard.example", "421"),
    ("a.wildcard.example", "second.example", "421"),
    ("fourth.wildcard.example", "fourth.wildcard.example", "one"),
    ("fourth.wildcard.example", "a.wildcard.example", "421"),
]


@pytest.mark.parametrize("same", [True, False], ids=["one certificate", "a certificate each"])
def test_a_request_for_a_host_of_another_tls_listener_gets_421(rig, same):
    """RFC 9110 (421 Misdirected Request). The model predicts the same answers as Envoy."""
    address, one = rig.free(), certificate("all")
    hosts = [(host, routed(rig, backend, number=index)) for index, (host, backend) in enumerate(LISTENERS.items())]
    tls = tuple((host, one if same else certificate(f"c{index}")) for index, host in enumerate(LISTENERS))
    served = gateway_port(address, *hosts, tls=tls)
    mesh = rig.apply(gateways=(served,))
    rig.ask_when_listening(address=address, tls="first.example")
    for server_name, host, expected in MISDIRECTED:
        assert rig.ask(address=address, tls=server_name, host=host).answered_by == expected, (server_name, host)
        decision = decide(mesh, served, Request(authority=host, server_name=server_name))
        (portion,) = decision.shares
        assert (str(portion.status) if portion.status else portion.ref.service.partition("/")[2]) == expected


def test_a_request_for_a_host_of_no_listener_gets_404(rig):
    address = rig.free()
    served = gateway_port(address, ("a.example", routed(rig, "one")), tls=(("a.example", certificate("a")),))
    rig.apply(gateways=(served,))
    assert rig.ask_when_listening(address=address, tls="a.example", host="b.example").answered_by == "404"


def test_a_gateway_ends_a_tls_handshake_that_does_not_end(rig, monkeypatch):
    """An unknown client can't keep a connection by half of a handshake."""
    monkeypatch.setattr(http_connections, "HANDSHAKE_MS", 200)
    address = rig.free()
    rig.apply(gateways=(gateway_port(address, ("*", routed(rig, "one")), tls=(("*", certificate("slow")),)),))
    hello = ssl.MemoryBIO()
    half = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), hello, server_hostname="shop.example")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    until(lambda: listens(address))
    with socket.create_connection(address, DEADLINE_S) as connection:
        connection.sendall(hello.read())
        with contextlib.suppress(ConnectionError):
            while connection.recv(1 << 16):
                pass  # the server's part of the handshake, then the end


def test_a_gateway_accepts_tls_1_2(rig):
    address = rig.free()
    rig.apply(gateways=(gateway_port(address, ("*", routed(rig, "one")), tls=(("*", certificate("all")),)),))
    assert rig.ask_when_listening(address=address, tls="shop.example").answered_by == "one"
    assert rig.handshake(address, "shop.example", newest=ssl.TLSVersion.TLSv1_2)[2] == "TLSv1.2"


def test_a_tcp_listener_splits_connections_exactly(rig):
    """R43."""
    address = rig.free()
    split = Split(targets=(rig.target("one", 9), rig.target("two", 1)))
    route = Route(split=split, origin=Key(SHOP.group, "TCPRoute", "default", "db"), name="0")
    rig.apply(gateways=(gateway_port(address, protocol=Protocol.TCP, connections=route),))
    rig.ask_when_listening(address=address)
    counts = Counter(rig.ask(address=address).answered_by for _ in range(100))
    assert counts == {"one": 90, "two": 10}


def test_a_removed_gateway_does_not_listen_any_more(rig):
    address = rig.free()
    rig.apply(gateways=(gateway_port(address, ("*", routed(rig, "one"))),))
    rig.ask_when_listening(address=address)
    rig.apply()
    until(lambda: rig.ask(address=address).status == 0, "the listener is gone")
