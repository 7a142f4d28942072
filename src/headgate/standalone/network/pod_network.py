"""The network of one pod: a namespace of its own, or that of the machine.

Pods of `headgate run` and pods with `hostNetwork` share the machine's network, like all pods of `--network host`. Their
sidecars are explicit.
"""

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from headgate.envoy.node_ids import PROXY_MARK
from headgate.redirection.exclusions import Exclusions
from headgate.standalone.isolation import Isolation, MountPoint
from headgate.standalone.network.machine_network import MachineNetwork
from headgate.standalone.network.namespaces import NetworkNamespace, create_namespace, is_in, namespace_of, pod_rules
from headgate.standalone.network.pod_files import PodName, machine_files, pod_files

_CHUNK_BYTES = 1 << 16


class PodNetworks(NamedTuple):
    """What all pod networks use: the machine's network, and the domain of Service names."""

    machine: MachineNetwork
    domain: str


def way_to_own_network(*, uses_host: bool, own_networks: bool) -> str:
    """Return how a pod in the machine's network gets a network of its own, for messages.

    `uses_host` says whether it has `hostNetwork`, and `own_networks` whether the remaining pods have networks of their own.
    """
    option = "headgate up --network pod"
    if not uses_host:
        return option
    return "remove spec.hostNetwork" if own_networks else f"remove spec.hostNetwork; {option}"


class PodNetwork:
    """The network of one pod. Until `join`, and without `networks`, it is that of the machine.

    `proxy_group` is the group of its sidecar, whose connections are not redirected.
    """

    def __init__(
        self, networks: PodNetworks | None = None, address: str = "", *, shares: bool = True, proxy_group: int = 0
    ) -> None:
        self._networks = networks
        self._address = address
        self._shares = shares or networks is None
        self._proxy_group = proxy_group
        self._namespace: NetworkNamespace | None = None

    @property
    def is_own(self) -> bool:
        """Whether the pod gets a network of its own."""
        return not self._shares

    @property
    def _inside(self) -> NetworkNamespace | None:
        """The namespace of the pod: its own, or the node, which pods share with each other; None for that of headgate."""
        if self._shares and self._networks:
            return self._networks.machine.node
        return self._namespace

    @property
    def proxy_mark(self) -> int:
        """The mark by which the rules distinguish the sidecar's packets; 0 if they do it by its group."""
        return PROXY_MARK if self.is_own and self._networks and self._networks.machine.node else 0

    async def join(self, exclusions: Exclusions | None, processes: Iterable[int]) -> None:
        """Create the namespace of the pod, or use that of its running processes, by ID.

        With `exclusions`, its connections are redirected to its sidecar, except these. Raises OSError and RedirectionError.
        """
        if self._networks is None or self._namespace:
            return
        machine = self._networks.machine
        if self._shares:
            await asyncio.to_thread(machine.lend, self._address)
            return
        place, pids = machine.place(self._address), list(processes)

        def create() -> NetworkNamespace:
            for pid in pids:
                if namespace := namespace_of(pid, self._address):
                    return namespace
            machine.disconnect(place)
            redirection = None if exclusions is None else pod_rules(exclusions, self._proxy_group)
            namespace = create_namespace(place, redirection, machine.node)
            try:
                machine.connect(place)
            except BaseException:
                namespace.close()
                raise
            return namespace

        self._namespace = await asyncio.to_thread(create)

    async def leave(self) -> None:
        """Remove the namespace, or return the address to the machine. Raises OSError."""
        if self._networks is None:
            return
        machine = self._networks.machine
        if self._shares:
            await asyncio.to_thread(machine.take_back, self._address)
        elif self._namespace:
            self.detach()
            await asyncio.to_thread(machine.disconnect, machine.place(self._address))

    def detach(self) -> None:
        """Leave the namespace to the programs of the pod."""
        if self._namespace:
            self._namespace.close()
            self._namespace = None

    def has(self, pid: int) -> bool:
        """Return whether a process is in the network namespace of the pod."""
        return is_in(self._inside, pid)

    def proxy_isolation(self) -> Isolation | None:
        """Return the isolation of the pod's sidecar."""
        if self._inside is None:
            return None
        if self._shares:
            return Isolation(network=self._inside.path)
        if self.proxy_mark:
            return Isolation(network=self._inside.path, marks_packets=True)
        return Isolation(network=self._inside.path, group=self._proxy_group)

    def isolation(self, base: Isolation | None, hostname: str) -> Isolation | None:
        """Return the isolation of a container, which has `base` besides its network."""
        if self._inside is None:
            return base
        hostname = "" if self._shares else hostname
        return replace(base or Isolation(), network=self._inside.path, hostname=hostname)

    def files(self, pod: PodName, directory: Path) -> list[MountPoint]:
        """Write the files by which programs resolve names into a directory; return their mounts: none in the machine's network.

        Raises OSError.
        """
        if self._networks is None or self._namespace is None:
            return []
        resolver, domain = self._networks.machine.gateway, self._networks.domain
        mounts = []
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        for path, text in pod_files(pod, resolver=resolver, domain=domain, machine=machine_files()).items():
            source = directory / Path(path).name
            source.write_text(text)
            source.chmod(0o644)  # for programs of all users
            mounts.append(MountPoint(path=path, source=str(source), field="network"))
        return mounts

    def create_socket(self, place: tuple[Any, ...]) -> socket.socket:
        """Return a non-blocking socket in the pod's network, for an address as getaddrinfo returns it. Raises OSError."""
        family, type_, protocol, *_ = place
        create = self._inside.create_socket if self._inside else socket.socket
        created = create(family, type_, protocol)
        created.settimeout(0)
        return created

    async def connect(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a TCP port from the pod's network. Raises OSError."""
        loop = asyncio.get_running_loop()
        place = (await loop.getaddrinfo(address, port, type=socket.SOCK_STREAM))[0]
        connection = self.create_socket(place)
        try:
            await loop.sock_connect(connection, place[4])
            return await asyncio.open_connection(sock=connection)
        except BaseException:
            connection.close()
            raise

    @contextlib.asynccontextmanager
    async def target(self, address: str, port: int) -> AsyncIterator[str]:
        """Yield the target of a TCP port for gRPC, which creates its sockets itself: in a network of its own, a unix socket."""
        if self._inside is None:
            yield f"{address}:{port}"
            return

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.closing(writer), contextlib.suppress(OSError):
                inner, outer = await self.connect(address, port)
                with contextlib.closing(outer):
                    copies = [asyncio.create_task(_copy(reader, outer)), asyncio.create_task(_copy(inner, writer))]
                    await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
                    for copy in copies:
                        copy.cancel()

        with tempfile.TemporaryDirectory(prefix="headgate-") as directory:
            server = await asyncio.start_unix_server(serve, Path(directory, "grpc"))
            async with server:
                yield f"unix:{directory}/grpc"


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


MACHINE = PodNetwork()
"""The network of the machine."""
