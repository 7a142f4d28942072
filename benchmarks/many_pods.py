"""Measure `headgate up` with many pods, in the machine's network and in networks of their own: time, processor time, memory.

Each pod has a sidecar and a program that does little: it opens a port and waits. Ten pods are a Deployment with a Service.
"""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.starts import HEADGATE, by_program, processes
from tests.api_client import Api
from tests.make import objects
from tests.waiting import until

from headgate.standalone.network.choice import missing


class Scale(NamedTuple):
    """The number of pods, and of pods in each Deployment."""

    pods: int
    replicas: int


USUAL, SMALLEST = Scale(60, 10), Scale(2, 2)
_PORT = 8080
_PROGRAM = """
import os, socket
server = socket.create_server(("", int(os.environ.get("PORT", "8080"))))
while True:
    server.accept()[0].close()
"""
_MIB = 1024
_LONGEST_S, _POLL_S = 600.0, 0.5


async def measure(scale: Scale) -> None:
    """Print seconds, seconds of processor time for a pod, and memory for a pod."""
    fault = await asyncio.to_thread(missing)
    for network in ("host", *(() if fault else ("pod",))):
        print(f"--network {network}, {scale.pods} pods")
        for name, number, unit in _run(scale, network):
            print(f"  {name:<45} {number:8.2f} {unit}")


def _run(scale: Scale, network: str) -> Iterator[tuple[str, float, str]]:
    """Start the pods and end them; yield what is measured."""
    with tempfile.TemporaryDirectory(prefix="hg") as root:
        manifests = Path(root, "manifests.yaml")
        manifests.write_text("\n---\n".join(_manifests(scale)))
        command = [
            HEADGATE,
            "up",
            str(manifests),
            "--state",
            str(Path(root, "state")),
            "--network",
            network,
            "-o",
            "json",
        ]
        began = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as headgate:
            assert headgate.stdout
            try:
                ready = next((line for line in map(json.loads, headgate.stdout) if "ready" in line), None)
                if ready is None:
                    raise SystemExit("headgate up ended before it was ready")
                _await_all(Path(ready["kubeconfig"]), scale.pods)
                yield "until ready", time.monotonic() - began, "s"
                for program, seconds in by_program(headgate.pid).items():
                    yield f"processor time for a pod: {program}", seconds / scale.pods * 1000, "ms"
                yield from _memory(headgate.pid, scale.pods)
            finally:
                signaled = time.monotonic()
                headgate.send_signal(signal.SIGINT)
            headgate.stdout.read()
        yield "end", time.monotonic() - signaled, "s"


def _await_all(kubeconfig: Path, pods: int) -> None:
    """Wait until all pods are available; `headgate up` itself waits for 30 s at most."""
    with contextlib.closing(Api(kubeconfig)) as api:

        def available() -> int:
            return sum(
                deployment["status"].get("availableReplicas", 0) for deployment in api.get("deployments")["items"]
            )

        until(lambda: available() == pods, f"{pods} pods", _LONGEST_S, poll=_POLL_S)


def _manifests(scale: Scale) -> Iterator[str]:
    app = objects.container(command=[sys.executable, "-I", "-S", "-c", _PROGRAM], ports=[{"containerPort": _PORT}])
    for number in range(scale.pods // scale.replicas):
        name = f"app-{number}"
        yield objects.manifest(objects.deployment(name, app, replicas=scale.replicas))
        yield objects.manifest(objects.service(name, _PORT, selector={"app": name}))


def _memory(headgate: int, pods: int) -> Iterator[tuple[str, float, str]]:
    """Yield the memory of headgate, and of a sidecar and an application; shared pages count in parts (PSS)."""
    sums = {"headgate": 0.0, "sidecar": 0.0, "application": 0.0}
    for pid in processes(headgate):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            is_envoy = Path(f"/proc/{pid}/exe").readlink().name == "envoy"
            rows = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
            kilobytes = next(int(row[1]) for row in rows if row[0] == "Pss:")
            sums["headgate" if pid == headgate else "sidecar" if is_envoy else "application"] += kilobytes
    yield "memory: headgate", sums["headgate"] / _MIB, "MiB"
    yield "memory for a pod: sidecar", sums["sidecar"] / (pods + 1) / _MIB, "MiB"  # the gateway is an Envoy too
    yield "memory for a pod: application", sums["application"] / pods / _MIB, "MiB"
