"""The portal between the machine's network and a node; `tests/e2e/test_pod_networks.py` has it with pods."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing

import pytest
from tests.netns.namespaces import missing
from tests.wire import DEADLINE_S

from headgate.standalone.address_pool import claim_range
from headgate.standalone.network import portal as portals
from headgate.standalone.network.machine_network import PORTAL_PORT, MachineNetwork
from headgate.standalone.network.namespaces import create_node
from headgate.standalone.network.portal import Portal

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "network namespaces are to be had")


@pytest.fixture
def network() -> Iterator[MachineNetwork]:
    """Return a network in a node, with a range of the machine that no other test has."""
    number, guard = claim_range()
    with guard:
        network = MachineNetwork(number, create_node())
        network.create()
        yield network
        network.remove()


@asynccontextmanager
async def connection(portal: Portal, network: MachineNetwork) -> AsyncIterator[tuple[socket.socket, socket.socket]]:
    """Yield a connection of the machine to the node through the portal: the machine's end, and the node's."""
    loop = asyncio.get_running_loop()
    with closing(network.create_socket(socket.SOCK_STREAM)) as server:
        server.bind((network.gateway, 8080))
        server.listen()
        server.settimeout(0)
        await portal.open({(network.gateway, 8080)})
        client = dialed(f"127.{network.number}.255.254", 8080)
        accepted, _ = await loop.sock_accept(server)
        with client, accepted:
            yield client, accepted


def dialed(address: str, port: int, client: socket.socket | None = None) -> socket.socket:
    """Connect a socket in one step: the kernel completes it, before the portal accepts it and can reset it."""
    with ExitStack() as stack:
        client = stack.enter_context(client or socket.socket())
        client.settimeout(DEADLINE_S)
        client.connect((address, port))
        client.settimeout(0)
        stack.pop_all()
        return client


async def until_refused(address: str, port: int) -> None:
    """Wait until nothing listens. A program that another thread starts has a listener that is closed meanwhile, up to its `exec`."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                dialed(address, port).close()
            except ConnectionRefusedError:
                return
            except ConnectionResetError:
                pass
            await asyncio.sleep(0)


async def received(end: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(end, 100)


async def test_one_direction_ends_while_the_other_continues(network: MachineNetwork) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving() as portal, connection(portal, network) as ends:
        client, server = ends
        await loop.sock_sendall(client, b"request")
        client.shutdown(socket.SHUT_WR)
        assert await received(server) == b"request"
        assert await received(server) == b""
        await loop.sock_sendall(server, b"response")
        assert await received(client) == b"response"
        server.close()
        assert await received(client) == b""


async def test_a_reset_is_a_reset_on_the_other_side(network: MachineNetwork) -> None:
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving() as portal, connection(portal, network) as ends:
        client, server = ends
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        server.close()
        with pytest.raises(ConnectionResetError):
            await received(client)


async def test_a_slow_receiver_slows_the_sender(network: MachineNetwork) -> None:
    """The portal holds a limited number of bytes of a connection."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving() as portal, connection(portal, network) as ends:
        client, server = ends
        sent = 0

        async def send() -> None:
            nonlocal sent
            while sent < 1 << 28:
                await loop.sock_sendall(client, bytes(1 << 16))
                sent += 1 << 16

        sending = asyncio.create_task(send())
        before = -1
        while sent != before:  # until the buffers are full
            before = sent
            for _ in range(1000):
                await asyncio.sleep(0)
        assert sent < 1 << 26
        sending.cancel()
        server.close()


async def test_a_closed_port_of_the_node_is_a_reset(network: MachineNetwork) -> None:
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving() as portal:
        await portal.open({(network.gateway, 8081)})
        with dialed(f"127.{network.number}.255.254", 8081) as client, pytest.raises(ConnectionResetError):
            await received(client)


async def test_a_place_that_is_gone_is_not_listened_on(network: MachineNetwork) -> None:
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving() as portal:
        await portal.open({(network.gateway, 8081)})
        await portal.open(())
        await until_refused(f"127.{network.number}.255.254", 8081)


async def test_more_connections_than_allowed_are_refused(
    network: MachineNetwork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(portals, "MOST_CONNECTIONS", 1)
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving() as portal, connection(portal, network):
        with dialed(f"127.{network.number}.255.254", 8080) as further, pytest.raises(ConnectionResetError):
            await received(further)
    assert "further ones are refused" in caplog.messages[0]


async def test_a_node_reaches_programs_of_the_machine_except_those_on_loopback(network: MachineNetwork) -> None:
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving():
        for listens, is_reached in (("", True), ("127.0.0.1", False)):
            with socket.create_server((listens, 0)) as server, network.create_socket(socket.SOCK_STREAM) as client:
                server.settimeout(0)
                # In the node itself, only connections to the outside are redirected; pods call the gateway's address.
                outside = portals._outer_address()
                dialed(outside, server.getsockname()[1], client)
                if is_reached:
                    accepted, _ = await asyncio.get_running_loop().sock_accept(server)
                    accepted.close()
                    assert await received(client) == b""
                else:
                    with pytest.raises(ConnectionResetError):
                        await received(client)


async def test_small_writes_are_sent_at_once_and_a_dead_peer_is_noticed() -> None:
    """Else each of a program's small writes waits for the acknowledgment of the one before (Nagle's algorithm)."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        client = dialed(*place)
        accepted, _ = server.accept()
        connection = dialed(*place)
        target, _ = server.accept()

    async def connect(_accepted: socket.socket) -> socket.socket:
        return connection

    target.settimeout(0)
    async with asyncio.timeout(DEADLINE_S):
        forwarding = asyncio.create_task(portals._forward(accepted, connect))
        with client, target:
            for piece in (b"head", b"body"):
                await loop.sock_sendall(client, piece)
                assert await received(target) == piece
            for end in (accepted, connection):
                assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        await forwarding


