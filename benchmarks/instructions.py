"""Count Envoy's instructions per request with headgate's configuration, and with a minimal one for the same split.

On a small machine, measured times are too noisy to distinguish ratios of 0.97 and 0.98. Counts of instructions
(callgrind, from Debian's package valgrind) vary by at most 0.3 %, on a very busy machine by 1.3 %. Only the worker
thread is counted, with one connection and one request at a time: first requests with the header `Host` alone, then requests
with the headers of a browser behind a proxy, since each header has a price of its own. The count excludes the kernel's share, about 30 % of
the CPU time, which is equal for both.
"""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from benchmarks.contest import WEIGHTS
from benchmarks.lab import GATEWAY, SIDECAR, start_envoy, start_gateway, website
from benchmarks.load import Backend
from benchmarks.proxy import minimal
from msgspec import structs
from tests.ports import free_port

from headgate.model.routing import Endpoints, Mesh, Route, RouteTable, Split, Target
from headgate.standalone.proxies.envoy_binary import find_envoy


class Scale(NamedTuple):
    """The numbers of requests before the count, in a short run and in a long run, and the number of tries."""

    warm: int
    few: int
    many: int
    tries: int


USUAL = Scale(warm=300, few=100, many=600, tries=3)
BROWSER = {
    "user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "accept-language": "en-US,en;q=0.5",
    "accept-encoding": "gzip, deflate, br",
    "cookie": "session=3b1f8c20",
    "referer": "http://shop.example/",
    "sec-fetch-dest": "document",
    "sec-fetch-mode": "navigate",
    "sec-fetch-site": "same-origin",
    "x-forwarded-for": "192.0.2.1",
    "x-request-id": "5b6fda2f-9c0e-4b43-8f44-2f7d7f2ad1f6",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
SMALLEST = None  # under valgrind, four Envoys take a minute to start


async def measure(scale: Scale) -> None:
    """Count and print the instructions for all configurations."""
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed (apt-get install valgrind)")
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        backends = [stack.enter_context(Backend()) for _ in WEIGHTS]
        counted = _under_valgrind(directory, find_envoy(os.environ))
        stack.enter_context(mock.patch.dict(os.environ, HEADGATE_ENVOY=str(counted)))
        port = free_port()
        by_hand = minimal(port, backends, f"{directory}/least.sock", localities=True)
        pid = await start_envoy(stack, directory / "least", by_hand)
        least = [await _per_request(directory, pid, port, scale, headers) for headers in ({}, BROWSER)]
        print(f"{'instructions':<20}{'Host alone':>20}{len(BROWSER) + 1:>12} headers")
        print(f"{'by hand, localities':<20}{least[0]:20,.0f}{least[1]:20,.0f}", flush=True)
        split = website(free_port(), backends, WEIGHTS)
        for what, node, mesh in (
            ("gateway, split", GATEWAY, split),
            ("sidecar, split", SIDECAR, split),
            ("sidecar, no split", SIDECAR, _without_split(split)),
        ):
            async with AsyncExitStack() as inner:
                place = Path(inner.enter_context(tempfile.TemporaryDirectory(dir=directory)))
                found = await start_gateway(inner, place, mesh, node)
                ours = [
                    await _per_request(directory, found.pid, found.port, scale, headers) for headers in ({}, BROWSER)
                ]
            ratios = [f"{mine:,.0f} ({mine / other:.3f})" for mine, other in zip(ours, least, strict=True)]
            print(f"{what:<20}{ratios[0]:>20}{ratios[1]:>20}", flush=True)


def _without_split(mesh: Mesh) -> Mesh:
    """Return a mesh without a split, whose Service has the endpoints of all backends."""
    (table,) = mesh.tables
    own = Route(split=Split(targets=(Target(ref=table.ref, weight=1),)))
    ready = tuple(endpoint for item in mesh.endpoints for endpoint in item.ready)
    return structs.replace(
        mesh, tables=(RouteTable(ref=table.ref, routes=(own,)),), endpoints=(Endpoints(ref=table.ref, ready=ready),)
    )


def _under_valgrind(directory: Path, envoy: Path) -> Path:
    """Write a program that runs Envoy under callgrind, with counting switched off."""
    program = directory / "envoy"
    options = f"--tool=callgrind --separate-threads=yes --instr-atstart=no --callgrind-out-file={directory}/count.%p"
    program.write_text(f'#!/bin/sh\nexec valgrind {options} {shlex.quote(str(envoy))} "$@"\n')
    program.chmod(0o700)
    return program


async def _per_request(directory: Path, pid: int, port: int, scale: Scale, headers: Mapping[str, str]) -> float:
    """Return the instructions per request with these headers: the minimum of some tries."""
    head = "".join(f"{name}: {value}\r\n" for name, value in {"host": f"127.0.0.1:{port}", **headers}.items())
    request = f"GET / HTTP/1.1\r\n{head}\r\n".encode()
    await _ask(port, request, scale.warm)
    await _control("--instr=on", pid)
    await _ask(port, request, scale.warm)
    results = []
    for _ in range(scale.tries):
        few, many = [
            await _counted(directory, pid, partial(_ask, port, request, times)) for times in (scale.few, scale.many)
        ]
        # the busiest thread: a long run minus a short run, to exclude what does not depend on the number
        results.append(max(many[thread] - few.get(thread, 0) for thread in many) / (scale.many - scale.few))
    return min(results)


async def _counted(directory: Path, pid: int, traffic: Callable[[], Awaitable[None]]) -> dict[str, int]:
    """Send traffic and return the instructions of each thread."""
    before = set(directory.glob(f"count.{pid}*"))
    await _control("--zero", pid)
    await traffic()
    await _control("--dump", pid)
    written = set(directory.glob(f"count.{pid}*")) - before
    return {file.name.rpartition("-")[2]: _total(file) for file in written}


def _total(file: Path) -> int:
    return int(re.findall(r"^(?:totals|summary): (\d+)", file.read_text(), re.MULTILINE)[-1])


async def _control(what: str, pid: int) -> None:
    await asyncio.to_thread(subprocess.run, ["callgrind_control", what, str(pid)], check=True, capture_output=True)


async def _ask(port: int, request: bytes, times: int) -> None:
    """Send a request over one connection, one time after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(times):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a request failed: {head!r}")
        found = re.search(rb"content-length: (\d+)", head)
        await reader.readexactly(int(found[1]) if found else 0)
    writer.close()
