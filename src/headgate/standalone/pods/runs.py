"""The state and the base class of containers, for processes that headgate or the user starts."""

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from headgate.errors import HeadgateError
from headgate.resources.core.pod_spec import Container
from headgate.resources.meta import Value
from headgate.standalone.network.pod_network import MACHINE, PodNetwork
from headgate.standalone.processes import Launch

Severity = Literal["Normal", "Warning"]
T = TypeVar("T")


class ConfigError(HeadgateError):
    """A container can't be configured, because an object or key that it names is missing (CreateContainerConfigError)."""


class Ended(Value, frozen=True, kw_only=True):
    """The end of a process: its exit code, reason and message. Times are in seconds since the epoch."""

    exit_code: int
    started_at: float = 0.0
    finished_at: float = 0.0
    reason: str = "Error"
    message: str = ""


class ContainerState(Value, frozen=True, kw_only=True):
    """The state of a container: waiting for `reason`, running since `started_at`, or terminated (`ended`)."""

    phase: Literal["waiting", "running", "terminated"] = "waiting"
    reason: str = "ContainerCreating"
    message: str = ""
    pid: int = 0
    started_at: float = 0.0
    restarts: int = 0
    ended: Ended | None = None  # the last run that ended
    started: bool = False
    ready: bool = False


class RunSettings(NamedTuple):
    """The settings of a container.

    `grace` is the time between SIGTERM and SIGKILL, in seconds. `advice` is part of messages: it says where the process
    must listen behind a sidecar. `is_sidecar` marks a native sidecar. `undeclared` maps targetPorts of Services that no container declares to process ports.
    `network` is that of the pod, and `own_network` says how the pod gets one of its own.
    """

    container: Container
    directory: Path
    address: str
    restart: str  # Always, OnFailure or Never
    grace: float
    advice: str = ""
    undeclared: Mapping[int, int] = MappingProxyType({})
    is_sidecar: bool = False
    network: PodNetwork = MACHINE
    own_network: str = ""


class Owner(Protocol):
    """The methods of a pod that its containers and its sidecar call."""

    async def prepare(self, container: Container) -> Launch:
        """Return the command and environment of a container. Raises ConfigError."""

    def changed(self) -> None:
        """Trigger a write of the pod's status, because the state of a container or of the sidecar has changed."""

    async def record_event(self, type: Severity, reason: str, message: str) -> None:
        """Write an Event about the pod."""


class Run:
    """The base class of containers. `state` is the current state, which `watch_health` updates."""

    def __init__(self, settings: RunSettings, owner: Owner) -> None:
        self.state = ContainerState()
        self.adopted = False
        self.settings = settings
        self.owner = owner
        self._started = asyncio.Event()

    @property
    def live(self) -> bool:
        """Whether the process runs."""
        return self.state.phase == "running"

    def set_health(self, *, started: bool, ready: bool) -> None:
        """Record the results of probes: whether the startup probe has succeeded, and whether the container is ready."""
        self._set(replace(self.state, started=started, ready=ready))

    async def wait_started(self) -> None:
        """Wait until the container runs, and its hook and startup probe have succeeded."""
        await self._started.wait()

    async def recover(self, *, started: bool, ready: bool) -> None:
        """Adopt a process that already runs, with the last known results of its probes."""
        raise NotImplementedError

    def restore(self, ended: Ended) -> None:
        """Record the end of a run that an earlier headgate saw, so that a container that has ended does not run again."""

    async def run(self) -> int:
        """Run the container until the restart policy no longer restarts it; return the last exit code."""
        raise NotImplementedError

    async def end(self, grace: float) -> bool:
        """End the process; return whether it is gone."""
        raise NotImplementedError

    async def restart(self, *, grace: float | None = None) -> None:
        """End a process after a failed probe; `run` starts the next one. `grace` replaces the pod's grace period, in seconds."""

    async def command_launch(self) -> Launch:
        """Return the launch of a command in the running container. Raises ConfigError."""
        return await self.owner.prepare(self.settings.container)

    def kill(self) -> None:
        """Kill the process, even while `end` waits for it."""

    def detach(self) -> None:
        """Stop watching the process, which keeps running for the next headgate."""

    async def _probed(self, health: Coroutine[Any, Any, None], ended: Awaitable[T]) -> T:
        """Run the probes (`health`) until `ended` returns; return the result of `ended`."""
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
            if state.started:
                self._started.set()
            else:
                self._started.clear()
            self.owner.changed()
