"""Measure a sidecar's memory, bytes from the control plane, and time until it serves, by the number of Services.

Each measurement starts a real Envoy in a network namespace, as in a pod. headgate configures it for a mesh with as many
pods with sidecars as Services, and a split for one Service in ten. With the access setting `selected`, every pod may
call every pod. With `deny`, a pod may call ten pods, and its sidecar is configured only for these.
"""

import asyncio
import gc
import os
import shlex
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks.lab import start_envoy
from benchmarks.pods import Authority, Capture, Json, allowed, mesh
from benchmarks.stream import Stream

from headgate.compiler.compile import compile_mesh
from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.config import ProxyConfig
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project, sidecar
from headgate.latest import until
from headgate.model.routing import Mesh
from headgate.plane.feed import snapshot_of
from headgate.resources.registry import key_of
from headgate.settings import Settings
from headgate.standalone.proxies.envoy_process import find_envoy
from headgate.xds.fleet import Fleet
from headgate.xds.messages import write_response
from headgate.xds.server import XdsServer

SIZES = (10, 100, 1000)
CALLEES = 10
ROUNDS = 3
CAPTURES: tuple[Capture, ...] = ("explicit", "transparent")
GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
Access = Literal["selected", "deny"]


class Needs(NamedTuple):
    """The result of one start: memory in MiB (resident, and private), and seconds until the sidecar served."""

    resident: float
    own: float
    seconds: float


def compiled(services: int, capture: Capture, access: Access) -> Mesh:
    """Return a mesh with this number of pods, in which the first pod may call at most ten pods, or all."""
    found = {key_of(item): item for item in (*mesh(services, services, capture), *_rules(services, access))}
    settings = Settings(access=access, outbound="allow" if access == "selected" else "refuse")
    return compile_mesh(snapshot_of(found), settings).mesh


def _rules(services: int, access: Access) -> Iterator[Json]:
    for number in range(min(services, CALLEES)) if access == "deny" else ():
        yield from allowed(f"service-{number}", "service-0")


def config(found: Mesh) -> tuple[str, ProxyConfig]:
    """Return the node ID and the configuration of the first pod's sidecar."""
    workload = found.workloads[0]
    assert workload.name == "default/service-0", workload.name
    node = sidecar(workload)
    return node.id, encode(project(found, node, Authority().credential(workload)), Memo())


def sent(wanted: ProxyConfig) -> tuple[int, int]:
    """Return the number of resources and the bytes of responses for a new proxy."""
    responses = Stream().deliver(wanted)
    return sum(len(item.resources) for item in responses), sum(len(write_response(item)) for item in responses)


async def start(node_id: str, wanted: ProxyConfig) -> Needs:
    """Start an Envoy in a new network namespace, and measure it once it serves with the configuration."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        fleet = Fleet()
        proxy = fleet.expect(node_id)
        proxy.config.set(wanted)
        server = XdsServer(fleet)
        await server.start(f"unix:{directory}/xds.sock")
        stack.push_async_callback(server.stop)
        content = bootstrap(node_id=node_id, xds_socket=f"{directory}/xds.sock", admin_socket=f"{directory}/e.sock")
        began = time.perf_counter()
        pid = await start_envoy(stack, directory / "e", content, isolated(directory))
        await until(proxy.settled, fleet.change_count)
        seconds = time.perf_counter() - began
        refused = list(proxy.rejections())
        assert not refused, refused[:3]
        return Needs(_mib(pid, "Rss"), _mib(pid, "Private_Dirty"), seconds)


def missing() -> str:
    """Return why network namespaces can't be created; empty if they can."""
    if not all(map(shutil.which, ("unshare", "ip"))):
        return "there is no unshare (util-linux) or no ip (iproute2)"
    tried = subprocess.run([*_isolation(), "true"], check=False, capture_output=True, text=True)
    return tried.stderr.strip()


def isolated(directory: Path) -> Path:
    """Write a program that runs Envoy in a network namespace with only loopback, where it may bind any port."""
    program = directory / "isolated"
    envoy = shlex.quote(str(find_envoy(os.environ)))
    inner = f'ip link set lo up && exec {envoy} "$@"'
    program.write_text(f'#!/bin/sh\nexec {" ".join(_isolation())} sh -c {shlex.quote(inner)} envoy "$@"\n')
    program.chmod(0o700)
    return program


def _isolation() -> list[str]:
    return ["unshare", *(["-r"] if os.geteuid() else []), "-n"]


def _mib(pid: int, field: str) -> float:
    """Return a field of proc(5)'s smaps_rollup, in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


async def _row(what: str, node_id: str, wanted: ProxyConfig) -> None:
    found = [await start(node_id, wanted) for _ in range(ROUNDS)]
    resident, own, seconds = (statistics.median(values) for values in zip(*found, strict=True))
    resources, size = sent(wanted)
    print(f"{what:40} {resources:10} {size:11,} {resident:10.1f} {own:10.1f} {seconds:10.2f}", flush=True)


async def measure() -> None:
    """Print a row for each number of Services, kind of sidecar and setting of `access`, and rows for the gateway."""
    if reason := missing():
        print(f"skipped: network namespaces can't be created: {reason}")
        return
    heads = ("resources", "xDS bytes", "RSS MiB", "own MiB", "ready in s")
    print(f"{f'medians of {ROUNDS}':40}" + "".join(f" {head:>{max(10, len(head))}}" for head in heads))
    for services in SIZES:
        for capture in CAPTURES:
            for access in ACCESS:
                await _row(f"{services} Services, {capture}, {access}", *config(compiled(services, capture, access)))
        everything = encode(project(compiled(services, "explicit", "selected"), GATEWAY), Memo())
        await _row(f"{services} Services, gateway", GATEWAY.id, everything)
        gc.collect()


ACCESS: tuple[Access, ...] = ("selected", "deny")

if __name__ == "__main__":
    asyncio.run(measure())
