"""Tests of the xDS server over real gRPC, without Envoy: which streams it serves, and how it ends them."""

import asyncio
import contextlib
import logging
import time

import grpc
import pytest
from tests.ports import free_port
from tests.xds.proxies import Proxy, ServerAuthority, rejection

from headgate.envoy import pb
from headgate.envoy.config import CLUSTER, LISTENER, Encoded
from headgate.errors import ProxyError
from headgate.latest import Latest, until
from headgate.xds import send_slots, server, unary_methods
from headgate.xds.authentication import (
    MAX_LOGGED_REJECTIONS,
    Authenticator,
    CallOrigin,
    LocalTokens,
    StatusError,
    UnknownPod,
)
from headgate.xds.fleet import MAX_REMOVED, Fleet
from headgate.xds.server import MAX_STREAMS_OF_CONNECTION, METHOD, XdsServer

SECRET = bytes(range(32))
WEB_1, WEB_2 = "sidecar/default/web-1", "sidecar/default/web-2"


def config(version="1", size=1):
    aliases = [b"\x22\x01x"] * (size - 1)  # a field that has no effect
    return {CLUSTER: {"a": Encoded(b"".join((b"\x1a\x01a", *aliases)), version)}}


class FixedVerifier:
    """A verifier that has the same result for every token. A token is the node ID of its proxy."""

    def __init__(self, *, expires=0.0, error=None):
        self.expires, self.error = expires, error

    def node_of(self, token):
        return token

    async def verify(self, _node_id, _token, **_origin):
        if self.error:
            raise self.error
        return self.expires


class XdsServerRig:
    """A server, its fleet, and the tokens that it accepts."""

    def __init__(self, address):
        self.fleet = Fleet()
        self.tokens = LocalTokens(SECRET)
        self.address = address
        self.xds = XdsServer(self.fleet, self.tokens)

    def proxy(self, node, owner=None):
        return Proxy(self.address, node, self.tokens.issue(owner or node))

    async def until(self, condition):
        async with asyncio.timeout(60):
            await until(condition, self.fleet.change_count)


@pytest.fixture
async def rig(tmp_path):
    found = XdsServerRig(f"unix:{tmp_path}/xds.sock")
    await found.xds.start(found.address)
    yield found
    await found.xds.stop()


async def test_a_proxy_with_its_own_token_is_served(rig):
    rig.fleet.expect(WEB_1).config.set(config())
    async with rig.proxy(WEB_1) as proxy:
        await proxy.request()
        assert (await proxy.receive()).type_url == CLUSTER


async def test_no_timer_outlives_a_server(rig, monkeypatch):
    """A timer that starts a thread would fail while the event loop ends."""
    loop, timers = asyncio.get_running_loop(), []
    call_later = loop.call_later
    monkeypatch.setattr(send_slots, "TRIM_DELAY_SECONDS", 3600.0)

    def recorded(seconds, *work):
        timers.append(call_later(seconds, *work))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", recorded)
    fleet_proxy = rig.fleet.expect(WEB_1)
    fleet_proxy.config.set(config())
    async with rig.proxy(WEB_1) as proxy:
        await proxy.request()
        await proxy.receive()
        await rig.xds.stop()
        await rig.until(lambda: fleet_proxy.session is None)
    assert timers
    assert [timer for timer in timers if timer.when() > loop.time() + 60 and not timer.cancelled()] == []


async def test_a_draining_server_keeps_its_streams_and_accepts_no_new_ones(rig):
    """D28. A proxy keeps its stream until the next replica can serve it."""
    fleet_proxy = rig.fleet.expect(WEB_1)
    async with rig.proxy(WEB_1) as proxy:
        await proxy.request()
        await rig.until(lambda: fleet_proxy.session)
        rig.xds.drain()
        async with rig.proxy(WEB_2) as late:
            assert (await late.ended())[0] == grpc.StatusCode.UNAVAILABLE
        fleet_proxy.config.set(config())
        assert (await proxy.receive()).type_url == CLUSTER
        await rig.xds.stop()
        assert (await proxy.ended())[0] != grpc.StatusCode.OK


