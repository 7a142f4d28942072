"""The portal between the machine's network and the node, in which the pods of a headgate without root are.

A socket belongs to the network namespace in which it was created. headgate is in the machine's network, and creates sockets of the
node; the portal accepts connections on one side and copies their bytes to a connection on the other side:

- inwards: it listens on loopback addresses of the machine, for what the gateway listens on in the node;
- outwards: the rules of the node redirect connections to the outside to PORTAL_PORT. They continue from the machine itself.
"""

import asyncio
import contextlib
import logging
import resource
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Self

from headgate.errors import HeadgateError
from headgate.standalone.network.machine_network import PORTAL_PORT, MachineNetwork

MOST_CONNECTIONS = 2000
_CHUNK_BYTES = 1 << 16
_LIMIT = f"a quarter of the limit of open files (`ulimit -n`) is allowed, at most {MOST_CONNECTIONS}"
_CONNECT_S = 20.0
_PAUSE_S = 1.0  # after an error of the machine
_BACKLOG = 128
_ORIGINAL_DESTINATION = 80  # SO_ORIGINAL_DST of linux/netfilter_ipv4.h
_RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: a close is seen as an error
_ELSEWHERE = ("192.0.2.1", 9)  # of a network for documentation (RFC 5737); nothing is sent there

log = logging.getLogger(__name__)
Place = tuple[str, int]
"""An IPv4 address and a port."""
Connect = Callable[[socket.socket], Awaitable[socket.socket]]
"""Returns the socket at the other side for an accepted one. Raises OSError."""


class Portal:
    """Connects a node with the machine's network. `lowest_port` is the smallest port on which this user may listen on the machine."""

    def __init__(self, network: MachineNetwork, lowest_port: int) -> None:
        self._network = network
        self._lowest_port = lowest_port
        self._listening: dict[Place, asyncio.Task[None]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._reported: set[str] = set()
        # As many listeners, and connections, each of which has two sockets; headgate needs files for other purposes.
        self._most = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def published(self, address: str, port: int) -> str:
        """Return the address at which the machine reaches a port of the node; empty if the machine can't reach it."""
        return machine_side(address) if port >= self._lowest_port else ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Forward connections during the context. Raises HeadgateError."""
        try:
            listener = await asyncio.to_thread(self._network.create_socket, socket.SOCK_STREAM)
            _listen(listener, ("", PORTAL_PORT))
        except OSError as error:
            raise HeadgateError(f"the network of the pods can't be connected to the machine's: {error}") from error
        outwards = self._start(listener, self._to_machine)
        try:
            yield self
        finally:
            await _end([outwards, *self._listening.values(), *self._connections])
            self._listening.clear()

    async def open(self, places: Collection[Place]) -> None:
        """Listen on the machine for exactly these places of the node, and log those that can't be had."""
        reachable = {place for place in places if self.published(*place)}
        if lower := sorted(set(places) - reachable):
            self._report(
                f"Ports below {self._lowest_port} need root on this machine, such as port {lower[0][1]} of {lower[0][0]}: pods reach them, and "
                f"this machine reaches Services by the HTTP proxy. To open them: sysctl -w net.ipv4.ip_unprivileged_port_start={lower[0][1]}",
                "lower ports",
            )
        await _end([self._listening.pop(place) for place in self._listening.keys() - reachable])
        for place in sorted(reachable - self._listening.keys(), key=_rank):
            if len(self._listening) >= self._most:
                self._report(f"This machine reaches only {self._most} ports of Services and pods: {_LIMIT}")
                return
            self._open(place)

    def _open(self, place: Place) -> None:
        address, port = machine_side(place[0]), place[1]
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            _listen(listener, (address, port))
        except OSError as error:
            listener.close()
            self._report(
                f"{address}:{port}, where this machine reaches {place[0]}:{port}, can't be used: {error.strerror}"
            )
            return
        self._listening[place] = self._start(listener, lambda _: self._to_node(place))

    def _start(self, listener: socket.socket, connect: Connect) -> asyncio.Task[None]:
        """Return a task that accepts the connections to a socket; its end closes the socket."""
        task = asyncio.create_task(self._accept(listener, connect), name="portal")
        task.add_done_callback(partial(_close, listener))
        return task

    async def _accept(self, listener: socket.socket, connect: Connect) -> None:
        """Forward the connections that a socket accepts, until canceled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:  # there are too many open files, or the connection has ended
                self._report(f"A connection between this machine and the pods can't be accepted: {error.strerror}")
                await asyncio.sleep(_PAUSE_S)
                continue
            if len(self._connections) >= self._most:
                self._report(
                    f"There are {self._most} connections between this machine and the pods; further ones are refused: {_LIMIT}"
                )
                _reset(accepted)
                continue
            task = asyncio.create_task(_forward(accepted, connect), name="connection of the portal")
            task.add_done_callback(partial(_close, accepted))  # it may be canceled before it starts
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _to_node(self, place: Place) -> socket.socket:
        return await _connected(self._network.create_socket(socket.SOCK_STREAM), place)

    async def _to_machine(self, accepted: socket.socket) -> socket.socket:
        """Connect to the original destination of a redirected connection; its gateway's address is that of the machine."""
        packed = accepted.getsockopt(socket.SOL_IP, _ORIGINAL_DESTINATION, 16)
        port, raw = struct.unpack("!2xH4s8x", packed)
        address = socket.inet_ntoa(raw)
        if address == self._network.gateway:
            address = _outer_address()
        if not address or address.startswith("127."):
            raise ConnectionRefusedError("it was not redirected, or the machine has no other address")
        return await _connected(socket.socket(socket.AF_INET, socket.SOCK_STREAM), (address, port))

    def _report(self, message: str, topic: str = "") -> None:
        """Log a message, once for its topic."""
        if (topic or message) not in self._reported:
            self._reported.add(topic or message)
            log.warning("%s", message)


async def _forward(accepted: socket.socket, connect: Connect) -> None:
    """Forward an accepted connection until both sides have ended; a failure of one is a reset of the other."""
    with contextlib.ExitStack() as stack:
        stack.callback(_reset, accepted)
        accepted.settimeout(0)
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_CONNECT_S):
                connection = await connect(accepted)
            stack.callback(_reset, connection)
            for end in (accepted, connection):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with _first_error():
                async with asyncio.TaskGroup() as copies:
                    copies.create_task(_copy(accepted, connection))
                    copies.create_task(_copy(connection, accepted))
            stack.pop_all()
            accepted.close()
            connection.close()


