"""Probes: asking a container whether it is well, as Kubernetes does (httpGet, tcpSocket, exec)."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
from aiohttp import ClientError, ClientResponse, ClientSession, TCPConnector
from multidict import CIMultiDict
from yarl import URL

from headgate.http_failures import describe
from headgate.resources.workloads import Container, HttpGet, Probe
from headgate.standalone.processes import Launch, start_fault

_READ_BYTES = 10 << 10  # of a body; the kubelet waits for these, too
_LONGEST_HEADER = 1 << 20
_MOST_REQUESTS = 10  # of one probe that is redirected
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Target(NamedTuple):
    """Whom to ask: the container, the address that it listens on, and how a command runs beside it."""

    container: Container
    address: str
    launch: Launch


class Tally:
    """Turns single results into a verdict that changes only after as many equal results on end as the probe asks."""

    def __init__(self, probe: Probe, *, well: bool) -> None:
        self.well = well
        self._thresholds = {True: probe.success_threshold, False: probe.failure_threshold}
        self._run = 0

    def add(self, *, well: bool) -> bool:
        """Count one result and return the verdict."""
        self._run = 0 if well == self.well else self._run + 1
        if self._run >= self._thresholds[well]:
            self.well, self._run = well, 0
        return self.well


async def ask(probe: Probe, target: Target) -> str:
    """Ask once. Return what is wrong, in words; empty when the container is well."""
    try:
        async with asyncio.timeout(max(probe.timeout_seconds, 1)):
            return await _ask(probe, target)
    except TimeoutError:
        return f"no answer within {max(probe.timeout_seconds, 1)} s"
    except OSError as error:
        return describe(error)
    except ValueError as error:
        return str(error)


async def listens(address: str, port: int) -> bool:
    """Whether something accepts TCP connections there."""
    try:
        async with asyncio.timeout(1):
            _, writer = await asyncio.open_connection(address, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def tcp_ports(container: Container) -> list[int]:
    """Return the TCP ports that a container declares."""
    return [port.container_port for port in container.ports or () if port.protocol == "TCP"]


async def _ask(probe: Probe, target: Target) -> str:
    if probe.http_get:
        return await _http(probe.http_get, target)
    if probe.tcp_socket:
        host = probe.tcp_socket.host or target.address
        port = _port(probe.tcp_socket.port, target.container)
        return "" if await listens(host, port) else f"nothing accepts connections on {host}:{port}"
    if probe.exec:
        return await _run(probe.exec.command, target.launch)
    raise ValueError("local pods know the probes httpGet, tcpSocket and exec; use one of them")


async def _http(get: HttpGet, target: Target) -> str:
    """Request as the kubelet does: no proxy, no check of certificates, redirects only on the same host."""
    host = get.host or target.address
    url, headers = _request(get, f"[{host}]" if ":" in host else host, _port(get.port, target.container))
    session = ClientSession(
        connector=TCPConnector(ssl=False, force_close=True),
        skip_auto_headers=("Accept-Encoding",),
        auto_decompress=False,
        max_line_size=_LONGEST_HEADER,
        max_field_size=_LONGEST_HEADER,
    )
    async with session:
        try:
            return await _follow(session, url, headers)
        except OSError:
            raise
        except ClientError:
            return "the answer is not HTTP"


async def _follow(session: ClientSession, url: URL, headers: CIMultiDict[str]) -> str:
    host = url.host
    for _ in range(_MOST_REQUESTS):
        async with session.get(url, headers=headers, allow_redirects=False) as answer:
            await _skim(answer)
            status, place = answer.status, URL(answer.headers.get("location", ""))
        if status not in _REDIRECTS or not str(place) or url.join(place).host != host:
            return "" if 200 <= status < 400 else f"HTTP status {status}"
        url = url.join(place)
        if place.absolute:
            headers.pop("Host", None)
    return f"stopped after {_MOST_REQUESTS} redirects"


async def _skim(answer: ClientResponse) -> None:
    """Wait for the beginning of the body: a container that hangs in it is not well."""
    length = 0
    async for part in answer.content.iter_any():
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
    named: Iterable[int] = (found.container_port for found in container.ports or () if found.name == port)
    number = next(iter(named), 0)
    if not number:
        raise ValueError(f"container {container.name} has no port named {port!r}; add it to ports")
    return number


async def _run(command: tuple[str, ...], launch: Launch) -> str:
    if not command:
        raise ValueError("exec: command is empty")
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=launch.env,
            cwd=Path(launch.cwd) if launch.cwd else None,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise ValueError(start_fault(msgspec.structs.replace(launch, command=command), error)) from error
    try:
        code = await process.wait()
    except asyncio.CancelledError:  # too slow, or no longer wanted
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    return "" if code == 0 else f"{command[0]} ended with exit code {code}"
