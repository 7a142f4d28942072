"""One container of a pod: starts, probes and restarts its process, and adopts it after a restart of headgate."""

import asyncio
import contextlib
import errno
import re
import signal
import socket
import time
from pathlib import Path

import msgspec

from headgate import control_groups
from headgate.backoff import Backoff, exact
from headgate.resources.core.pod import ProcessIdentity
from headgate.resources.core.pod_spec import LifecycleHandler
from headgate.standalone.pods.attach import stdin_pipe
from headgate.standalone.pods.health import watch_health
from headgate.standalone.pods.hooks import run_hook
from headgate.standalone.pods.limits import joining, limited
from headgate.standalone.pods.logs import begin_log, last_output_matches
from headgate.standalone.pods.probes import ProbeTarget, tcp_ports
from headgate.standalone.pods.runs import ConfigError, ContainerState, Ended, Owner, Run, RunSettings
from headgate.standalone.processes import Launch, StartError, launch_beside, until_gone
from headgate.standalone.supervisor import Program, ProgramRecord, Supervisor, surviving

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0  # before a restart
STEADY_S = 60.0  # seconds after which a run resets the pauses before restarts
RECORD = "run.json"
# A pattern for log messages about EADDRINUSE.
_IN_USE = re.compile(rb"address (already )?in use|EADDRINUSE", re.IGNORECASE)
# A pattern for log messages about names that are not resolved, by the C library, Go, Node.js and curl.
_UNKNOWN_NAME = re.compile(
    rb"name or service not known|name resolution|name does not resolve|no such host|ENOTFOUND|could not resolve host",
    re.IGNORECASE,
)
_ANOTHER = "use another containerPort"
_LEAST_GRACE_S = 1.0  # between SIGTERM and SIGKILL when a hook has used the grace period
_HOOK_FAILURES = {"postStart": "FailedPostStartHook", "preStop": "FailedPreStopHook"}  # the reasons of Events
_KILLED = 128 + signal.SIGKILL
_UNKNOWN_EXIT = 255  # exit code of a process that ended while headgate did not run


