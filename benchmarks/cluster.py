"""Measure a control plane on a cluster with 1,000 Services and 10,000 pods: start, memory, processor time and webhooks.

A real API server with its etcd runs on this machine; KUBEBUILDER_ASSETS is the directory of the binaries. No kubelet
runs, so the pods have the statuses that this program writes. One replica of the control plane is a process of its own.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from benchmarks import webhooks
from benchmarks.load import cpu_seconds
from benchmarks.webhooks import team
from tests.cluster import replica
from tests.cluster.api_server import KubeApiServer, end, started
from tests.cluster.installation import has_bundle, install
from tests.make import objects
from tests.make.objects import Object

from headgate.admission.sidecar_containers import SidecarOptions, with_transparent_sidecar
from headgate.kubernetes.client import Client
from headgate.resources.core.pod_metadata import INJECT

WRITERS = 16  # concurrent requests of this program
SLICES = "discovery.k8s.io/v1beta1"
POLL_S = 0.1
QUIET_S = 0.05  # a replica that uses less processor time than this in a second has no work left
SIDECAR = SidecarOptions(image="headgate", xds="headgate.headgate-system.svc:15010")
RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}


class Scale(NamedTuple):
    """The numbers of Services and pods, and of changes.

    `statuses` are changes to pods' statuses that do not concern the mesh, such as those of kubelets. `unready` pods become
    unready, one after another. `idle` has the seconds without a change.
    """

    services: int
    pods: int
    statuses: int
    unready: int
    idle: float
    webhooks: webhooks.Scale


USUAL = Scale(
    1000, 10_000, statuses=1000, unready=100, idle=20, webhooks=webhooks.Scale(1000, reviews=200, dry_runs=100)
)
SMALLEST = Scale(2, 2, statuses=1, unready=1, idle=0.5, webhooks=webhooks.Scale(1, reviews=1, dry_runs=1))


def address(number: int) -> str:
    """Return the address of the pod with a number."""
    return f"10.128.{number // 250}.{number % 250 + 1}"


def numbered_service(number: int) -> Object:
    """Return a Service."""
    name = f"service-{number}"
    return objects.service(name, objects.port(8080, "http"), selector={"app": name}, namespace=team(number))


def new_pod(number: int, services: int) -> Object:
    """Return a pod of one of the Services as a user writes it, with the label for a sidecar."""
    app = f"service-{number % services}"
    container = objects.container(
        "app",
        8080,
        image="registry.example/app:1",
        env=[{"name": f"SETTING_{index}", "value": "value" * 4} for index in range(10)],
        resources=RESOURCES,
        readinessProbe={"httpGet": {"path": "/healthz", "port": 8080}},
    )
    labels = {"app": app, INJECT: "true"}
    return objects.pod(f"{app}-{number}", account="app", containers=[container], labels=labels, namespace=team(number))


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


def endpoints(number: int, scale: Scale, *, unready: int = -1) -> Object:
    """Return the EndpointSlice of a Service; the pod `unready` is not ready."""
    name, place = f"service-{number}", team(number)
    pods = range(number, scale.pods, scale.services)
    return objects.endpoint_slice(
        name,
        [objects.endpoint(address(n), f"{name}-{n}", namespace=place, ready=n != unready) for n in pods],
        {"http": 8080},
        name=f"{name}-1",
        namespace=place,
        version=SLICES,
    )


class ObjectWriter:
    """Writes objects to the API server, `WRITERS` at a time."""

    def __init__(self, client: Client, scale: Scale) -> None:
        self._client = client
        self._scale = scale

    async def fill(self) -> None:
        """Create all objects."""
        services, pods = range(self._scale.services), range(self._scale.pods)
        places = (objects.namespace(team(number)) for number in range(webhooks.NAMESPACES))
        await self._all(self._client.post("/api/v1/namespaces", place) for place in places)
        await self._all(self._create("/api/v1", "services", numbered_service(number)) for number in services)
        slices = (endpoints(number, self._scale) for number in services)
        await self._all(self._create(f"/apis/{SLICES}", "endpointslices", item) for item in slices)
        injected = (with_transparent_sidecar(new_pod(number, len(services)), SIDECAR) for number in pods)
        await self._all(self._create("/api/v1", "pods", pod) for pod in injected)
        await self.write_statuses(len(pods), "Started")

    async def fill_routes(self) -> None:
        """Create TrafficSplits and HTTPRoutes."""
        numbers = range(self._scale.webhooks.objects)
        splits = map(webhooks.numbered_split, numbers)
        await self._all(self._create(f"/apis/{webhooks.SPLITS}", "trafficsplits", item) for item in splits)
        routes = map(webhooks.numbered_route, numbers)
        await self._all(self._create(f"/apis/{webhooks.GATEWAY_API}", "httproutes", item) for item in routes)

    async def write_statuses(self, number: int, heartbeat: str) -> None:
        """Write the statuses of the first `number` pods."""
        await self._all(
            self._client.merge(
                f"/api/v1/namespaces/{team(item)}/pods/service-{item % self._scale.services}-{item}/status",
                {"status": status(item, heartbeat)},
            )
            for item in range(number)
        )

    async def make_unready(self, number: int) -> None:
        """Mark one pod as unready in each of the first `number` EndpointSlices, one after another."""
        for item in range(number):
            path = f"/apis/{SLICES}/namespaces/{team(item)}/endpointslices/service-{item}-1"
            await self._client.merge(path, {"endpoints": endpoints(item, self._scale, unready=item)["endpoints"]})

    async def _create(self, root: str, plural: str, obj: Mapping[str, Any]) -> None:
        await self._client.post(f"{root}/namespaces/{obj['metadata']['namespace']}/{plural}", obj)

    async def _all(self, calls: Iterable[Any]) -> None:
        waiting = iter(calls)

        async def write() -> None:
            for call in waiting:
                await call

        async with asyncio.TaskGroup() as tasks:
            for _ in range(WRITERS):
                tasks.create_task(write())


class MeasuredReplica:
    """A replica of the control plane that runs as a process."""

    def __init__(self, server: KubeApiServer, log: Path) -> None:
        self._server = server
        self._log = log

    async def __aenter__(self) -> Self:
        self.began = time.monotonic()
        self._process = replica.start(self._server, self._log)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(end, self._process)

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


async def measure(scale: Scale) -> None:
    """Fill the cluster, start a replica, and print the measurements."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory, started(Path(directory)) as server:
        async with server.client() as client:
            writer = ObjectWriter(client, scale)
            began = time.monotonic()
            await writer.fill()
            took = time.monotonic() - began
            print(f"{scale.services} Services, {scale.pods} pods; written in {took:.0f} s", flush=True)
            await install(server)  # now, so that no webhook is called for the objects before
            async with MeasuredReplica(server, Path(directory, "replica.log")) as measured:
                async for line in _measured(writer, measured, scale):
                    print(line, flush=True)
                while not await asyncio.to_thread(has_bundle, server):
                    await asyncio.sleep(POLL_S)
                await writer.fill_routes()
                await measured.rest()
                url = f"https://127.0.0.1:{server.webhook_port}"
                print(f"{scale.webhooks.objects} TrafficSplits, {scale.webhooks.objects} HTTPRoutes", flush=True)
                pod = new_pod(0, scale.services)
                async for line in webhooks.measured(client, url, pod, lambda: measured.seconds, scale.webhooks):
                    print(line, flush=True)


async def _measured(writer: ObjectWriter, process: MeasuredReplica, scale: Scale) -> AsyncIterator[str]:
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
    await asyncio.sleep(scale.idle)
    yield f"idle: {(process.seconds - before) / scale.idle:.1%} of a processor"
    before = process.seconds
    await writer.write_statuses(scale.statuses, "Heartbeat")
    await process.rest()
    yield f"a pod's status that does not concern the mesh: {(process.seconds - before) / scale.statuses * 1000:.2f} ms"
    before = process.seconds
    await writer.make_unready(scale.unready)
    await process.rest()
    yield f"an unready pod: {(process.seconds - before) / scale.unready * 1000:.1f} ms"