async def test_a_pod_can_not_take_all_connections_to_the_outside(
    network: MachineNetwork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They leave those to the pods, too."""
    monkeypatch.setattr(portals, "MOST_CONNECTIONS", 2)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving() as portal:
        with socket.create_server(("", 0)) as server, ExitStack() as stack:
            server.settimeout(0)
            place = portals._outer_address(), server.getsockname()[1]
            first, second = (stack.enter_context(network.create_socket(socket.SOCK_STREAM)) for _ in range(2))
            for client in (first, second):
                dialed(*place, client)
                if client is first:
                    stack.enter_context((await loop.sock_accept(server))[0])
            with pytest.raises(ConnectionResetError):
                await received(second)
            async with connection(portal, network) as (client, accepted):
                await loop.sock_sendall(client, b"request")
                assert await received(accepted) == b"request"
    (message,) = caplog.messages
    assert message == (
        f"{network.gateway} has 1 of the 2 connections from the pods to the outside; further ones of this pod are refused"
    )


async def test_places_outside_the_network_are_not_listened_on(
    network: MachineNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    """A pod's status may have any text as its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    async with Portal(network, 0).serving() as portal:
        await portal.open({("::1", free), ("127.0.0.1", free), ("", free), ("localhost", free), ("10.1.2.3", free)})
        await until_refused("127.0.0.1", free)
        assert portal.published("127.0.0.1", free) == ""
    assert not caplog.messages


async def test_a_place_of_another_program_is_not_published_until_it_is_free(
    network: MachineNetwork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    address = f"127.{network.number}.255.254"
    monkeypatch.setattr(portals, "RETRY_S", 0.05)
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving() as portal:
        assert portal.published(network.gateway, 8082) == address
        with socket.create_server((address, 8082)):
            await portal.open({(network.gateway, 8082)})
            assert portal.published(network.gateway, 8082) == ""
        while not portal.published(network.gateway, 8082):
            await asyncio.sleep(0)
        dialed(address, 8082).close()
    before, after = caplog.messages
    assert before.startswith(
        f"{address}:8082, where this machine reaches {network.gateway}:8082, can't be used: Address"
    )
    assert after.endswith("can be used now")


async def test_services_replace_pods_when_there_are_too_many_ports(
    network: MachineNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portals, "MOST_LISTENERS", 1)
    pod, service = (f"10.{network.number}.128.4", 8083), (f"10.{network.number}.0.4", 8083)
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving() as portal:
        await portal.open({pod})
        dialed(f"127.{network.number}.128.4", 8083).close()
        await portal.open({pod, service})
        dialed(f"127.{network.number}.0.4", 8083).close()
        await until_refused(f"127.{network.number}.128.4", 8083)
        assert portal.published(*pod) == ""


async def test_a_portal_that_has_ended_does_not_listen_again(network: MachineNetwork) -> None:
    async with Portal(network, 0).serving() as portal:
        pass
    await portal.open({(network.gateway, 8084)})
    await until_refused(f"127.{network.number}.255.254", 8084)


async def test_the_port_of_the_portal_belongs_to_services(network: MachineNetwork) -> None:
    """It listens where the rules redirect connections to, and nowhere else."""
    address = f"10.{network.number}.0.9"
    async with Portal(network, 0).serving():
        with network.create_socket(socket.SOCK_STREAM) as client, pytest.raises(ConnectionRefusedError):
            client.connect((address, PORTAL_PORT))
        with network.create_socket(socket.SOCK_STREAM) as server:
            server.bind((address, PORTAL_PORT))
            server.listen()


async def test_ports_that_need_root_are_named_once(network: MachineNetwork, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    portal = Portal(network, 1024)
    for port in (80, 443):
        await portal.open({(network.gateway, port)})
    (message,) = caplog.messages
    assert message.startswith(f"Ports below 1024 need root on this machine, such as port 80 of {network.gateway}:")
    assert portal.published(network.gateway, 8080) == f"127.{network.number}.255.254"
    assert portal.published(network.gateway, 80) == ""


async def test_rejected_udp_packets_to_the_outside_are_named_once(
    network: MachineNetwork, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portals, "REJECTED_S", 0)
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving():
        assert network.rejected() == 0
        with network.create_socket(socket.SOCK_DGRAM) as client:
            client.connect(("192.0.2.7", 123))
            with pytest.raises(PermissionError):  # the rejection, for a program of the node itself
                client.send(b"time?")
        while not caplog.messages:
            await asyncio.sleep(0)
    assert network.rejected() == 1
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "Pods sent UDP packets to the outside, which are rejected"
    ]
