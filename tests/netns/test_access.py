"""Who may do what, enforced at the server's sidecar by the certificate that the client's sidecar shows (003, D21)."""

import pytest
from tests.netns.conftest import ECHO, GREETING, H2, ONE, TWO, WEB, Where
from tests.netns.objects import connections, requests, strict, target
from tests.netns.traffic import CLOSED, ask, ask_h2, talk

from headgate.settings import Settings

MARKER = "a-secret-of-whom-nobody-may-hear"
VERSION = requests("versions", version=(["GET"], "/version"))
RAW = connections("raw", ECHO.port)
EXAMPLE = target("example", "web", ["client"], ("HTTPRouteGroup", "versions"), ("TCPRoute", "raw"))


@pytest.fixture(params=["permissive", "strict"])
def example(request, lab, services):
    """003's example: `client` may GET /version, and may use the TCP Service; others may do nothing."""
    configs = [strict("web", {"app": name}) for name in ("one", "two")] if request.param == "strict" else []
    lab.serve(*services, VERSION, RAW, EXAMPLE, *configs)
    return lab


def test_the_example_of_003(example):  # R68
    client = example.members["client"]
    assert example.run(ask(client, WEB, path="/version")).status == 200
    assert example.run(ask(client, WEB, path="/other")).status == 403
    assert example.run(ask(client, WEB, "POST", "/version")).status == 403
    assert example.run(talk(client, ECHO, b"raw")) == ("", "raw")


def test_an_account_that_is_not_listed_is_refused_on_both(example):  # R68, R70; D26: no container declares the ports
    stranger = example.members["stranger"]
    refused = example.run(ask(stranger, WEB, path="/version"))
    assert (refused.status, "access denied" in refused.body) == (403, True)
    assert example.run(talk(stranger, ECHO, b"raw")) == CLOSED


def test_who_calls_is_known_by_certificate_and_not_by_what_is_said(example):  # R70
    stranger, plain = example.members["stranger"], example.members["plain"]
    pretended = [("x-forwarded-client-cert", "URI=spiffe://cluster.local/ns/default/sa/client")]
    assert example.run(ask(stranger, WEB, path="/version", headers=pretended)).status != 200
    there = Where(example.members["one"].address, 8080)
    assert example.run(ask(plain, there, path="/version", headers=pretended)).status != 200


def test_applications_hear_of_no_client_but_the_proven_one(lab, services):
    one, plain, client = lab.members["one"], lab.members["plain"], lab.members["client"]
    lab.serve(*services)
    pretended = [("x-forwarded-client-cert", "URI=spiffe://cluster.local/ns/default/sa/admin")]
    seen = one.apps[8080].seen
    seen.clear()
    assert lab.run(ask(plain, Where(one.address, 8080), headers=pretended)).status == 200
    assert lab.run(ask(client, ONE, headers=pretended)).status == 200
    nobody, known = (request.headers.get("x-forwarded-client-cert", "") for request in seen)
    assert nobody == ""
    assert "URI=spiffe://cluster.local/ns/default/sa/client" in known
    assert "sa/admin" not in known


def test_a_port_that_no_rule_names_is_closed(example):  # R69
    client, one = example.members["client"], example.members["one"]
    one.apps[7001].peers.clear()
    assert example.run(talk(client, GREETING, b"hello", listen_first=True)) == CLOSED
    for member in (client, example.members["plain"]):  # past the Service, and so without an identity
        assert example.run(talk(member, Where(one.address, 7001), b"hello")) == CLOSED
    assert not one.apps[7001].peers


def test_a_permission_that_is_taken_away_bites_at_once(lab, services):
    client = lab.members["client"]
    lab.serve(*services, VERSION, RAW, EXAMPLE)
    assert lab.run(ask(client, ONE, path="/version")).status == 200
    lab.serve(*services, VERSION, RAW, target("example", "web", ["stranger"], ("HTTPRouteGroup", "versions")))
    assert lab.run(ask(client, ONE, path="/version")).status != 200
    assert lab.run(ask(lab.members["stranger"], ONE, path="/version")).status == 200


def test_with_the_setting_deny_everything_is_closed_that_no_target_opens(lab, services):  # D21
    client = lab.members["client"]
    lab.serve(*services, settings=Settings(access="deny"))
    with lab.members["one"].space.capture() as wire:
        for place in (ONE, TWO, WEB):
            assert lab.run(ask(client, place, headers=[("x-secret", MARKER)])).status == 403
        assert lab.run(talk(client, ECHO, MARKER.encode())) == CLOSED
        assert not any(MARKER.encode() in frame for frame in wire.frames())  # it is refused, not passed by
    lab.serve(*services, VERSION, RAW, EXAMPLE, settings=Settings(access="deny"))
    assert lab.run(ask(client, WEB, path="/version")).status == 200
    assert lab.run(talk(client, ECHO, b"hello")) == ("", "hello")


def test_rules_hold_for_http2_too(lab, services):
    client, stranger = lab.members["client"], lab.members["stranger"]
    lab.serve(
        *services, requests("all", all=(["*"], "/.*")), target("h2", "web", ["client"], ("HTTPRouteGroup", "all"))
    )
    assert lab.run(ask_h2(client, H2, 4)) == {"one": 2, "two": 2}
    assert not {"one", "two"} & set(lab.run(ask_h2(stranger, H2, 4)))
