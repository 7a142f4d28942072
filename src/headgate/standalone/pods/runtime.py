"""The local runtime: runs workloads, Pods and Services on one machine, with processes in place of containers.

Processes survive headgate: they keep running when `run` is canceled or headgate is killed, and the next runtime with the
same state directory adopts them. `stop` ends them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from headgate import control_groups
from headgate.admission.workloads import workload_causes
from headgate.backoff import Backoff
from headgate.errors import DecodeError, NotFound, expected_failure
from headgate.latest import Latest
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Relist, Store, follow, follow_all
from headgate.resources.core.pod_metadata import STOP_PROCESS
from headgate.resources.core.pod_spec import Pod
from headgate.resources.decode import read
from headgate.resources.meta import Key, Object
from headgate.resources.registry import POD, key_of
from headgate.standalone.address_pool import AddressPool, NoAddress
from headgate.standalone.controllers.controllers import Controllers
from headgate.standalone.isolation import MountSupport
from headgate.standalone.machine_node import NODE_NAME, MachineNode, is_bound
from headgate.standalone.network.pod_network import PodNetworks
from headgate.standalone.pods import application_ports, leftovers
from headgate.standalone.pods.application_ports import ApplicationPorts
from headgate.standalone.pods.claims import Claims
from headgate.standalone.pods.logs import Logs, rotate_logs
from headgate.standalone.pods.pod import PodRun, PodServices
from headgate.standalone.pods.runs import Run
from headgate.standalone.pods.sidecars import ProxyServices, node_id
from headgate.standalone.proxies.admin import Admin
from headgate.standalone.proxies.envoy_process import EnvoyState

log = logging.getLogger(__name__)
COMPONENT = "headgate-local"
_ROTATE = 10.0  # Seconds between checks of log sizes.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 5.0  # before headgate runs a pod again after an error


class LocalRuntime:
    """Runs the pods of a store as processes and keeps workloads and EndpointSlices up to date.

    `failures` has the reason for each pod, by uid, that headgate could not run and will try again. Once `corrected`, the
    statuses of pods of an earlier headgate say what runs now.
    """

    def __init__(
        self,
        store: Store,
        state_dir: Path,
        addresses: AddressPool,
        proxies: ProxyServices,
        networks: PodNetworks | None = None,
    ) -> None:
        recorder = EventRecorder(store, COMPONENT)
        self.logs = Logs(state_dir)
        self._store = store
        self._state = state_dir
        self._addresses = addresses
        self._ports = ApplicationPorts()
        self._services = PodServices(store, recorder, state_dir, self._ports, proxies, MountSupport(), networks)
        self._claims = Claims(store, state_dir)
        self._controllers = Controllers(store, recorder)
        self._node = MachineNode(store, recorder, state_dir)
        self._runs: dict[str, PodRun] = {}
        self.failures: Latest[Mapping[str, str]] = Latest({})
        self.corrected: Latest[bool] = Latest(value=False)
        self._pods: dict[str, asyncio.Task[None]] = {}
        self._work: asyncio.Task[None] | None = None
        self._stopping = False

    def admins(self) -> Mapping[str, Admin]:
        """Return the admin interface of each sidecar by node ID."""
        return {node_id(run.key): run.sidecar.admin for run in self._runs.values() if run.sidecar}

    def sidecars(self) -> Mapping[str, EnvoyState]:
        """Return the state of each sidecar's process by node ID."""
        return {node_id(run.key): run.sidecar.process.get() for run in self._runs.values() if run.sidecar}

    def pods(self) -> Mapping[str, bool]:
        """Return, for the uid of each pod, whether it has an adopted process of an earlier headgate."""
        return {uid: run.adopted for uid, run in self._runs.items()}

    def container(self, key: Key, name: str) -> Run:
        """Return a container of a pod that runs on this machine. Raises NotFound."""
        for pod in reversed(self._runs.values()):  # a pod that ends may have a successor of its name
            for run in pod.runs if pod.key == key else ():
                if run.settings.container.name == name:
                    return run
        raise NotFound(f"container {name!r} of pod {key.name} does not run on this machine")

    def processes(self) -> dict[Key, dict[str, int]]:
        """Return the process ID of each running container, by pod and name."""
        return {
            pod.key: {run.settings.container.name: run.state.pid for run in pod.runs if run.live and run.state.pid}
            for pod in self._runs.values()
        }

    async def run(self) -> None:
        """Run until canceled or stopped. Cancellation leaves the processes running for the next runtime."""
        self._work = asyncio.create_task(self._run(), name="local runtime")
        try:
            await asyncio.wait([self._work])
        finally:
            self._work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._work
            if not self._stopping:
                for run in self._runs.values():
                    run.detach()

    async def stop(self) -> list[str]:
        """End all pods concurrently; return a message for each process that does not end."""
        self._stopping = True
        if self._work:
            self._work.cancel()
            await asyncio.wait([self._work])
        results = await asyncio.gather(*(run.end() for run in self._runs.values()), self._end_unwatched())
        return [line for result in results for line in result]

    async def _end_unwatched(self) -> list[str]:
        """End the processes of pods that wait for another attempt; return a message for each that does not end."""
        unwatched = [path for path in (self._state / "pods").glob("*_*_*") if _uid_of(path) not in self._runs]
        every = [
            leftover for path in unwatched for leftover in (*leftovers.containers_of(path), *leftovers.sidecar_of(path))
        ]
        ended = await leftovers.end(every)
        remaining = await asyncio.to_thread(control_groups.remove, *unwatched)
        lines = [
            f"{leftover.name}, process {leftover.process.identity.pid}, does not end even when killed"
            for leftover, gone in ended
            if not gone
        ]
        return [*lines, *map(leftovers.remaining_group, remaining)]

    def running(self) -> list[str]:
        """Return a description of each process that `stop` still waits for, sorted by pod."""
        return sorted(name for run in self._runs.values() for name in run.running())

    def kill(self) -> None:
        """Kill all processes, even while `stop` waits for them."""
        for run in self._runs.values():
            run.kill()

    async def _run(self) -> None:
        (self._state / "pods").mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._node.ensure()
        pods = [pod for pod in (await self._store.list("", "Pod")).items if _mine(pod)]
        await self._clean({pod["metadata"]["uid"] for pod in pods})
        self._restore_addresses(pods)
        async with asyncio.TaskGroup() as tasks:
            # Correct the statuses of adopted pods before the controllers use them.
            settled = [self._place(pod, tasks) for pod in pods]
            await asyncio.gather(*(event.wait() for event in settled))
            self.corrected.set(value=True)
            tasks.create_task(self._controllers.run())
            tasks.create_task(self._rotate())
            tasks.create_task(self._node.run())
            tasks.create_task(self._claims.run())
            tasks.create_task(self._follow_sources())
            tasks.create_task(self._watch(tasks))

    async def _clean(self, uids: set[str]) -> None:
        """End the processes of pods that no longer exist, and remove their files."""
        unwanted = [path for path in (self._state / "pods").iterdir() if _uid_of(path) not in uids]
        await asyncio.gather(*(self._remove(directory) for directory in unwanted))

    async def _remove(self, directory: Path) -> None:
        await leftovers.end([*leftovers.containers_of(directory), *leftovers.sidecar_of(directory)])
        await leftovers.remove_directory(directory)

    def _restore_addresses(self, pods: list[Object]) -> None:
        """Reserve the addresses and ports that pods already have. A pod with an unusable address gets a new one later."""
        for pod in pods:
            with contextlib.suppress(DecodeError):  # the error is reported when the pod is started
                self._ports.restore(pod["metadata"]["uid"], application_ports.from_annotation(read(pod, Pod).metadata))
            address = (pod.get("status") or {}).get("podIP", "")
            if self._addresses.covers(address, "pods"):
                with contextlib.suppress(NoAddress):
                    self._addresses.reserve(_user(pod), address)

    def _place(self, pod: Object, tasks: asyncio.TaskGroup) -> asyncio.Event:
        """Start a pod; return an event that is set when its status is up to date."""
        settled = asyncio.Event()
        uid = pod["metadata"]["uid"]
        self._pods[uid] = tasks.create_task(self._keep(pod, settled), name=f"pod {pod['metadata']['name']}")
        return settled

    async def _keep(self, pod: Object, settled: asyncio.Event) -> None:
        """Run a pod until its object is gone, and retry after errors, which never affect other pods."""
        uid, backoff = pod["metadata"]["uid"], Backoff(first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        while not await self._attempt(pod, settled):
            if uid in self._runs:
                self._runs.pop(uid).detach()
            await asyncio.sleep(backoff.next_pause())
        self._runs.pop(uid, None)
        self._note_failure(uid, "")
        self._pods.pop(uid, None)
        self._addresses.release(_user(pod))
        self._ports.release(uid)

    async def _attempt(self, pod: Object, settled: asyncio.Event) -> bool:
        uid = pod["metadata"]["uid"]
        try:
            if not is_bound(pod) and await self._node.is_cordoned():
                await self._node.mark_unschedulable(pod)
                settled.set()
                await self._node.until_schedulable(pod)
            address = self._addresses.allocate(_user(pod), "pods")
            current = await self._store.get(key_of(pod))
            if current["metadata"]["uid"] != uid:
                return True
            if causes := tuple(workload_causes(current)):
                raise DecodeError(*causes)  # noqa: TRY301 - reported below like other invalid fields
            run = self._runs[uid] = PodRun(self._services, current, address)
            await run.bind()
            self._note_failure(uid, "")
            settled.set()
            await run.run()
        except NotFound:
            return True
        except (DecodeError, NoAddress) as error:
            self._note_failure(uid, f"Invalid: {error}")
            await self._services.recorder.record(pod, type="Warning", reason="Invalid", message=str(error))
            return False
        except Exception as error:  # an error in one pod must not stop other pods
            reason = expected_failure(error)
            self._note_failure(uid, str(reason) if reason else "a bug in headgate, see its log")
            if reason is None:
                log.exception("can't run pod %s", pod["metadata"]["name"])
            else:
                log.warning("can't run pod %s, trying again: %s", pod["metadata"]["name"], reason)
            return False
        else:
            return True
        finally:
            settled.set()

    def _note_failure(self, uid: str, reason: str) -> None:
        """Record why a pod could not be run; an empty reason removes the record."""
        remaining = {name: text for name, text in self.failures.get().items() if name != uid}
        self.failures.set({**remaining, uid: reason} if reason else remaining)

    async def _watch(self, tasks: asyncio.TaskGroup) -> None:
        async for step in follow(self._store, POD.group, POD.kind):
            if isinstance(step, Relist):
                self._relist(step.items, tasks)
            else:
                self._handle(step.type, step.object, tasks)

    async def _follow_sources(self) -> None:
        """Let pods write their volumes again after changes to ConfigMaps and Secrets."""
        async for step in follow_all(self._store, (("", "ConfigMap"), ("", "Secret"))):
            changed = [key_of(obj) for obj in step.items] if isinstance(step, Relist) else [step.key]
            for run in self._runs.values():
                for key in changed:
                    if key.namespace == run.key.namespace:
                        run.source_changed(key.kind, key.name)

    def _relist(self, pods: Collection[Object], tasks: asyncio.TaskGroup) -> None:
        for pod in pods:
            self._handle("MODIFIED", pod, tasks)
        present = {pod["metadata"]["uid"] for pod in pods}
        for uid, run in self._runs.items():
            if uid not in present:
                run.mark_deleted()

    def _handle(self, type: str, pod: Object, tasks: asyncio.TaskGroup) -> None:
        uid = pod["metadata"]["uid"]
        run = self._runs.get(uid)
        if run and type == "DELETED":
            run.mark_deleted()
        elif run:
            run.update(pod)
        elif type != "DELETED" and uid not in self._pods and _mine(pod):
            self._place(pod, tasks)

    async def _rotate(self) -> None:
        while True:
            await asyncio.to_thread(rotate_logs, self._state)
            await asyncio.sleep(_ROTATE)


def _mine(pod: Object) -> bool:
    """Return whether this machine runs a pod. Another finalizer can keep a pod whose processes are gone."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp") and STOP_PROCESS not in (metadata.get("finalizers") or ()):
        return False
    return (pod.get("spec") or {}).get("nodeName", "") in ("", NODE_NAME)


def _uid_of(directory: Path) -> str:
    """Return the uid of the pod with this directory."""
    return directory.name.rpartition("_")[2]


def _user(pod: Object) -> str:
    return f"Pod {pod['metadata']['uid']}"