def restarts(policy: str, exit_code: int) -> bool:
    """Return whether the restart policy restarts a container with this exit code."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


class ContainerRun(Run):
    """Runs the process of one container. `state` is its current state."""

    def __init__(self, settings: RunSettings, owner: Owner) -> None:
        super().__init__(settings, owner)
        self._out_of_memory = 0  # how many processes had ended so before this one began
        self._supervisor = Supervisor(
            Program(
                record=settings.directory / RECORD,
                prepare=self._prepare,
                begun=self._begun,
                failed=self._failed,
                ended=self._ended,
                fingerprint=lambda: self.settings.address,
                exited=lambda process: self._probed(self._health(), process.exited()),
                # Without its record, a container that must run once would run again after a power failure. The other ones run
                # again anyway, so their starts need not wait for the disk.
                durable=settings.restart == "Never",
            ),
            Backoff(first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S, steady_s=STEADY_S, draw=exact),
        )

    @property
    def live(self) -> bool:
        """Whether the process runs."""
        return self._supervisor.process is not None

    async def recover(self, *, started: bool, ready: bool) -> None:
        """Adopt the process that an earlier headgate started, if it still runs at the same address.

        `started` and `ready` hold the last results of its probes. They apply until a new result differs, so that a
        restart of headgate makes no container unready.
        """
        for name in _HOOK_FAILURES:  # hooks that a killed headgate left behind
            if hook := surviving(self._hook_record(name)):
                await hook.end(0)
        record = self._supervisor.adopt()
        if record is None:
            return
        if self.live and record.fingerprint != self.settings.address:
            await self._supervisor.end(self.settings.grace)
        if self.live:
            self.adopted = True
            self._out_of_memory = control_groups.out_of_memory(self.settings.directory)
            self._running(record, started=started, ready=ready)
            return
        ended = Ended(
            exit_code=_UNKNOWN_EXIT,
            started_at=record.started_at,
            finished_at=time.time(),
            message="the process ended while headgate did not run",
        )
        self._set(ContainerState(reason="Restarting", restarts=record.restarts + 1, ended=ended))

    def restore(self, ended: Ended) -> None:
        """Record the end of a run that an earlier headgate saw, unless the container runs or has ended later."""
        if not self.live and self.state.ended is None:
            self._set(ContainerState(phase="terminated", reason=ended.reason, ended=ended))

    async def run(self) -> int:
        """Start the process, and restart it as the policy says; return the last exit code."""
        if self.state.ended and not restarts(self.settings.restart, self.state.ended.exit_code):
            self._set(msgspec.structs.replace(self.state, phase="terminated", reason=self.state.ended.reason))
            return self.state.ended.exit_code
        code = await self._supervisor.run()
        return _UNKNOWN_EXIT if code is None else code

    async def end(self, grace: float) -> bool:
        """End the process, even after `detach`; return whether it is gone."""
        gone = await self._supervisor.end(await self._prepare_stop(grace))
        if gone and self.state.phase != "terminated":
            self._set(ContainerState(reason="Stopped", restarts=self.state.restarts, ended=self.state.ended))
        return gone

    def kill(self) -> None:
        """Kill the process, even while `end` waits for it."""
        if process := self._supervisor.process:
            process.signal(signal.SIGKILL)

    def detach(self) -> None:
        """Leave the process to the next headgate."""
        self._supervisor.detach()

    async def _prepare(self) -> tuple[Launch, Path]:
        container, directory = self.settings.container, self.settings.directory
        if not container.command:
            await self._no_command()
        launch = await self.owner.prepare(container)
        await self._check_ports()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if container.stdin:
            launch = msgspec.structs.replace(launch, stdin=str(stdin_pipe(directory)))
        launch, fault = limited(launch, container, directory)
        if fault:
            await self.owner.record_event("Warning", "FieldIgnored", fault)
        self._out_of_memory = control_groups.out_of_memory(directory)
        return launch, begin_log(directory)

    async def _begun(self, record: ProgramRecord) -> None:
        self.adopted = False
        self._running(record)
        await self.owner.record_event("Normal", "Started", f"Started container {self.settings.container.name}")

    async def _no_command(self) -> None:
        message = (
            f"container {self.settings.container.name} has no command: local pods ignore the image; "
            "set spec.containers[].command to the program"
        )
        self._set(msgspec.structs.replace(self.state, reason="NoCommand", message=message))
        await self.owner.record_event("Warning", "NoCommand", message)
        # Wait until the pod is deleted: its command is immutable, so a retry would fail too.
        await asyncio.Event().wait()

    async def _failed(self, error: Exception, _pause: float) -> None:
        if isinstance(error, ConfigError):
            reason = "CreateContainerConfigError"
        elif isinstance(error, StartError):
            reason = "RunContainerError"
        else:
            is_in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            reason = "FailedBind" if is_in_use else "CreateContainerError"
        message = str(error)
        self._set(msgspec.structs.replace(self.state, phase="waiting", reason=reason, message=message, pid=0))
        await self.owner.record_event("Warning", reason if reason == "FailedBind" else "Failed", message)

    def _running(self, record: ProgramRecord, *, started: bool = False, ready: bool = False) -> None:
        self._set(
            ContainerState(
                phase="running",
                reason="",
                pid=record.identity.pid,
                started_at=record.started_at,
                restarts=record.restarts,
                ended=self.state.ended,
                started=started,
                ready=ready,
            )
        )

    async def _ended(self, code: int | None, pause: float) -> bool:
        code = _UNKNOWN_EXIT if code is None else code
        name, count = self.settings.container.name, self.state.restarts
        is_killed = code in {_KILLED, _UNKNOWN_EXIT}
        is_large = is_killed and control_groups.out_of_memory(self.settings.directory) > self._out_of_memory
        why = "it used more memory than resources.limits.memory" if is_large else self._explained(code)
        ended = Ended(
            exit_code=code,
            started_at=self.state.started_at,
            finished_at=time.time(),
            reason="OOMKilled" if is_large else "Error" if code else "Completed",
            message=why,
        )
        self._set(ContainerState(phase="terminated", reason=ended.reason, restarts=count, ended=ended))
        if not restarts(self.settings.restart, code):
            return False
        message = f"back-off {pause:g}s restarting container {name}"
        self._set(ContainerState(reason="CrashLoopBackOff", message=message, restarts=count + 1, ended=ended))
        text = f"Back-off restarting container {name}: it ended with exit code {code}"
        await self.owner.record_event("Warning", "BackOff", f"{text}: {why}" if why else text)
        return True

    def _explained(self, code: int) -> str:
        """Return what the log says of a failure that is due to the machine's network, with the ways out; empty otherwise."""
        directory = self.settings.directory
        if not code or self.settings.network.is_own:
            return ""
        if self.settings.advice and last_output_matches(directory, _IN_USE):
            return f"its log says that an address is in use: {self.settings.advice}"
        if last_output_matches(directory, _UNKNOWN_NAME):
            return (
                "its log says that a name is not resolved: in the machine's network, only the HTTP proxy ($http_proxy) resolves the "
                f"names of Services. Without it, the program needs a network of its own ({self.settings.own_network})"
            )
        return ""

    async def _check_ports(self) -> None:
        """Raise OSError if another program listens on a port of the container, and would receive its requests."""
        if self.settings.network.is_own:
            return
        for port in tcp_ports(self.settings.container):
            try:
                with self.settings.network.create_socket((socket.AF_INET, socket.SOCK_STREAM, 0)) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind((self.settings.address, port))
            except PermissionError:
                message = f"port {port} is privileged: use a containerPort of 1024 or more"
                await self.owner.record_event("Warning", "FailedBind", message)
            except OSError as error:
                remedy = "delete the pod: its replacement gets another port" if self.settings.advice else _ANOTHER
                message = (
                    f"port {port} of {self.settings.address} is in use, perhaps by a program that listens on 0.0.0.0:{port}: "
                    f"stop it, or {remedy}"
                )
                raise OSError(error.errno, message) from error

    async def restart(self, *, grace: float | None = None) -> None:
        """Send SIGTERM to the process, and SIGKILL after the grace period."""
        if process := self._supervisor.process:
            await process.end(await self._prepare_stop(self.settings.grace if grace is None else grace))

    async def _prepare_stop(self, grace: float) -> float:
        """Run the hook preStop while the process runs, for at most `grace` seconds; return how many of them are left."""
        process, lifecycle = self._supervisor.process, self.settings.container.lifecycle
        if process is None or lifecycle is None or lifecycle.pre_stop is None or grace <= 0:
            return grace
        began = time.monotonic()
        hook = asyncio.create_task(self._hook("preStop", lifecycle.pre_stop))
        exited = asyncio.create_task(process.exited())
        try:
            await asyncio.wait({hook, exited}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_late = not hook.done() and not exited.done()
            hook.cancel()
            exited.cancel()
            await asyncio.gather(hook, exited, return_exceptions=True)
        if is_late:
            message = f"preStop hook of container {self.settings.container.name} did not end within {grace:g} s"
            await self.owner.record_event("Warning", _HOOK_FAILURES["preStop"], message)
        return max(grace - (time.monotonic() - began), _LEAST_GRACE_S)

    async def _hook(self, name: str, handler: LifecycleHandler) -> bool:
        """Run a hook; return whether it succeeded. Write an Event if it failed."""
        try:
            settings, launch = self.settings, await self._joining_launch()
            target = ProbeTarget(settings.container, settings.address, launch, settings.network)
            fault = await run_hook(handler, target, self._hook_record(name))
        except OSError as error:
            fault = f"the process has exited: {error.strerror}"
        if fault:
            message = f"{name} hook of container {self.settings.container.name} failed: {fault}"
            await self.owner.record_event("Warning", _HOOK_FAILURES[name], message)
        return not fault

    def _hook_record(self, name: str) -> Path:
        """Return the file with the record of a hook's command, in a directory that no container can have."""
        directory = self.settings.directory
        return directory.with_name(f"{directory.name}.{name}") / RECORD

    async def _health(self) -> None:
        lifecycle = self.settings.container.lifecycle
        # An adopted process had its hook before.
        if (
            lifecycle
            and lifecycle.post_start
            and not self.adopted
            and not await self._hook("postStart", lifecycle.post_start)
        ):
            await self.restart()
            return
        try:
            launch = await self._joining_launch()
        except OSError:  # the process has exited
            return
        await watch_health(self, launch)

    async def _joining_launch(self) -> Launch:
        """Return the launch of probes and hooks in the running container. Raises OSError when its process has exited."""
        try:
            return await self.command_launch()
        except (ConfigError, OSError):  # a ConfigMap of the container was deleted, or its volumes can't be written
            return joining(launch_beside(self.state.pid, self.settings.container.working_dir), self.settings.directory)

    async def command_launch(self) -> Launch:
        """Return the launch of commands in the running container, for `kubectl exec`. Raises ConfigError."""
        launch = joining(await self.owner.prepare(self.settings.container), self.settings.directory)
        if launch.isolation and (process := self._supervisor.process):  # commands see the mounts of the process
            isolation = msgspec.structs.replace(launch.isolation, mounts=(), join=process.identity.pid)
            launch = msgspec.structs.replace(launch, isolation=isolation)
        return launch


class ExternalRun(Run):
    """A container whose process was started by `headgate run`. headgate does not signal this process.

    An annotation identifies the process. Its pod exists as long as the process runs.
    """

    def __init__(self, settings: RunSettings, owner: Owner, identity: ProcessIdentity) -> None:
        super().__init__(settings, owner)
        self._identity = identity

    async def recover(self, *, started: bool, ready: bool) -> None:
        """Keep the last known health until the process is checked again."""
        if started:
            self.set_health(started=True, ready=ready)

    async def run(self) -> int:
        """Watch the process until it ends."""
        self.set_health(started=self.state.started, ready=self.state.ready)
        await self._probed(watch_health(self, Launch(command=(), env={})), until_gone(self._identity))
        self._set(ContainerState(reason="Stopped"))
        return 0

    async def end(self, grace: float) -> bool:
        """Wait for the process to end: `headgate run` ends it when its pod is deleted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await until_gone(self._identity)
        return True

    def set_health(self, *, started: bool, ready: bool) -> None:
        """Record whether the ports of the process accept connections."""
        since = self.state.started_at or time.time()
        pid = self._identity.pid
        self._set(ContainerState(phase="running", reason="", pid=pid, started_at=since, started=started, ready=ready))
