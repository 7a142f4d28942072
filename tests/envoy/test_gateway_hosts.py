"""The routes of a Gateway's hosts in a real Envoy: every spelling of a host, and changes to hosts under load."""

import asyncio
import re
from contextlib import closing

import pytest
from tests.envoy.gateway_ports import SHOP as ORIGIN
from tests.envoy.gateway_ports import certificate, gateway_port, routed
from tests.envoy.rig import ADDRESS, EnvoyRig
from tests.waiting import until
from tests.wire import Address, Load, Request, ask_h2

from headgate.compiler.sticky import StickyBackend, with_slots
from headgate.model.host_names import by_host
from headgate.model.requests import Match
from headgate.model.requests import Path as PathMatch
from headgate.model.routing import GatewayPort, HostRoutes, Route, Split, SplitMatch, Sticky
from headgate.resources.meta import Key

INSIDE = Match(path=PathMatch(kind="prefix", value="/in"))
HEADER = "x-headgate-host"
BUSY = ["*", "stays.example", "moves.example", "new.example", "*.example"]
SHOP = [
    "shop.example",
    "shop.example:1",
    "shop.example:",
    "shop.example:x",
    "SHOP.example:8080",
    "shop.example.",
    "Shop.Example.:80",
    " shop.example",
]
WILD = ["sub.example:80", "x.Sub.example", "*.EXAMPLE", "*.example", "user@shop.example", "none.example"]
OTHER = [
    "other.net",
    "Other.NET:1",
    "127.0.0.1:1",
    "[::1]",
    "[::1]:80",
    "a:b:c",
    "*",
    "",
    ".example",
    "example",
    "shop.example..",
    "shop.example:80:80",
    "shop%2eexample",
]
REFUSED = ["shop.example/", "gateway/default/edge/80/shop.example"]


def status_line(rig: EnvoyRig, address: Address, line: str, *headers: str) -> str:
    """Send a request as it is; return the name of the backend that answered, or the status."""

    async def once() -> str:
        reader, writer = await asyncio.open_connection(*address)
        writer.write("\r\n".join((line, *headers, "", "")).encode())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"content-length: (\d+)", head)
            body = (await reader.readexactly(int(length[1]))).decode() if length else ""
        finally:
            writer.close()
        status = head.split(" ")[1]
        return body if status == "200" else status

    return rig.network.run(once())


@pytest.mark.parametrize("wildcards", [True, False])
def test_every_spelling_of_a_host_gets_the_hosts_routes(rig, wildcards):
    """If a host has routes of its own, no wildcard's routes are tried."""
    address = rig.free()
    hosts = [("shop.example", routed(rig, "one", match=INSIDE))]
    if wildcards:
        hosts += [("*", routed(rig, "other", number=1)), ("*.example", routed(rig, "two", number=2))]
    rig.apply(gateways=(gateway_port(address, *hosts),))
    rig.ask_when_listening(address=address)
    answers = {
        (host, path): status_line(rig, address, f"GET {path} HTTP/1.1", f"host: {host}")
        for host in (*SHOP, *WILD, *OTHER, *REFUSED)
        for path in ("/in", "/")
    }
    two, other = ("two", "other") if wildcards else ("404", "404")
    expected = {(host, path): "one" if path == "/in" else "404" for host in SHOP for path in ("/in", "/")}
    expected |= {(host, path): two for host in WILD for path in ("/in", "/")}
    expected |= {(host, path): other for host in OTHER for path in ("/in", "/")}
    expected |= {(host, path): "400" for host in REFUSED for path in ("/in", "/")}
    assert answers == expected
    assert status_line(rig, address, "GET http://Shop.example:99/in HTTP/1.1", "host: x") == "one"
    assert status_line(rig, address, "GET http://[::1]:80/in HTTP/1.1", "host: shop.example") == other
    assert status_line(rig, address, "GET /in HTTP/1.0", "host: shop.example") == "one"
    assert status_line(rig, address, "GET /in HTTP/1.1") == "400"


@pytest.mark.parametrize("host", ["shop.example", "SHOP.example", "any.net"])
def test_backends_do_not_see_the_key_of_the_hosts_routes_and_clients_cannot_set_it(rig, host):
    address = rig.free()
    hosts = [("shop.example", routed(rig, "one")), ("*", routed(rig, "one", number=1))]
    rig.apply(gateways=(gateway_port(address, *hosts),))
    chosen = {HEADER: f"gateway/default/edge/{address.port}/none.example"}
    assert rig.ask_when_listening(address=address, host=host, **chosen).answered_by == "one"
    seen = rig.last_headers("one")
    assert HEADER not in seen
    assert seen["host"] == host


SPELLINGS = pytest.mark.parametrize("host", ["shop.example", "SHOP.example", "any.net", "Any.net"])


def everywhere(address: Address, *routes: Route) -> GatewayPort:
    """Return a port of the Gateway `default/edge` with the same routes for a host and for all other hosts."""
    hosts = by_host(*(HostRoutes(host=host, routes=routes) for host in ("*", "shop.example")))
    return GatewayPort(gateway="default/edge", address=ADDRESS, port=address.port, hosts=hosts)


