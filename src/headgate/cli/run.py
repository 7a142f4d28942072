"""`headgate run`: run a program of this machine as a pod with an identity and a sidecar."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from msgspec.structs import replace

from headgate.backoff import Backoff, until_done
from headgate.cli.arguments import ApiOptions, State
from headgate.cli.connection import find_api, runtime_info
from headgate.cli.output import NotStarted, TimedOut, note, usage_error
from headgate.cli.wait import watch_object
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client, path_of
from headgate.resources.core.pod import format_process_identity
from headgate.resources.core.pod_metadata import EXTERNAL, PROCESS, PROCESS_ID
from headgate.resources.core.pod_spec import Pod
from headgate.resources.decode import read
from headgate.resources.meta import Object
from headgate.resources.registry import POD, SERVICE_ACCOUNT
from headgate.resources.schema.builders import LARGEST_PORT
from headgate.standalone.address_pool import machine_side
from headgate.standalone.isolation import Isolation, launcher_command, read_failure
from headgate.standalone.listeners import lowest_port
from headgate.standalone.pods import application_ports
from headgate.standalone.pods.environment import port_variable, runtime_variables
from headgate.standalone.pods.sidecars import proxy_variables
from headgate.standalone.pods.status import SIDECAR_READY
from headgate.standalone.processes import Launch, launch_fault, own_identity, start_fault

READY_S = 30.0  # the longest wait for the sidecar in seconds
PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_BY_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # Signals that the terminal also sends to the program.
_LONGEST_PAUSE_S = 1.0  # before the pod is watched again
_CONTAINER = "process"

T = TypeVar("T")

Command = Annotated[
    list[str],
    typer.Argument(
        metavar="-- COMMAND [ARGS]", help="The program to run in this terminal, with its arguments.", show_default=False
    ),
]
Account = Annotated[
    str, typer.Option("--service-account", metavar="NAME", help="The ServiceAccount whose identity the program gets.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="KEY=VALUE", help="A label of the pod; selectors of Services and TLSConfigs match it."
    ),
]
Ports = Annotated[
    list[str] | None,
    typer.Option("--port", metavar="[NAME=]PORT", help="A port of the pod; the program listens on $PORT."),
]
InNamespace = Annotated[
    str, typer.Option("-n", "--namespace", metavar="NAME", help="Namespace of the pod and the ServiceAccount.")
]


def run(
    command: Command,
    *,
    service_account: Account = "default",
    namespace: InNamespace = "default",
    label: Labels = None,
    port: Ports = None,
    state: State = None,
) -> None:
    """Run a program with its own identity and sidecar in the mesh of a running `headgate up`.

    The program gets a Pod object, an address, and the environment of a pod, such as HOST, PORT and http_proxy. Signals
    are forwarded to it, and its exit code becomes the exit code of this command. The pod is deleted when the program
    ends.
    """
    manifest = _pod(command, namespace, service_account, labels=label or (), ports=port or ())
    current = runtime_info(state)
    client = find_api(ApiOptions(kubeconfig=Path(current.kubeconfig)))
    isolation = Isolation(network=current.node, drops_capabilities=True) if current.node else None
    raise typer.Exit(asyncio.run(_run(client, manifest, Launch(command=tuple(command), env={}, isolation=isolation))))


def _pod(command: list[str], namespace: str, account: str, *, labels: Any, ports: Any) -> Object:
    """Return the pod to create. Its command is only the program, because arguments may be secret."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "run-",
            "namespace": namespace,
            "labels": dict(map(_label, labels)),
            "annotations": {PROCESS: EXTERNAL, PROCESS_ID: format_process_identity(own_identity())},
        },
        "spec": {
            "serviceAccountName": account,
            "restartPolicy": "Never",
            "containers": [{"name": _CONTAINER, "command": command[:1], "ports": [*map(_port, ports)]}],
        },
    }


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise usage_error(f"{text!r} is not a label; write KEY=VALUE, as in app=website", option="--label")
    return name, value


def _port(text: str) -> Mapping[str, Any]:
    name, equals, number = text.rpartition("=")
    if not (number.isdecimal() and 0 < int(number) <= LARGEST_PORT) or (equals and not name):
        raise usage_error(f"{text!r} is not a port; write 8080 or http=8080", option="--port")
    return {"containerPort": int(number), **({"name": name} if name else {})}


class _Signals:
    """Forwards signals to the program. A signal before the program runs ends this command."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._early: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def listen(self) -> None:
        """Install the signal handlers."""
        for number in PASSED:
            asyncio.get_running_loop().add_signal_handler(number, self._take, number)

    async def unless(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`. Raises typer.Exit when a signal arrives first."""
        task = asyncio.create_task(work)
        both: set[asyncio.Future[Any]] = {task, self._early}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task})
        raise typer.Exit(128 + self._early.result())

    def pass_to(self, process: asyncio.subprocess.Process) -> None:
        """Forward signals to the program from now on, and the signal that arrived while the program was being started."""
        self._process = process
        if self._early.done():
            self._take(signal.Signals(self._early.result()))

    def _take(self, number: signal.Signals) -> None:
        if self._process is None:
            if not self._early.done():
                self._early.set_result(number)
        elif not (number in _BY_TERMINAL and _owns_terminal()):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


