"""Measure a sidecar's memory, bytes from the control plane, and time until it serves, by the number of Services.

Each measurement starts a real Envoy in a network namespace, as in a pod. headgate configures it for a mesh with as many
pods with sidecars as Services, and a split for one Service in ten. With the access setting `selected`, every pod may
call every pod. With `deny`, a pod may call ten pods, and its sidecar is configured only for these.
"""

import gc
import os
import shlex
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from benchmarks.lab import start_envoy
from benchmarks.pods import Capture, WorkloadAuthority, allowed, mesh
from benchmarks.stream import Stream
from tests.make.objects import Object
from tests.make.values import compiled

from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.config import ProxyConfig
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project, sidecar
from headgate.latest import until
from headgate.model.routing import Mesh
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.xds.fleet import Fleet
from headgate.xds.messages import write_response
from headgate.xds.server import XdsServer

CALLEES = 10
CAPTURES: tuple[Capture, ...] = ("explicit", "transparent")
GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
Access = Literal["selected", "deny"]
ACCESS: tuple[Access, ...] = ("selected", "deny")


class Scale(NamedTuple):
    """The numbers of Services, and how often each sidecar is started."""

    services: Sequence[int]
    rounds: int


USUAL = Scale(services=(10, 100, 1000), rounds=3)
SMALLEST = Scale(services=(3,), rounds=1)


class Needs(NamedTuple):
    """The result of one start: memory in MiB (resident, and private), and seconds until the sidecar served."""

    resident: float
    own: float
    seconds: float


def pods(services: int, capture: Capture, access: Access) -> Mesh:
    """Return a mesh with this number of pods, in which the first pod may call at most ten pods, or all."""
    written = (*mesh(services, services, capture), *_rules(services, access))
    return compiled(*written, access=access, outbound="allow" if access == "selected" else "refuse").mesh


def _rules(services: int, access: Access) -> Iterator[Object]:
    for number in range(min(services, CALLEES)) if access == "deny" else ():
        yield from allowed(f"service-{number}", "service-0")


def config(found: Mesh) -> tuple[str, ProxyConfig]:
    """Return the node ID and the configuration of the first pod's sidecar."""
    workload = found.workloads[0]
    assert workload.name == "default/service-0", workload.name
    node = sidecar(workload)
    return node.id, encode(project(found, node, WorkloadAuthority().credential(workload)), Memo())


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


async def _row(what: str, node_id: str, wanted: ProxyConfig, *, rounds: int) -> None:
    found = [await start(node_id, wanted) for _ in range(rounds)]
    resident, own, seconds = (statistics.median(values) for values in zip(*found, strict=True))
    resources, size = sent(wanted)
    print(f"{what:40} {resources:10} {size:11,} {resident:10.1f} {own:10.1f} {seconds:10.2f}", flush=True)


async def measure(scale: Scale) -> None:
    """Print a row for each number of Services, kind of sidecar and setting of `access`, and rows for the gateway."""
    if reason := missing():
        pytest.skip(f"network namespaces can't be created: {reason}")
    heads = ("resources", "xDS bytes", "RSS MiB", "own MiB", "ready in s")
    print(f"{f'medians of {scale.rounds}':40}" + "".join(f" {head:>{max(10, len(head))}}" for head in heads))
    for services in scale.services:
        for capture in CAPTURES:
            for access in ACCESS:
                await _row(
                    f"{services} Services, {capture}, {access}",
                    *config(pods(services, capture, access)),
                    rounds=scale.rounds,
                )
        everything = encode(project(pods(services, "explicit", "selected"), GATEWAY), Memo())
        await _row(f"{services} Services, gateway", GATEWAY.id, everything, rounds=scale.rounds)
        gc.collect()
