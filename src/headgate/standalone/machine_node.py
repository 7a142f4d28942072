"""The machine as a Node: what it has, and whether it takes new pods (`kubectl get nodes`, `cordon`, `drain`)."""

import contextlib
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import headgate
from headgate.errors import Cause, Conflict, Invalid, NotFound
from headgate.objects.events import EventRecorder
from headgate.objects.lifecycle import with_metadata
from headgate.objects.ports import Change, Relist, Store, follow, follow_all
from headgate.resources.meta import Key, Object, timestamp
from headgate.resources.registry import key_of
from headgate.standalone.address_pool import POD_ADDRESSES

NODE_NAME = "local"
NODE_KEY = Key("", "Node", "", NODE_NAME)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_UNSCHEDULABLE = "0/1 nodes are available: 1 node(s) were unschedulable. To take new pods again: kubectl uncordon local"


def _new_node() -> Object:
    """Return the Node as it is created."""
    labels = {
        "kubernetes.io/hostname": NODE_NAME,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": _architecture(),
        "node-role.kubernetes.io/control-plane": "",
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME, "labels": labels}, "spec": {}}


def _status(state: Path) -> dict[str, Any]:
    """Return the status of a Node that runs pods; `state` is where their volumes and logs are kept."""
    disk = os.statvfs(state)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    machine_id = _line(Path("/etc/machine-id"))
    resources = {
        "cpu": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory // 1024}Ki",
        "ephemeral-storage": f"{disk.f_blocks * disk.f_frsize // 1024}Ki",
        "pods": str(POD_ADDRESSES),
    }
    since = timestamp(time.time())
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "HeadgateReady",
        "message": "headgate runs pods as processes of this machine",
        "lastHeartbeatTime": since,
        "lastTransitionTime": since,
    }
    return {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [ready],
        "addresses": [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": platform.node()},
        ],
        "nodeInfo": {
            "architecture": _architecture(),
            "bootID": _line(Path("/proc/sys/kernel/random/boot_id")),
            "containerRuntimeVersion": f"headgate://{headgate.__version__}",
            "kernelVersion": platform.release(),
            "kubeProxyVersion": headgate.KUBERNETES_VERSION,
            "kubeletVersion": headgate.KUBERNETES_VERSION,
            "machineID": machine_id,
            "operatingSystem": "linux",
            "osImage": _os_image(),
            "systemUUID": machine_id,
        },
    }


def _architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def admit_nodes(new: Object, _old: Object | None, _view: object = None) -> Object:
    """Let only the Node of this machine into the store (type `objects.ports.AdmissionStep`). Raises Invalid."""
    if new["kind"] == NODE_KEY.kind and key_of(new) != NODE_KEY:
        raise Invalid(Cause("metadata.name", f"this machine is the only node; its name is {NODE_NAME}"))
    return new


class MachineNode:
    """Keeps the Node of this machine in the store, and holds new pods back while it is cordoned."""

    def __init__(self, store: Store, recorder: EventRecorder, state: Path) -> None:
        self._store = store
        self._recorder = recorder
        self._state = state

    async def ensure(self) -> None:
        """Create the Node unless it exists, and write its status."""
        try:
            node = await self._store.get(NODE_KEY)
        except NotFound:
            node = await self._store.create(_new_node())
        try:
            await self._store.update({**node, "status": _status(self._state)}, subresource="status")
        except (Conflict, NotFound):  # a user changes it just now; the next change comes back here
            return

    async def run(self) -> None:
        """Create the Node again whenever it is deleted, until cancelled."""
        async for step in follow(self._store, NODE_KEY.group, NODE_KEY.kind):
            if (isinstance(step, Relist) and not step.items) or (isinstance(step, Change) and step.type == "DELETED"):
                await self.ensure()

    async def is_cordoned(self) -> bool:
        """Say whether the Node takes no new pods (`spec.unschedulable`)."""
        try:
            node = await self._store.get(NODE_KEY)
        except NotFound:
            return False
        return bool((node.get("spec") or {}).get("unschedulable"))

    async def hold_back(self, pod: Object) -> None:
        """Say on a pod that it waits for the Node, and why."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": _UNSCHEDULABLE,
            "lastTransitionTime": timestamp(time.time()),
        }
        status = {"phase": "Pending", "conditions": [condition], "qosClass": "BestEffort"}
        latest = with_metadata(pod, resourceVersion=None)  # its status has one writer until it is placed
        await self._store.update({**latest, "status": status}, subresource="status")
        await self._recorder.record(pod, type="Warning", reason="FailedScheduling", message=_UNSCHEDULABLE)

    async def placed(self, pod: Object) -> None:
        """Wait until a pod that is held back may run. Raises NotFound when it is deleted first."""
        key, uid = key_of(pod), pod["metadata"]["uid"]
        kinds = (key.group, key.kind), (NODE_KEY.group, NODE_KEY.kind)
        async with contextlib.aclosing(follow_all(self._store, kinds)) as changes:
            async for _ in changes:
                current = await self._store.get(key)
                if current["metadata"]["uid"] != uid:
                    raise NotFound(f"{key} is another pod now")
                if not await self.is_cordoned():
                    return


def is_bound(pod: Mapping[str, Any]) -> bool:
    """Say whether a pod has its node already."""
    return bool((pod.get("spec") or {}).get("nodeName"))
