"""Where processes listen behind explicit sidecars: each TCP port that a sidecar takes gets a number of this machine.

These are the ports that containers declare, and the numeric targetPorts of the Services that select the pod when it is
placed (D26). The sidecar has the pod's address and the port as declared; the process gets another number in `$PORT`. A number is used
once on the whole machine, so that replicas that listen on 0.0.0.0 don't meet.
"""

import contextlib
import hashlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from headgate.compiler.services import routed_ports
from headgate.envoy.view import OUTBOUND_PORT
from headgate.errors import Cause, DecodeError
from headgate.resources import decode
from headgate.resources.core import Service
from headgate.resources.meta import Metadata, Object
from headgate.resources.pods import APPLICATION_PORTS, EXCLUDED_PORTS
from headgate.resources.workloads import Container, ContainerPort, HttpGet, Pod, Probe, TcpSocket
from headgate.standalone.address_pool import NoAddress
from headgate.standalone.pods.environment import port_variable

_PREFERRED, _POSSIBLE = range(20_000, 32_768), range(10_000, 65_536)
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LARGEST = 65_535

PortMap = Mapping[int, int]
"""Port of the pod -> where the process listens."""
_Checked = TypeVar("_Checked", HttpGet, TcpSocket)


def candidates(ephemeral: range) -> list[int]:
    """Return the numbers that processes may get: none that the kernel gives to outgoing connections, if it leaves any."""
    found = [number for number in _PREFERRED if number not in ephemeral]
    return found or [number for number in _POSSIBLE if number not in ephemeral] or list(_PREFERRED)


def ephemeral_range() -> range:
    """Return the ports that the kernel gives to outgoing connections."""
    first, last = map(int, _EPHEMERAL.read_text().split())
    return range(first, last + 1)


def is_free(port: int) -> bool:
    """Whether nobody on this machine listens on a port, on whatever address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections are no listeners
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104  # that is what a program may do which ignores $HOST
        except OSError:
            return False
        return True


class ApplicationPorts:
    """Who has which numbers. A user is any text, and keeps its numbers until released."""

    def __init__(self, numbers: Iterable[int] | None = None, *, free: Callable[[int], bool] = is_free) -> None:
        self._port_map = list(candidates(ephemeral_range()) if numbers is None else numbers)
        self._free = free
        self._users: dict[str, PortMap] = {}

    def assign(self, user: str, ports: Sequence[int]) -> PortMap:
        """Return the user's numbers for its ports, the same ones on every call. Raises NoAddress when none is left."""
        known = self._users.get(user, {})
        found: dict[int, int] = {}
        for port in ports:
            found[port] = known.get(port) or self._choose(f"{user} {port}", {*ports, *found.values(), *known.values()})
        self.restore(user, found)
        return found

    def restore(self, user: str, numbers: PortMap) -> None:
        """Note that a user has numbers since earlier."""
        self._users[user] = dict(numbers)

    def release(self, user: str) -> None:
        """Note that a user is gone."""
        self._users.pop(user, None)

    def _choose(self, seed: str, own: set[int]) -> int:
        taken = {number for numbers in self._users.values() for number in numbers.values()} | own
        # From another place for each: a second headgate, whose processes don't listen yet, would choose the same ones.
        start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % len(self._port_map)
        for number in (*self._port_map[start:], *self._port_map[:start]):
            if number not in taken and self._free(number):
                return number
        raise NoAddress(f"all {len(self._port_map)} port numbers for processes behind sidecars are used; end some")


def sidecar_ports(pod: Pod, led: Iterable[int] = ()) -> list[int]:
    """Return the TCP ports that a pod's sidecar takes: those declared and `led`, without the excluded. Raises DecodeError."""
    left_out = excluded_ports(pod.metadata)
    return [port for port in dict.fromkeys((*_declared(pod), *led)) if port not in left_out]


def service_ports(pod: Pod, services: Iterable[Service], *, lowest: int = 0) -> list[int]:
    """Return the ports that the Services of a pod's namespace lead to by number, in order.

    Without those below `lowest`, which neither the sidecar nor the process may listen on.
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
    """Yield the Services that can be read; the compiler names the mistakes of the others."""
    for service in services:
        with contextlib.suppress(DecodeError):
            yield decode.read(service, Service)


def undeclared(pod: Pod, numbers: PortMap) -> PortMap:
    """Return the part of a pod's numbers that stands for ports which Services lead to and no container declares."""
    declared = set(_declared(pod))
    return {port: number for port, number in sorted(numbers.items()) if port not in declared}


