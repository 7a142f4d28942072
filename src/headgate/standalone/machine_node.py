"""The Kubernetes Node of this machine: its status, and cordoning (`kubectl get nodes`, `cordon`, `drain`)."""

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
_UNSCHEDULABLE = "0/1 nodes are available: 1 node(s) were unschedulable. Run `kubectl uncordon local` to start new pods"


def _new_node() -> Object:
    labels = {
        "kubernetes.io/hostname": NODE_NAME,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": _architecture(),
        "node-role.kubernetes.io/control-plane": "",
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME, "labels": labels}, "spec": {}}


def _status(state: Path) -> dict[str, Any]:
    """Return the status of the Node. Its storage is the file system of `state`, which has the volumes and logs of pods."""
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
        "message": "headgate runs pods as processes on this machine",
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
    """Reject a Node that is not the Node of this machine: an admission step (`objects.ports.Admit`). Raises Invalid."""
    if new["kind"] == NODE_KEY.kind and key_of(new) != NODE_KEY:
        raise Invalid(Cause("metadata.name", f"must be {NODE_NAME}, the name of this machine, which is the only node"))
    return new


class MachineNode:
    """Maintains the Node of this machine in the store, and delays new pods while the Node is cordoned."""

    def __init__(self, store: Store, recorder: EventRecorder, state: Path) -> None:
        self._store = store
        self._recorder = recorder
        self._state = state

    async def ensure(self) -> None:
        """Create the Node if it does not exist, and write its status."""
        try:
            node = await self._store.get(NODE_KEY)
        except NotFound:
            node = await self._store.create(_new_node())
        try:
            await self._store.update({**node, "status": _status(self._state)}, subresource="status")
        except (Conflict, NotFound):  # another client has just written or deleted the Node; `run` handles a deletion
            return

    async def run(self) -> None:
        """Create the Node again after each deletion, until canceled."""
        async for step in follow(self._store, NODE_KEY.group, NODE_KEY.kind):
            if (isinstance(step, Relist) and not step.items) or (isinstance(step, Change) and step.type == "DELETED"):
                await self.ensure()

    async def is_cordoned(self) -> bool:
        """Return whether the Node accepts no new pods (`spec.unschedulable`)."""
        try:
            node = await self._store.get(NODE_KEY)
        except NotFound:
            return False
        return bool((node.get("spec") or {}).get("unschedulable"))

    async def mark_unschedulable(self, pod: Object) -> None:
        """Set the pod's condition PodScheduled to False and record an Event, as a scheduler does."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": _UNSCHEDULABLE,
            "lastTransitionTime": timestamp(time.time()),
        }
        status = {"phase": "Pending", "conditions": [condition], "qosClass": "BestEffort"}
        # Without a resourceVersion, the update can't conflict: only headgate writes the status of a pod before it runs.
        latest = with_metadata(pod, resourceVersion=None)
        await self._store.update({**latest, "status": status}, subresource="status")
        await self._recorder.record(pod, type="Warning", reason="FailedScheduling", message=_UNSCHEDULABLE)

    async def until_schedulable(self, pod: Object) -> None:
        """Wait until the Node accepts the pod. Raises NotFound when the pod is deleted first."""
        key, uid = key_of(pod), pod["metadata"]["uid"]
        kinds = (key.group, key.kind), (NODE_KEY.group, NODE_KEY.kind)
        async with contextlib.aclosing(follow_all(self._store, kinds)) as changes:
            async for _ in changes:
                current = await self._store.get(key)
                if current["metadata"]["uid"] != uid:
                    raise NotFound(f"{key} was deleted and created again")
                if not await self.is_cordoned():
                    return


def is_bound(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is assigned to a node."""
    return bool((pod.get("spec") or {}).get("nodeName"))
