"""Count Envoy's instructions per request with headgate's configuration, and with a minimal one for the same split.

On a small machine, measured times are too noisy to distinguish ratios of 0.97 and 0.98. Counts of instructions
(callgrind, from Debian's package valgrind) vary by at most 0.3 %, whatever else the machine does. Only the worker
thread is counted, with one connection and one request at a time. The count excludes the kernel's share, about 30 % of
the CPU time, which is equal for both.
"""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from contextlib import AsyncExitStack
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
        least = await _per_request(directory, await start_envoy(stack, directory / "least", by_hand), port, scale)
        print(f"{'by hand, localities':<20} {least:9,.0f} instructions per request", flush=True)
        split = website(free_port(), backends, WEIGHTS)
        for what, node, mesh in (
            ("gateway, split", GATEWAY, split),
            ("sidecar, split", SIDECAR, split),
            ("sidecar, no split", SIDECAR, _without_split(split)),
        ):
            async with AsyncExitStack() as inner:
                place = Path(inner.enter_context(tempfile.TemporaryDirectory(dir=directory)))
                found = await start_gateway(inner, place, mesh, node)
                ours = await _per_request(directory, found.pid, found.port, scale)
            print(f"{what:<20} {ours:9,.0f} instructions per request, ratio {ours / least:.3f}", flush=True)


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


async def _per_request(directory: Path, pid: int, port: int, scale: Scale) -> float:
    """Return the instructions per request: the minimum of some tries."""
    await _ask(port, scale.warm)
    await _control("--instr=on", pid)
    await _ask(port, scale.warm)
    return min([await _try(directory, pid, port, scale) for _ in range(scale.tries)])


async def _try(directory: Path, pid: int, port: int, scale: Scale) -> float:
    """Return the busiest thread's instructions per request: a long run minus a short run, to exclude start-up."""
    few, many = [await _counted(directory, pid, port, requests) for requests in (scale.few, scale.many)]
    return max(many[thread] - few.get(thread, 0) for thread in many) / (scale.many - scale.few)


async def _counted(directory: Path, pid: int, port: int, requests: int) -> dict[str, int]:
    """Send requests and return the instructions of each thread."""
    before = set(directory.glob(f"count.{pid}*"))
    await _control("--zero", pid)
    await _ask(port, requests)
    await _control("--dump", pid)
    written = set(directory.glob(f"count.{pid}*")) - before
    return {file.name.rpartition("-")[2]: _total(file) for file in written}


def _total(file: Path) -> int:
    return int(re.findall(r"^(?:totals|summary): (\d+)", file.read_text(), re.MULTILINE)[-1])


async def _control(what: str, pid: int) -> None:
    await asyncio.to_thread(subprocess.run, ["callgrind_control", what, str(pid)], check=True, capture_output=True)


async def _ask(port: int, requests: int) -> None:
    """Send requests over one connection, one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(requests):
        writer.write(f"GET / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a request failed: {head!r}")
        found = re.search(rb"content-length: (\d+)", head)
        await reader.readexactly(int(found[1]) if found else 0)
    writer.close()
