"""Probes of containers as in Kubernetes: httpGet, tcpSocket, grpc and exec."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeVar

import grpc.aio
from aiohttp import ClientError, ClientResponse, ClientSession, TCPConnector
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from multidict import CIMultiDict
from yarl import URL

from headgate.http_failures import describe
from headgate.resources.core.pod_spec import Container, GrpcCheck, HttpGet, Probe
from headgate.standalone.network.pod_network import MACHINE, PodNetwork
from headgate.standalone.pods.commands import run_command
from headgate.standalone.processes import Launch

_READ_BYTES = 10 << 10  # bytes of a response body to read, as the kubelet does
_MAX_HEADER_BYTES = 1 << 20
T = TypeVar("T")
_LATE_S = 0.5
"""If a time limit ends a probe so many seconds late, headgate had no processor time."""
_MAX_REQUESTS = 10  # the most requests of one probe, including redirects
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEALTH_CHECK = "/grpc.health.v1.Health/Check"
_HEALTH_STATES = (
    "UNKNOWN",
    "SERVING",
    "NOT_SERVING",
    "SERVICE_UNKNOWN",
)  # by number, grpc.health.v1.HealthCheckResponse
_SERVING = 1


class ProbeTarget(NamedTuple):
    """The target of a probe: a container, its address, the environment for exec commands, and the pod's network.

    Probes connect from inside this network, so that no sidecar rejects them.
    """

    container: Container
    address: str
    launch: Launch
    network: PodNetwork = MACHINE


class HealthTracker:
    """Tracks health, which changes only after successThreshold or failureThreshold consecutive results."""

    def __init__(self, probe: Probe, *, healthy: bool) -> None:
        self.healthy = healthy
        self._thresholds = {True: probe.success_threshold, False: probe.failure_threshold}
        self._run = 0

    def add(self, *, healthy: bool) -> bool:
        """Add one result; return the current health."""
        self._run = 0 if healthy == self.healthy else self._run + 1
        if self._run >= self._thresholds[healthy]:
            self.healthy, self._run = healthy, 0
        return self.healthy


async def run_probe(probe: Probe, target: ProbeTarget) -> str:
    """Run a probe once; return the fault, empty on success."""
    limit = max(probe.timeout_seconds, 1)
    try:
        return await _timely(limit, lambda: _run_probe(probe, target))
    except TimeoutError:
        return f"timed out after {limit} s"
    except OSError as error:
        return describe(error)
    except ValueError as error:
        return str(error)


async def listens(address: str, port: int, network: PodNetwork = MACHINE) -> bool:
    """Return whether a TCP port accepts connections from a network."""
    try:
        _, writer = await _timely(1, lambda: network.connect(address, port))
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def _timely(limit: float, work: Callable[[], Awaitable[T]]) -> T:
    """Return a result within a time limit; else raise TimeoutError.

    If headgate itself had no processor time, the result may have been in time, and the work is done again. The failure
    would make a healthy container unready, or restart it.
    """
    clock = asyncio.get_running_loop().time
    while True:
        ends = clock() + limit
        try:
            async with asyncio.timeout(limit):
                return await work()
        except TimeoutError:
            if clock() < ends + _LATE_S:
                raise


def tcp_ports(container: Container) -> list[int]:
    """Return the TCP ports that a container declares."""
    return [port.container_port for port in container.ports or () if port.protocol == "TCP"]


async def _run_probe(probe: Probe, target: ProbeTarget) -> str:
    if probe.http_get:
        return await http_fault(probe.http_get, target)
    if probe.tcp_socket:
        host = probe.tcp_socket.host or target.address
        port = _port(probe.tcp_socket.port, target.container)
        return "" if await listens(host, port, target.network) else _closed(host, port)
    if probe.grpc:
        return await _grpc(probe.grpc, target)
    if probe.exec:
        return await run_command(probe.exec.command, target.launch)
    raise ValueError("the probe has no action; set httpGet, tcpSocket, grpc or exec")


def _closed(host: str, port: int) -> str:
    return f"nothing accepts connections on {host}:{port}"


async def _grpc(check: GrpcCheck, target: ProbeTarget) -> str:
    """Query the gRPC health service (grpc.health.v1) as the kubelet does: without TLS, and without an HTTP proxy.

    The request and the response have one field each, with number 1: a text and an enum. The wrappers of protobuf have the
    same bytes, so no generated messages are needed.
    """
    options = (
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.primary_user_agent", "kube-probe/headgate"),
    )
    request = StringValue(value=check.service or "").SerializeToString()
    async with (
        target.network.target(target.address, check.port) as place,
        grpc.aio.insecure_channel(place, options=options) as channel,
    ):
        try:
            response = Int32Value.FromString(await channel.unary_unary(_HEALTH_CHECK)(request))
        except grpc.aio.AioRpcError as error:
            unavailable = error.code() is grpc.StatusCode.UNAVAILABLE
            if unavailable and not await listens(target.address, check.port, target.network):
                return _closed(target.address, check.port)
            return f"gRPC status {error.code().name}: {error.details()}"
        except DecodeError:
            return "the response is no message of grpc.health.v1"
    if response.value == _SERVING:
        return ""
    state = _HEALTH_STATES[response.value] if 0 <= response.value < len(_HEALTH_STATES) else response.value
    return f"the health of service {check.service or ''!r} is {state}"


async def http_fault(get: HttpGet, target: ProbeTarget) -> str:
    """Send a GET request as the kubelet does; return the fault, empty on success. Raises OSError and ValueError.

    It uses no proxy, no certificate verification, redirects only on the same host.
    """
    host = get.host or target.address
    url, headers = _request(get, f"[{host}]" if ":" in host else host, _port(get.port, target.container))
    session = ClientSession(
        connector=TCPConnector(ssl=False, force_close=True, socket_factory=target.network.create_socket),
        skip_auto_headers=("Accept-Encoding",),
        auto_decompress=False,
        max_line_size=_MAX_HEADER_BYTES,
        max_field_size=_MAX_HEADER_BYTES,
    )
    async with session:
        try:
            return await _follow(session, url, headers)
        except OSError:
            raise
        except ClientError:
            return "the response is not HTTP"


async def _follow(session: ClientSession, url: URL, headers: CIMultiDict[str]) -> str:
    host = url.host
    for _ in range(_MAX_REQUESTS):
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            await _skim(response)
            status, location = response.status, URL(response.headers.get("location", ""))
        if status not in _REDIRECTS or not str(location) or url.join(location).host != host:
            return "" if 200 <= status < 400 else f"HTTP status {status}"
        url = url.join(location)
        if location.absolute:
            headers.pop("Host", None)
    return f"stopped after {_MAX_REQUESTS} redirects"


async def _skim(response: ClientResponse) -> None:
    """Read the beginning of the body, so that the probe fails if the container hangs while it sends the body."""
    length = 0
    async for part in response.content.iter_any():
        length += len(part)
        if length >= _READ_BYTES:
            return


def _request(get: HttpGet, host: str, port: int) -> tuple[URL, CIMultiDict[str]]:
    path = get.path if get.path.startswith("/") else f"/{get.path}"
    headers = CIMultiDict((header.name, header.value) for header in get.http_headers)
    if any("\r" in text or "\n" in text for text in (path, *headers, *headers.values())):
        raise ValueError("httpGet: path and headers must be single lines")
    default = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/headgate", "Accept": "*/*", "Connection": "close"}
    for name, value in default.items():
        headers.setdefault(name, value)
    return URL(f"{get.scheme.lower()}://{host}:{port}{path}", encoded=True), headers


def _port(port: int | str, container: Container) -> int:
    if isinstance(port, int):
        return port
    if port.isdigit():
        return int(port)
    named: Iterable[int] = (declared.container_port for declared in container.ports or () if declared.name == port)
    number = next(iter(named), 0)
    if not number:
        raise ValueError(f"container {container.name} has no port named {port!r}; add it to ports")
    return number