async def _run(client: Client, manifest: Object, launch: Launch) -> int:
    signals = _Signals()
    signals.listen()
    created = await client.create(POD, manifest)
    try:
        # The name of the ServiceAccount is valid here: the creation of the pod has checked it.
        await _check_account(client, manifest)
        pod = await signals.unless(_until_ready(client, created))
        return await _foreground(client, pod, launch, signals)
    finally:
        await _remove(client, created)


async def _check_account(client: Client, manifest: Object) -> None:
    """Print a note when the ServiceAccount does not exist; it need not exist for pods on one machine."""
    namespace, name = manifest["metadata"]["namespace"], manifest["spec"]["serviceAccountName"]
    try:
        await client.get(path_of(SERVICE_ACCOUNT, namespace, name))
    except NotFound:
        note(f"ServiceAccount {namespace}/{name} not found; the program gets its identity nevertheless")


async def _until_ready(client: Client, created: Object) -> Object:
    """Wait until the sidecar of the pod is ready; return the pod. Raises TimedOut with the condition's message."""
    metadata, why = created["metadata"], "headgate has not started the sidecar"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READY_S):
            updates = watch_object(client, POD, metadata["namespace"], metadata["name"])
            async with contextlib.aclosing(updates):
                async for pod in updates:
                    if pod is None or _is_terminating(pod):
                        raise HeadgateError(f"pod {metadata['namespace']}/{metadata['name']} was deleted")
                    condition = _condition(pod)
                    if condition.get("status") == "True":
                        return pod
                    why = condition.get("message", why)
    raise TimedOut(
        f"the sidecar of pod {metadata['namespace']}/{metadata['name']} is not ready after {READY_S:g} s: {why}"
    )


def _condition(pod: Object) -> Mapping[str, str]:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == SIDECAR_READY), {})


def _environment(pod: Object, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment with the variables of the pod. Variables of the pod take precedence."""
    typed = read(pod, Pod)
    numbers, address = application_ports.from_annotation(typed.metadata), typed.status.pod_ip
    container = application_ports.with_process_ports(typed.spec.containers[0], numbers)
    proxies = proxy_variables(address)
    uppercase = {name.upper(): text for name, text in proxies.items() if name.upper() in environ}
    pod_variables = runtime_variables(typed, container, address)
    return {
        **environ,
        **uppercase,
        **proxies,
        **application_ports.port_variables(typed, container, numbers),
        **pod_variables,
    }


def _print_addresses(pod: Object, host: str, lowest: int) -> None:
    """Print the addresses that are forwarded to the program, as the machine reaches them: ports from `lowest`."""
    ports = application_ports.from_annotation(read(pod, Pod).metadata)
    calls = ", ".join(
        f"{machine_side(host) if port >= lowest else host}:{port} is forwarded to port {number} (${port_variable(str(port))})"
        for port, number in ports.items()
    )
    note(f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}: {calls or host}")


async def _foreground(client: Client, pod: Object, launch: Launch, signals: _Signals) -> int:
    """Run the program in this terminal; return its exit code, 128 + N after signal N. Raises NotStarted."""
    environment = _environment(pod, os.environ)
    _print_addresses(pod, environment["HOST"], lowest_port())
    process = await _start(replace(launch, env=environment))
    signals.pass_to(process)
    updates = asyncio.create_task(_end_with(client, pod, process))
    try:
        code = await process.wait()
    finally:
        updates.cancel()
        await asyncio.wait({updates})
    return 128 - code if code < 0 else code


async def _start(launch: Launch) -> asyncio.subprocess.Process:
    """Start the program, in the network of the pods if that is not this machine's. Raises NotStarted."""
    try:
        if launch.isolation is None:
            return await asyncio.create_subprocess_exec(*launch.command, env=launch.env)
        reading, writing = os.pipe()
        command = launcher_command(launch.isolation, launch.command, directory="", pipe=writing)
        try:
            process = await asyncio.create_subprocess_exec(*command, env=launch.env, pass_fds=(writing,))
        finally:
            os.close(writing)
        if failure := await asyncio.to_thread(read_failure, reading):
            await process.wait()
            error = OSError(failure.errno, os.strerror(failure.errno), failure.filename)
            raise NotStarted(launch_fault(launch, failure).removeprefix("command: "), error)
    except OSError as error:
        raise NotStarted(start_fault(launch, error).removeprefix("command: "), error) from error
    return process


async def _end_with(client: Client, pod: Object, process: asyncio.subprocess.Process) -> None:
    """Terminate the program when its pod is deleted; while the API can't be reached, the program continues."""
    metadata = pod["metadata"]

    async def until_deleted() -> None:
        updates = watch_object(client, POD, metadata["namespace"], metadata["name"])
        async with contextlib.aclosing(updates):
            async for now in updates:
                if now is None or _is_terminating(now) or now["metadata"]["uid"] != metadata["uid"]:
                    return

    await until_done(until_deleted, "", on=HeadgateError, backoff=Backoff(longest_s=_LONGEST_PAUSE_S))
    note(f"pod {metadata['namespace']}/{metadata['name']} was deleted; terminating the program")
    with contextlib.suppress(ProcessLookupError):
        process.terminate()


async def _remove(client: Client, created: Object) -> None:
    try:
        await client.delete(POD, created)
    except NotFound:
        return
    except HeadgateError as error:
        note(f"{error}; headgate deletes pod {created['metadata']['name']} when it detects that the process has ended")


def _is_terminating(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _owns_terminal() -> bool:
    """Return whether this process group is in the foreground, so that the terminal also signals the program."""
    with contextlib.suppress(OSError, ValueError):
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    return False
