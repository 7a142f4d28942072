"""Runs one pod as a kubelet does, from its binding to this machine until its object is gone."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headgate import control_groups
from headgate.admission.injection import EXPLICIT, TRANSPARENT, shares_network
from headgate.errors import Conflict, DecodeError, NotFound
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Store
from headgate.resources.core.pod import ENDED, parse_process_identity
from headgate.resources.core.pod_metadata import EXTERNAL, PROCESS, SIDECAR, STOP_PROCESS, sidecar_mode
from headgate.resources.core.pod_spec import Container, Pod, is_native_sidecar
from headgate.resources.decode import read
from headgate.resources.meta import Object, epoch_seconds, part
from headgate.resources.registry import key_of
from headgate.standalone.isolation import MountSupport
from headgate.standalone.network.pod_network import PodNetwork, PodNetworks, way_to_own_network
from headgate.standalone.pods import application_ports, leftovers
from headgate.standalone.pods.application_ports import ApplicationPorts, PortMap, port_variables
from headgate.standalone.pods.binding import bound, without_finalizer
from headgate.standalone.pods.container_order import PodContainers
from headgate.standalone.pods.containers import ContainerRun, ExternalRun
from headgate.standalone.pods.environment import named_sources, runtime_variables
from headgate.standalone.pods.launches import Launches, LaunchServices
from headgate.standalone.pods.logs import pod_directory
from headgate.standalone.pods.runs import ConfigError, ContainerState, Run, RunSettings, Severity
from headgate.standalone.pods.sidecars import ProxyServices, RunningSidecar, proxy_variables
from headgate.standalone.pods.status import DEADLINE_EXCEEDED, SIDECAR_READY, ObservedPod, pod_status, terminations
from headgate.standalone.pods.users import proxy_group
from headgate.standalone.processes import Launch

# Seconds for requests in flight, after the last proxy has acknowledged that it stops routing to the process. On a busy machine
# its workers follow late, and requests take longer: half a second was not always enough.
DRAIN = 1.0


class PodServices(NamedTuple):
    """The services that all pods of a machine share: the store, Events, the state directory, ports and proxies."""

    store: Store
    recorder: EventRecorder
    state: Path
    ports: ApplicationPorts
    proxying: ProxyServices
    mounting: MountSupport
    networks: PodNetworks | None = None


class PodRun:
    """Runs one pod. `update` sets a newer version of its object; `run` ends when the object is gone."""

    def __init__(self, services: PodServices, pod: Object, address: str) -> None:
        self.key = key_of(pod)
        self.uid: str = pod["metadata"]["uid"]
        self.address = address
        self._services = services
        self._pod = pod
        self._typed = read(pod, Pod)
        self._expired = False
        self._directory = pod_directory(services.state, self.key, self.uid)
        self._network = PodNetwork(
            services.networks, address, shares=shares_network(pod), proxy_group=proxy_group(self._typed)
        )
        launch_services = LaunchServices(services.store, services.state, services.mounting)
        self._launches = Launches(launch_services, self._directory, address, self, self._network)
        self._terminating = asyncio.Event()
        self._gone = asyncio.Event()
        self._status_changed = asyncio.Event()
        self._volumes_stale = asyncio.Event()
        self._port_map: PortMap = {}
        self.sidecar: RunningSidecar | None = None
        if self._annotation(SIDECAR) == EXPLICIT:
            held = application_ports.from_annotation(self._typed.metadata)
            self._port_map = services.ports.assign(self.uid, application_ports.sidecar_ports(self._typed, held))
        if sidecar_mode(pod):
            self.sidecar = RunningSidecar(services.proxying, self.key, self._directory, self, self._network)
        self._external = self._annotation(PROCESS) == EXTERNAL
        self._plan_runs()
        self.update(pod)

    def _plan_runs(self) -> None:
        spec = self._typed.spec
        self.runs = PodContainers(
            [self._container(container) for container in spec.init_containers],
            [self._run(container) for container in spec.containers],
        )

    @property
    def adopted(self) -> bool:
        """Whether the pod has a process that an earlier headgate started."""
        return any(run.adopted for run in self.runs)

    def update(self, pod: Object) -> None:
        """Use a newer version of the object."""
        if pod["metadata"].get("deletionTimestamp"):
            self._terminating.set()
        self._pod = pod
        before = self._typed.metadata
        with contextlib.suppress(DecodeError):  # an invalid edit does not affect running containers
            self._typed = read(pod, Pod)
        metadata = self._typed.metadata
        if (metadata.labels, metadata.annotations) != (before.labels, before.annotations):
            self._volumes_stale.set()

    def source_changed(self, kind: str, name: str) -> None:
        """Write the volumes again if the pod uses a ConfigMap or Secret that has changed."""
        if (kind, name) in named_sources(self._typed):
            self._volumes_stale.set()

    def mark_deleted(self) -> None:
        """Record that the object is gone, for example after a forced deletion, so that the processes end at once."""
        self._gone.set()
        self._terminating.set()

    async def bind(self) -> None:
        """Bind the pod to this machine, adopt its running processes, and write its status."""
        # A pod that already has the finalizer was bound earlier, and its processes have their ports.
        if STOP_PROCESS not in (self._pod["metadata"].get("finalizers") or ()):
            await self._assign_service_ports()
        await self._edit(self._bind)
        if self._typed.status.phase in ENDED:  # its status is final
            return
        exclusions = application_ports.exclusions(self._typed.metadata)
        redirected = exclusions if self._annotation(SIDECAR) == TRANSPARENT else None
        await leftovers.join_network(self._directory, self._network, redirected)
        if self.sidecar:
            conditions = {condition.type: condition.status for condition in self._typed.status.conditions}
            await self.sidecar.recover(serves=conditions.get(SIDECAR_READY) == "True")
        await self.runs.recover(self._typed, dict(terminations(self._pod)))
        await self._write_status()

    async def run(self) -> None:
        """Run until the pod's object is gone. Cancellation leaves the processes running for the next headgate."""
        async with asyncio.TaskGroup() as tasks:
            if self._typed.status.phase in ENDED:
                await leftovers.end(leftovers.containers_of(self._directory))  # of a killed headgate
                await self._end_sidecar()
                await self._terminating.wait()
            else:
                if self.sidecar:
                    self.sidecar.begin(tasks)
                await self._work()
            await self._terminate()

    def detach(self) -> None:
        """Stop watching the processes, and let them run."""
        self._network.detach()
        for run in self.runs:
            run.detach()
        if self.sidecar:
            self.sidecar.detach()

    async def end(self) -> list[str]:
        """End all processes and keep the object; return a message for each process that does not end."""
        grace = 0.0 if self._external else self._grace()  # `headgate run` ends an external process
        remaining = await self.runs.end(grace)
        await self._end_sidecar()
        groups = await asyncio.to_thread(control_groups.remove, self._directory)
        if self._typed.status.phase not in ENDED:  # the status of an ended pod is final
            await self._write_status()
        processes = [
            f"pod {self.key.namespace}/{self.key.name}, container {run.settings.container.name}: "
            f"process {run.state.pid} does not end even when killed"
            for run in remaining
        ]
        return [*processes, *map(leftovers.remaining_group, groups)]

    def running(self) -> list[str]:
        """Return a description of each process that `end` still waits for."""
        return [
            f"pod {self.key.namespace}/{self.key.name} (container {run.settings.container.name}, process {run.state.pid})"
            for run in self.runs
            if run.live and not self._external
        ]

    def kill(self) -> None:
        """Kill all processes, even while `end` waits for them."""
        for run in self.runs:
            run.kill()

    async def prepare(self, container: Container) -> Launch:
        """Write the volumes of a container; return how to start it. Raises ConfigError."""
        shared = {} if self._network.is_own else self._services.proxying.variables
        variables = {**shared, **self._variables(container)}
        return await self._launches.prepare(self._typed, container, variables)

    def _variables(self, container: Container) -> dict[str, str]:
        """Return port variables and proxy variables if the pod has a sidecar, and the `runtime_variables`.

        Of variables with the same name, the last one in this order wins.
        """
        own = port_variables(self._typed, container, self._port_map)
        beside = own | proxy_variables(self.address) if self.sidecar and not self._network.is_own else {}
        return {**beside, **runtime_variables(self._typed, container, self.address)}

    def changed(self) -> None:
        """Trigger a write of the status, because the state of a container or of the sidecar has changed."""
        self._status_changed.set()

    async def record_event(self, type: Severity, reason: str, message: str) -> None:
        """Write an Event about the pod. If the status is out of date, write the status first."""
        if self._status_changed.is_set():
            self._status_changed.clear()
            await self._write_status()
        await self._services.recorder.record(self._pod, type=type, reason=reason, message=message)

    def _run(self, container: Container) -> Run:
        identity = parse_process_identity(self._typed.metadata) if self._external else None
        return ExternalRun(self._plan(container), self, identity) if identity else self._container(container)

    def _container(self, container: Container) -> ContainerRun:
        return ContainerRun(self._plan(container), self)

    def _plan(self, container: Container) -> RunSettings:
        policy = self._typed.spec.restart_policy
        is_init = container in self._typed.spec.init_containers
        is_sidecar = is_init and is_native_sidecar(container)
        restart = "Always" if is_sidecar else "OnFailure" if is_init and policy == "Always" else policy
        runs = application_ports.with_process_ports(container, self._port_map)
        uses_host = bool(part(self._pod, "spec").get("hostNetwork"))
        own_network = way_to_own_network(uses_host=uses_host, own_networks=self._services.networks is not None)
        advice = application_ports.listen_advice(self._typed, runs, self._port_map, own_network=own_network)
        led = (
            application_ports.undeclared(self._typed, self._port_map)
            if container is application_ports.listener(self._typed)
            else {}
        )
        directory = self._directory / container.name
        settings = RunSettings(runs, directory, self.address, restart, self._grace(), advice, led, is_sidecar)
        return settings._replace(network=self._network, own_network=own_network)

    def _annotation(self, name: str) -> str:
        return self._typed.metadata.annotations.get(name, "")

    def _grace(self) -> float:
        return float(max(self._typed.spec.termination_grace_period_seconds, 0))

    async def _work(self) -> None:
        """Run the containers and write the status until the pod terminates."""
        async with asyncio.TaskGroup() as tasks:
            reporting = tasks.create_task(self._report())
            refreshing = tasks.create_task(self._refresh_volumes())
            containers = tasks.create_task(self._run_containers())
            expiring = tasks.create_task(self._expire(containers))
            await self._terminating.wait()
            containers.cancel()
            reporting.cancel()
            refreshing.cancel()
            expiring.cancel()

    async def _expire(self, containers: asyncio.Task[None]) -> None:
        """End the containers that run longer than activeDeadlineSeconds; the pod has failed then."""
        limit = self._typed.spec.active_deadline_seconds
        if limit is None:
            return
        started = (self._pod.get("status") or {}).get("startTime")
        began = epoch_seconds(started) if started else time.time()
        done, _ = await asyncio.wait({containers}, timeout=max(began + limit - time.time(), 0.0))
        if done:
            return
        containers.cancel()
        await asyncio.wait({containers})
        self._expired = True
        await self._write_status()
        await self.record_event("Warning", DEADLINE_EXCEEDED, f"Pod was active longer than its {limit} s")
        await self.runs.end(self._grace())
        await self._end_sidecar(patience=self._grace())
        await self._write_status()

    async def _run_containers(self) -> None:
        await self._run_to_the_end()
        if self._external:
            with contextlib.suppress(Conflict, NotFound):
                await self._services.store.delete(self.key, uid=self.uid)
        else:
            await self._end_sidecar(patience=self._grace())

    async def _run_to_the_end(self) -> None:
        if self.sidecar and not self.runs.has_begun:
            await self.sidecar.wait_ready()
            # A Service may be newer than the pod's ports.
            if not self._external and await self._assign_service_ports():
                await self._edit(self._bind)
        await self.runs.run()

    async def _end_sidecar(self, *, patience: float = 0.0) -> None:
        """End the sidecar, after up to `patience` seconds for its last metrics report, and then the network of the pod."""
        if self.sidecar:
            if patience > 0:
                await self.sidecar.report(patience)
            await self.sidecar.stop()
        await self._network.leave()

    async def _report(self) -> None:
        while True:
            await self._status_changed.wait()
            self._status_changed.clear()
            await self._write_status()

    async def _refresh_volumes(self) -> None:
        """Write the volumes again when what they show has changed, so that running containers see it."""
        while True:
            await self._volumes_stale.wait()
            self._volumes_stale.clear()
            if not self.runs.live:
                continue  # the next start of a container writes them
            try:
                await self._launches.refresh(self._typed)
            except (ConfigError, OSError) as error:
                message = f"{error}; running containers keep the files of before"
                await self.record_event("Warning", "FailedMount", message)

    async def _terminate(self) -> None:
        """End the processes. First wait until no proxy routes to the pod, so that no request is lost."""
        began = time.monotonic()
        if not self._gone.is_set() and self.runs.live:
            await self._write_status()
            await self._until_unrouted(self._grace())
        left = max(self._grace() - (time.monotonic() - began), 1.0)
        await self.runs.end(left)
        # The sidecar ends after the processes, so that it forwards and counts their last requests.
        await self._end_sidecar(patience=0.0 if self._gone.is_set() else self._grace() - (time.monotonic() - began))
        await leftovers.remove_directory(self._directory)
        await self._edit(without_finalizer)

    async def _until_unrouted(self, grace: float) -> None:
        gone = asyncio.create_task(self._gone.wait())
        drained = asyncio.create_task(self._drained())
        done, waiting = await asyncio.wait({gone, drained}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        for task in done:
            task.result()

    async def _drained(self) -> None:
        await self._services.proxying.wait_unrouted(self.address)
        await asyncio.sleep(DRAIN)

    async def _edit(self, edit: Callable[[Object], Object]) -> None:
        """Write an edit of the current object, retrying after conflicts; skip the write if nothing changes."""
        for _ in range(5):
            pod = await self._read()
            if pod is None or (edited := edit(pod)) == pod:
                return
            with contextlib.suppress(Conflict, NotFound):
                self.update(await self._services.store.update(edited))

    async def _assign_service_ports(self) -> bool:
        """Add the targetPorts of current Services to the sidecar's ports (D26); return whether there are new ones.

        Call it only while no process of the pod runs: processes get their ports when they start.
        """
        if self._annotation(SIDECAR) != EXPLICIT:
            return False
        services = (await self._services.store.list("", "Service", self.key.namespace)).items
        led = application_ports.service_ports(
            self._typed, application_ports.decode_services(services), lowest=self._services.proxying.lowest_port
        )
        ports = application_ports.sidecar_ports(self._typed, (*self._port_map, *led))
        if not set(ports) - set(self._port_map):
            return False
        self._port_map = self._services.ports.assign(self.uid, ports)
        self._plan_runs()
        return True

    def _bind(self, pod: Object) -> Object:
        return bound(pod, self._port_map)

    async def _write_status(self) -> None:
        pod = await self._read()
        if pod is None:
            return
        self.update(pod)
        states: dict[str, ContainerState] = {run.settings.container.name: run.state for run in self.runs}
        fault = self.sidecar.fault.get() if self.sidecar else None
        status = pod_status(pod, self._typed, states, ObservedPod(self.address, time.time(), fault, self._expired))
        try:
            await self._services.store.update({**pod, "status": status}, subresource="status")
        except Conflict:
            self._status_changed.set()
        except NotFound:
            return

    async def _read(self) -> Object | None:
        """Read the pod's object; return None if it is gone, or if a newer pod has its name."""
        try:
            pod = await self._services.store.get(self.key)
        except NotFound:
            return None
        return pod if pod["metadata"]["uid"] == self.uid else None