def excluded_ports(metadata: Metadata) -> frozenset[int]:
    """Return the ports that the sidecar leaves to the process. Raises DecodeError."""
    words = [word.strip() for word in metadata.annotations.get(EXCLUDED_PORTS, "").split(",") if word.strip()]
    if not all(_is_port(word) for word in words):
        raise DecodeError(Cause(f"metadata.annotations.{EXCLUDED_PORTS}", "must be port numbers, as in 9090,9102"))
    return frozenset(map(int, words))


def to_annotation(numbers: PortMap) -> str:
    """Return the annotation's text: `8080=20417,9090=20418`."""
    return ",".join(f"{port}={number}" for port, number in sorted(numbers.items()))


def from_annotation(metadata: Metadata) -> PortMap:
    """Return the numbers that a pod has by its annotation. Raises DecodeError."""
    pairs = [pair.partition("=") for pair in metadata.annotations.get(APPLICATION_PORTS, "").split(",") if pair]
    if not all(_is_port(port) and _is_port(number) for port, _, number in pairs):
        raise DecodeError(Cause(f"metadata.annotations.{APPLICATION_PORTS}", "must be as in 8080=20417,9090=20418"))
    return {int(port): int(number) for port, _, number in pairs}


def with_process_ports(container: Container, numbers: PortMap) -> Container:
    """Return a container as it runs: its ports are where its process listens, and its probes ask there."""
    if not numbers:
        return container
    return replace(
        container,
        ports=tuple(_moved(port, numbers) for port in container.ports) if container.ports else container.ports,
        readiness_probe=_probe(container.readiness_probe, numbers),
        liveness_probe=_probe(container.liveness_probe, numbers),
        startup_probe=_probe(container.startup_probe, numbers),
    )


def listen_advice(pod: Pod, container: Container, numbers: PortMap) -> str:
    """Say what a process must do for its sidecar; `container` is as it runs. Empty when it need not do anything."""
    declared = {number: port for port, number in numbers.items()}
    wanted = []
    for index, port in enumerate(container.ports or ()):
        if before := declared.get(port.container_port):
            variable = "PORT" if index == 0 else port_variable(port.name or str(before))
            wanted.append(f"${variable} ({port.container_port}), since its sidecar has {before}")
    for variable, led, number in _undeclared_variables(pod, container, numbers):
        wanted.append(f"${variable} ({number}), since Services lead to port {led} and its sidecar has that")
    if not wanted:
        return ""
    return (
        f"the process must listen on $HOST or 0.0.0.0 and {'; '.join(wanted)}; "
        'or let the pod do without a sidecar: label it headgate.dev/inject: "false"'
    )


def port_variables(pod: Pod, container: Container, numbers: PortMap) -> dict[str, str]:
    """Return what tells a process where to listen for ports without a name: PORT_9090 is the number behind 9090.

    PORT is among them where no port is declared that it could stand for.
    """
    found = {port_variable(str(port)): str(number) for port, number in numbers.items()}
    return found | {variable: str(number) for variable, _, number in _undeclared_variables(pod, container, numbers)}


def _undeclared_variables(pod: Pod, container: Container, numbers: PortMap) -> Iterator[tuple[str, int, int]]:
    """Yield variable, port and number of the undeclared ports.

    The first is PORT for the only container that declares no port at all: no other container can be meant.
    """
    silent = [one.name for one in pod.spec.containers if not one.ports]
    for index, (port, number) in enumerate(undeclared(pod, numbers).items()):
        yield "PORT" if index == 0 and silent == [container.name] else port_variable(str(port)), port, number


def _declared(pod: Pod) -> Iterator[int]:
    for container in pod.spec.containers:
        yield from (port.container_port for port in container.ports or () if port.protocol == "TCP")


def _moved(port: ContainerPort, numbers: PortMap) -> ContainerPort:
    if port.protocol != "TCP":
        return port
    return replace(port, container_port=numbers.get(port.container_port, port.container_port))


def _probe(probe: Probe | None, numbers: PortMap) -> Probe | None:
    if probe is None:
        return None
    return replace(
        probe,
        http_get=_asked(probe.http_get, numbers) if probe.http_get else None,
        tcp_socket=_asked(probe.tcp_socket, numbers) if probe.tcp_socket else None,
    )


def _asked(check: _Checked, numbers: PortMap) -> _Checked:
    """Ask the process itself; a check of another host stays what it is, and names are those of ports that moved."""
    number = int(check.port) if isinstance(check.port, int) or check.port.isdigit() else 0
    return check if check.host or number not in numbers else replace(check, port=numbers[number])


def _is_port(text: str) -> bool:
    return text.strip().isdecimal() and 0 < int(text) <= _LARGEST
