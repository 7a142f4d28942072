"""Who is served, for how long, and what the others are told: over real gRPC, without Envoy."""

import asyncio
import logging
import time

import grpc
import pytest
from tests.ports import free_port
from tests.xds.proxies import Authority, Proxy

from headgate.envoy import pb
from headgate.envoy.config import CLUSTER, LISTENER, Encoded
from headgate.errors import ProxyError
from headgate.latest import Latest, until
from headgate.xds import server
from headgate.xds.fleet import Fleet
from headgate.xds.gate import MOST_REFUSALS, Gate, TurnedAway
from headgate.xds.proofs import LocalTokens
from headgate.xds.server import METHOD, XdsServer

SECRET = bytes(range(32))
WEB_1, WEB_2 = "sidecar/default/web-1", "sidecar/default/web-2"


def config(version="1", size=1):
    return {CLUSTER: {"a": Encoded(b"\x1a\x01a" + b"x" * (size - 1) if size > 1 else b"\x1a\x01a", version)}}


class Always:
    """Proofs that all come out the same."""

    def __init__(self, *, ends=0.0, error=None):
        self.ends, self.error = ends, error

    async def check(self, _node_id, _token):
        if self.error:
            raise self.error
        return self.ends


class World:
    """A server, its fleet, and the tokens that it believes."""

    def __init__(self, address):
        self.fleet = Fleet()
        self.tokens = LocalTokens(SECRET)
        self.address = address
        self.xds = XdsServer(self.fleet, self.tokens)

    def proxy(self, node, owner=None):
        return Proxy(self.address, node, self.tokens.issue(owner or node))

    async def until(self, condition):
        async with asyncio.timeout(20):
            await until(condition, self.fleet.news)


@pytest.fixture
async def world(tmp_path):
    found = World(f"unix:{tmp_path}/xds.sock")
    await found.xds.start(found.address)
    yield found
    await found.xds.stop()


async def test_a_proxy_with_its_own_token_is_served(world):
    world.fleet.expect(WEB_1).config.set(config())
    async with world.proxy(WEB_1) as proxy:
        await proxy.ask()
        assert (await proxy.heard()).type_url == CLUSTER


async def test_each_of_thousands_that_connect_at_once_has_an_answer_of_its_own(world):
    """gRPC would refuse most streams beyond a thousand, as if the server had no resources left."""
    request = pb.DeltaDiscoveryRequest(node=pb.Node(id=WEB_1), type_url=CLUSTER).SerializeToString()
    metadata = [("authorization", f"Bearer {world.tokens.issue(WEB_1)}")]
    async with grpc.aio.insecure_channel(world.address) as channel:
        calls = [channel.stream_stream(METHOD)(iter([request]), metadata=metadata) for _ in range(2500)]
        assert {await call.code() for call in calls} == {grpc.StatusCode.NOT_FOUND}


async def test_the_others_are_told_why_and_get_nothing(world):
    for node in (WEB_1, WEB_2):
        world.fleet.expect(node).config.set(config())
    old = LocalTokens(SECRET, clock=lambda: 1_000_000_000.0).issue(WEB_1)
    made_up = LocalTokens(bytes(32)).issue(WEB_1)
    for token, message in {
        "": "no token",
        "abc": "malformed",
        made_up: "not signed by this headgate",
        old: f"the token of {WEB_1} expired at 2001-09-09T02:46:40Z",
        world.tokens.issue(WEB_2): f"this token is {WEB_2}'s, not {WEB_1}'s",
    }.items():
        async with Proxy(world.address, WEB_1, token) as proxy:
            await proxy.ask()
            code, said = await proxy.ended()
            assert code == grpc.StatusCode.UNAUTHENTICATED
            assert message in said
    assert world.fleet.connected() == []


async def test_a_stranger_does_not_learn_which_proxies_there_are(world):
    world.fleet.expect(WEB_1)
    said = []
    for node in (WEB_1, WEB_2):
        async with Proxy(world.address, node, "abc") as proxy:
            await proxy.ask()
            said.append(await proxy.ended())
    assert said[0] == said[1]


async def test_a_proxy_that_is_gone_is_told_so(world):
    async with world.proxy(WEB_1) as proxy:
        await proxy.ask()
        code, said = await proxy.ended()
    assert code == grpc.StatusCode.NOT_FOUND
    assert f"does not know the proxy {WEB_1}" in said


