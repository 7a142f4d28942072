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
from headgate.standalone.network.machine_network import MachineNetwork
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
        client = await dialed(f"127.{network.number}.255.254", 8080)
        accepted, _ = await loop.sock_accept(server)
        with client, accepted:
            yield client, accepted


async def dialed(address: str, port: int) -> socket.socket:
    with ExitStack() as stack:
        client = stack.enter_context(socket.socket())
        client.settimeout(0)
        await asyncio.get_running_loop().sock_connect(client, (address, port))
        stack.pop_all()
        return client


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
        with await dialed(f"127.{network.number}.255.254", 8081) as client, pytest.raises(ConnectionResetError):
            await received(client)


async def test_a_place_that_is_gone_is_not_listened_on(network: MachineNetwork) -> None:
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving() as portal:
        await portal.open({(network.gateway, 8081)})
        await portal.open(())
        with pytest.raises(ConnectionRefusedError):
            await dialed(f"127.{network.number}.255.254", 8081)


async def test_more_connections_than_allowed_are_refused(
    network: MachineNetwork, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(portals, "MOST_CONNECTIONS", 1)
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving() as portal, connection(portal, network):
        with await dialed(f"127.{network.number}.255.254", 8080) as further, pytest.raises(ConnectionResetError):
            await received(further)
    assert "further ones are refused" in caplog.messages[0]


async def test_a_node_reaches_programs_of_the_machine_except_those_on_loopback(network: MachineNetwork) -> None:
    async with asyncio.timeout(DEADLINE_S), Portal(network, 0).serving():
        for listens, is_reached in (("", True), ("127.0.0.1", False)):
            with socket.create_server((listens, 0)) as server, network.create_socket(socket.SOCK_STREAM) as client:
                server.settimeout(0)
                client.settimeout(0)
                # In the node itself, only connections to the outside are redirected; pods call the gateway's address.
                outside = portals._outer_address()
                place = (outside, server.getsockname()[1])
                await asyncio.get_running_loop().sock_connect(client, place)
                if is_reached:
                    accepted, _ = await asyncio.get_running_loop().sock_accept(server)
                    accepted.close()
                    assert await received(client) == b""
                else:
                    with pytest.raises(ConnectionResetError):
                        await received(client)


async def test_ports_that_need_root_are_named_once(network: MachineNetwork, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    portal = Portal(network, 1024)
    for port in (80, 443):
        await portal.open({(network.gateway, port)})
    (message,) = caplog.messages
    assert message.startswith(f"Ports below 1024 need root on this machine, such as port 80 of {network.gateway}:")
    assert portal.published(network.gateway, 8080) == f"127.{network.number}.255.254"
    assert portal.published(network.gateway, 80) == ""