@contextlib.contextmanager
def _first_error() -> Iterator[None]:
    """Raise the OSErrors of a task group as one OSError."""
    try:
        yield
    except* OSError as group:
        raise ConnectionError(str(group.exceptions[0])) from None


def machine_side(address: str) -> str:
    """Return the loopback address of the machine for an address of the node: itself, or 127.A.x.y for 10.A.x.y."""
    return address if address.startswith("127.") else f"127.{address.partition('.')[2]}"


def _rank(place: Place) -> tuple[bool, bytes, int]:
    """Order places: the HTTP proxy, then Services and Gateways, then pods."""
    address, port = place
    return not address.startswith("127."), socket.inet_aton(address), port


def _outer_address() -> str:
    """Return the address by which the machine reaches the outside, where programs that listen on all addresses are; empty without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _listen(listener: socket.socket, place: Place) -> None:
    """Let a socket listen, for asyncio. Raises OSError."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(place)
    listener.listen(_BACKLOG)
    listener.settimeout(0)


async def _connected(connection: socket.socket, place: Place) -> socket.socket:
    """Connect a socket; close it after a failure."""
    connection.settimeout(0)
    try:
        await asyncio.get_running_loop().sock_connect(connection, place)
    except BaseException:
        connection.close()
        raise
    return connection


async def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until the end, and end the target's input then. Raises OSError."""
    loop = asyncio.get_running_loop()
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    while size := await loop.sock_recv_into(source, buffer):
        await loop.sock_sendall(target, buffer[:size])
    target.shutdown(socket.SHUT_WR)


def _close(connection: socket.socket, _ended: asyncio.Task[None]) -> None:
    connection.close()


def _reset(connection: socket.socket) -> None:
    """Close a connection so that its other side sees an error."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
