"""What the containers of a pod have in common, whether headgate starts their processes or a user does."""

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from headgate.resources.meta import Value
from headgate.resources.workloads import Container
from headgate.standalone.processes import Launch

Severity = Literal["Normal", "Warning"]
T = TypeVar("T")


class Ended(Value, frozen=True, kw_only=True):
    """How a run ended; times in seconds since the epoch."""

    exit_code: int
    started_at: float = 0.0
    finished_at: float = 0.0
    reason: str = "Error"
    message: str = ""


class ContainerState(Value, frozen=True, kw_only=True):
    """What a container does now. It waits (for `reason`), runs (since `started_at`), or has `ended`."""

    phase: Literal["waiting", "running", "terminated"] = "waiting"
    reason: str = "ContainerCreating"
    message: str = ""
    pid: int = 0
    started_at: float = 0.0
    restarts: int = 0
    ended: Ended | None = None  # the run that ended last
    started: bool = False
    ready: bool = False


class RunSettings(NamedTuple):
    """What a container's runs have in common. `advice` is what its sidecar asks of the process, if anything.

    `led` are ports of the pod that Services lead to and no container declares, and where a process is to listen for them.
    """

    container: Container
    directory: Path
    address: str
    restart: str  # Always, OnFailure or Never
    grace: float
    advice: str = ""
    undeclared: Mapping[int, int] = MappingProxyType({})


class Owner(Protocol):
    """The pod, as its containers and its sidecar see it."""

    async def prepare(self, container: Container) -> Launch:
        """Return what to run now. Raises ConfigError."""

    def changed(self) -> None:
        """Take note that the state of a container, or of the sidecar, is another one."""

    async def record_event(self, type: Severity, reason: str, message: str) -> None:
        """Write an Event about the pod."""


class Run:
    """A container from `run` to `end`. `state` tells how it goes; it changes with what `watch_health` reports."""

    def __init__(self, settings: RunSettings, owner: Owner) -> None:
        self.state = ContainerState()
        self.adopted = False
        self.settings = settings
        self.owner = owner

    @property
    def live(self) -> bool:
        """Whether its process runs."""
        return self.state.phase == "running"

    def set_health(self, *, started: bool, ready: bool) -> None:
        """Take note of what the probes say: whether it has passed its startup probe, and whether it is ready."""
        self._set(replace(self.state, started=started, ready=ready))

    async def recover(self, *, started: bool, ready: bool) -> None:
        """Take over a process that runs already; what its probes said last holds until they say otherwise."""
        raise NotImplementedError

    async def run(self) -> int:
        """Run until the container needs no restart; return its last exit code."""
        raise NotImplementedError

    async def end(self, grace: float) -> bool:
        """End the process if there is one; whether it is gone."""
        raise NotImplementedError

    async def restart(self) -> None:
        """End a process that a probe found unwell, which makes `run` start the next one."""

    def kill(self) -> None:
        """End the process at once, also while `end` waits for it."""

    def detach(self) -> None:
        """Leave the process to the next headgate."""

    async def _probed(self, health: Coroutine[Any, Any, None], ended: Awaitable[T]) -> T:
        """Probe until the process has ended; return what its end gives."""
        probing = asyncio.create_task(health)
        try:
            return await ended
        finally:
            probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await probing

    def _set(self, state: ContainerState) -> None:
        if state != self.state:
            self.state = state
            self.owner.changed()
