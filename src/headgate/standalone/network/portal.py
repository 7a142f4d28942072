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
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Self

from headgate.errors import HeadgateError
from headgate.standalone.address_pool import machine_side
from headgate.standalone.network.machine_network import PORTAL_PORT, MachineNetwork

MOST_CONNECTIONS, MOST_LISTENERS = 1000, 2000
_LIMITS = "more open files (`ulimit -n`) allow"
REJECTED_S = 30.0  # between two reads of the count of rejected packets, which take 5 ms of processor time
RETRY_S = 5.0  # until a place that could not be listened on is tried again
_CHUNK_BYTES = 1 << 16
_LOOPBACK = "127.0.0.1"
_CONNECT_S = 20.0
_PAUSE_S = 1.0  # after an error of the machine
# A dead peer is noticed after two minutes. TCP_USER_TIMEOUT would also end connections to a program that is stopped in a debugger: its
# receive buffer is full (tcp(7)).
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))
_BACKLOG = 128
_ORIGINAL_DESTINATION = 80  # SO_ORIGINAL_DST of linux/netfilter_ipv4.h
_RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: a close is seen as an error
_ELSEWHERE = ("192.0.2.1", 9)  # of a network for documentation (RFC 5737); nothing is sent there

log = logging.getLogger(__name__)
Place = tuple[str, int]
"""An IPv4 address and a port."""
Connect = Callable[[socket.socket], Awaitable[socket.socket]]
"""Returns the socket at the other side for an accepted one. Raises OSError."""


