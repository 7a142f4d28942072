"""A split is divided exactly, by the weights of servers or by counted turns."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.render.haproxy.haproxy_process import needs_haproxy, serving
from tests.render.shop import shop

from headgate.model.requests import Filters, HeaderEdit
from headgate.model.routing import Broken, Endpoint, PortRef, Protocol, Split, Target
from headgate.render.haproxy.configuration import render
from headgate.render.haproxy.shares import MOST_TURNS, SectionShare, divide
from headgate.render.proxy_ports import Selection, select

EDIT = Filters(request=HeaderEdit(set=(("x-version", "2"),)))
CLIENTS = 20


@needs_haproxy
async def test_servers_get_exactly_their_weights_from_many_clients(tmp_path: Path) -> None:
    async with shop() as web:
        rendered = render(select(web.divided(web.target(0, 90), web.target(1, 10))))
        assert "stick-table" not in rendered.files["haproxy.cfg"]
        async with serving(rendered, tmp_path):
            assert await web.counted(50, clients=CLIENTS) == {"member 0": 900, "member 1": 100}


@needs_haproxy
@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.HTTP2])
async def test_turns_are_exact_for_large_weights_filters_protocols_and_failing_shares(
    tmp_path: Path, protocol: Protocol
) -> None:
    async with shop() as web:
        targets = (web.target(0, 997), web.target(1, 2, filters=EDIT, protocol=protocol))
        mesh = web.divided(*targets, broken=(Broken(weight=1, reason="NoPort", status=500),))
        async with serving(render(select(mesh)), tmp_path):
            assert await web.counted(100, clients=CLIENTS) == {"member 0": 1994, "member 1": 4, 500: 2}


@needs_haproxy
async def test_connections_get_exact_turns_too_and_failing_shares_are_closed(tmp_path: Path) -> None:
    async with shop() as web:
        split = Split(targets=(web.target(0, 2), web.target(1)), broken=(Broken(weight=1, reason="NoPort"),))
        mesh = web.divided(*split.targets, broken=split.broken)
        tcp = web.mesh(*mesh.tables[0].routes, protocol=Protocol.TCP_SERVER_FIRST)
        async with serving(render(select(tcp)), tmp_path):
            counted = await web.counted(40, each_connects=True)
    assert counted == {"member 0": 20, "member 1": 10, "closed": 10}


def test_a_total_above_the_counter_is_rounded_and_named() -> None:
    refs = [PortRef(f"shop/web-{number}", 80) for number in range(2)]
    split = Split(targets=(Target(ref=refs[0], weight=2**32), Target(ref=refs[1], weight=1)))
    division = divide("web", split, _selection(refs))
    assert division.rounded
    assert [share.end for share in division.shares] == [2**31 - 1, 2**31]


def _selection(refs: list[PortRef]) -> Selection:
    ready = {ref: (Endpoint(address="127.0.0.1", port=80),) for ref in refs}
    return Selection(ports=(), endpoints=ready, protocols={})


@given(st.lists(st.integers(1, MOST_TURNS // 5), min_size=2, max_size=5))
def test_a_cycle_of_turns_has_the_exact_share_of_each_backend(weights: list[int]) -> None:
    broken = tuple(Broken(weight=weight, reason="NoPort") for weight in weights)
    division = divide("web", Split(targets=(), broken=broken), _selection([]))
    ends = [0, *(share.end for share in division.shares)]
    parts = [Fraction(end - start, division.total) for start, end in pairwise(ends)]
    assert parts == [Fraction(weight, sum(weights)) for weight in weights]


@given(st.integers(2, 3000), st.integers(1, 3000))
def test_the_order_of_turns_is_a_permutation_of_the_cycle(total: int, weight: int) -> None:
    broken = (Broken(weight=weight, reason="NoPort"), Broken(weight=total, reason="NoPort"))
    division = divide("web", Split(targets=(), broken=broken), _selection([]))
    order = [turn * division.step % division.total for turn in range(division.total)]
    assert sorted(order) == list(range(division.total))
    assert division.shares[0] == SectionShare(name="web:0", end=division.shares[0].end)
