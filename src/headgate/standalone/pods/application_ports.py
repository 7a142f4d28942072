"""Process ports behind explicit sidecars: for each TCP port of the sidecar, a port on which the process listens.

The sidecar listens on the ports that containers declare, and on the numeric targetPorts of the Services that select the pod
when it starts (D26). The process gets its own port in `$PORT`. Each process port is unique on the machine, so that
replicas that listen on 0.0.0.0 don't conflict.
"""

import contextlib
import hashlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from headgate.compiler.services import routed_ports
from headgate.envoy.node_ids import OUTBOUND_PORT
from headgate.errors import Cause, DecodeError
from headgate.redirection.exclusions import Exclusions
from headgate.resources import decode
from headgate.resources.core.pod_metadata import APPLICATION_PORTS, EXCLUDED_PORTS
from headgate.resources.core.pod_spec import Container, ContainerPort, GrpcCheck, HttpGet, Pod, Probe, TcpSocket
from headgate.resources.core.service import Service
from headgate.resources.meta import Metadata, Object
from headgate.standalone.address_pool import NoAddress
from headgate.standalone.pods.environment import port_variable

_PREFERRED, _POSSIBLE = range(20_000, 32_768), range(10_000, 65_536)
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LARGEST = 65_535

PortMap = Mapping[int, int]
"""Maps a port of the pod to the port of its process."""
_Checked = TypeVar("_Checked", HttpGet, TcpSocket)


def candidates(ephemeral: range) -> list[int]:
    """Return the ports to assign to processes. Ports in `ephemeral` are used only if no other port exists."""
    preferred = [number for number in _PREFERRED if number not in ephemeral]
    return preferred or [number for number in _POSSIBLE if number not in ephemeral] or list(_PREFERRED)


def ephemeral_range() -> range:
    """Return the ports that the kernel uses for outgoing connections."""
    first, last = map(int, _EPHEMERAL.read_text().split())
    return range(first, last + 1)


def is_free(port: int) -> bool:
    """Return whether no process listens on a port, on any address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignores closed connections in TIME_WAIT
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104  # programs that ignore $HOST listen on all addresses
        except OSError:
            return False
        return True


class ApplicationPorts:
    """Assigns process ports. A `user`, for example the uid of a pod, keeps its ports until `release`."""

    def __init__(self, ports: Iterable[int] | None = None, *, free: Callable[[int], bool] = is_free) -> None:
        self._candidates = list(candidates(ephemeral_range()) if ports is None else ports)
        self._free = free
        self._users: dict[str, PortMap] = {}

    def assign(self, user: str, ports: Sequence[int]) -> PortMap:
        """Return a process port for each of `ports`. Later calls for the user return the same process ports.

        Raises NoAddress when all process ports are in use.
        """
        earlier = self._users.get(user, {})
        assigned: dict[int, int] = {}
        for port in ports:
            assigned[port] = earlier.get(port) or self._choose(
                f"{user} {port}", {*ports, *assigned.values(), *earlier.values()}
            )
        self.restore(user, assigned)
        return assigned

    def restore(self, user: str, numbers: PortMap) -> None:
        """Record ports that a user already has, for example after a restart."""
        self._users[user] = dict(numbers)

    def release(self, user: str) -> None:
        """Free the ports of a user."""
        self._users.pop(user, None)

    def _choose(self, seed: str, own: set[int]) -> int:
        taken = {number for numbers in self._users.values() for number in numbers.values()} | own
        # Without the seed, two headgates would choose the same port until a process listens on it.
        start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % len(self._candidates)
        for number in (*self._candidates[start:], *self._candidates[:start]):
            if number not in taken and self._free(number):
                return number
        raise NoAddress(f"all {len(self._candidates)} ports for processes behind sidecars are in use; delete some pods")


def sidecar_ports(pod: Pod, target_ports: Iterable[int] = ()) -> list[int]:
    """Return the TCP ports of a pod's sidecar, without excluded ports. Raises DecodeError.

    These are the ports that containers declare, and `target_ports`, the targetPorts of Services.
    """
    left_out = excluded_ports(pod.metadata)
    return [port for port in dict.fromkeys((*_declared(pod), *target_ports)) if port not in left_out]


def service_ports(pod: Pod, services: Iterable[Service], *, lowest: int = 0) -> list[int]:
    """Return the numeric targetPorts of the Services that select a pod, sorted.

    Ports below `lowest` are left out: neither the sidecar nor the process may listen on them.
    """
    labels = pod.metadata.labels.items()
    return sorted(
        {
            number
            for service in services
            if service.spec.selected and service.spec.selected.items() <= labels
            for port in routed_ports(service)
            if isinstance(number := port.target_port or port.port, int)
            and max(lowest, 1) <= number <= _LARGEST
            and number != OUTBOUND_PORT
        }
    )


def decode_services(services: Iterable[Object]) -> Iterator[Service]:
    """Decode Services; skip invalid ones, which the compiler reports."""
    for service in services:
        with contextlib.suppress(DecodeError):
            yield decode.read(service, Service)


def listener(pod: Pod) -> Container | None:
    """Return the container that should listen on undeclared ports.

    It is the first container without declared ports; if all declare ports, it is the first container.
    """
    containers = pod.spec.containers
    return next((container for container in containers if not container.ports), containers[0] if containers else None)


def undeclared(pod: Pod, port_map: PortMap) -> PortMap:
    """Return the entries of a pod's port map that no container declares (targetPorts of Services)."""
    declared = set(_declared(pod))
    return {port: number for port, number in sorted(port_map.items()) if port not in declared}


