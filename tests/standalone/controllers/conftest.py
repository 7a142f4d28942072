"""A store with controllers and a fake kubelet: a test decides which pods become ready."""

from collections.abc import Callable

import pytest

from headgate.objects.events import EventRecorder
from headgate.resources.meta import Object, timestamp
from headgate.resources.registry import key_of
from headgate.standalone.controllers.controllers import Controllers
from headgate.standalone.store.memory import MemoryStore


class ControllerRig:
    """A store with its controllers. The test sets the clock and the readiness of pods."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        self.store = MemoryStore()
        self.recorder = EventRecorder(self.store, "headgate-local", clock=lambda: self.now)
        self.controllers = Controllers(self.store, self.recorder, clock=lambda: self.now)
        self._addresses = 0

    async def all(self, group: str, kind: str) -> list[Object]:
        return list((await self.store.list(group, kind)).items)

    async def pods(self) -> list[Object]:
        return await self.all("", "Pod")

    async def latest(self, obj: Object) -> Object:
        return await self.store.get(key_of(obj))

    async def settle(self, *, ready: Callable[[Object], bool] = lambda _: True) -> None:
        """Run the controllers and start pods until the store is stable. `ready` decides which pods become ready."""
        before = -1
        while before != self.store.revision:
            before = self.store.revision
            await self.controllers.reconcile("default")
            for pod in await self.pods():
                await self.start(pod, ready=ready(pod))

    async def start(self, pod: Object, *, ready: bool) -> None:
        status = pod.get("status") or {}
        if not status.get("podIP"):
            self._addresses += 1
            status = {"podIP": f"127.77.200.{self._addresses}", "phase": "Running"}
        was = any(condition["status"] == "True" for condition in status.get("conditions", ()))
        if was != ready or "conditions" not in status:
            said = {"type": "Ready", "status": str(ready), "lastTransitionTime": timestamp(self.now)}
            status = {**status, "conditions": [said]}
        await self.store.update({**pod, "status": status}, subresource="status")


@pytest.fixture
def rig() -> ControllerRig:
    return ControllerRig()
