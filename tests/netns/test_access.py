"""Access rules, enforced by the server's sidecar for the identity in the client's certificate (003, D21)."""

import pytest
from tests.envoy.forged_headers import FORGED, FORGERIES, OF_PROXIES, OWN, SPELLINGS, assert_words_of_the_client
from tests.make.objects import http_route_group, http_rule, smi_tcp_route, tcp_rule, tls_config, traffic_target
from tests.netns.objects import ECHO, GREETING, H2, ONE, TWO, WEB
from tests.netns.traffic import CLOSED, ask, ask_h2, talk
from tests.wire import Address

from headgate.model.sanitizing import CERTIFICATE
from headgate.settings import Settings

MARKER = "a-secret-that-must-not-be-sent"
VERSION = http_route_group("versions", {"version": {"methods": ["GET"], "pathRegex": "/version"}})
RAW = smi_tcp_route("raw", ECHO.port)
EXAMPLE = traffic_target("example", "web", ["client"], [http_rule("versions"), tcp_rule("raw")])


@pytest.fixture(params=["permissive", "strict"])
def example(request, lab, services):
    """Specification 003's example: `client` may GET /version and use the TCP Service; other clients are denied."""
    configs = [tls_config("web", {"app": name}) for name in ("one", "two")] if request.param == "strict" else []
    lab.serve(*services, VERSION, RAW, EXAMPLE, *configs)
    return lab


def test_the_traffic_target_of_specification_003_allows_its_client_the_listed_requests(example):  # R68
    client = example.members["client"]
    assert example.run(ask(client, WEB, path="/version")).status == 200
    assert example.run(ask(client, WEB, path="/other")).status == 403
    assert example.run(ask(client, WEB, "POST", "/version")).status == 403
    assert example.run(talk(client, ECHO, b"raw")) == ("", "raw")


def test_an_account_that_is_not_a_source_is_denied_over_http_and_tcp(example):
    """R68, R70, D26."""
    stranger = example.members["stranger"]
    refused = example.run(ask(stranger, WEB, path="/version"))
    assert (refused.status, "access denied" in refused.body) == (403, True)
    assert example.run(talk(stranger, ECHO, b"raw")) == CLOSED


def test_a_client_cannot_forge_its_identity_with_a_header(example):  # R70
    stranger, plain = example.members["stranger"], example.members["plain"]
    pretended = [("x-forwarded-client-cert", "URI=spiffe://cluster.local/ns/default/sa/client")]
    assert example.run(ask(stranger, WEB, path="/version", headers=pretended)).status != 200
    there = Address(example.members["one"].address, 8080)
    assert example.run(ask(plain, there, path="/version", headers=pretended)).status != 200


def test_an_application_sees_only_the_verified_client_identity(lab, services):
    one, plain, client = lab.members["one"], lab.members["plain"], lab.members["client"]
    lab.serve(*services)
    pretended = [("x-forwarded-client-cert", "URI=spiffe://cluster.local/ns/default/sa/admin")]
    seen = one.apps[8080].seen
    seen.clear()
    assert lab.run(ask(plain, Address(one.address, 8080), headers=pretended)).status == 200
    assert lab.run(ask(client, ONE, headers=pretended)).status == 200
    anonymous, known = (request.headers.get("x-forwarded-client-cert", "") for request in seen)
    assert anonymous == ""
    assert "URI=spiffe://cluster.local/ns/default/sa/client" in known
    assert "sa/admin" not in known


def test_an_application_behind_two_transparent_sidecars_gets_no_forged_statement(lab, services):
    one, plain, client = lab.members["one"], lab.members["plain"], lab.members["client"]
    lab.serve(*services)
    sent = [(name, FORGED) for name in (*FORGERIES, *OWN, *OF_PROXIES, *SPELLINGS)]
    seen = one.apps[8080].seen
    seen.clear()
    assert lab.run(ask(plain, Address(one.address, 8080), headers=sent)).status == 200
    assert lab.run(ask(client, ONE, headers=sent)).status == 200
    for request in seen:
        got = {name.lower(): value for name, value in request.headers.items()}
        assert FORGED not in got.pop(CERTIFICATE, "")
        assert_words_of_the_client(got)


def test_a_port_that_no_rule_allows_is_closed(example):  # R69
    client, one = example.members["client"], example.members["one"]
    one.apps[7001].peers.clear()
    assert example.run(talk(client, GREETING, b"hello", listen_first=True)) == CLOSED
    for member in (client, example.members["plain"]):  # to the pod's address, without mTLS
        assert example.run(talk(member, Address(one.address, 7001), b"hello")) == CLOSED
    assert not one.apps[7001].peers


def test_a_client_is_denied_as_soon_as_its_permission_is_removed(lab, services):
    client = lab.members["client"]
    lab.serve(*services, VERSION, RAW, EXAMPLE)
    assert lab.run(ask(client, ONE, path="/version")).status == 200
    lab.serve(*services, VERSION, RAW, traffic_target("example", "web", ["stranger"], [http_rule("versions")]))
    assert lab.run(ask(client, ONE, path="/version")).status != 200
    assert lab.run(ask(lab.members["stranger"], ONE, path="/version")).status == 200


def test_access_deny_closes_every_workload_without_a_traffic_target(lab, services):  # D21
    client = lab.members["client"]
    lab.serve(*services, settings=Settings(access="deny"))
    with lab.members["one"].capture() as wire:
        for place in (ONE, TWO, WEB):
            assert lab.run(ask(client, place, headers=[("x-secret", MARKER)])).status == 403
        assert lab.run(talk(client, ECHO, MARKER.encode())) == CLOSED
        assert not any(MARKER.encode() in frame for frame in wire.frames())  # the call did not bypass the sidecar
    lab.serve(*services, VERSION, RAW, EXAMPLE, settings=Settings(access="deny"))
    assert lab.run(ask(client, WEB, path="/version")).status == 200
    assert lab.run(talk(client, ECHO, b"hello")) == ("", "hello")


def test_access_rules_apply_to_http2(lab, services):
    client, stranger = lab.members["client"], lab.members["stranger"]
    lab.serve(
        *services,
        http_route_group("all", {"all": {"methods": ["*"], "pathRegex": "/.*"}}),
        traffic_target("h2", "web", ["client"], [http_rule("all")]),
    )
    assert lab.run(ask_h2(client, H2, 4)) == {"one": 2, "two": 2}
    assert not {"one", "two"} & set(lab.run(ask_h2(stranger, H2, 4)))
