"""Measure a control plane on a cluster with 1,000 Services and 10,000 pods: start, memory, processor time and webhooks.

A real API server with its etcd runs on this machine; KUBEBUILDER_ASSETS is the directory of the binaries. No kubelet
runs, so the pods have the statuses that this program writes. One replica of the control plane is a process of its own.
"""

import asyncio
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Self

from benchmarks import webhooks
from benchmarks.load import cpu_seconds
from tests.cluster import replica
from tests.cluster.api_server import KubeApiServer, started
from tests.cluster.installation import has_bundle, install

from headgate.admission.sidecar_containers import SidecarOptions, with_transparent_sidecar
from headgate.kubernetes.client import Client
from headgate.kubernetes.names import NAMESPACE
from headgate.resources.meta import Object
from headgate.resources.pods import INJECT

SERVICES, PODS, NAMESPACES = 1000, 10_000, 10
WRITERS = 16  # concurrent requests of this program
STATUSES = 1000  # changes of pods' statuses that do not concern the mesh, such as those of kubelets
CHANGES = 100  # pods that become unready, one after another
IDLE_S = 20.0
POLL_S = 0.1
QUIET_S = 0.05  # a replica that uses less processor time than this in a second has no work left
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
    return with_transparent_sidecar(new_pod(number), SIDECAR)


def new_pod(number: int) -> Object:
    """Return a pod as a user writes it, with the label for a sidecar."""
    app = f"service-{number % SERVICES}"
    container = {
        "name": "app",
        "image": "registry.example/app:1",
        "ports": [{"containerPort": 8080}],
        "env": [{"name": f"SETTING_{index}", "value": "value" * 4} for index in range(10)],
        "resources": RESOURCES,
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
    }
    metadata = {"name": f"{app}-{number}", "namespace": namespace(number), "labels": {"app": app, INJECT: "true"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"serviceAccountName": "app", "containers": [container]},
    }


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

    async def fill_routes(self) -> None:
        """Create TrafficSplits and HTTPRoutes."""
        splits = (webhooks.split(namespace(number), number) for number in range(webhooks.OBJECTS))
        await self._all(self._create(f"/apis/{webhooks.SPLITS}", "trafficsplits", item) for item in splits)
        routes = (webhooks.route(namespace(number), number) for number in range(webhooks.OBJECTS))
        await self._all(self._create(f"/apis/{webhooks.GATEWAY_API}", "httproutes", item) for item in routes)

    async def write_statuses(self, number: int, heartbeat: str) -> None:
        """Write the statuses of the first `number` pods."""
        await self._all(
            self._client.merge(
                f"/api/v1/namespaces/{namespace(item)}/pods/service-{item % SERVICES}-{item}/status",
                {"status": status(item, heartbeat)},
            )
            for item in range(number)
        )

    async def make_unready(self, number: int) -> None:
        """Mark one pod as unready in each of the first `number` EndpointSlices, one after another."""
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

    def __init__(self, server: KubeApiServer, log: Path) -> None:
        self._server = server
        self._log = log

    async def __aenter__(self) -> Self:
        self.began = time.monotonic()
        self._process = replica.start(self._server, self._log)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(self._process.wait)

    @property
    def seconds(self) -> float:
        """Processor time so far. Raises RuntimeError if the process has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the replica ended:\n{self._log.read_text()[-2000:]}")
        return cpu_seconds(self._process.pid)

    async def is_ready(self) -> bool:
        """Return whether the replica has compiled all objects, according to its readiness endpoint."""
        _ = self.seconds
        return await asyncio.to_thread(replica.is_ready, self._server.webhook_port)

    async def rest(self) -> None:
        """Wait until the replica has no work left."""
        last = 0.0
        while self.seconds > last + QUIET_S:
            last = self.seconds
            await asyncio.sleep(1)

    def mebibytes(self, field: str) -> float:
        """Return a size of the process: VmRSS, or VmHWM for the peak."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


async def measure() -> None:
    """Fill the cluster, start a replica, and print the measurements."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory, started(Path(directory)) as api:
        await install(api, webhooks=False)
        async with api.client() as client:
            world = World(client)
            began = time.monotonic()
            await world.fill()
            print(f"{SERVICES} Services, {PODS} pods; written in {time.monotonic() - began:.0f} s", flush=True)
            async with Replica(api, Path(directory, "replica.log")) as process:
                async for line in _measured(world, process):
                    print(line, flush=True)
                await world.fill_routes()
                await process.rest()
                await install(api)
                while not await asyncio.to_thread(has_bundle, api):
                    await asyncio.sleep(POLL_S)
                await process.rest()
                server = f"https://127.0.0.1:{api.webhook_port}"
                print(f"{webhooks.OBJECTS} TrafficSplits, {webhooks.OBJECTS} HTTPRoutes", flush=True)
                async for line in webhooks.measured(client, server, new_pod(0), namespace, lambda: process.seconds):
                    print(line, flush=True)


async def _measured(world: World, process: Replica) -> AsyncIterator[str]:
    """Yield a line of text for each measurement."""
    while not await process.is_ready():
        await asyncio.sleep(POLL_S)
    took = time.monotonic() - process.began
    yield f"start: ready in {took:.1f} s, with {process.seconds:.1f} s of processor time"
    yield f"memory: {process.mebibytes('VmRSS'):.0f} MiB, peak {process.mebibytes('VmHWM'):.0f} MiB"
    await process.rest()
    took = time.monotonic() - process.began
    yield f"certificates of all pods: issued after {took:.0f} s, {process.seconds:.1f} s of processor time in total"
    yield f"memory: {process.mebibytes('VmRSS'):.0f} MiB, peak {process.mebibytes('VmHWM'):.0f} MiB"
    before = process.seconds
    await asyncio.sleep(IDLE_S)
    yield f"idle: {(process.seconds - before) / IDLE_S:.1%} of a processor"
    before = process.seconds
    await world.write_statuses(STATUSES, "Heartbeat")
    await asyncio.sleep(2)
    yield f"a pod's status that does not concern the mesh: {(process.seconds - before) / STATUSES * 1000:.2f} ms"
    before = process.seconds
    await world.make_unready(CHANGES)
    await asyncio.sleep(2)
    yield f"an unready pod: {(process.seconds - before) / CHANGES * 1000:.1f} ms"