async def test_the_log_has_each_refusal_once_until_the_proxy_was_let_in_and_never_a_token(world, caplog):
    caplog.set_level(logging.INFO)
    world.fleet.expect(WEB_1).config.set(config())
    wrong = LocalTokens(bytes(32)).issue(WEB_1)

    async def come(token):
        async with Proxy(world.address, WEB_1, token) as proxy:
            await proxy.ask()
            await (proxy.heard() if token != wrong else proxy.ended())

    right = world.tokens.issue(WEB_1)
    for token in (wrong, wrong, wrong, right, wrong, wrong):
        await come(token)
    refusals = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(refusals) == 2
    assert all(f"proxy {WEB_1} is refused: the token is not signed" in line for line in refusals)
    assert wrong not in caplog.text
    assert right not in caplog.text


async def test_what_is_remembered_of_strangers_has_an_end():
    gate = Gate(Fleet(), LocalTokens(SECRET))
    first = b"\x0a\x08\x0a\x06"  # node { id: six characters }
    for number in range(MOST_REFUSALS + 100):
        with pytest.raises(TurnedAway):
            await gate.admit(first + f"{number:06}".encode(), [])
    assert len(gate._told) == MOST_REFUSALS


async def test_proofs_that_cant_be_checked_now_are_not_taken_and_not_called_wrong(tmp_path):
    fleet = Fleet()
    fleet.expect(WEB_1).config.set(config())
    xds = XdsServer(fleet, Always(error=ProxyError("the API server does not answer")))
    await xds.start(f"unix:{tmp_path}/xds.sock")
    async with Proxy(f"unix:{tmp_path}/xds.sock", WEB_1, "abc") as proxy:
        await proxy.ask()
        assert await proxy.ended() == (grpc.StatusCode.UNAVAILABLE, "the API server does not answer")
    await xds.stop()


