"""The Service ports to which routes lead, with their endpoints and protocols."""

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from headgate.model.root_protocols import roots
from headgate.model.routing import Endpoint, Mesh, PortRef, Protocol, Route


class RoutedPort(NamedTuple):
    """A Service port that is a backend of routes.

    `protocol` is the protocol of the Service port. Its pods are called with `pod_protocol`, which differs if the pods
    also serve the root Service of a split with another protocol.
    """

    ref: PortRef
    ready: tuple[Endpoint, ...]
    protocol: Protocol
    pod_protocol: Protocol


class Backends:
    """Indexes of backends by Service port, for the planner."""

    def __init__(self, backends: Iterable[RoutedPort]) -> None:
        ports = tuple(backends)
        self.ready: Mapping[PortRef, tuple[Endpoint, ...]] = {port.ref: port.ready for port in ports}
        self.protocols: Mapping[PortRef, Protocol] = {port.ref: port.protocol for port in ports}
        self.pod_protocols: Mapping[PortRef, Protocol] = {port.ref: port.pod_protocol for port in ports}
        self.opaque: Collection[PortRef] = frozenset(port.ref for port in ports if not port.pod_protocol.is_http)


class BackendSources:
    """The parts of the mesh from which backends are computed: its endpoints and its tables."""

    def __init__(self, mesh: Mesh) -> None:
        self._parts = (mesh.endpoints, mesh.tables)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BackendSources) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    def backends(self, routes: Iterable[Route], *own: PortRef) -> tuple[RoutedPort, ...]:
        """Return the Service ports `own`, and those that proxies call for requests of some routes."""
        refs = dict.fromkeys(own)
        for route in routes:
            refs.update(dict.fromkeys(route.callees))
        return tuple(map(self._backend, refs))

    def _backend(self, ref: PortRef) -> RoutedPort:
        protocol = Protocol.UDP if ref.is_udp else self._protocols.get(ref, Protocol.HTTP)
        return RoutedPort(ref, self.ready.get(ref, ()), protocol, self._root_protocols.get(ref, protocol))

    @cached_property
    def ready(self) -> Mapping[PortRef, tuple[Endpoint, ...]]:
        """The ready endpoints of each Service port."""
        return {entry.ref: entry.ready for entry in self._parts[0]}

    @cached_property
    def _protocols(self) -> Mapping[PortRef, Protocol]:
        return {table.ref: table.protocol for table in self._parts[1]}

    @cached_property
    def _root_protocols(self) -> Mapping[PortRef, Protocol]:
        return roots(self._parts[1])
