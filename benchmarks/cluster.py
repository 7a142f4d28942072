"""Measure a control plane on a cluster with 1,000 Services and 10,000 pods: start, memory and processor time.

A real API server with its etcd runs on this machine; KUBEBUILDER_ASSETS is the directory of the binaries. No kubelet
runs, so the pods have the statuses that this program writes. One replica of the control plane is a process of its own.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Self

import aiohttp
from benchmarks.load import cpu_seconds
from tests.cluster.conftest import ADMIN, Cluster, started

from headgate.admission.sidecar_containers import SidecarOptions, with_transparent_sidecar
from headgate.kubernetes.app import run
from headgate.kubernetes.client import Client
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.names import NAMESPACE, WEBHOOK_PORT
from headgate.kubernetes.options import Options
from headgate.resources.meta import Object

SERVICES, PODS, NAMESPACES = 1000, 10_000, 10
WRITERS = 16  # concurrent requests of this program
STATUSES = 1000  # changes of pods' statuses that do not concern the mesh, such as those of kubelets
CHANGES = 100  # pods that become unready, one after another
IDLE_S = 20.0
POLL_S = 0.1
QUIET_S = 0.05  # processor time in a second below which the replica has no work left
READY = f"https://127.0.0.1:{WEBHOOK_PORT}/readyz"
SIDECAR = SidecarOptions(image="headgate", xds="headgate.headgate-system.svc:15010")
RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}


def namespace(number: int) -> str:
    """Return the namespace of the Service with a number."""
    return f"team-{number % NAMESPACES}"


def service(number: int) -> Object:
    """Return a Service."""
    metadata = {"name": f"service-{number}", "namespace": namespace(number)}
    spec = {"selector": {"app": f"service-{number}"}, "ports": [{"name": "http", "port": 8080}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def address(number: int) -> str:
    """Return the address of the pod with a number."""
    return f"10.128.{number // 250}.{number % 250 + 1}"


def pod(number: int) -> Object:
    """Return a pod with a sidecar."""
    app = f"service-{number % SERVICES}"
    container = {
        "name": "app",
        "image": "registry.example/app:1",
        "ports": [{"containerPort": 8080}],
        "env": [{"name": f"SETTING_{index}", "value": "value" * 4} for index in range(10)],
        "resources": RESOURCES,
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
    }
    metadata = {"name": f"{app}-{number}", "namespace": namespace(number), "labels": {"app": app, "team": "one"}}
    written = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"serviceAccountName": "app", "containers": [container]},
    }
    return with_transparent_sidecar(written, SIDECAR)


def status(number: int, heartbeat: str) -> Object:
    """Return the status of a running pod; `heartbeat` is the reason of a condition that headgate does not read."""
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("Initialized", "PodScheduled", "ContainersReady", "Ready")
    ]
    conditions[0]["reason"] = heartbeat
    started_at = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    containers = [
        {
            "name": name,
            "image": "registry.example/app:1",
            "imageID": f"registry.example/app@sha256:{'0' * 64}",
            "containerID": f"containerd://{'1' * 64}",
            "ready": True,
            "restartCount": 0,
            "started": True,
            "state": started_at,
        }
        for name in ("app", "headgate-sidecar")
    ]
    place = address(number)
    return {
        "phase": "Running",
        "podIP": place,
        "podIPs": [{"ip": place}],
        "conditions": conditions,
        "containerStatuses": containers,
    }


def endpoint_slice(number: int, unready: int = -1) -> Object:
    """Return the EndpointSlice of a Service; the pod `unready` is not ready."""
    pods = range(number, PODS, SERVICES)
    endpoints = [
        {
            "addresses": [address(item)],
            "conditions": {"ready": item != unready},
            "targetRef": {"kind": "Pod", "namespace": namespace(number), "name": f"service-{number}-{item}"},
        }
        for item in pods
    ]
    metadata = {
        "name": f"service-{number}-1",
        "namespace": namespace(number),
        "labels": {"kubernetes.io/service-name": f"service-{number}"},
    }
    ports = [{"name": "http", "port": 8080, "protocol": "TCP"}]
    return {
        "apiVersion": "discovery.k8s.io/v1beta1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": ports,
    }


class World:
    """Writes objects to the API server, `WRITERS` at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def fill(self) -> None:
        """Create all objects."""
        names = [*(f"team-{number}" for number in range(NAMESPACES)), NAMESPACE]
        await self._all(self._client.post("/api/v1/namespaces", {"metadata": {"name": name}}) for name in names)
        await self._all(self._create("/api/v1", "services", service(number)) for number in range(SERVICES))
        slices = (endpoint_slice(number) for number in range(SERVICES))
        await self._all(self._create("/apis/discovery.k8s.io/v1beta1", "endpointslices", item) for item in slices)
        await self._all(self._create("/api/v1", "pods", pod(number)) for number in range(PODS))
        await self.write_statuses(PODS, "Started")

    async def write_statuses(self, number: int, heartbeat: str) -> None:
        """Write the statuses of the first pods."""
        await self._all(
            self._client.merge(
                f"/api/v1/namespaces/{namespace(item)}/pods/service-{item % SERVICES}-{item}/status",
                {"status": status(item, heartbeat)},
            )
            for item in range(number)
        )

    async def make_unready(self, number: int) -> None:
        """Change the first EndpointSlices one after another."""
        for item in range(number):
            path = f"/apis/discovery.k8s.io/v1beta1/namespaces/{namespace(item)}/endpointslices/service-{item}-1"
            await self._client.merge(path, {"endpoints": endpoint_slice(item, unready=item)["endpoints"]})

    async def _create(self, root: str, plural: str, obj: Object) -> None:
        await self._client.post(f"{root}/namespaces/{obj['metadata']['namespace']}/{plural}", obj)

    async def _all(self, calls: Iterable[Any]) -> None:
        waiting = iter(calls)

        async def write() -> None:
            for call in waiting:
                await call

        async with asyncio.TaskGroup() as tasks:
            for _ in range(WRITERS):
                tasks.create_task(write())


