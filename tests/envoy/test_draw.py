"""The order of a split under analysis is a new one in each cycle, and the shares of each cycle stay exact (R108)."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from msgspec import structs
from tests.authority import account
from tests.envoy.gateway_ports import gateway_port, routed
from tests.envoy.outbound_rig import OutboundRig, RedirectedRig, redirection_skip_reason
from tests.envoy.rig import EnvoyRig
from tests.waiting import until
from tests.wire import Address, Client, Load, Request, ask_h2

from headgate.envoy.draw import HEADER
from headgate.model.requests import Match
from headgate.model.requests import Path as PathMatch
from headgate.model.routing import Mesh, Route, Split

BLUE, GREEN = account("blue"), account("green")
CYCLES = 40
"""The chance that all cycles of ten have the same order is 10 ** -39, and of two it is 2 ** -39."""


def drawn(split: Split) -> Split:
    return structs.replace(split, order="random")


def drawn_route(rig: EnvoyRig, one: int, two: int, **more: object) -> Route:
    return Route(split=Split(targets=(rig.target("one", one), rig.target("two", two)), order="random"), **more)


def cycles(answers: Sequence[str], length: int) -> Sequence[Sequence[str]]:
    return [answers[begin : begin + length] for begin in range(0, len(answers), length)]


def converse(rig: EnvoyRig, count: int, request: Request) -> Sequence[str]:
    """Send requests one by one over one connection; return the backends that answer."""
    client = Client(request)

    async def go() -> Sequence[str]:
        try:
            return [(await client.ask()).answered_by for _ in range(count)]
        finally:
            client.close()

    return rig.network.run(go())


def assert_drawn(answers: Sequence[str], **weights: int) -> None:
    """Assert that each cycle is exact, and that the order of the cycles differs."""
    found = cycles(answers, sum(weights.values()))
    assert [dict(Counter(cycle)) for cycle in found] == [weights] * len(found)
    assert len({tuple(cycle) for cycle in found}) > 1


@pytest.mark.parametrize(("one", "two"), [(9, 1), (1, 1), (13, 7)])
def test_each_cycle_is_exact_and_has_an_order_of_its_own(rig, one, two):
    rig.apply(drawn_route(rig, one, two))
    answers = converse(rig, CYCLES * (one + two), Request(rig.address, host="web.example"))
    assert_drawn(answers, one=one, two=two)


def test_three_backends_and_http2_clients_are_drawn_too(rig):
    targets = (rig.target("one", 3), rig.target("two", 2), rig.target("other", 1))
    rig.apply(Route(split=Split(targets=targets, order="random")))
    answers = converse(rig, CYCLES * 6, Request(rig.address, host="web.example"))
    assert_drawn(answers, one=3, two=2, other=1)
    assert rig.network.run(ask_h2(rig.address, "web.example", 60)) == {"one": 30, "two": 20, "other": 10}


def test_requests_that_alternate_between_two_paths_reach_both_backends_with_both(rig):
    """By rotation, each path would always reach the same backend."""
    rig.apply(drawn_route(rig, 1, 1))
    clients = [Client(Request(rig.address, path, "web.example")) for path in ("/ok", "/bad")]

    async def alternate() -> None:
        for _ in range(40):
            for client in clients:
                assert (await client.ask()).status == 200
        for client in clients:
            client.close()

    rig.network.run(alternate())
    for name in ("one", "two"):
        paths = Counter(request.path for request in rig.take_requests(name))
        assert paths.total() == 40
        assert set(paths) == {"/ok", "/bad"}


def test_a_client_cannot_draw_and_no_backend_sees_the_number(rig):
    rig.apply(drawn_route(rig, 9, 1))
    request = Request(rig.address, host="web.example", headers={HEADER: "9"})
    assert Counter(converse(rig, 100, request)) == {"one": 90, "two": 10}
    assert not any(HEADER in item.headers for name in ("one", "two") for item in rig.take_requests(name))


def test_retries_leave_the_backend_that_refuses_connections(rig):
    broken = rig.echo("broken")
    split = Split(targets=(rig.target("one"), rig.target("broken")), order="random")
    rig.apply(Route(split=split))
    broken.close()
    del rig.echoes["broken"]
    assert rig.load(100, connections=1) == {"one": 100}


def test_routes_with_several_paths_draw_for_all_of_them(rig):
    """A request that may match a second path first selects another route, which must enable the filter too."""
    both = Match(path=PathMatch(kind="prefix", value="/in"), other_paths=(PathMatch(kind="regex", value="/in/.*x"),))
    inside = Match(path=PathMatch(kind="prefix", value="/in"))
    rig.apply(
        drawn_route(rig, 9, 1, match=both, name="0"),
        rig.route("other", match=inside, name="0"),
        rig.route("other", name="1"),
    )
    answers = converse(rig, CYCLES * 10, Request(rig.address, "/in/x", "web.example", {HEADER: "0"}))
    assert_drawn(answers, one=9, two=1)
    assert rig.ask("/in/y").answered_by == "other"


@pytest.mark.parametrize("host", ["*", "*.example", "shop.example"])
@pytest.mark.parametrize("written", ["shop.example", "SHOP.example"])
def test_gateways_draw_for_hosts_and_wildcards(rig, host, written):
    address = rig.free()
    behind = routed(rig, "one", "two")
    rig.apply(gateways=(gateway_port(address, (host, structs.replace(behind, split=drawn(behind.split)))),))
    first = rig.ask_when_listening(address=address, host="shop.example").answered_by
    request = Request(address, host=written, headers={HEADER: "0"})
    assert_drawn([first, *converse(rig, 2 * CYCLES - 1, request)], one=1, two=1)


def test_no_request_is_lost_while_the_order_and_the_shares_change(rig):
    rig.apply(rig.route("one"))
    flow = Load(rig.network, [Request(rig.address, host="web.example")] * 4, pause=0.001)
    for one, two in ((9, 1), (5, 5), (1, 9)) * 3:
        rig.apply(rig.route("one"))
        rig.apply(drawn_route(rig, one, two))
        before = flow.sent
        until(lambda before=before: flow.sent >= before + 20, "requests flow")
    rig.apply(rig.route("two"))
    assert flow.stop().keys() == {"one", "two"}


# --- sidecars


def under_analysis(mesh: Mesh) -> Mesh:
    """Return the mesh with a random order in each split."""

    def changed(item: Route) -> Route:
        return structs.replace(item, split=drawn(item.split)) if item.split.targets[1:] else item

    tables = tuple(structs.replace(table, routes=tuple(map(changed, table.routes))) for table in mesh.tables)
    return structs.replace(mesh, tables=tables)


@pytest.fixture(scope="module")
def sidecar() -> Iterator[OutboundRig]:
    with OutboundRig() as found:
        yield found


@pytest.mark.e2e
def test_an_explicit_sidecar_draws_and_verifies_each_identity(sidecar):
    blue, green = sidecar.server("blue", BLUE), sidecar.server("green", GREEN)
    endpoints = {"blue": [blue.endpoint()], "green": [green.endpoint()]}
    sidecar.push(under_analysis(sidecar.mesh(endpoints, blue=9, green=1)))
    assert_drawn(converse(sidecar, CYCLES * 10, sidecar.request()), blue=9, green=1)
    assert (blue.tls_requests, green.tls_requests) == (9 * CYCLES, CYCLES)
    assert blue.plaintext + green.plaintext == b""


@pytest.mark.e2e
def test_a_number_of_the_client_selects_no_backend_of_a_host_with_capitals(sidecar):
    blue, green = sidecar.server("blue", BLUE), sidecar.server("green", GREEN)
    endpoints = {"blue": [blue.endpoint()], "green": [green.endpoint()]}
    sidecar.push(under_analysis(sidecar.mesh(endpoints, blue=1, green=1)))
    host = "WEB.default:80"
    request = Request(sidecar.address, f"http://{host}/", host, {HEADER: "0"})
    assert set(converse(sidecar, CYCLES, request)) == {"blue", "green"}


@pytest.mark.e2e
def test_a_transparent_sidecar_draws():
    if reason := redirection_skip_reason():
        pytest.skip(reason)
    web = Address("10.98.0.10", 80)
    get = b"GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n"
    with RedirectedRig() as rig:
        blue, green = rig.server("blue", BLUE), rig.server("green", GREEN)
        endpoints = {"blue": [blue.endpoint()], "green": [green.endpoint()]}
        rig.push(under_analysis(rig.mesh(endpoints, addresses={"web": web.host}, blue=3, green=1)))
        first = until(lambda: rig.exchange(web, get), "the Service's listener")
        answers = [first, *(rig.exchange(web, get) for _ in range(4 * CYCLES - 1))]
        assert_drawn([answer.split(b"\r\n\r\n")[-1].decode() for answer in answers], blue=3, green=1)
