"""A pod whose process runs elsewhere on this machine, started by `headgate run`: it has an address and a sidecar here.

The pod lives as long as that process, which its annotation names so that no other one is ever taken for it.
"""

import asyncio
import contextlib
import time

from headgate.resources.pods import Identity
from headgate.standalone.pods.health import watch_health
from headgate.standalone.pods.runs import ContainerState, Owner, Plan, Run
from headgate.standalone.processes import Launch, until_gone


class ExternalRun(Run):
    """Stands for the container of an external process; nothing is ever done to the process."""

    def __init__(self, plan: Plan, owner: Owner, identity: Identity) -> None:
        super().__init__(plan, owner)
        self._identity = identity

    async def recover(self, *, started: bool, ready: bool) -> None:
        """Take what was said last for true until the process says otherwise."""
        if started:
            self.report(started=True, ready=ready)

    async def run(self) -> int:
        """Watch the process until it ends."""
        self.report(started=self.state.started, ready=self.state.ready)
        await self._probed(watch_health(self, Launch(command=(), env={})), until_gone(self._identity))
        self._set(ContainerState(reason="Stopped"))
        return 0

    async def end(self, grace: float) -> bool:
        """Give the process time to end by itself: whoever runs it sees that the pod is to go."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await until_gone(self._identity)
        return True

    def report(self, *, started: bool, ready: bool) -> None:
        """Take note of what its ports say."""
        since = self.state.started_at or time.time()
        pid = self._identity.pid
        self._set(ContainerState(phase="running", reason="", pid=pid, started_at=since, started=started, ready=ready))