class _Connections:
    """The connections in one direction: at most `most`, and at most `share` from one address."""

    def __init__(self, most: int, share: int, direction: str) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._most, self._share, self._direction = most, share, direction
        self._sources: Counter[str] = Counter()

    def excess(self, source: str) -> str:
        """Return why a further connection from an address is refused; empty if it is allowed."""
        if len(self.tasks) >= self._most:
            return f"There are {self._most} connections {self._direction}; further ones are refused; {_LIMITS} up to {MOST_CONNECTIONS}"
        if self._sources[source] >= self._share:
            return f"{source} has {self._share} of the {self._most} connections {self._direction}; further ones of this pod are refused"
        return ""

    def add(self, task: asyncio.Task[None], source: str) -> None:
        """Count a connection until its task ends."""
        self.tasks.add(task)
        self._sources[source] += 1
        task.add_done_callback(partial(self._remove, source))

    def _remove(self, source: str, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._sources[source] -= 1
        if not self._sources[source]:
            del self._sources[source]


class Portal:
    """Connects a node with the machine's network.

    `lowest_port` is the smallest port on which this user may listen on the machine. `shared` has the places of the gateway that are the
    same in both networks: the HTTP proxy and the listener for names below `.localhost`.
    """

    def __init__(self, network: MachineNetwork, lowest_port: int, shared: Sequence[Place] = ()) -> None:
        self._network = network
        self._lowest_port = lowest_port
        self._shared = shared
        self._is_serving = False
        self._places: list[Place] = []  # those to listen on
        self._missing: set[Place] = set()  # those that are reachable by another program at most
        self._listening: dict[Place, asyncio.Task[None]] = {}
        self._reported: set[str] = set()
        # A connection has two sockets; headgate needs a quarter of the files for other purposes.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = min(MOST_CONNECTIONS, files // 8)
        self._most_listeners = min(MOST_LISTENERS, files // 4)
        self._inwards = _Connections(most, most, "from this machine to the pods")
        self._outwards = _Connections(most, max(most // 2, 1), "from the pods to the outside")

    def published(self, address: str, port: int) -> str:
        """Return the address at which the machine reaches a port of the node; empty if the machine can't reach it."""
        place = address, port
        is_reachable = self._is_own(place) and port >= self._lowest_port and place not in self._missing
        return machine_side(address) if is_reachable else ""

    def _is_own(self, place: Place) -> bool:
        """Return whether the node has a place. Those of pods come from their statuses, which each client may write."""
        return place in self._shared or self._network.contains(place[0])

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Forward connections during the context. Raises HeadgateError."""
        tasks: list[asyncio.Task[None]] = []
        try:
            # Packets from the bridge are redirected to the bridge's address, and those of the node itself to loopback.
            for address in (self._network.gateway, _LOOPBACK):
                created = await asyncio.to_thread(self._network.create_socket, socket.SOCK_STREAM)
                listener = _listening(created, (address, PORTAL_PORT))
                tasks.append(self._start(listener, self._to_machine, self._outwards))
        except OSError as error:
            await _end(tasks)
            raise HeadgateError(f"the network of the pods can't be connected to the machine's: {error}") from error
        tasks += [asyncio.create_task(work, name="portal") for work in (self._retry(), self._watch_rejected())]
        self._is_serving = True
        try:
            yield self
        finally:
            self._is_serving = False
            await _end([*tasks, *self._listening.values(), *self._inwards.tasks, *self._outwards.tasks])
            self._listening.clear()

    async def open(self, places: Collection[Place]) -> None:
        """Listen on the machine for the shared places and exactly these places of the node, and log those that can't be had."""
        own = sorted(filter(self._is_own, {*places, *self._shared}), key=self._rank)
        if lower := [place for place in own if place[1] < self._lowest_port]:
            self._report(
                f"Ports below {self._lowest_port} need root on this machine, such as port {lower[0][1]} of {lower[0][0]}: pods reach them, and "
                f"this machine reaches HTTP ports by their names below .localhost, and all ports by the HTTP proxy. To open them: "
                f"sysctl -w net.ipv4.ip_unprivileged_port_start={lower[0][1]}",
                "lower ports",
            )
        reachable = [place for place in own if place[1] >= self._lowest_port]
        self._places, further = reachable[: self._most_listeners], reachable[self._most_listeners :]
        if further:
            self._report(
                f"This machine reaches only {self._most_listeners} ports of Services and pods, those of Services first; {_LIMITS} up to {MOST_LISTENERS}"
            )
        self._missing = set(further)
        await _end([self._listening.pop(place) for place in self._listening.keys() - self._places])
        self._open_missing()

    def _rank(self, place: Place) -> tuple[bool, bytes, int]:
        """Order places: the shared ones, then Services and Gateways, then pods."""
        return place not in self._shared, socket.inet_aton(place[0]), place[1]

    async def _retry(self) -> None:
        """Listen on places when the programs that have them end, until canceled."""
        while True:
            await asyncio.sleep(RETRY_S)
            self._open_missing()

    async def _watch_rejected(self) -> None:
        """Report once that the node has rejected UDP packets of pods."""
        while not await asyncio.to_thread(self._network.rejected):  # noqa: ASYNC110  # the kernel has no event for it
            await asyncio.sleep(REJECTED_S)
        self._report(
            "Pods sent UDP packets to the outside, which are rejected: without root, pods reach the outside over TCP, and only DNS queries "
            "over UDP; to forward all packets, run headgate as root"
        )

    def _open_missing(self) -> None:
        for place in self._places:
            if self._is_serving and place not in self._listening:
                self._open(place)

    def _open(self, place: Place) -> None:
        address, port = machine_side(place[0]), place[1]
        topic = f"{address}:{port}, where this machine reaches {place[0]}:{port}"
        try:
            listener = _listening(socket.socket(socket.AF_INET, socket.SOCK_STREAM), (address, port))
        except OSError as error:
            self._missing.add(place)
            self._report(f"{topic}, can't be used: {error.strerror}; headgate tries again every {RETRY_S:g} s", topic)
            return
        self._missing.discard(place)
        if topic in self._reported:
            self._reported.discard(topic)
            log.warning("%s, can be used now", topic)
        self._listening[place] = self._start(listener, lambda _: self._to_node(place), self._inwards)

    def _start(self, listener: socket.socket, connect: Connect, connections: _Connections) -> asyncio.Task[None]:
        """Return a task that accepts the connections to a socket; its end closes the socket."""
        task = asyncio.create_task(self._accept(listener, connect, connections), name="portal")
        task.add_done_callback(partial(_close, listener))
        return task

    async def _accept(self, listener: socket.socket, connect: Connect, connections: _Connections) -> None:
        """Forward the connections that a socket accepts, until canceled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, (source, _) = await loop.sock_accept(listener)
            except OSError as error:  # there are too many open files, or the connection has ended
                self._report(f"A connection between this machine and the pods can't be accepted: {error.strerror}")
                await asyncio.sleep(_PAUSE_S)
                continue
            if reason := connections.excess(source):
                self._report(reason)
                _reset(accepted)
                continue
            task = asyncio.create_task(_forward(accepted, connect), name="connection of the portal")
            task.add_done_callback(partial(_close, accepted))  # it may be canceled before it starts
            connections.add(task, source)

    async def _to_node(self, place: Place) -> socket.socket:
        return await _connected(self._network.create_socket(socket.SOCK_STREAM), place)

    async def _to_machine(self, accepted: socket.socket) -> socket.socket:
        """Connect to the original destination of a redirected connection; its gateway's address is that of the machine."""
        packed = accepted.getsockopt(socket.SOL_IP, _ORIGINAL_DESTINATION, 16)
        port, raw = struct.unpack("!2xH4s8x", packed)
        address = socket.inet_ntoa(raw)
        if address == self._network.gateway:
            address = _outer_address()
        if not address or address.startswith("127.") or self._network.contains(address):
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
                _tune(end)
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


def _outer_address() -> str:
    """Return the address by which the machine reaches the outside, where programs that listen on all addresses are; empty without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _listening(listener: socket.socket, place: Place) -> socket.socket:
    """Let a socket listen, for asyncio, and return it; close it after a failure. Raises OSError."""
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.settimeout(0)
    return listener


def _tune(connection: socket.socket) -> None:
    """Send small writes at once, as the programs decide for their own sockets, and notice a dead peer. Raises OSError."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


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
