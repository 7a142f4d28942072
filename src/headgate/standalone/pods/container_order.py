"""The order in which the containers of a pod start and end, as in Kubernetes.

Init containers run one after the other. An init container with `restartPolicy: Always`, a native sidecar, keeps running: the
next container starts when it has started. It ends after the containers, in the reverse order of the starts.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence

from headgate.standalone.pods.runs import Run

_LEAST_GRACE_S = 1.0  # between SIGTERM and SIGKILL of a sidecar when the containers have used the pod's grace period


class PodContainers:
    """The containers of a pod: `inits` in their order, with native sidecars, and `containers`, which start together."""

    def __init__(self, inits: Sequence[Run], containers: Sequence[Run]) -> None:
        self._inits = inits
        self.containers = containers

    def __iter__(self) -> Iterator[Run]:
        """Iterate over all containers."""
        yield from self._inits
        yield from self.containers

    @property
    def has_begun(self) -> bool:
        """Whether a container runs that is no init container."""
        return any(run.live for run in self.containers)

    @property
    def live(self) -> bool:
        """Whether any container runs."""
        return any(run.live for run in self)

    async def run(self) -> None:
        """Run all containers until the restart policy restarts none of them, and end the native sidecars."""
        async with asyncio.TaskGroup() as tasks:
            sidecars = []
            is_initialized = True
            has_begun = self.has_begun  # by an earlier headgate
            for init in self._inits:
                if init.settings.is_sidecar:
                    sidecars.append(tasks.create_task(init.run()))
                    if not has_begun:
                        await init.wait_started()
                elif not has_begun and await init.run():
                    is_initialized = False
                    break
            if is_initialized:
                async with asyncio.TaskGroup() as main:
                    for run in self.containers:
                        main.create_task(run.run())
            for sidecar in sidecars:
                sidecar.cancel()
        await self._end_sidecars(time.monotonic() + max((run.settings.grace for run in self), default=0.0))

    async def end(self, grace: float) -> list[Run]:
        """End all processes within `grace` seconds; return the containers whose process does not end."""
        deadline = time.monotonic() + grace
        together = [run for run in self if not run.settings.is_sidecar]
        results = await asyncio.gather(*(run.end(grace) for run in together))
        remaining = [run for run, gone in zip(together, results, strict=True) if not gone]
        return [*remaining, *await self._end_sidecars(deadline)]

    async def _end_sidecars(self, deadline: float) -> list[Run]:
        sidecars = [run for run in reversed(self._inits) if run.settings.is_sidecar]
        return [run for run in sidecars if not await run.end(max(deadline - time.monotonic(), _LEAST_GRACE_S))]