@SPELLINGS
def test_every_host_may_have_routes_with_several_conditions_on_the_path(rig, host):
    address = rig.free()
    first, second = (PathMatch(kind="regex", value=value) for value in ("/.*b", "/a.*"))
    step = SplitMatch(ref=rig.ref("web"), split=Key("split.smi-spec.io", "TrafficSplit", "default", "ab"), match="g/m")
    one = routed(rig, "one", match=Match(path=first, other_paths=(second,)), split_matches=(step,))
    two = routed(rig, "two", match=Match(path=first))
    rig.apply(gateways=(everywhere(address, one, two, routed(rig, "other", number=1)),))
    rig.ask_when_listening(address=address)
    answers = [rig.ask(path, address=address, host=host).answered_by for path in ("/ab?x", "/b", "/a")]
    assert answers == ["one", "two", "other"]


@SPELLINGS
def test_every_host_may_issue_cookies(rig, host):
    address = rig.free()
    split = Split(targets=(rig.target("one"), rig.target("two")))
    backends = [StickyBackend(target.ref) for target in split.targets]
    split = with_slots(split, Sticky(kind="cookie", name="user"), backends)
    rig.apply(gateways=(everywhere(address, Route(split=split, origin=ORIGIN, name="0")),))
    rig.ask_when_listening(address=address)
    for _ in range(20):
        first = rig.ask(address=address, host=host)
        cookie, _, _ = first.headers["set-cookie"].partition(";")
        assert rig.ask(address=address, host=host, cookie=cookie).answered_by == first.answered_by


@pytest.mark.parametrize("host", ["shop.example", "other.example", "any.net"])
def test_http2_requests_find_the_routes_of_their_host(rig, host):
    address = rig.free()
    hosts = {"shop.example": "one", "*.example": "two", "*": "other"}
    routes = [(name, routed(rig, backend, number=index)) for index, (name, backend) in enumerate(hosts.items())]
    rig.apply(gateways=(gateway_port(address, *routes),))
    rig.ask_when_listening(address=address)
    expected = {"shop.example": "one", "other.example": "two", "any.net": "other"}[host]
    assert rig.network.run(ask_h2(address, f"{host}:{address.port}", 3)) == {expected: 3}


def test_changes_of_hosts_lose_no_request_of_a_host_that_keeps_a_route(rig):
    """Hosts and wildcards appear and disappear; a host changes between its own routes and those of a wildcard."""
    address = rig.free()

    def served(*names: str) -> None:
        """Serve each of `names` by a backend; a host keeps the number of its route."""
        routes = [(name, routed(rig, "two" if name == "*" else "one", number=BUSY.index(name))) for name in names]
        rig.apply(gateways=(gateway_port(address, *routes),))

    served("stays.example", "moves.example", "*")
    rig.ask_when_listening(address=address)
    requests = [Request(address, "/", host) for host in ("stays.example", "moves.example", "Moves.example", "any.net")]
    load = Load(rig.network, requests)
    for names in (("*.example",), ("moves.example", "new.example"), ("new.example", "*.example"), ("moves.example",)):
        before = load.sent
        for _ in range(3):
            served("stays.example", "*", *names)
            served("stays.example", "*")
        until(lambda before=before: load.sent > before + 100, "requests after the changes")
    answers = load.stop()
    assert set(answers) == {"one", "two"}


def test_open_tls_connections_are_served_when_the_hostname_of_their_listener_changes(rig):
    address, all_hosts = rig.free(), certificate("all")

    def serve(*listeners: str) -> None:
        tls = tuple((listener, all_hosts) for listener in listeners)
        routes = (routed(rig, "one"),)
        found = HostRoutes(host="shop.example", routes=routes, listener=listeners[0])
        gateway = GatewayPort(gateway="default/edge", address=ADDRESS, port=address.port, hosts=by_host(found), tls=tls)
        rig.apply(gateways=(gateway,))

    serve("*")
    rig.ask_when_listening(address=address, tls="shop.example")
    with closing(rig.tls_client(address, "shop.example")) as client:
        assert rig.network.run(client.ask()).answered_by == "one"
        serve("*.example")
        assert rig.network.run(client.ask()).answered_by == "one"
    with closing(rig.tls_client(address, "shop.example")) as client:
        assert rig.network.run(client.ask()).answered_by == "one"
        serve("*.example", "other.net")
        assert rig.network.run(client.ask()).answered_by == "one"


def test_a_gateway_that_is_created_after_the_last_one_was_deleted_serves_its_hosts(rig):
    """Envoy closes a listener for good after its drain time."""

    def drained() -> bool:
        found = rig.network.run(rig.envoy.admin.get_json("/stats?format=json&filter=total_listeners_draining"))
        return bool(found["stats"][0]["value"] == 0)

    address = rig.free()
    for _ in range(2):
        rig.apply(gateways=(gateway_port(address, ("shop.example", routed(rig, "one"))),))
        assert rig.ask_when_listening(address=address, host="shop.example").answered_by == "one"
        rig.apply()
        until(drained, "Envoy has closed the listener")


def test_a_new_proxy_serves_all_hosts_from_its_first_answer_on(rig):
    """Their scopes do not fit into one response of usual size."""
    address = rig.free()
    name = "a" * 50
    hosts = [(f"{name}{number}.example", routed(rig, "one")) for number in range(2500)]
    rig.apply(gateways=(gateway_port(address, *hosts),))
    rig.network.run(rig.envoy.stop())
    rig.network.run(rig.envoy.start())
    assert rig.ask_when_listening(address=address, host=hosts[-1][0]).answered_by == "one"
    until(rig.settled, "the proxy has acknowledged the configuration")