async def test_a_call_in_progress_fails_while_the_server_drains(tmp_path):
    """The next process must get what the call reports: this one has saved its counts."""
    began, ends = asyncio.Event(), asyncio.Event()

    async def report(_data, _check_node):
        began.set()
        await ends.wait()
        return b""

    address = f"unix:{tmp_path}/xds.sock"
    xds = XdsServer(Fleet(), LocalTokens(SECRET), unary_methods={"/reports/Export": report})
    await xds.start(address)
    async with grpc.aio.insecure_channel(address) as channel:
        metadata = [("authorization", f"Bearer {LocalTokens(SECRET).issue(WEB_1)}")]
        call = channel.unary_unary("/reports/Export")(b"", metadata=metadata)
        await began.wait()
        xds.drain()
        ends.set()
        assert await call.code() == grpc.StatusCode.UNAVAILABLE
    await xds.stop()


async def test_thousands_of_streams_that_start_at_once_each_get_a_status(rig, monkeypatch):
    """By default gRPC rejects most streams beyond a thousand with RESOURCE_EXHAUSTED."""
    monkeypatch.setattr(server, "FIRST_REQUEST_SECONDS", 300.0)
    request = pb.DeltaDiscoveryRequest(node=pb.Node(id=WEB_1), type_url=CLUSTER).SerializeToString()
    metadata = [("authorization", f"Bearer {rig.tokens.issue(WEB_1)}")]
    async with contextlib.AsyncExitStack() as stack:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(rig.address, options) for _ in range(2560 // MAX_STREAMS_OF_CONNECTION)]
        for channel in channels:
            await stack.enter_async_context(channel)
        many = channels * MAX_STREAMS_OF_CONNECTION
        calls = [channel.stream_stream(METHOD)(iter([request]), metadata=metadata) for channel in many]
        assert {await call.code() for call in calls} == {grpc.StatusCode.NOT_FOUND}


async def test_a_stream_with_an_invalid_token_ends_with_a_status_that_says_why(rig):
    for node in (WEB_1, WEB_2):
        rig.fleet.expect(node).config.set(config())
    old = LocalTokens(SECRET, clock=lambda: 1_000_000_000.0).issue(WEB_1)
    forged = LocalTokens(bytes(32)).issue(WEB_1)
    for token, message in {
        "": "no token",
        "abc": "malformed",
        forged: "not signed by this headgate",
        old: f"the token of {WEB_1} expired at 2001-09-09T13:46:40Z",
        rig.tokens.issue(WEB_2): f"the token belongs to {WEB_2}, not to {WEB_1}",
    }.items():
        code, details = await asyncio.to_thread(rejection, rig.address, WEB_1, token)
        assert code == grpc.StatusCode.UNAUTHENTICATED
        assert message in details
    assert rig.fleet.connected() == []


@pytest.mark.parametrize("method", [METHOD, "/reports/Export"])
async def test_a_call_without_a_valid_token_ends_before_its_request_is_read(tmp_path, method):
    """No message of an unknown client is kept in memory, and none is decoded."""

    async def report(_data, _check_node):
        return b""

    address = f"unix:{tmp_path}/xds.sock"
    xds = XdsServer(Fleet(), LocalTokens(SECRET), unary_methods={"/reports/Export": report})
    await xds.start(address)
    async with grpc.aio.insecure_channel(address) as channel:
        for metadata in ([], [("authorization", f"Bearer {LocalTokens(bytes(32)).issue(WEB_1)}")]):
            call = channel.stream_stream(method)(metadata=metadata, timeout=60)  # and never a request
            assert await call.code() == grpc.StatusCode.UNAUTHENTICATED
    await xds.stop()


@pytest.mark.parametrize(
    ("requests", "seconds", "code"),
    [(None, 0.01, grpc.StatusCode.DEADLINE_EXCEEDED), ([], 60, grpc.StatusCode.INVALID_ARGUMENT)],
    ids=["late", "none"],
)
async def test_a_unary_call_without_a_request_ends(tmp_path, monkeypatch, requests, seconds, code):
    async def report(_data, _check_node):
        return b""

    monkeypatch.setattr(unary_methods, "REQUEST_SECONDS", seconds)
    address = f"unix:{tmp_path}/xds.sock"
    xds = XdsServer(Fleet(), LocalTokens(SECRET), unary_methods={"/reports/Export": report})
    await xds.start(address)
    metadata = [("authorization", f"Bearer {LocalTokens(SECRET).issue(WEB_1)}")]
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream("/reports/Export")(requests, metadata=metadata, timeout=60)
        assert await call.code() == code
    await xds.stop()


async def test_a_stream_without_a_valid_token_can_not_find_out_which_proxies_exist(rig):
    rig.fleet.expect(WEB_1)
    ends = [await asyncio.to_thread(rejection, rig.address, node, "abc") for node in (WEB_1, WEB_2)]
    assert ends[0] == ends[1]


async def test_an_authenticated_proxy_that_does_not_exist_gets_not_found(rig):
    code, message = await asyncio.to_thread(rejection, rig.address, WEB_1, rig.tokens.issue(WEB_1))
    assert code == grpc.StatusCode.NOT_FOUND
    assert f"proxy {WEB_1} is unknown" in message


async def test_a_rejection_is_logged_once_until_the_proxy_authenticates_and_no_token_is_logged(rig, caplog):
    caplog.set_level(logging.INFO)
    rig.fleet.expect(WEB_1).config.set(config())
    wrong = LocalTokens(bytes(32)).issue(WEB_1)

    right = rig.tokens.issue(WEB_1)
    for token in (wrong, wrong, wrong, right, wrong, wrong):
        if token == wrong:
            await asyncio.to_thread(rejection, rig.address, WEB_1, token)
        else:
            async with rig.proxy(WEB_1) as proxy:
                await proxy.request()
                await proxy.receive()
    rejections = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(rejections) == 2
    assert all(f"stream of proxy {WEB_1} rejected: the token is not signed" in line for line in rejections)
    assert wrong not in caplog.text
    assert right not in caplog.text


async def test_a_proxy_that_asks_after_its_pod_was_deleted_causes_no_warning(rig, caplog):
    rig.fleet.expect(WEB_1)
    rig.fleet.remove(WEB_1)
    for node in (WEB_1, WEB_2):
        code, _ = await asyncio.to_thread(rejection, rig.address, node, rig.tokens.issue(node))
        assert code == grpc.StatusCode.NOT_FOUND
    assert [record.args[0] for record in caplog.records if record.levelno == logging.WARNING] == [WEB_2]


async def test_an_unknown_pod_causes_a_warning_at_its_second_attempt_unless_it_was_deleted(caplog):
    """A new pod can ask before headgate knows it."""
    fleet = Fleet()
    for node in (WEB_1, WEB_2):
        fleet.expect(node)
    authenticator = Authenticator(fleet, FixedVerifier(error=UnknownPod("no pod with the UID of this token")))
    for node, warnings in ((WEB_1, 0), (WEB_1, 1), (WEB_1, 1), (WEB_2, 1)):
        with pytest.raises(StatusError, match="no pod with the UID"):
            await authenticator.authenticate(CallOrigin([f"Bearer {node}"], ""))
        assert len(caplog.records) == warnings
    fleet.remove(WEB_2)
    for _ in range(2):
        with pytest.raises(StatusError):
            await authenticator.authenticate(CallOrigin([f"Bearer {WEB_2}"], ""))
    assert len(caplog.records) == 1


def test_a_fleet_remembers_a_bounded_number_of_removed_proxies():
    fleet = Fleet()
    for number in range(MAX_REMOVED + 1):
        fleet.expect(str(number))
        fleet.remove(str(number))
    assert not fleet.was_removed("0")
    assert fleet.was_removed("1")
    fleet.expect("1")
    assert not fleet.was_removed("1")


async def test_rejections_fill_neither_memory_nor_log(caplog):
    authenticator = Authenticator(Fleet(), LocalTokens(SECRET))
    for number in range(MAX_LOGGED_REJECTIONS + 100):
        with pytest.raises(StatusError):
            await authenticator.authenticate(CallOrigin([], f"ipv4:10.0.{number // 256}.{number % 256}"))
    assert len(authenticator._logged) == MAX_LOGGED_REJECTIONS
    assert len(caplog.records) == MAX_LOGGED_REJECTIONS + 1
    assert "the next ones are not logged" in caplog.text


async def test_a_token_that_can_not_be_verified_now_gets_unavailable(tmp_path):
    fleet = Fleet()
    fleet.expect(WEB_1).config.set(config())
    xds = XdsServer(fleet, FixedVerifier(error=ProxyError("the API server does not answer")))
    await xds.start(f"unix:{tmp_path}/xds.sock")
    async with Proxy(f"unix:{tmp_path}/xds.sock", WEB_1, WEB_1) as proxy:
        await proxy.request()
        assert await proxy.ended() == (grpc.StatusCode.UNAVAILABLE, "the API server does not answer")
    await xds.stop()


class Clock:
    """The time as the server reads it."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self):
        self.now = 0.0

    def time(self):
        return self.now


async def test_a_stream_ends_when_its_token_expires_even_after_the_clock_jumped(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(server, "time", clock)
    monkeypatch.setattr(server, "EXPIRY_CHECK_SECONDS", 0.01)
    fleet = Fleet()
    fleet.expect(WEB_1).config.set(config())
    xds = XdsServer(fleet, FixedVerifier(expires=3600.0))
    await xds.start(f"unix:{tmp_path}/xds.sock")
    async with Proxy(f"unix:{tmp_path}/xds.sock", WEB_1, WEB_1) as proxy:
        await proxy.request()
        await proxy.receive()
        clock.now = 3600.0  # a laptop wakes up
        code, message = await proxy.ended()
        assert code == grpc.StatusCode.UNAUTHENTICATED
        assert "reconnect with a new one" in message
    assert fleet.connected() == []
    await xds.stop()


async def test_the_stream_of_a_removed_proxy_ends(rig):
    held = rig.fleet.expect(WEB_1)
    held.config.set(config())
    async with rig.proxy(WEB_1) as proxy:
        await proxy.request()
        await proxy.receive()
        assert [proxy.id for proxy in rig.fleet.connected()] == [WEB_1]
        rig.fleet.remove(WEB_1)
        code, message = await proxy.ended()
    assert code == grpc.StatusCode.NOT_FOUND
    assert "this proxy was removed" in message
    assert held.config.get() is None
    assert held.session is None
    assert rig.fleet.proxies == {}
    rig.fleet.remove(WEB_1)  # removing it again has no effect


async def test_a_proxy_with_the_node_id_of_a_removed_one_starts_without_a_configuration(rig):
    rig.fleet.expect(WEB_1).config.set(config())
    rig.fleet.remove(WEB_1)
    assert rig.fleet.expect(WEB_1).config.get() is None
    assert rig.fleet.connected() == []
    assert list(rig.fleet.proxies) == [WEB_1]


async def test_the_stream_of_a_removed_proxy_ends_although_the_proxy_does_not_read(rig):
    held = rig.fleet.expect(WEB_1)
    held.config.set(config(size=1 << 20))
    async with rig.proxy(WEB_1) as proxy:
        await proxy.request()
        await rig.until(lambda: held.session is not None and bool(held.session.subscriptions[CLUSTER].in_flight))
        rig.fleet.remove(WEB_1)
        await rig.until(lambda: not rig.fleet.connected())
        streams = {task for task in asyncio.all_tasks() if task.get_name().endswith(WEB_1)}
        if streams:
            await asyncio.wait(streams, timeout=60)
        assert all(task.done() for task in streams)


async def test_a_proxy_that_is_removed_during_its_first_response_gets_the_end_of_the_stream(rig):
    held = rig.fleet.expect(WEB_1)
    held.config.set(config(size=1 << 20))
    async with rig.proxy(WEB_1) as proxy:
        await proxy.request()
        await rig.until(lambda: held.session is not None and bool(held.session.subscriptions[CLUSTER].in_flight))
        rig.fleet.remove(WEB_1)
        await proxy.receive()
        code, _ = await proxy.ended()
    assert code == grpc.StatusCode.NOT_FOUND


async def test_a_second_stream_of_a_proxy_replaces_the_first(rig):
    held = rig.fleet.expect(WEB_1)
    held.config.set(config())
    async with rig.proxy(WEB_1) as first, rig.proxy(WEB_1) as second:
        await first.request()
        await first.receive()
        await second.request()
        await second.receive()
        code, message = await first.ended()
        assert code == grpc.StatusCode.ABORTED
        assert "only the newest stream" in message
        held.config.set(config("2"))
        await second.request()  # its requests do not affect the first stream
        assert held.session is not None
    await rig.until(lambda: held.session is None)


async def test_a_stream_with_an_invalid_token_does_not_end_the_stream_with_a_valid_one(rig):
    held = rig.fleet.expect(WEB_1)
    held.config.set(config())
    async with rig.proxy(WEB_1) as right, Proxy(rig.address, WEB_1, "abc") as wrong:
        await right.request()
        await right.receive()
        session = held.session
        await wrong.request()
        await wrong.ended()
        assert held.session is session


async def test_a_proxy_that_connects_before_the_first_build_waits_for_its_configuration(rig):
    held = rig.fleet.expect(WEB_1)
    async with rig.proxy(WEB_1) as proxy:
        await proxy.request()
        await rig.until(lambda: held.session is not None)
        held.config.set(config())
        assert [item.name for item in (await proxy.receive()).resources] == ["a"]


class Unnotified(Latest):
    """A value whose changes are never announced, as if the machine were busy."""

    async def changes(self):
        yield await asyncio.Event().wait()


async def test_a_reconnecting_proxy_keeps_its_resources_until_its_configuration_is_read(rig):
    """Otherwise a restart of headgate under load would remove a listener for a moment and break its requests."""
    held = rig.fleet.expect(WEB_1)
    held.config = Unnotified({LISTENER: config("2")[CLUSTER]})
    async with rig.proxy(WEB_1) as proxy:
        await proxy.request(LISTENER, initial={"a": "1"})
        response = await proxy.receive()
    assert [item.name for item in response.resources] == ["a"]
    assert list(response.removed_resources) == []


async def test_a_stream_without_a_first_request_ends(rig, monkeypatch):
    monkeypatch.setattr(server, "FIRST_REQUEST_SECONDS", 0.01)
    async with rig.proxy(WEB_1) as proxy:
        code, _ = await proxy.ended()
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_renewed_server_certificate_is_used_without_a_restart():
    fleet, tokens = Fleet(), LocalTokens(SECRET)
    fleet.expect(WEB_1).config.set(config())
    old, new = ServerAuthority(), ServerAuthority()
    certificate = Latest(old.issue())
    xds = XdsServer(fleet, tokens)
    address = f"localhost:{await xds.start(f'localhost:{free_port()}', certificate)}"

    async def can_connect(roots):
        async with Proxy(address, WEB_1, tokens.issue(WEB_1), roots=roots) as proxy:
            try:
                await proxy.request()
                await proxy.receive()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, AssertionError):
                return False
            return True

    assert await can_connect(old.roots)
    assert not await can_connect(new.roots)
    certificate.set(new.issue())
    assert await can_connect(new.roots)
    assert not await can_connect(old.roots)
    await xds.stop()


async def test_a_tcp_address_needs_a_certificate_and_a_token_verifier():
    certificate = Latest(ServerAuthority().issue())
    for xds, given in (
        (XdsServer(Fleet(), LocalTokens(SECRET)), None),
        (XdsServer(Fleet()), certificate),
        (XdsServer(Fleet()), None),
    ):
        with pytest.raises(ProxyError, match="needs a certificate and a token verifier"):
            await xds.start("localhost:0", given)


async def test_only_the_owner_can_open_the_socket(rig, tmp_path):
    assert (tmp_path / "xds.sock").stat().st_mode & 0o777 == 0o600


async def test_an_unusable_address_is_named_in_the_error():
    xds = XdsServer(Fleet())
    with pytest.raises(ProxyError, match=r"can't listen for proxies on unix:/nonexistent/xds\.sock"):
        await xds.start("unix:/nonexistent/xds.sock")