class Clock:
    """The time as the server reads it."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self):
        self.now = 0.0

    def time(self):
        return self.now


async def test_the_stream_ends_with_the_proof_however_the_clock_goes(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(server, "time", clock)
    monkeypatch.setattr(server, "CLOCK_SECONDS", 0.01)
    fleet = Fleet()
    fleet.expect(WEB_1).config.set(config())
    xds = XdsServer(fleet, Always(ends=3600.0))
    await xds.start(f"unix:{tmp_path}/xds.sock")
    async with Proxy(f"unix:{tmp_path}/xds.sock", WEB_1, "abc") as proxy:
        await proxy.ask()
        await proxy.heard()
        clock.now = 3600.0  # a laptop wakes up
        code, said = await proxy.ended()
        assert code == grpc.StatusCode.UNAUTHENTICATED
        assert "come back with a new one" in said
    assert fleet.connected() == []
    await xds.stop()


async def test_a_proxy_that_is_forgotten_is_sent_away(world):
    held = world.fleet.expect(WEB_1)
    held.config.set(config())
    async with world.proxy(WEB_1) as proxy:
        await proxy.ask()
        await proxy.heard()
        assert [proxy.id for proxy in world.fleet.connected()] == [WEB_1]
        world.fleet.forget(WEB_1)
        code, said = await proxy.ended()
    assert code == grpc.StatusCode.NOT_FOUND
    assert "no such proxy any more" in said
    assert held.config.get() is None
    assert held.session is None
    assert world.fleet.proxies == {}
    world.fleet.forget(WEB_1)  # once more is no mistake


async def test_a_proxy_that_comes_again_under_the_name_of_a_forgotten_one_is_new(world):
    world.fleet.expect(WEB_1).config.set(config())
    world.fleet.forget(WEB_1)
    assert world.fleet.expect(WEB_1).config.get() is None
    assert world.fleet.connected() == []
    assert list(world.fleet.proxies) == [WEB_1]


async def test_a_forgotten_proxy_that_does_not_even_read_is_let_go_of(world):
    held = world.fleet.expect(WEB_1)
    held.config.set(config(size=1 << 20))
    async with world.proxy(WEB_1) as proxy:
        await proxy.ask()
        await world.until(lambda: held.session is not None and bool(held.session.shelves[CLUSTER].flying))
        world.fleet.forget(WEB_1)
        await world.until(lambda: not world.fleet.connected())
        streams = {task for task in asyncio.all_tasks() if task.get_name().endswith(WEB_1)}
        if streams:
            await asyncio.wait(streams, timeout=20)
        assert all(task.done() for task in streams)


async def test_of_two_streams_of_a_proxy_the_newest_counts(world):
    held = world.fleet.expect(WEB_1)
    held.config.set(config())
    async with world.proxy(WEB_1) as first, world.proxy(WEB_1) as second:
        await first.ask()
        await first.heard()
        await second.ask()
        await second.heard()
        code, said = await first.ended()
        assert code == grpc.StatusCode.ABORTED
        assert "the newest counts" in said
        held.config.set(config("2"))
        await second.ask()  # whatever it says wakes nobody else
        assert held.session is not None
    await world.until(lambda: held.session is None)


async def test_a_wrong_token_does_not_end_the_stream_of_the_right_one(world):
    held = world.fleet.expect(WEB_1)
    held.config.set(config())
    async with world.proxy(WEB_1) as right, Proxy(world.address, WEB_1, "abc") as wrong:
        await right.ask()
        await right.heard()
        session = held.session
        await wrong.ask()
        await wrong.ended()
        assert held.session is session


async def test_a_proxy_whose_configuration_is_not_made_yet_waits_for_it(world):
    held = world.fleet.expect(WEB_1)
    async with world.proxy(WEB_1) as proxy:
        await proxy.ask()
        await world.until(lambda: held.session is not None)
        held.config.set(config())
        assert [item.name for item in (await proxy.heard()).resources] == ["a"]


class Unheard(Latest):
    """A cell whose changes are heard of late, as on a busy machine: here, never."""

    async def changes(self):
        yield await asyncio.Event().wait()


async def test_what_a_proxy_brought_along_is_not_taken_away_before_anybody_looked_at_what_it_is_to_hold(world):
    """After a restart of headgate under load a listener would be gone for a moment, and its requests with it."""
    held = world.fleet.expect(WEB_1)
    held.config = Unheard({LISTENER: config("2")[CLUSTER]})
    async with world.proxy(WEB_1) as proxy:
        await proxy.ask(LISTENER, initial={"a": "1"})
        heard = await proxy.heard()
    assert [item.name for item in heard.resources] == ["a"]
    assert list(heard.removed_resources) == []


async def test_a_stream_that_does_not_say_whose_it_is_ends(world, monkeypatch):
    monkeypatch.setattr(server, "FIRST_SECONDS", 0.01)
    async with world.proxy(WEB_1) as proxy:
        code, _ = await proxy.ended()
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_over_tcp_the_server_shows_its_certificate_and_a_renewed_one_without_a_restart():
    fleet, tokens = Fleet(), LocalTokens(SECRET)
    fleet.expect(WEB_1).config.set(config())
    old, new = Authority(), Authority()
    certificate = Latest(old.issue())
    xds = XdsServer(fleet, tokens)
    address = f"localhost:{await xds.start(f'localhost:{free_port()}', certificate)}"

    async def comes(roots):
        async with Proxy(address, WEB_1, tokens.issue(WEB_1), roots=roots) as proxy:
            try:
                await proxy.ask()
                await proxy.heard()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, AssertionError):
                return False
            return True

    assert await comes(old.roots)
    assert not await comes(new.roots)
    certificate.set(new.issue())
    assert await comes(new.roots)
    assert not await comes(old.roots)
    await xds.stop()


async def test_nobody_listens_for_others_without_tls_and_proofs():
    certificate = Latest(Authority().issue())
    for xds, shown in (
        (XdsServer(Fleet(), LocalTokens(SECRET)), None),
        (XdsServer(Fleet()), certificate),
        (XdsServer(Fleet()), None),
    ):
        with pytest.raises(ProxyError, match="needs a certificate, and proofs"):
            await xds.start("localhost:0", shown)


async def test_the_socket_is_for_its_user_alone(world, tmp_path):
    assert (tmp_path / "xds.sock").stat().st_mode & 0o777 == 0o600


async def test_an_address_that_cant_be_had_is_named():
    xds = XdsServer(Fleet())
    with pytest.raises(ProxyError, match=r"can't listen for proxies on unix:/nonexistent/xds\.sock"):
        await xds.start("unix:/nonexistent/xds.sock")