def excluded_ports(metadata: Metadata) -> frozenset[int]:
    """Return the ports that bypass the sidecar. Raises DecodeError."""
    words = [word.strip() for word in metadata.annotations.get(EXCLUDED_PORTS, "").split(",") if word.strip()]
    if not all(_is_port(word) for word in words):
        raise DecodeError(
            Cause(f"metadata.annotations.{EXCLUDED_PORTS}", "must be port numbers, for example 9090,9102")
        )
    return frozenset(map(int, words))


def exclusions(metadata: Metadata) -> Exclusions:
    """Return the connections that bypass a transparent sidecar. Raises DecodeError."""
    return Exclusions(excluded_inbound_ports=tuple(sorted(excluded_ports(metadata))))


def to_annotation(port_map: PortMap) -> str:
    """Return the text of the annotation: `8080=20417,9090=20418`."""
    return ",".join(f"{port}={number}" for port, number in sorted(port_map.items()))


def from_annotation(metadata: Metadata) -> PortMap:
    """Return the port map in a pod's annotation. Raises DecodeError."""
    pairs = [pair.partition("=") for pair in metadata.annotations.get(APPLICATION_PORTS, "").split(",") if pair]
    if not all(_is_port(port) and _is_port(number) for port, _, number in pairs):
        raise DecodeError(
            Cause(
                f"metadata.annotations.{APPLICATION_PORTS}", "must be pairs of ports, for example 8080=20417,9090=20418"
            )
        )
    return {int(port): int(number) for port, _, number in pairs}


def with_process_ports(container: Container, port_map: PortMap) -> Container:
    """Return a container with process ports in place of its declared ports, also in its probes."""
    if not port_map:
        return container
    return replace(
        container,
        ports=tuple(_with_process_port(port, port_map) for port in container.ports)
        if container.ports
        else container.ports,
        readiness_probe=_probe(container.readiness_probe, port_map),
        liveness_probe=_probe(container.liveness_probe, port_map),
        startup_probe=_probe(container.startup_probe, port_map),
    )


def listen_advice(pod: Pod, container: Container, port_map: PortMap, *, own_network: str) -> str:
    """Return advice for messages: where a process must listen. It is empty without process ports.

    `own_network` says how the pod gets a network of its own.

    `container` has process ports in place of the ports that it declares in the pod (`with_process_ports`).
    """
    declared = {number: port for port, number in port_map.items()}
    advice = []
    for index, port in enumerate(container.ports or ()):
        if before := declared.get(port.container_port):
            variable = "PORT" if index == 0 else port_variable(port.name or str(before))
            advice.append(f"${variable} ({port.container_port}), because its sidecar listens on {before}")
    for variable, led, number in _undeclared_variables(pod, container, port_map):
        advice.append(f"${variable} ({number}), because Services send to port {led}, on which its sidecar listens")
    if not advice:
        return ""
    return (
        f"the process must listen on $HOST or 0.0.0.0 and {'; '.join(advice)}. With a fixed port, it needs a network of its own "
        f'({own_network}), or a pod without a sidecar (label headgate.dev/inject: "false")'
    )


def port_variables(pod: Pod, container: Container, port_map: PortMap) -> dict[str, str]:
    """Return the variables of process ports: PORT_9090 is the process port for 9090.

    The result includes PORT for the first undeclared port if this is the pod's only container without declared ports.
    """
    variables = {port_variable(str(port)): str(number) for port, number in port_map.items()}
    return variables | {
        variable: str(number) for variable, _, number in _undeclared_variables(pod, container, port_map)
    }


def _undeclared_variables(pod: Pod, container: Container, port_map: PortMap) -> Iterator[tuple[str, int, int]]:
    """Yield (variable, port, process port) for each undeclared port.

    The first variable is PORT if this is the pod's only container without declared ports.
    """
    silent = [listed.name for listed in pod.spec.containers if not listed.ports]
    for index, (port, number) in enumerate(undeclared(pod, port_map).items()):
        yield "PORT" if index == 0 and silent == [container.name] else port_variable(str(port)), port, number


def _declared(pod: Pod) -> Iterator[int]:
    for container in pod.spec.containers:
        yield from (port.container_port for port in container.ports or () if port.protocol == "TCP")


def _with_process_port(port: ContainerPort, port_map: PortMap) -> ContainerPort:
    if port.protocol != "TCP":
        return port
    return replace(port, container_port=port_map.get(port.container_port, port.container_port))


def _probe(probe: Probe | None, port_map: PortMap) -> Probe | None:
    if probe is None:
        return None
    return replace(
        probe,
        http_get=_check(probe.http_get, port_map) if probe.http_get else None,
        tcp_socket=_check(probe.tcp_socket, port_map) if probe.tcp_socket else None,
        grpc=_grpc(probe.grpc, port_map) if probe.grpc else None,
    )


def _grpc(check: GrpcCheck, port_map: PortMap) -> GrpcCheck:
    return replace(check, port=port_map.get(check.port, check.port))


def _check(check: _Checked, port_map: PortMap) -> _Checked:
    """Replace the port of a probe's check by the process port. A check of another host or a named port is unchanged."""
    number = int(check.port) if isinstance(check.port, int) or check.port.isdigit() else 0
    return check if check.host or number not in port_map else replace(check, port=port_map[number])


def _is_port(text: str) -> bool:
    return text.strip().isdecimal() and 0 < int(text) <= _LARGEST
