"""A pod whose process runs elsewhere on this machine, started by `headgate run`: it has an address and a sidecar here.

The pod lives as long as that process, which its annotation names so that no other one is ever taken for it.
"""

import asyncio
import contextlib
import time

from headgate.resources.process_identity import Identity
from headgate.standalone.pods.containers import ContainerState, Owner, Plan
from headgate.standalone.pods.health import Severity, watch_health
from headgate.standalone.pods.probes import Target
from headgate.standalone.processes import Launch, until_gone


class ExternalRun:
    """Stands for the container of an external process, from `run` to `end`; nothing is ever done to the process."""

    def __init__(self, plan: Plan, owner: Owner, identity: Identity) -> None:
        self.state = ContainerState()
        self.adopted = False
        self.plan = plan
        self._owner = owner
        self._identity = identity

    @property
    def live(self) -> bool:
        """Whether the process is known to run."""
        return self.state.phase == "running"

    @property
    def started(self) -> bool:
        """Whether its health is watched."""
        return self.state.started

    @property
    def ready(self) -> bool:
        """Whether it listens on its ports."""
        return self.state.ready

    async def recover(self, *, started: bool, ready: bool) -> None:
        """Take what was said last for true until the process says otherwise."""
        if started:
            self._set(started=True, ready=ready)

    async def run(self) -> int:
        """Watch the process until it ends."""
        self._set(started=self.started, ready=self.ready)
        target = Target(self.plan.container, self.plan.address, Launch(command=(), env={}), self.plan.advice)
        watching = asyncio.create_task(watch_health(target, self))
        try:
            await until_gone(self._identity)
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        self.state = ContainerState(phase="waiting", reason="Stopped")
        self._owner.changed()
        return 0

    async def end(self, grace: float) -> bool:
        """Give the process time to end by itself: whoever runs it sees that the pod is to go."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await until_gone(self._identity)
        return True

    def detach(self) -> None:
        """Do nothing: it was never ours."""

    def report(self, *, started: bool, ready: bool) -> None:
        """Take note of what its ports say."""
        self._set(started=started, ready=ready)

    async def unwell(self) -> None:
        """Leave it to whoever runs it."""

    async def tell(self, type: Severity, reason: str, message: str) -> None:
        """Tell the user."""
        await self._owner.tell(type, reason, message)

    def _set(self, *, started: bool, ready: bool) -> None:
        state = ContainerState(
            phase="running",
            reason="",
            pid=self._identity.pid,
            started_at=self.state.started_at or time.time(),
            started=started,
            ready=ready,
        )
        if state != self.state:
            self.state = state
            self._owner.changed()