class Replica:
    """A replica of the control plane as a process."""

    def __init__(self, cluster: Cluster, log: Path) -> None:
        self._cluster = cluster
        self._log = log

    async def __aenter__(self) -> Self:
        self._cluster.api(ADMIN)  # writes the files of the account
        environment = os.environ | self._cluster.environment | {"PYTHONPATH": os.pathsep.join(sys.path)}
        account = str(self._cluster.root / ADMIN)
        self.began = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            account,
            env=environment,
            stdout=self._log.open("wb"),
            stderr=asyncio.subprocess.STDOUT,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        await self._process.wait()

    @property
    def seconds(self) -> float:
        """Processor time so far. Raises RuntimeError if the process has ended."""
        if self._process.returncode is not None:
            raise RuntimeError(f"the replica ended:\n{self._log.read_text()[-2000:]}")
        return cpu_seconds(self._process.pid)

    async def is_ready(self) -> bool:
        """Return whether the replica has compiled all objects, as a kubelet's probe asks."""
        _ = self.seconds
        try:
            async with aiohttp.ClientSession() as session, session.get(READY, ssl=False) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    def mebibytes(self, field: str) -> float:
        """Return a size of the process: VmRSS, or VmHWM for the peak."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


async def measure() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory, started(Path(directory)) as cluster:
        cluster.api(ADMIN)
        async with Client(InCluster(cluster.environment, cluster.root / ADMIN)) as client:
            world = World(client)
            began = time.monotonic()
            await world.fill()
            print(f"{SERVICES} Services, {PODS} pods; written in {time.monotonic() - began:.0f} s", flush=True)
            async with Replica(cluster, Path(directory, "replica.log")) as replica:
                async for line in _measured(world, replica):
                    print(line, flush=True)


async def _measured(world: World, replica: Replica) -> AsyncIterator[str]:
    """Yield the results."""
    while not await replica.is_ready():
        await asyncio.sleep(POLL_S)
    took = time.monotonic() - replica.began
    yield f"start: ready in {took:.1f} s, with {replica.seconds:.1f} s of processor time"
    yield f"memory: {replica.mebibytes('VmRSS'):.0f} MiB, peak {replica.mebibytes('VmHWM'):.0f} MiB"
    last = 0.0
    while replica.seconds > last + QUIET_S:
        last = replica.seconds
        await asyncio.sleep(1)
    took = time.monotonic() - replica.began
    yield f"certificates of all pods: issued after {took:.0f} s, {replica.seconds:.1f} s of processor time in total"
    yield f"memory: {replica.mebibytes('VmRSS'):.0f} MiB, peak {replica.mebibytes('VmHWM'):.0f} MiB"
    before = replica.seconds
    await asyncio.sleep(IDLE_S)
    yield f"idle: {(replica.seconds - before) / IDLE_S:.1%} of a processor"
    before = replica.seconds
    await world.write_statuses(STATUSES, "Heartbeat")
    await asyncio.sleep(2)
    yield f"a pod's status that does not concern the mesh: {(replica.seconds - before) / STATUSES * 1000:.2f} ms"
    before = replica.seconds
    await world.make_unready(CHANGES)
    await asyncio.sleep(2)
    yield f"an unready pod: {(replica.seconds - before) / CHANGES * 1000:.1f} ms"


if __name__ == "__main__":
    asyncio.run(run(Options(pod="replica", image="headgate"), InCluster(os.environ, Path(sys.argv[1]))))
