"""Run a mesh whose controllers are those of one machine: only the programs of pods and the proxies are missing.

The kubelet gives each pod its ports and its address, and makes it ready at once. Nothing changes without a write.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cli.conftest import ServedMesh, serving

from headgate.admission.chain import admission, object_check
from headgate.admission.injection import explicit_sidecars
from headgate.api.certificate import CertificateFiles
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.errors import NotFound
from headgate.history.revisions import Log, applied
from headgate.latest import Latest, until
from headgate.objects.events import EventRecorder
from headgate.objects.gateways import ensure_class
from headgate.objects.lifecycle import now, with_metadata
from headgate.objects.ports import Change, Ports, follow
from headgate.plane.history_recorder import HistoryRecorder
from headgate.resources.core.pod_metadata import APPLICATION_PORTS, SIDECAR
from headgate.resources.core.pod_spec import Pod
from headgate.resources.decode import read
from headgate.resources.gateway_api.gateway import CONTROLLER, GROUP
from headgate.resources.meta import Object, part
from headgate.resources.registry import CANARY, TRAFFIC_SPLIT, find_written, key_of
from headgate.rollout.controller import RolloutController
from headgate.settings import Settings
from headgate.standalone.address_pool import FIRST_RANGE, AddressPool
from headgate.standalone.controllers.controllers import Controllers
from headgate.standalone.controllers.gateways import GatewayAddresses
from headgate.standalone.controllers.services import service_admission, track_cluster_ips
from headgate.standalone.pods import application_ports
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.increments import Increments

PORTS = range(20_000, 30_000)
SLICES = ("discovery.k8s.io", "EndpointSlice")


class LivingMesh(ServedMesh):
    """A served mesh with the controllers of one machine, a recorded history, and pods that are ready at once."""

    def __init__(self, state: Path, settings: Settings) -> None:
        self.addresses = AddressPool(FIRST_RANGE)
        self._ports = application_ports.ApplicationPorts(PORTS, free=lambda _: True)
        admit = admission(explicit_sidecars("all"), {("v1", "Service"): service_admission(self.addresses)})
        store = MemoryStore(check=object_check(settings), admit=admit, kept=track_cluster_ips(self.addresses))
        super().__init__(store, state, "all")

    @property
    def compiled(self) -> Compiled:
        found = self.live_state.loop.compiled.get()
        assert found
        return found

    @property
    def objects(self) -> Snapshot:
        found = self.live_state.feed.snapshot.get()
        assert found
        return found

    @property
    def log(self) -> Log:
        return self.live_state.history.get() or Log()

    async def put(self, obj: Object) -> None:
        """Create or replace an object, as its user writes it."""
        kind = find_written(obj["apiVersion"], obj["kind"])
        assert kind
        key = kind.key(obj["metadata"].get("namespace", "default"), obj["metadata"]["name"])
        hub = self.store.checked(obj).hub
        assert hub, self.store.checked(obj)
        try:
            old = await self.store.get(key)
        except NotFound:
            await self.store.create(hub)
            return
        kept = {name: old["metadata"][name] for name in ("uid",)}
        await self.store.update({**hub, "metadata": {**hub["metadata"], **kept}})

    async def replace_pods(self) -> None:
        """Delete the pods of Deployments, whose controllers create them again."""
        for pod in (await self.store.list("", "Pod")).items:
            if pod["metadata"].get("ownerReferences"):
                await self.store.delete(key_of(pod))

    async def settled(self) -> None:
        """Wait until all controllers have done their work, and its result is compiled and recorded."""
        async with asyncio.timeout(60):
            while await self.unfinished():
                next_batch = self.live_state.feed.seen.next_change()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(next_batch.wait(), 0.05)  # some objects, such as Deployments, have no feed
            await self.live_state.wait_compiled()
            await until(self._is_recorded, self.live_state.history)

    def _is_recorded(self) -> bool:
        """Return whether the history has all objects as they are: it is written after the compilation."""
        records = self.live_state.feed.records
        return applied(self.log.base, self.log.revisions) == {key: record.content for key, record in records.items()}

    async def unfinished(self) -> str:
        """Return what a controller has still to do; empty if there is nothing."""
        for work in (self._pods(), self._endpoints(), self._canaries(), self._gateways()):
            async for undone in work:
                return undone
        return ""

    async def _pods(self) -> AsyncIterator[str]:
        pods = (await self.store.list("", "Pod")).items
        owned = (
            *(await self.store.list("apps", "Deployment")).items,
            *(await self.store.list("apps", "ReplicaSet")).items,
        )
        for obj in owned:
            number = len([pod for pod in pods if _belongs(pod, obj)])
            if number != obj["spec"]["replicas"]:
                yield f"{key_of(obj)} has {number} pods"
        for pod in pods:
            if not part(pod, "status").get("podIP"):
                yield f"{key_of(pod)} has no address"

    async def _endpoints(self) -> AsyncIterator[str]:
        pods, slices = (await self.store.list("", "Pod")).items, (await self.store.list(*SLICES)).items
        for obj in (await self.store.list("", "Service")).items:
            if wanted := obj["spec"].get("selector"):
                names = sorted(
                    pod["metadata"]["name"]
                    for pod in pods
                    if pod["metadata"]["namespace"] == obj["metadata"]["namespace"]
                    and wanted.items() <= part(pod["metadata"], "labels").items()
                )
                present = _endpoints(slices, obj)
                if sorted({name for name, _ in present}) != names:
                    yield f"{key_of(obj)} has endpoints {present}"
                ports = {(port.get("name", ""), port["targetPort"]) for port in obj["spec"]["ports"]}
                if present and {port for _, port in present} != ports:
                    yield f"{key_of(obj)} has ports {present}"

    async def _canaries(self) -> AsyncIterator[str]:
        for obj in (await self.store.list(CANARY.group, CANARY.kind)).items:
            metadata, split = obj["metadata"], {}
            with contextlib.suppress(NotFound):
                split = dict(await self.store.get(TRAFFIC_SPLIT.key(metadata["namespace"], metadata["name"])))
            backends = part(split, "spec").get("backends") or ()
            if [item["weight"] for item in backends] != [item["weight"] for item in obj["spec"]["backends"]]:
                yield f"{key_of(obj)} has a split with other weights"

    async def _gateways(self) -> AsyncIterator[str]:
        classes = (await self.store.list(GROUP, "GatewayClass")).items
        own = {item["metadata"]["name"] for item in classes if item["spec"]["controllerName"] == CONTROLLER}
        for obj in (await self.store.list(GROUP, "Gateway")).items:
            if obj["spec"]["gatewayClassName"] in own and not part(obj, "status").get("addresses"):
                yield f"{key_of(obj)} has no address"

    async def run_kubelet(self) -> None:
        """Give each new pod its ports and its address."""
        async for step in follow(self.store, "", "Pod"):
            for pod in [step.object] if isinstance(step, Change) else step.items:
                if not part(pod, "status").get("podIP"):
                    with contextlib.suppress(NotFound):
                        await self._start(await self.store.get(key_of(pod)))

    async def _start(self, pod: Object) -> None:
        key = key_of(pod)
        annotations = part(pod["metadata"], "annotations")
        if annotations.get(SIDECAR) == "explicit":
            services = application_ports.decode_services((await self.store.list("", "Service", key.namespace)).items)
            typed = read(pod, Pod)
            ports = application_ports.sidecar_ports(typed, application_ports.service_ports(typed, services))
            taken = application_ports.to_annotation(self._ports.assign(pod["metadata"]["uid"], ports))
            pod = await self.store.update(with_metadata(pod, annotations={**annotations, APPLICATION_PORTS: taken}))
        address = self.addresses.allocate(pod["metadata"]["uid"], "pods")
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": now()}
        status = {"phase": "Running", "podIP": address, "conditions": [condition]}
        await self.store.update({**pod, "status": status}, subresource="status")


def _belongs(pod: Object, workload: Object) -> bool:
    """Return whether a pod has the current template of a Deployment or ReplicaSet."""
    template = part(part(workload, "spec"), "template")
    owners: Sequence[Mapping[str, Any]] = pod["metadata"].get("ownerReferences") or ()
    return (
        pod["metadata"]["namespace"] == workload["metadata"]["namespace"]
        and part(template, "metadata").get("labels", {}).items() <= part(pod["metadata"], "labels").items()
        and part(pod, "spec").get("serviceAccountName") == part(template, "spec").get("serviceAccountName")
        and any(owner["name"].startswith(workload["metadata"]["name"]) for owner in owners)
        and _ports(part(template, "spec")) <= _ports(part(pod, "spec"))
    )


def _ports(spec: Object) -> set[int]:
    return {port["containerPort"] for item in spec["containers"] for port in item.get("ports") or ()}


def _endpoints(slices: Collection[Object], service: Object) -> set[tuple[str, tuple[str, int]]]:
    """Return the pods and ports of a Service's slices."""
    return {
        (endpoint["targetRef"]["name"], (port["name"], port["port"]))
        for item in slices
        if item["metadata"]["namespace"] == service["metadata"]["namespace"]
        and part(item["metadata"], "labels").get("kubernetes.io/service-name") == service["metadata"]["name"]
        for endpoint in item["endpoints"]
        if "targetRef" in endpoint
        for port in item["ports"]
    }


@contextlib.asynccontextmanager
async def living(state: Path, certificate: CertificateFiles, settings: Settings) -> AsyncIterator[LivingMesh]:
    """Run a mesh with its controllers in this process."""
    state.mkdir()
    mesh = LivingMesh(state, settings)
    async with serving(mesh, certificate, settings), asyncio.TaskGroup() as tasks:
        events = EventRecorder(mesh.store, "headgate")
        ports = Ports(mesh.store, events, Latest(value=True))
        await ensure_class(mesh.store, "")
        rollouts = RolloutController(ports, Increments(), mesh.live_state.feed.snapshot, settings.domain)
        parts = (
            HistoryRecorder(ports, mesh.live_state).run(),
            Controllers(mesh.store, events).run(),
            GatewayAddresses(mesh.store, mesh.addresses).run(),
            rollouts.run(),
            mesh.run_kubelet(),
        )
        started = [tasks.create_task(work) for work in parts]
        await mesh.settled()
        yield mesh
        for task in started:
            task.cancel()
